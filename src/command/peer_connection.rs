//! Peer connection of `gaunt serve`: starts the engine with what a peer knows, then passes actions on.

use gaunt_schema::UnixMs;
use tokio::{sync::watch, task::JoinSet};

use crate::peers::{PeerError, PeerGroup, PeerOptions, PeerView};
use gaunt_api::{
    PeerLine,
    peer_exchange::{AggregatorProcess, PeerAlertSet},
};
use gaunt_engine::{
    Engine, EngineHandle, EngineOptions, PeerSnapshot, PersistedState, state_store::StateStore,
};

/// The peers of this aggregator, if it has any.
pub struct PeerConnection {
    /// This process of the aggregator.
    pub process: AggregatorProcess,
    /// Whether a peer's history was taken over.
    pub has_history: bool,
    group: Option<PeerGroup>,
    view: watch::Sender<PeerView>,
    lines: watch::Sender<Vec<PeerLine>>,
    posted: watch::Sender<PeerAlertSet>,
}

impl PeerConnection {
    /// Reads the credentials for the peers of an aggregator that starts at this time.
    pub async fn open(options: Option<&PeerOptions>, started: UnixMs) -> Result<Self, PeerError> {
        let process = AggregatorProcess::new(started);
        let group = match options {
            Some(options) => Some(PeerGroup::open(options, process).await?),
            None => None,
        };
        let lines = watch::Sender::default();
        let posted = match &group {
            Some(_) => PeerAlertSet::default(),
            None => PeerAlertSet::without_peers(),
        };
        let posted = watch::Sender::new(posted);
        Ok(Self {
            process,
            has_history: false,
            group,
            view: watch::Sender::default(),
            lines,
            posted,
        })
    }

    /// The state of the peers, if there are any.
    pub fn watch_lines(&self) -> Option<watch::Receiver<Vec<PeerLine>>> {
        self.group.as_ref().map(|_| self.lines.subscribe())
    }

    /// The alerts that peers post.
    pub fn watch_posted(&self) -> watch::Receiver<PeerAlertSet> {
        self.posted.subscribe()
    }

    /// An engine that continues from the loaded state and from what a peer knows better, with the peer's history. A peer
    /// that does not answer delays it by a second.
    pub async fn start_engine(
        &mut self,
        loaded: Option<(StateStore, PersistedState)>,
        options: EngineOptions,
    ) -> (Option<StateStore>, Engine) {
        let mut snapshot = match &mut self.group {
            Some(group) => group.fetch_snapshot().await,
            None => None,
        };
        let past = snapshot.as_mut().map(PeerSnapshot::take_past);
        let (store, engine) = match (loaded, snapshot) {
            (None, None) => (None, Engine::new(options)),
            (None, Some(snapshot)) => {
                let state = self.join_snapshot(PersistedState::default(), snapshot);
                (None, Engine::from_peer(options, state))
            }
            (Some((store, state)), snapshot) => {
                let state = match snapshot {
                    Some(snapshot) => self.join_snapshot(state, snapshot),
                    None => state,
                };
                (Some(store), Engine::from_persisted(options, state))
            }
        };
        let Some(past) = past else { return (store, engine) };
        self.has_history = past.series() > 0;
        tracing::info!(series = past.series(), begins = ?past.begins(), "took over the history of a peer");
        (store, engine.recalling_past(&past))
    }

    fn join_snapshot(&self, state: PersistedState, snapshot: PeerSnapshot) -> PersistedState {
        match state.clone().join_peer(snapshot, self.process.started) {
            Ok((joined, takeover)) => {
                let (findings, actions) = (takeover.open_findings, takeover.actions);
                let baselines = takeover.baselines;
                tracing::info!(findings, actions, baselines, "took over the state of a peer");
                joined
            }
            Err(why) => {
                tracing::warn!(why, "cannot take over the state of a peer");
                state
            }
        }
    }

    /// Starts to pass on the actions of this engine. Dropping the tasks ends that.
    pub fn start_passing(self, engine: &EngineHandle) -> JoinSet<()> {
        let Some(group) = self.group else { return JoinSet::new() };
        let view = self.view.subscribe();
        let mut tasks = group.start_passing(engine, self.view);
        tasks.spawn(split_view(view, self.lines, self.posted));
        tasks
    }
}

/// Sends the parts of the view to those who read them.
async fn split_view(
    mut view: watch::Receiver<PeerView>,
    lines: watch::Sender<Vec<PeerLine>>,
    posted: watch::Sender<PeerAlertSet>,
) {
    while view.changed().await.is_ok() {
        let PeerView { lines: shown, posted: alerts } = view.borrow_and_update().clone();
        lines.send_replace(shown);
        posted.send_replace(alerts);
    }
}
