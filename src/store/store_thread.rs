//! Store thread: keeps steps and requests on disk, and posts requests one after the other with backoff.

use std::{future::pending, time::Duration};

use gaunt_schema::SanitizedText;
use gaunt_scrape::ServerAccess;
use reqwest::{Url, header::HeaderMap};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::{
    StoreStatus,
    backlog::Backlog,
    remote_write::{DEADLINE, PendingOutcome, RemoteWriteClient, StoreClient, WriteOutcome},
    store_step::StepOutput,
};

/// Backoff after the first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest backoff: a store that is back receives the backlog within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A request that is being posted: its id and length, and its answer.
type PostedRequest = (u64, u64, PendingOutcome);

/// Posts by HTTP with these credentials, which are read again when they change.
pub(crate) async fn run(
    (url, headers): (Url, HeaderMap),
    access: ServerAccess,
    backlog: Backlog,
    steps: mpsc::Receiver<StepOutput>,
    status_sender: watch::Sender<StoreStatus>,
) {
    let mut credential_tasks = JoinSet::new();
    let credentials = access.watch_credentials(&mut credential_tasks).await;
    let client = RemoteWriteClient::new(url, headers, credentials, DEADLINE);
    run_with_client(Box::new(client), backlog, steps, status_sender).await;
}

/// Runs until the sender of steps is dropped. What waits then stays in the folder.
pub(crate) async fn run_with_client(
    client: Box<dyn StoreClient>,
    backlog: Backlog,
    steps: mpsc::Receiver<StepOutput>,
    status_sender: watch::Sender<StoreStatus>,
) {
    StoreThread::new(client, backlog, FIRST_PAUSE).run(steps, status_sender).await;
}

/// State of the thread.
struct StoreThread {
    client: Box<dyn StoreClient>,
    backlog: Backlog,
    status: StoreStatus,
    failures: u32,
    first_pause: Duration,
    retry_at: Instant,
    left_out: u64,
    screen_series: usize,
}

impl StoreThread {
    fn new(client: Box<dyn StoreClient>, backlog: Backlog, first_pause: Duration) -> Self {
        let address = SanitizedText::new(&client.shown_address());
        let status = StoreStatus { address, ..StoreStatus::default() };
        Self {
            client,
            backlog,
            status,
            failures: 0,
            first_pause,
            retry_at: Instant::now(),
            left_out: 0,
            screen_series: 0,
        }
    }

    async fn run(
        mut self,
        mut steps: mpsc::Receiver<StepOutput>,
        status_sender: watch::Sender<StoreStatus>,
    ) {
        let mut posted: Option<PostedRequest> = None;
        loop {
            if posted.is_none() && Instant::now() >= self.retry_at {
                posted = self.post_oldest();
            }
            self.publish_status(&status_sender);
            let is_pausing = posted.is_none() && !self.backlog.is_empty();
            let answer = async {
                match &mut posted {
                    Some((_, _, answer)) => answer.as_mut().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                // A step comes every few seconds: it delays no outcome.
                biased;
                step = steps.recv() => match step {
                    Some(step) => self.take_step(step),
                    None => return,
                },
                outcome = answer => {
                    if let Some((id, bytes, _)) = posted.take() {
                        self.handle_outcome(id, bytes, outcome);
                    }
                }
                () = sleep_until(self.retry_at), if is_pausing => {}
            }
        }
    }

    /// Keeps a step; the last one of a window comes as requests.
    fn take_step(&mut self, step: StepOutput) {
        self.left_out += step.left_out;
        self.screen_series = step.screen_series.unwrap_or(self.screen_series);
        self.status.series = (step.series + self.screen_series) as u64;
        if let Some(record) = step.record {
            self.backlog.keep_step(record);
        }
        if !step.requests.is_empty() {
            self.backlog.push_window(step.requests);
        }
        if !step.screen_requests.is_empty() {
            self.backlog.push_requests(step.screen_requests);
        }
    }

    /// Begins to post the oldest request.
    fn post_oldest(&mut self) -> Option<PostedRequest> {
        let (id, body) = self.backlog.read_oldest()?;
        let bytes = body.len() as u64;
        match self.client.post_request(body) {
            Ok(outcome) => Some((id, bytes, outcome)),
            Err(why) => {
                self.back_off(None, &why);
                None
            }
        }
    }

    fn handle_outcome(&mut self, id: u64, bytes: u64, outcome: WriteOutcome) {
        match outcome {
            WriteOutcome::Accepted => {
                self.note_answer();
                self.status.sent_samples += self.remove_request(id);
                self.status.sent_bytes += bytes;
            }
            WriteOutcome::OtherReplica => {
                self.note_answer();
                self.status.other_replica_samples += self.remove_request(id);
            }
            WriteOutcome::Refused(code, why) => {
                // Only the first refusal of a series is logged.
                if self.status.failure.is_none() {
                    tracing::warn!(store = %self.status.address, why, "the store refuses samples");
                }
                self.failures = 0;
                self.status.failure = Some(SanitizedText::new(&why));
                let samples = self.remove_request(id);
                *self.status.refused_samples.entry(code).or_default() += samples;
            }
            WriteOutcome::Retry(pause, why) => self.back_off(pause, &why),
        }
    }

    fn remove_request(&mut self, id: u64) -> u64 {
        self.backlog.remove_request(id).map_or(0, u64::from)
    }

    /// Notes that the store answers.
    fn note_answer(&mut self) {
        if self.status.failure.take().is_some() {
            tracing::info!(store = %self.status.address, "the store accepts samples again");
        }
        self.failures = 0;
    }

    /// Waits as long as the store demands, else twice as long after each failure, with a jitter by the address.
    fn back_off(&mut self, pause: Option<Duration>, why: &str) {
        if self.failures == 0 {
            tracing::warn!(store = %self.status.address, why, "cannot write to the store");
        }
        let doubled = self.first_pause * (1 << self.failures.min(8));
        self.failures = self.failures.saturating_add(1);
        let seed =
            self.status.address.bytes().fold(self.failures, |seed, byte| {
                seed.wrapping_mul(31).wrapping_add(u32::from(byte))
            });
        let share = 0.75 + f64::from(seed % 100) / 200.0;
        let own = doubled.min(LONGEST_PAUSE).mul_f64(share);
        self.retry_at = Instant::now() + pause.unwrap_or(own);
        self.status.failed_attempts += 1;
        self.status.failure = Some(SanitizedText::new(why));
    }

    fn publish_status(&mut self, sender: &watch::Sender<StoreStatus>) {
        let loss = self.backlog.loss();
        for (reason, samples) in [
            ("backlog_full", loss.full),
            ("damaged_file", loss.damaged),
            ("over_limit", self.left_out),
        ] {
            self.status.dropped_samples.insert(reason, samples);
        }
        self.status.waiting_bytes = self.backlog.waiting_bytes();
        self.status.oldest = self.backlog.oldest_instant();
        let mut status = self.status.clone();
        if status.failure.is_none() {
            status.failure = self.backlog.failure().map(|why| SanitizedText::new(&why));
        }
        sender.send_if_modified(|shown| {
            let is_changed = *shown != status;
            *shown = status;
            is_changed
        });
    }
}

#[cfg(test)]
mod tests;
