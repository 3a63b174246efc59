//! Peer connection of `gaunt serve`: starts the engine with what a peer knows, then passes actions on.

use gaunt_schema::UnixMs;
use tokio::{sync::watch, task::JoinSet};

use super::persist_task;
use crate::peers::{PeerError, PeerGroup, PeerOptions};
use gaunt_api::PeerLine;
use gaunt_engine::{
    Engine, EngineHandle, EngineOptions, PeerSnapshot, PersistedState, state_store::StateStore,
};

/// The peers of this aggregator, if it has any.
pub(super) struct PeerConnection {
    /// When this aggregator started.
    pub(super) started: UnixMs,
    group: Option<PeerGroup>,
    lines: watch::Sender<Vec<PeerLine>>,
}

impl PeerConnection {
    /// Reads the credentials for the peers.
    pub(super) async fn open(options: Option<&PeerOptions>) -> Result<Self, PeerError> {
        let started = persist_task::wall_clock_now();
        let group = match options {
            Some(options) => Some(PeerGroup::open(options, started).await?),
            None => None,
        };
        Ok(Self { started, group, lines: watch::Sender::default() })
    }

    /// The state of the peers, if there are any.
    pub(super) fn watch_lines(&self) -> Option<watch::Receiver<Vec<PeerLine>>> {
        self.group.as_ref().map(|_| self.lines.subscribe())
    }

    /// An engine that continues from the loaded state and from what a peer knows better. A peer that does not answer
    /// delays it by a second.
    pub(super) async fn start_engine(
        &mut self,
        loaded: Option<(StateStore, PersistedState)>,
        options: EngineOptions,
    ) -> (Option<StateStore>, Engine) {
        let snapshot = match &mut self.group {
            Some(group) => group.fetch_snapshot().await,
            None => None,
        };
        match (loaded, snapshot) {
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
        }
    }

    fn join_snapshot(&self, state: PersistedState, snapshot: PeerSnapshot) -> PersistedState {
        match state.clone().join_peer(snapshot, self.started) {
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
    pub(super) fn start_passing(self, engine: &EngineHandle) -> JoinSet<()> {
        let (group, lines) = (self.group, self.lines);
        group.map(|group| group.start_passing(engine, lines)).unwrap_or_default()
    }
}
