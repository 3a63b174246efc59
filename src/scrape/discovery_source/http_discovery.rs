//! HTTP discovery: targets from an HTTP server, with the protocol of Prometheus's HTTP discovery.

use std::{sync::Arc, time::Duration};

use gaunt_schema::SanitizedText;
use hyper::{
    Uri,
    header::{HeaderName, HeaderValue},
};
use tokio::task::JoinSet;

use super::{
    DiscoveredTargets, DiscoveryError, GroupDefaults,
    prometheus_targets::{self, TargetListContext, TargetListNotation},
};
use crate::{
    address_policy::AddressPolicy,
    endpoint::{Endpoint, EndpointNamedBy, UrlScheme, check_path, parse_address},
    fetch::{FetchContext, RequestOptions, TargetClient},
    network::Network,
    quotas::ScrapeQuotas,
    server_access::ServerAccess,
};

/// The timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The largest response, in bytes, as for files.
const MAX_BODY: usize = 8 << 20;

/// Sends the refresh interval to the server.
const REFRESH: HeaderName = HeaderName::from_static("x-prometheus-refresh-interval-seconds");

/// An HTTP discovery server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpDiscovery {
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// The time between two requests.
    pub refresh: Duration,
    /// Transport and credentials for the server; it never receives the credentials of the targets.
    pub access: ServerAccess,
}

/// An error in the URL of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is not a server URL: {why}")]
pub struct ServerUrlError {
    url: String,
    why: String,
}

/// Parses an `http://` or `https://` URL.
pub fn parse_url(url: &str) -> Result<Endpoint, ServerUrlError> {
    let url_error = |why: &str| ServerUrlError { url: url.to_owned(), why: why.to_owned() };
    let uri: Uri = url.parse().map_err(|_| url_error("write http://HOST:PORT/PATH"))?;
    let scheme = uri.scheme_str().and_then(UrlScheme::parse_scheme);
    let scheme = scheme.ok_or_else(|| url_error("it must begin with http:// or https://"))?;
    let authority = uri.authority().ok_or_else(|| url_error("it has no host"))?.as_str();
    if authority.contains('@') {
        return Err(ServerUrlError {
            url: "(not shown)".to_owned(),
            why: "it contains a password; put the password into a file and set password_file"
                .to_owned(),
        });
    }
    let default_port = if scheme == UrlScheme::Https { 443 } else { 80 };
    let (host, port) = parse_address(authority, default_port).map_err(|why| url_error(&why))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    check_path(&path).map_err(|why| url_error(&why))?;
    let (node, origin, named_by) = (None, SanitizedText::new("http_sd"), EndpointNamedBy::Operator);
    Ok(Endpoint { scheme, host, port, path, node, origin, named_by })
}

impl HttpDiscovery {
    /// Opens a client for the server.
    pub(super) async fn open_client(
        &self,
        address_policy: Arc<AddressPolicy>,
        tasks: &mut JoinSet<()>,
    ) -> TargetClient {
        let credentials = self.access.clone().watch_credentials(tasks).await;
        let seconds = self.refresh.as_secs().max(1);
        let options = RequestOptions {
            accept: "application/json",
            compress: true,
            extra: Some((REFRESH, HeaderValue::from(seconds))),
            requests_ras: false,
        };
        TargetClient::new(self.endpoint.clone(), address_policy, credentials, options)
    }

    /// Requests the list once.
    pub(super) async fn fetch_targets(
        &self,
        client: &mut TargetClient,
        common: &GroupDefaults,
        network: Option<Arc<dyn Network>>,
    ) -> Result<DiscoveredTargets, DiscoveryError> {
        let what = self.endpoint.to_string();
        let rules = FetchContext::new(TIMEOUT, MAX_BODY, &ScrapeQuotas::default());
        let rules = rules.with_network(network);
        let body = client.fetch_body(&rules).await;
        let body = body.map_err(|failure| DiscoveryError::Read {
            what: what.clone(),
            why: failure.to_string(),
        })?;
        let content_error = |why: String| DiscoveryError::Content { what: what.clone(), why };
        let media_type = body.content_type().split(';').next().unwrap_or_default().trim();
        if media_type != "application/json" {
            return Err(content_error(format!(
                "its content type is {:?}, not application/json",
                body.content_type()
            )));
        }
        let text = std::str::from_utf8(body.decoded_bytes())
            .map_err(|_| content_error("its response is not UTF-8".to_owned()))?;
        let origin = SanitizedText::new(&what);
        let context =
            TargetListContext { common, origin: &origin, named_by: EndpointNamedBy::Network };
        prometheus_targets::parse_targets(text, TargetListNotation::Json, context)
            .map_err(content_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_parsed_or_refused_without_showing_its_password() {
        let endpoint = parse_url("https://sd.example/targets?x=1").unwrap();
        assert_eq!((endpoint.scheme, endpoint.port), (UrlScheme::Https, 443));
        assert_eq!(endpoint.to_string(), "https://sd.example:443/targets?x=1");
        assert_eq!(parse_url("http://[::1]:8080").unwrap().to_url(), "http://[::1]:8080/");
        for wrong in [
            "sd.example",
            "/targets",
            "ftp://a/",
            "http://",
            "http://a:99999/",
            "file:///etc/passwd",
        ] {
            parse_url(wrong).unwrap_err();
        }
        let error = parse_url("http://user:hunter2@sd.example/").unwrap_err().to_string();
        assert!(error.contains("password_file") && !error.contains("hunter2"), "{error}");
    }
}
