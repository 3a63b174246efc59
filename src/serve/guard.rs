//! The guard before every route: only reading but for acts, only by names that are ours, nothing for other people's web
//! pages.
//!
//! A web page may make its reader's browser ask any address that the browser reaches, and may give its own name any
//! address (DNS rebinding). It learns nothing here: a request that names another host is turned away, one that a
//! browser says comes from another site too, and no answer allows a page of another origin to read it.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{
            ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, HOST, TRANSFER_ENCODING,
            X_CONTENT_TYPE_OPTIONS,
        },
        uri::Authority,
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use tokio::time::timeout;

use super::{act, api::busy};

/// The longest that an answer may take to begin. The owner answers in milliseconds; who waits longer asks in vain.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The names under which this aggregator may be asked, beside its addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(Arc<[String]>);

impl Names {
    /// These names, `localhost`, and that of this machine.
    pub(super) fn new(given: &[String]) -> Self {
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let own = ["localhost".to_owned(), machine];
        Self(own.iter().chain(given).map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Whether a `Host` header names us. An address is always ours: only names can be given away.
    fn knows(&self, host: &str) -> bool {
        let bare = bare(host);
        if bare.parse::<IpAddr>().is_ok() {
            return true;
        }
        let name = bare.trim_end_matches('.').to_ascii_lowercase();
        self.0.contains(&name)
    }
}

/// A host without its port and without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    if let Some(inner) = host.strip_prefix('[') {
        return inner.split(']').next().unwrap_or(inner);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// Lets a request through, or says why not.
pub(super) async fn guard(State(names): State<Names>, request: Request, next: Next) -> Response {
    let mut response = match turned_away(&names, &request) {
        Some(response) => response,
        None => timeout(ANSWER_TIMEOUT, next.run(request))
            .await
            .unwrap_or_else(|_| busy("no answer in time: gaunt is overloaded; ask again later")),
    };
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    response
}

fn turned_away(names: &Names, request: &Request) -> Option<Response> {
    let headers = request.headers();
    let acts = act::is_act(request.method(), request.uri());
    if !acts && !matches!(*request.method(), Method::GET | Method::HEAD) {
        let allowed = [(ALLOW, "GET, HEAD")];
        let why = "gaunt is only read, but for POST and DELETE at findings/ID/acknowledge and POST at \
                   probe/meeting; ask with GET\n";
        return Some((StatusCode::METHOD_NOT_ALLOWED, allowed, why).into_response());
    }
    let length = headers.get(CONTENT_LENGTH);
    let told = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let fits = length.is_none() || told.is_some_and(|told| told <= act::MAX_BODY);
    if acts && (!fits || headers.contains_key(TRANSFER_ENCODING)) {
        let why = format!("an act has at most {} bytes, and says how many\n", act::MAX_BODY);
        return Some((StatusCode::PAYLOAD_TOO_LARGE, why).into_response());
    }
    let length = length.is_some_and(|length| length != "0");
    if !acts && (length || headers.contains_key(TRANSFER_ENCODING)) {
        let why = "a question has no body; put it into the address\n";
        return Some((StatusCode::PAYLOAD_TOO_LARGE, why).into_response());
    }
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        let why = "a page of another site must not ask; open the address itself\n";
        return Some((StatusCode::FORBIDDEN, why).into_response());
    }
    let host = asked_host(request, headers);
    if host.is_none_or(|host| !names.knows(host)) {
        let host: String = host.unwrap_or("").chars().filter(char::is_ascii_graphic).collect();
        let why = format!(
            "this aggregator is not known as {host:?}; ask by its address, or name it with \
             --name or serve.names in its settings\n"
        );
        return Some((StatusCode::MISDIRECTED_REQUEST, why).into_response());
    }
    None
}

/// Whom the request is for: what its first line says wins over its header.
fn asked_host<'a>(request: &'a Request, headers: &'a HeaderMap) -> Option<&'a str> {
    let line = request.uri().authority().map(Authority::as_str);
    line.or_else(|| headers.get(HOST)?.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_and_addresses_are_known() {
        let names = Names::new(&["Gaunt.example".to_owned()]);
        for host in [
            "localhost:9771",
            "127.0.0.1:9771",
            "[::1]:9771",
            "10.0.0.5",
            "gaunt.example:9771",
            "GAUNT.example.",
        ] {
            assert!(names.knows(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:9771", "", "127.0.0.1.evil.example"] {
            assert!(!names.knows(host), "{host}");
        }
    }
}
