//! Peer client: the requests to one other aggregator, with the token.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gaunt_schema::{SanitizedText, UnixMs, plain_error};
use reqwest::{Client, RequestBuilder, StatusCode, Url, header::HeaderMap};
use serde::de::DeserializeOwned;
use tokio::{sync::watch, task::spawn_blocking};

use super::PeerError;
use gaunt_api::{
    API, PeerAction, PeerReply, PeerStatus,
    peer_exchange::{AggregatorProcess, PEER_ACTION_PATH, PEER_PATH, PEER_STATE_PATH},
};
use gaunt_engine::{MAX_PEER_SNAPSHOT, PeerSnapshot};
use gaunt_scrape::{CredentialState, HttpClient, shown_address};

/// The time for one request, the state apart: a peer on the same network answers in milliseconds.
const DEADLINE: Duration = Duration::from_secs(2);

/// The time for the state.
const STATE_DEADLINE: Duration = Duration::from_secs(10);

/// The largest other answer, in bytes: a status with a thousand alerts.
const MAX_ANSWER: usize = 1 << 20;

/// One peer.
pub(super) struct PeerClient {
    base: Url,
    address: SanitizedText,
    /// Name of the cluster here.
    cluster: SanitizedText,
    /// This process, by which it recognises itself.
    process: AggregatorProcess,
    client: HttpClient,
}

/// The base address of a peer from the settings.
pub(super) fn parse_peer_url(address: &str) -> Result<Url, PeerError> {
    let invalid = || PeerError::Address(shown_address(address).into_owned());
    let mut url = Url::parse(address).map_err(|_| invalid())?;
    let is_web = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    if !is_web || !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(invalid());
    }
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(url)
}

/// The time of the system's clock.
pub(super) fn wall_clock_now() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

impl PeerClient {
    pub(super) fn new(
        address: &str,
        credentials: watch::Receiver<CredentialState>,
        cluster: SanitizedText,
        process: AggregatorProcess,
    ) -> Result<Self, PeerError> {
        let (base, address) = (parse_peer_url(address)?, SanitizedText::new(address));
        let client = HttpClient::new(credentials, HeaderMap::new(), Some(DEADLINE));
        Ok(Self { base, address, cluster, process, client })
    }

    /// The address for display.
    pub(super) fn address(&self) -> &SanitizedText {
        &self.address
    }

    /// Asks for the status; none if this aggregator itself answers. One of another cluster is no peer.
    pub(super) async fn fetch_status(&mut self) -> Result<Option<PeerStatus>, String> {
        let request = self.build_request(PEER_PATH, Client::get)?;
        let status: PeerStatus = parse_answer(&send(request, MAX_ANSWER).await?)?;
        let AggregatorProcess { started, nonce } = self.process;
        let is_own = (status.started, status.nonce) == (started, nonce);
        if is_own && status.cluster == self.cluster {
            return Ok(None);
        }
        if status.cluster != self.cluster {
            return Err(format!(
                "its cluster is {:?}, here it is {:?}; set cluster.name alike, or remove it from \
                 serve.peers.urls",
                status.cluster.as_str(),
                self.cluster.as_str()
            ));
        }
        Ok(Some(status))
    }

    /// Asks for findings, actions and baselines.
    pub(super) async fn fetch_snapshot(&mut self) -> Result<PeerSnapshot, String> {
        let request = self.build_request(PEER_STATE_PATH, Client::get)?;
        let body = send(request.timeout(STATE_DEADLINE), MAX_PEER_SNAPSHOT).await?;
        let unpacked = spawn_blocking(move || PeerSnapshot::unpack(&body)).await;
        unpacked.unwrap_or_else(|_| Err("its state cannot be read; see the log".to_owned()))
    }

    /// Passes on an action.
    pub(super) async fn post_action(&mut self, action: &PeerAction) -> Result<PeerReply, String> {
        let request =
            self.build_request(PEER_ACTION_PATH, |client, url| client.post(url).json(action))?;
        parse_answer(&send(request, MAX_ANSWER).await?)
    }

    fn build_request(
        &mut self,
        path: &str,
        build: impl FnOnce(&Client, Url) -> RequestBuilder,
    ) -> Result<RequestBuilder, String> {
        let below = format!("{}/{path}", API.trim_start_matches('/'));
        let url = self.base.join(&below).map_err(|_| format!("{below} does not fit its URL"))?;
        Ok(build(self.client.current()?, url))
    }
}

/// Sends a request and reads its whole answer, up to a limit.
async fn send(request: RequestBuilder, limit: usize) -> Result<Vec<u8>, String> {
    let mut response = request.send().await.map_err(|error| failure_reason(&error))?;
    let status = response.status();
    if status != StatusCode::OK {
        let next = match status {
            StatusCode::UNAUTHORIZED => "use the same token in serve.token_file on both",
            StatusCode::FORBIDDEN => "set serve.token_file there",
            StatusCode::NOT_FOUND => "is it gaunt of this version?",
            StatusCode::MISDIRECTED_REQUEST => "add the name in this address to serve.names there",
            _ => "see its log",
        };
        return Err(format!("HTTP status {}; {next}", status.as_u16()));
    }
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| failure_reason(&error))? {
        if body.len() + part.len() > limit {
            return Err(format!("its answer is larger than {limit} bytes"));
        }
        body.extend_from_slice(&part);
    }
    Ok(body)
}

fn parse_answer<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| {
        format!("invalid answer: {}; is it gaunt of this version?", plain_error::json(&error))
    })
}

/// The innermost cause of a failure, with the next step.
fn failure_reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time; is the host up?".to_owned();
    }
    format!("{}; is `gaunt serve` running there?", plain_error::network(error))
}
