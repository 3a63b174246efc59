//! Peers: the other aggregators of the cluster. All are equal, and each judges alone.
//!
//! An action of a user is passed on to each peer until it has it. An aggregator that starts asks them for findings,
//! actions and baselines. Each peer has its own task, so that one that does not answer delays nothing.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use gaunt_schema::{SanitizedText, UnixMs};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use gaunt_api::{
    PeerAction, PeerLine, PeerState,
    peer_exchange::{AggregatorProcess, PeerAlertSet},
};
use gaunt_engine::{EngineHandle, PeerSnapshot};
use gaunt_scrape::ServerAccess;

pub mod action_queue;
mod peer_client;

use action_queue::ActionQueue;
use peer_client::PeerClient;

/// The most peers.
pub const MAX_PEERS: usize = 8;

/// The time between two requests for the status of a peer.
const STATUS_EVERY: Duration = Duration::from_secs(5);

/// The first pause after a failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause: a peer that is back has all actions within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long a start waits for a peer to answer at all.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// How long it waits for the state of one that answers: with 100,000 GPUs a judgement and 60 MB of JSON come first.
const STATE_WITHIN: Duration = Duration::from_secs(10);

/// The other aggregators, and how they are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerOptions {
    /// Their addresses, such as `https://10.0.0.6:9771`.
    pub urls: Vec<String>,
    /// TLS and the token.
    pub access: ServerAccess,
    /// Name of the cluster: that of peers is the same.
    pub cluster: SanitizedText,
}

/// The peers as last seen.
#[derive(Clone, Debug, Default)]
pub struct PeerView {
    /// The state of each.
    pub lines: Vec<PeerLine>,
    /// The alerts that they post.
    pub posted: PeerAlertSet,
}

/// Why peers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// An address is invalid.
    #[error(
        "{0:?} is not an aggregator; write http://HOST:9771 or https://HOST in serve.peers.urls"
    )]
    Address(String),
    /// There are too many.
    #[error("{0} aggregators in serve.peers.urls; at most {MAX_PEERS} are allowed")]
    TooMany(usize),
    /// Without a token, no aggregator accepts an action.
    #[error("serve.peers needs serve.token_file, with the same token on all aggregators")]
    NoToken,
}

/// Checks the addresses before anything is started.
pub fn check_peers(urls: &[String]) -> Result<(), PeerError> {
    if urls.len() > MAX_PEERS {
        return Err(PeerError::TooMany(urls.len()));
    }
    urls.iter().try_for_each(|url| peer_client::parse_peer_url(url).map(drop))
}

/// Clients of all peers, before the engine starts.
pub struct PeerGroup {
    clients: Vec<PeerClient>,
    tasks: JoinSet<()>,
}

impl PeerGroup {
    /// Reads the credentials. `process` is that of this aggregator.
    pub async fn open(
        options: &PeerOptions,
        process: AggregatorProcess,
    ) -> Result<Self, PeerError> {
        check_peers(&options.urls)?;
        let mut tasks = JoinSet::new();
        let credentials = options.access.clone().watch_credentials(&mut tasks).await;
        let clients = options
            .urls
            .iter()
            .map(|url| PeerClient::new(url, credentials.clone(), options.cluster.clone(), process));
        Ok(Self { clients: clients.collect::<Result<_, _>>()?, tasks })
    }

    /// The state of a peer that answers; none if none does within a second. Failures are logged.
    pub async fn fetch_snapshot(&mut self) -> Option<PeerSnapshot> {
        let mut asked = JoinSet::new();
        for (position, mut client) in std::mem::take(&mut self.clients).into_iter().enumerate() {
            asked.spawn(async move {
                let answer = timeout(ANSWER_WITHIN, client.fetch_status()).await;
                let answer =
                    answer.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_WITHIN:?}")));
                (position, client, answer)
            });
        }
        let mut answers = asked.join_all().await;
        answers.sort_by_key(|(position, ..)| *position);
        let mut snapshot = None;
        for (_, mut client, answer) in answers {
            let fetched = match answer {
                Ok(None) => Ok(None),
                Ok(Some(_)) if snapshot.is_some() => Ok(None),
                Ok(Some(_)) => timeout(STATE_WITHIN, client.fetch_snapshot())
                    .await
                    .unwrap_or_else(|_| Err(format!("no state within {STATE_WITHIN:?}")))
                    .map(Some),
                Err(why) => Err(why),
            };
            match fetched {
                Ok(Some(fetched)) => snapshot = Some((client.address().clone(), fetched)),
                Ok(None) => {}
                Err(why) => tracing::warn!(peer = %client.address(), why, "no state from a peer"),
            }
            self.clients.push(client);
        }
        let (address, snapshot) = snapshot?;
        tracing::debug!(peer = %address, "received the state of a peer");
        Some(snapshot)
    }

    /// Starts to pass on the actions of this engine; the state of the peers is sent to `view`.
    pub fn start_passing(
        mut self,
        engine: &EngineHandle,
        view: watch::Sender<PeerView>,
    ) -> JoinSet<()> {
        let mut receivers = Vec::new();
        for client in self.clients {
            let line = PeerLine { address: client.address().clone(), ..PeerLine::default() };
            let (sender, receiver) = watch::channel(Some((line.clone(), PeerAlertSet::default())));
            receivers.push(receiver);
            let task = PeerTask {
                client,
                queue: ActionQueue::default(),
                line,
                posted: PeerAlertSet::default(),
                failures: 0,
                retry_at: Instant::now(),
                began: Instant::now(),
            };
            self.tasks.spawn(task.run(engine.clone(), sender));
        }
        self.tasks.spawn(join_views(receivers, view));
        self.tasks
    }
}

/// What is known of a peer; none of this aggregator itself.
type PeerObservation = Option<(PeerLine, PeerAlertSet)>;

/// Joins the lines and the alerts of all peers.
async fn join_views(
    mut receivers: Vec<watch::Receiver<PeerObservation>>,
    sender: watch::Sender<PeerView>,
) {
    loop {
        let (mut lines, mut names) = (Vec::new(), BTreeSet::new());
        let mut asked_at = PeerAlertSet::without_peers().asked_at;
        receivers.retain_mut(|receiver| {
            let Some((line, alerts)) = receiver.borrow_and_update().clone() else { return false };
            lines.push(line);
            names.extend(alerts.names.iter().cloned());
            asked_at = asked_at.min(alerts.asked_at);
            true
        });
        let posted = PeerAlertSet { names: Arc::new(names), asked_at };
        sender.send_replace(PeerView { lines, posted });
        let mut changes = JoinSet::new();
        for receiver in &receivers {
            let mut receiver = receiver.clone();
            changes.spawn(async move { receiver.changed().await.is_ok() });
        }
        if changes.join_next().await.is_none_or(|changed| !changed.unwrap_or(false)) {
            return;
        }
    }
}

/// The task of one peer.
struct PeerTask {
    client: PeerClient,
    queue: ActionQueue,
    line: PeerLine,
    posted: PeerAlertSet,
    failures: u32,
    retry_at: Instant,
    began: Instant,
}

impl PeerTask {
    /// Passes on actions and asks for the status until the engine ends.
    async fn run(mut self, engine: EngineHandle, sender: watch::Sender<PeerObservation>) {
        let mut actions: Arc<[PeerAction]> = Arc::default();
        let mut status_at = Instant::now();
        loop {
            let due =
                self.queue.next_due().map_or(status_at, |due| status_at.min(self.began + due));
            tokio::select! {
                changed = engine.next_peer_actions(&actions) => match changed {
                    Ok(changed) => {
                        self.queue.update_actions(&changed);
                        actions = changed;
                    }
                    Err(_) => return,
                },
                () = sleep_until(due.max(self.retry_at)) => {}
            }
            if Instant::now() >= self.retry_at && self.pass_due_actions().await {
                // What it took changes what it posts.
                status_at = Instant::now();
            }
            if Instant::now() >= status_at.max(self.retry_at) {
                // By the clock that says when an alert ended: the wall clock may be set meanwhile.
                let Ok(asked_at) = engine.wait_for_tick(UnixMs(i64::MIN)).await else { return };
                let status = self.client.fetch_status().await;
                if matches!(&status, Ok(None)) {
                    // One file of settings, that names all aggregators, is right for each of them.
                    sender.send_replace(None);
                    return;
                }
                if let Ok(Some(status)) = &status {
                    self.queue.note_start(status.started);
                    let names = Arc::new(status.posted.iter().cloned().collect());
                    self.posted = PeerAlertSet { names, asked_at };
                }
                self.note_answer(status.map(drop));
                status_at = Instant::now() + STATUS_EVERY;
            }
            self.line.waiting_actions = self.queue.waiting_count() as u32;
            let view = Some((self.line.clone(), self.posted.clone()));
            sender.send_if_modified(|shown| std::mem::replace(shown, view.clone()) != view);
        }
    }

    /// Posts the actions that are due, one after the other, until one fails. Returns whether the peer took any.
    async fn pass_due_actions(&mut self) -> bool {
        let passed_before = self.line.passed_actions;
        while let Some(action) = self.queue.next_action(self.began.elapsed()) {
            let reply = self.client.post_action(&action).await;
            if let Ok(reply) = &reply {
                let before = self.queue.waiting_count();
                self.queue.record_reply(&action, *reply, self.began.elapsed());
                self.line.passed_actions += u64::from(self.queue.waiting_count() < before);
            }
            if !self.note_answer(reply.map(drop)) {
                break;
            }
        }
        self.line.passed_actions > passed_before
    }

    /// Notes whether the peer answered; after a failure it is asked again after a pause.
    fn note_answer(&mut self, answer: Result<(), String>) -> bool {
        match answer {
            Ok(()) => {
                if self.failures > 0 {
                    tracing::info!(peer = %self.line.address, "the peer answers again");
                }
                self.failures = 0;
                self.line.state = PeerState::Live;
                self.line.last_success = Some(peer_client::wall_clock_now());
                self.line.failure = None;
                true
            }
            Err(why) => {
                // Only the first failure of a series is logged.
                if self.failures == 0 {
                    tracing::warn!(peer = %self.line.address, why, "a peer does not answer");
                }
                let pause = FIRST_PAUSE * (1 << self.failures.min(6));
                self.failures = self.failures.saturating_add(1);
                self.retry_at = Instant::now() + pause.min(LONGEST_PAUSE);
                self.line.state = PeerState::Down;
                // It may go on posting what it posted, and more.
                self.posted.asked_at = UnixMs::default();
                self.line.failure = Some(SanitizedText::new(&why));
                false
            }
        }
    }
}
