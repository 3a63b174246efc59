//! The HTTP connection to an aggregator: requests below the API base, their limits, and the errors.

use std::{path::Path, sync::Arc, time::Duration};

use gaunt_schema::{SanitizedText, plain_error};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde_json::error::Category;
use tokio::time::timeout;

use gaunt_api::API;
use gaunt_scrape::{
    shown_address,
    tls::{self, TlsError, TlsOptions},
};

/// Time limit of a question, connecting and reading included.
pub(super) const DEADLINE: Duration = Duration::from_secs(5);

/// The largest answer that is read, in bytes: 100,000 GPUs need less than 1 MB for the overview.
pub(super) const MAX_ANSWER: usize = 64 << 20;

/// How an aggregator is reached.
#[derive(Clone, Debug)]
pub(super) struct AggregatorConnection {
    pub(super) client: Client,
    base: Url,
    /// The address for display.
    pub(super) address: Arc<str>,
    /// The token, if this process has one.
    pub(super) token: Option<Arc<str>>,
}

/// Why an aggregator has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AggregatorError {
    /// The address is invalid.
    #[error(
        "{0:?} is not an aggregator address; use http://HOST:9771, or https://HOST behind a TLS \
         proxy"
    )]
    Address(String),
    /// A cluster cannot be joined.
    #[error("cluster {name:?}: {why}; write --aggregator NAME=URL for each cluster")]
    Cluster {
        /// Its name.
        name: SanitizedText,
        /// What is wrong.
        why: &'static str,
    },
    /// The TLS setup failed.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No answer in time, or no connection.
    #[error("aggregator {address} unreachable: {why}; {}", reaching_step(why))]
    Unreachable {
        /// Address of the aggregator.
        address: Arc<str>,
        /// The innermost reason.
        why: SanitizedText,
    },
    /// An answer with a status that the API does not use.
    #[error("aggregator {address} answered with HTTP status {status}; {}", next_step(*status))]
    Status {
        /// Address of the aggregator.
        address: Arc<str>,
        /// The HTTP status.
        status: u16,
    },
    /// The answer is invalid.
    #[error("aggregator {address} sent an invalid answer: {why}; is it gaunt of this version?")]
    Answer {
        /// Address of the aggregator.
        address: Arc<str>,
        /// The error.
        why: SanitizedText,
    },
    /// An exporter answered.
    #[error("{address} is {what}, not an aggregator; to read it, use --targets {address}")]
    Exporter {
        /// Address of the exporter.
        address: Arc<str>,
        /// What it is.
        what: &'static str,
    },
}

/// What to do about an aggregator that cannot be reached for this reason.
fn reaching_step(why: &str) -> &'static str {
    const STEPS: [(&str, &str); 4] = [
        ("signed by an untrusted CA", "name its CA with --ca-file"),
        ("for another name", "use a name that the certificate has"),
        ("does not speak TLS", "use http://"),
        (plain_error::INVALID_HTTP, "if it speaks TLS, use https://"),
    ];
    let step = STEPS.iter().find(|(cause, _)| why.contains(cause));
    step.map_or("is `gaunt serve` running there?", |(_, step)| step)
}

/// What to do about an answer with this status.
fn next_step(status: u16) -> &'static str {
    match StatusCode::from_u16(status) {
        Ok(StatusCode::MISDIRECTED_REQUEST) => {
            "use the name of its host or its IP address, or add this name to serve.names there"
        }
        Ok(StatusCode::TOO_MANY_REQUESTS) => "correct the token, or try again in a minute",
        _ => "is it gaunt of this version?",
    }
}

impl AggregatorError {
    /// Whether the aggregator may be gone: no answer, or one that broke off.
    pub(super) fn is_connection_failure(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Answer { .. })
    }

    /// The same failure of several aggregators.
    pub(super) fn at_addresses(self, addresses: &str) -> Self {
        match self {
            Self::Unreachable { why, .. } => Self::Unreachable { address: addresses.into(), why },
            other => other,
        }
    }

    /// Why the aggregator does not answer, in a few words.
    pub(super) fn connection_failure(&self) -> String {
        match self {
            Self::Unreachable { why, .. } | Self::Answer { why, .. } => why.to_string(),
            other => other.to_string(),
        }
    }
}

/// The part of an exporter's page that is searched for what it is, in bytes.
const SEARCHED: usize = 1 << 20;

impl AggregatorConnection {
    /// Parses `address`: `http://10.0.0.5:9771`, or only `10.0.0.5:9771`. With a file of CA certificates, these alone are
    /// trusted instead of the system's. A socket takes the place of TCP, in a simulation.
    pub(super) fn new(
        address: &str,
        ca_file: Option<&Path>,
        socket: Option<&Path>,
    ) -> Result<Self, AggregatorError> {
        let bad_address = || AggregatorError::Address(shown_address(address).into_owned());
        let full =
            if address.contains("://") { address.into() } else { format!("http://{address}") };
        let base = Url::parse(&full).map_err(|_| bad_address())?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(bad_address());
        }
        let encrypted = base.scheme() == "https";
        let tls = if encrypted {
            let ca_file = ca_file.map(Path::to_path_buf);
            tls::client_config(&TlsOptions { ca_file, ..TlsOptions::default() })
        } else {
            tls::plaintext_config()
        };
        let client = Client::builder()
            .connect_timeout(DEADLINE)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tls_backend_preconfigured(tls?);
        let client = match socket {
            Some(socket) => client.unix_socket(socket),
            None => client,
        };
        let client = client.build().map_err(|_| bad_address())?;
        let shown = shown_address(base.as_str());
        let display_address = shown.trim_start_matches("http://").trim_end_matches('/');
        Ok(Self { client, address: display_address.into(), base, token: None })
    }

    /// Adds the token, if there is one.
    pub(super) fn authorize_request(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// URL of a path below the API base.
    pub(super) fn api_url(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(API.split('/').skip(1)).extend(segments);
        }
        url
    }

    /// URL that an aggregator answers at once, whatever it does.
    pub(super) fn health_url(&self) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("healthz");
        }
        url
    }

    /// One GET below the API base, with escaped segments and parameters; returns the response, or an error if it is not
    /// successful.
    pub(super) async fn get(
        &self,
        segments: &[&str],
        parameters: &[(&str, String)],
    ) -> Result<Response, AggregatorError> {
        let mut url = self.api_url(segments);
        if !parameters.is_empty() {
            url.query_pairs_mut().extend_pairs(parameters);
        }
        self.send_request(self.authorize_request(self.client.get(url))).await
    }

    /// Sends a request; returns the response, or an error if it is not successful.
    pub(super) async fn send_request(
        &self,
        request: RequestBuilder,
    ) -> Result<Response, AggregatorError> {
        let result = timeout(DEADLINE, request.send()).await;
        let response =
            result.map_err(|_| self.timeout_error())?.map_err(|e| self.unreachable_error(&e))?;
        match response.status() {
            StatusCode::OK
            | StatusCode::NOT_FOUND
            | StatusCode::BAD_REQUEST
            | StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::CONFLICT => Ok(response),
            status => Err(AggregatorError::Status {
                address: self.address.clone(),
                status: status.as_u16(),
            }),
        }
    }

    /// Reads a whole response, within the time and size limits.
    pub(super) async fn read_body(
        &self,
        mut response: Response,
    ) -> Result<Vec<u8>, AggregatorError> {
        let read = async {
            let mut body = Vec::new();
            while let Some(chunk) =
                response.chunk().await.map_err(|e| self.unreachable_error(&e))?
            {
                if body.len() + chunk.len() > MAX_ANSWER {
                    return Err(self.too_large_error());
                }
                body.extend_from_slice(&chunk);
            }
            Ok(body)
        };
        timeout(DEADLINE, read).await.map_err(|_| self.timeout_error())?
    }

    pub(super) fn unreachable_error(&self, error: &reqwest::Error) -> AggregatorError {
        let cause = innermost_cause(error);
        // A server that speaks TLS answers a plaintext request with a TLS record, or closes the connection.
        let may_speak_tls = self.base.scheme() == "http"
            && matches!(cause.as_str(), plain_error::INVALID_HTTP | plain_error::CLOSED_EARLY);
        let why = if may_speak_tls {
            format!("{cause}; if it speaks TLS, use https://{}", self.address)
        } else {
            cause
        };
        AggregatorError::Unreachable { address: self.address.clone(), why: why.into() }
    }

    pub(super) fn timeout_error(&self) -> AggregatorError {
        let why = format!("no answer within {} s", DEADLINE.as_secs()).into();
        AggregatorError::Unreachable { address: self.address.clone(), why }
    }

    /// The error of an aggregator that is not alive.
    pub(super) fn silent_error(&self) -> AggregatorError {
        let why = SanitizedText::new("no answer in time");
        AggregatorError::Unreachable { address: self.address.clone(), why }
    }

    pub(super) fn too_large_error(&self) -> AggregatorError {
        self.unreadable_error(&format!("it is larger than {MAX_ANSWER} bytes"))
    }

    pub(super) fn unreadable_error(&self, why: &str) -> AggregatorError {
        AggregatorError::Answer { address: self.address.clone(), why: SanitizedText::new(why) }
    }
}

impl AggregatorConnection {
    /// The error of an answer that cannot be decoded: another server's metrics page shows what it is.
    pub(super) async fn undecodable_error(&self, error: &serde_json::Error) -> AggregatorError {
        if error.classify() != Category::Data
            && let Ok(Some(what)) = timeout(DEADLINE, self.exporter_name()).await
        {
            return AggregatorError::Exporter { address: self.address.clone(), what };
        }
        self.unreadable_error(json_problem(error))
    }

    /// What exporter the server is; none if its metrics page does not show one, or shows an aggregator.
    async fn exporter_name(&self) -> Option<&'static str> {
        let url = self.base.join("/metrics").ok()?;
        let mut response = self.client.get(url).send().await.ok()?;
        let mut page = Vec::new();
        while let Some(chunk) = response.chunk().await.ok()? {
            page.extend_from_slice(&chunk);
            if page.len() >= SEARCHED {
                break;
            }
        }
        let page = String::from_utf8_lossy(&page);
        let has_series = |name: &str| page.lines().any(|line| line.starts_with(name));
        match response.status() {
            StatusCode::OK if has_series("gaunt_build_info") => None,
            StatusCode::OK if has_series("gaunt_node_info") => Some("a gaunt-node"),
            StatusCode::OK if has_series("# TYPE ") => Some("an exporter of metrics"),
            _ => None,
        }
    }
}

/// The problem of a JSON answer in words for people: a position in the JSON does not help the user.
pub(super) fn json_problem(error: &serde_json::Error) -> &'static str {
    tracing::debug!(%error, "invalid answer");
    match error.classify() {
        Category::Io | Category::Syntax => "it is not JSON",
        Category::Eof => "it ends too early",
        Category::Data => "a value is missing or has the wrong type",
    }
}

/// The innermost cause of a connection failure, in plain words.
fn innermost_cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer within {} s", DEADLINE.as_secs());
    }
    plain_error::network(error)
}
