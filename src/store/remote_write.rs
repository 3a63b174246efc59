//! Remote write client: posts one request, and what its answer means.

use std::{pin::Pin, time::Duration};

use gaunt_schema::plain_error;
use gaunt_scrape::{CredentialState, HttpClient, shown_address};
use reqwest::{
    Client, StatusCode, Url,
    header::{
        CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
    },
};
use tokio::sync::watch;

use crate::StoreError;

/// The time for one request with its answer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The longest pause that an answer may demand.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// Bytes of an answer that are read: its first line says what is wrong.
const MAX_ANSWER: usize = 4 << 10;

/// Characters of an answer that are shown.
const MAX_SHOWN: usize = 200;

/// What the answer to a request means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The store has it.
    Accepted,
    /// Another replica of a pair writes at present; the store does not keep ours.
    OtherReplica,
    /// The store will never take it: status, and why.
    Refused(u16, String),
    /// It is to be sent again: the pause that the store demands, if any, and why.
    Retry(Option<Duration>, String),
}

/// The outcome of a request, once it is known.
pub type PendingOutcome = Pin<Box<dyn Future<Output = WriteOutcome> + Send>>;

/// Posts requests to a store.
pub trait StoreClient: Send {
    /// The address of the store for display.
    fn shown_address(&self) -> String;

    /// Begins to post a request, or says why it cannot be sent now.
    fn post_request(&mut self, body: Vec<u8>) -> Result<PendingOutcome, String>;
}

/// Posts requests to one store.
pub(crate) struct RemoteWriteClient {
    url: Url,
    deadline: Duration,
    client: HttpClient,
}

/// The header that names the tenant.
pub(crate) fn tenant_headers(tenant: Option<&(String, String)>) -> Result<HeaderMap, StoreError> {
    let Some((header, value)) = tenant else { return Ok(HeaderMap::new()) };
    let parts = HeaderName::try_from(header).ok().zip(HeaderValue::try_from(value).ok());
    let invalid = || StoreError::Tenant { header: header.clone(), value: value.clone() };
    Ok([parts.ok_or_else(invalid)?].into_iter().collect())
}

/// Checks the address of a store.
pub fn check_store_url(address: &str) -> Result<(), StoreError> {
    parse_store_url(address).map(drop)
}

/// Parses the address of the store.
pub(crate) fn parse_store_url(address: &str) -> Result<Url, StoreError> {
    let url = Url::parse(address).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.host_str().is_some()
            && url.username().is_empty()
            && url.password().is_none()
    });
    url.ok_or_else(|| StoreError::Address(shown_address(address).into_owned()))
}

/// The address below which the query API of a store is that is written to at `address`, where its path tells: Prometheus,
/// VictoriaMetrics or Mimir. None for others, such as Thanos, whose receivers answer no queries.
pub fn derive_query_url(address: &str) -> Option<String> {
    let mut url = parse_store_url(address).ok()?;
    let path = url.path().trim_end_matches('/');
    let base = match (path.strip_suffix("/api/v1/write"), path.strip_suffix("/api/v1/push")) {
        // A cluster of VictoriaMetrics is queried at another port.
        (Some(base), _) if base.contains("/insert/") => return None,
        (Some(base), _) => base.to_owned(),
        (None, Some(base)) => format!("{base}/prometheus"),
        (None, None) => return None,
    };
    url.set_path(&base);
    url.set_query(None);
    url.set_fragment(None);
    Some(url.as_str().trim_end_matches('/').to_owned())
}

impl RemoteWriteClient {
    pub(crate) fn new(
        url: Url,
        headers: HeaderMap,
        credentials: watch::Receiver<CredentialState>,
        deadline: Duration,
    ) -> Self {
        Self { url, deadline, client: HttpClient::new(credentials, headers, Some(deadline)) }
    }
}

impl StoreClient for RemoteWriteClient {
    fn shown_address(&self) -> String {
        let mut shown = self.url.clone();
        // Parameters may hold a tenant's token.
        shown.set_query(None);
        shown.into()
    }

    fn post_request(&mut self, body: Vec<u8>) -> Result<PendingOutcome, String> {
        // New credentials require new connections.
        let client = self.client.current()?.clone();
        Ok(Box::pin(send_request((client, self.url.clone()), self.deadline, body)))
    }
}

/// Posts one request.
async fn send_request(
    (client, url): (Client, Url),
    deadline: Duration,
    body: Vec<u8>,
) -> WriteOutcome {
    let request = client
        .post(url)
        .header(CONTENT_TYPE, "application/x-protobuf")
        .header(CONTENT_ENCODING, "snappy")
        .header("X-Prometheus-Remote-Write-Version", "0.1.0")
        .header(USER_AGENT, concat!("gaunt/", env!("CARGO_PKG_VERSION")))
        .body(body);
    match request.send().await {
        Ok(response) => {
            let (status, pause) = (response.status(), retry_after(response.headers()));
            let text = if status.is_success() { String::new() } else { first_line(response).await };
            classify_answer(status, pause, &text)
        }
        Err(error) if error.is_timeout() => WriteOutcome::Retry(
            None,
            format!("no answer within {deadline:?}; is the store overloaded?"),
        ),
        Err(error) => WriteOutcome::Retry(
            None,
            format!("{}; is the store running there?", plain_error::network(&error)),
        ),
    }
}

/// What a status means. A body of version 1.0 is taken with any 2xx; 202 says that another replica was elected.
fn classify_answer(status: StatusCode, pause: Option<Duration>, text: &str) -> WriteOutcome {
    let why = |next: &str| {
        let text = if text.is_empty() { String::new() } else { format!(": {text}") };
        format!("HTTP status {}{text}; {next}", status.as_u16())
    };
    match status.as_u16() {
        202 => WriteOutcome::OtherReplica,
        200..300 => WriteOutcome::Accepted,
        300..400 => WriteOutcome::Retry(None, why("set store.url to the address it redirects to")),
        401 | 403 => {
            WriteOutcome::Refused(status.as_u16(), why("check the credentials in [store]"))
        }
        404 | 405 => WriteOutcome::Refused(status.as_u16(), why("check the path in store.url")),
        413 => WriteOutcome::Refused(413, why("raise the body limit of the store or its proxy")),
        429 => WriteOutcome::Retry(pause, why("raise the limits of the store")),
        400..500 => WriteOutcome::Refused(status.as_u16(), why("these samples are not sent again")),
        _ => WriteOutcome::Retry(pause, why("check the store's log")),
    }
}

/// The pause that an answer demands, within its limit; a date is not a pause.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

/// The first line of an answer; what cannot be read is left out.
async fn first_line(mut response: reqwest::Response) -> String {
    let mut body = Vec::new();
    while body.len() < MAX_ANSWER {
        let Ok(Some(part)) = response.chunk().await else { break };
        body.extend_from_slice(&part);
    }
    let text = String::from_utf8_lossy(&body);
    text.lines().next().unwrap_or_default().chars().take(MAX_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_address_follows_from_the_path_that_is_written_to() {
        for (written, queried) in [
            ("http://a:9090/api/v1/write", Some("http://a:9090")),
            ("https://a/prom/api/v1/write?x=1", Some("https://a/prom")),
            ("http://vminsert:8480/insert/0/prometheus/api/v1/write", None),
            ("https://mimir/api/v1/push", Some("https://mimir/prometheus")),
            ("http://a:19291/api/v1/receive", None),
            ("a", None),
        ] {
            assert_eq!(derive_query_url(written).as_deref(), queried, "{written}");
        }
    }

    #[test]
    fn every_class_of_answer_has_its_meaning() {
        let outcome = |status: u16, pause: Option<u64>| {
            let status = StatusCode::from_u16(status).unwrap();
            classify_answer(status, pause.map(Duration::from_secs), "too old")
        };
        for status in [200, 204, 299] {
            assert_eq!(outcome(status, None), WriteOutcome::Accepted, "{status}");
        }
        assert_eq!(outcome(202, None), WriteOutcome::OtherReplica);
        for status in [400, 401, 403, 404, 413, 415, 422, 499] {
            let WriteOutcome::Refused(code, why) = outcome(status, None) else {
                panic!("{status} must be refused");
            };
            assert_eq!(code, status);
            assert!(why.contains("too old; "), "{why}");
        }
        for status in [301, 308, 429, 500, 502, 503, 504, 599] {
            assert!(matches!(outcome(status, None), WriteOutcome::Retry(None, _)), "{status}");
        }
        for status in [429, 503] {
            let WriteOutcome::Retry(pause, _) = outcome(status, Some(7)) else {
                panic!("{status} must be sent again");
            };
            assert_eq!(pause, Some(Duration::from_secs(7)), "{status}");
        }
    }

    #[test]
    fn pause_of_an_answer_is_bounded_and_a_date_is_none() {
        for (text, pause) in [
            ("7", Some(Duration::from_secs(7))),
            ("86400", Some(MAX_RETRY_AFTER)),
            ("Wed, 21 Oct 2026 07:28:00 GMT", None),
            ("-1", None),
        ] {
            let headers = [(RETRY_AFTER, text.parse().unwrap())].into_iter().collect();
            assert_eq!(retry_after(&headers), pause, "{text}");
        }
    }

    #[test]
    fn address_must_be_that_of_a_web_server_without_password() {
        for valid in ["http://a:9090/api/v1/write", "https://mimir/api/v1/push?tenant=a"] {
            assert_eq!(parse_store_url(valid).unwrap().as_str(), valid);
        }
        for invalid in ["a:9090", "ftp://a", "http://u:p@a/write", "", "file:///x"] {
            assert!(matches!(parse_store_url(invalid), Err(StoreError::Address(_))), "{invalid}");
        }
    }
}
