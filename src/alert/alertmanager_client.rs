//! Alertmanager client: posts changes, repeats open alerts, backs off after failures, and reads the state back.

use std::time::Duration;

use gaunt_schema::{SanitizedText, plain_error};
use reqwest::{Method, RequestBuilder, Url, header::HeaderMap};
use serde::de::DeserializeOwned;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use super::{AlertError, AlertSnapshot, alertmanager_api};
use gaunt_api::{AlertLine, AlertServer};
use gaunt_scrape::{CredentialState, HttpClient, shown_address};

/// The time for one request.
const DEADLINE: Duration = Duration::from_secs(5);

/// The largest answer that is read, in bytes: some thousand alerts.
const MAX_ANSWER: usize = 8 << 20;

/// Interval at which silences and states are read.
const LOOK: Duration = Duration::from_secs(10);

/// Backoff after the first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest backoff: an Alertmanager that recovers receives the alerts within this time.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// An Alertmanager resolves an alert after this many missed repetitions, as with Prometheus.
const PATIENCE: u32 = 4;

/// One Alertmanager.
pub(super) struct AlertmanagerClient {
    client: HttpClient,
    base: Url,
    repeat_interval: Duration,
    state: AlertServer,
    failures: u32,
}

/// Parses the base address from the settings.
pub(super) fn parse_base_url(address: &str) -> Result<Url, AlertError> {
    let address_error = || AlertError::Address(shown_address(address).into_owned());
    let mut url = Url::parse(address).map_err(|_| address_error())?;
    let is_web = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    if !is_web || !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(address_error());
    }
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(url)
}

impl AlertmanagerClient {
    pub(super) fn new(
        address: &str,
        repeat_interval: Duration,
        credentials: watch::Receiver<CredentialState>,
    ) -> Result<Self, AlertError> {
        let state = AlertServer { address: SanitizedText::new(address), ..AlertServer::default() };
        Ok(Self {
            client: HttpClient::new(credentials, HeaderMap::new(), Some(DEADLINE)),
            base: parse_base_url(address)?,
            repeat_interval,
            state,
            failures: 0,
        })
    }

    /// Posts and reads until the sender of alerts is dropped.
    pub(super) async fn run(
        mut self,
        mut snapshots: watch::Receiver<AlertSnapshot>,
        state_sender: watch::Sender<(AlertServer, Vec<AlertLine>)>,
    ) {
        let (mut post_at, mut read_at) = (Instant::now(), Instant::now());
        let mut lines = Vec::new();
        state_sender.send_replace((self.state.clone(), Vec::new()));
        loop {
            tokio::select! {
                change = snapshots.changed() => match change {
                    // Changes are posted at once, unless the server is in backoff.
                    Ok(()) if self.failures == 0 => post_at = Instant::now(),
                    Ok(()) => {}
                    Err(_) => return,
                },
                () = sleep_until(post_at.min(read_at)) => {}
            }
            let now = Instant::now();
            if now >= post_at {
                let snapshot = snapshots.borrow_and_update().clone();
                post_at = now + self.post_alerts(&snapshot).await;
                // The result of a post is read soon, to show whether receivers are notified.
                read_at = read_at.min(now + Duration::from_secs(1));
            }
            if now >= read_at {
                read_at = now + LOOK;
                if self.failures == 0 {
                    match self.fetch_alerts().await {
                        Ok(read) => lines = read,
                        Err(why) => {
                            tracing::debug!(server = %self.state.address, why, "cannot read alerts");
                        }
                    }
                }
            }
            state_sender.send_replace((self.state.clone(), lines.clone()));
        }
    }

    /// Posts all alerts once; returns the wait until the next time.
    async fn post_alerts(&mut self, snapshot: &AlertSnapshot) -> Duration {
        let posts = alertmanager_api::AlertPost::from_snapshot(
            snapshot,
            snapshot.at + self.repeat_interval * PATIENCE,
        );
        if posts.is_empty() {
            return self.repeat_interval;
        }
        match self.send_posts(&posts).await {
            Ok(()) => {
                if self.failures > 0 {
                    tracing::info!(server = %self.state.address, "Alertmanager accepts findings again");
                }
                self.state.posted += posts.len() as u64;
                (self.failures, self.state.failure) = (0, None);
                self.repeat_interval
            }
            Err(why) => {
                // Only the first failure of a series is logged.
                if self.failures == 0 {
                    tracing::warn!(server = %self.state.address, why, "cannot post findings");
                }
                self.failures = self.failures.saturating_add(1);
                self.state.failed += 1;
                self.state.failure = Some(SanitizedText::new(&why));
                self.retry_pause()
            }
        }
    }

    /// Backoff after a failure, with a jitter of up to a quarter by the server's address, so that two aggregators and
    /// several servers do not retry at once.
    fn retry_pause(&self) -> Duration {
        let doubled = FIRST_PAUSE * (1 << (self.failures - 1).min(6));
        let seed =
            self.state.address.bytes().fold(self.failures, |seed, byte| {
                seed.wrapping_mul(31).wrapping_add(u32::from(byte))
            });
        let share = 0.75 + f64::from(seed % 100) / 200.0;
        doubled.min(LONGEST_PAUSE).mul_f64(share)
    }

    async fn send_posts(
        &mut self,
        posts: &[alertmanager_api::AlertPost<'_>],
    ) -> Result<(), String> {
        let request = self.build_request(Method::POST, "api/v2/alerts")?.json(posts);
        let response = request.send().await.map_err(|error| failure_reason(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let body = read_body(response).await.unwrap_or_default();
        let body = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        Err(format!("HTTP status {}: {body}; is it an Alertmanager?", status.as_u16()))
    }

    /// Fetches the alerts of findings, with their silences.
    async fn fetch_alerts(&mut self) -> Result<Vec<AlertLine>, String> {
        let filter = "api/v2/alerts?filter=layer%3D%22finding%22";
        let shown = self.get(filter).await?;
        let silences: Vec<alertmanager_api::ShownSilence> = self.get("api/v2/silences").await?;
        Ok(alertmanager_api::alert_lines(shown, &silences))
    }

    async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, String> {
        let response = self.build_request(Method::GET, path)?.send().await;
        let response = response.map_err(|error| failure_reason(&error))?;
        if !response.status().is_success() {
            return Err(format!("HTTP status {}", response.status().as_u16()));
        }
        let body = timeout(DEADLINE, read_body(response)).await;
        let body = body.map_err(|_| "timed out reading the response".to_owned())??;
        serde_json::from_slice(&body).map_err(|error| {
            let why = plain_error::json(&error);
            format!("invalid response: {why}; is it an Alertmanager?")
        })
    }

    fn build_request(&mut self, method: Method, path: &str) -> Result<RequestBuilder, String> {
        let url =
            self.base.join(path).map_err(|_| format!("{path} cannot be appended to its URL"))?;
        Ok(self.client.current()?.request(method, url))
    }
}

/// Reads the body of a response, up to its limit.
async fn read_body(mut response: reqwest::Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| failure_reason(&error))? {
        if body.len() + part.len() > MAX_ANSWER {
            return Err(format!("the response is larger than {MAX_ANSWER} bytes"));
        }
        body.extend_from_slice(&part);
    }
    Ok(body)
}

/// The innermost cause of a failure, with the next step.
fn failure_reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no response within {DEADLINE:?}; is it overloaded?");
    }
    format!("{}; is Alertmanager running there?", plain_error::network(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_url_must_be_that_of_a_web_server() {
        assert_eq!(
            parse_base_url("http://10.0.0.5:9093").unwrap().as_str(),
            "http://10.0.0.5:9093/"
        );
        let below = parse_base_url("http://proxy/alerts").unwrap();
        assert_eq!(
            below.join("api/v2/alerts").unwrap().as_str(),
            "http://proxy/alerts/api/v2/alerts"
        );
        assert_eq!(parse_base_url("https://a").unwrap().as_str(), "https://a/");
        for wrong in ["10.0.0.5:9093", "ftp://a", "http://u:p@a", "http://a?b=c", "", "file:///x"] {
            assert!(matches!(parse_base_url(wrong), Err(AlertError::Address(_))), "{wrong:?}");
        }
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let (_, credentials) = watch::channel(Err(SanitizedText::default()));
        let mut client =
            AlertmanagerClient::new("http://127.0.0.1:1", Duration::from_mins(1), credentials)
                .unwrap();
        let mut pauses = Vec::new();
        for failures in 1..=12 {
            client.failures = failures;
            pauses.push(client.retry_pause());
        }
        assert!(pauses[0] >= FIRST_PAUSE.mul_f64(0.75) && pauses[0] <= FIRST_PAUSE.mul_f64(1.25));
        assert!(pauses[4] > pauses[1] * 3);
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_PAUSE.mul_f64(1.25)), "{pauses:?}");
    }
}
