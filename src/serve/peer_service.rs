//! Peer service: the status, the state and the actions of this engine for the other aggregators of the cluster.

use std::sync::Arc;

use axum::{
    http::header::{CONTENT_TYPE, HeaderName},
    response::{IntoResponse, Response},
};
use gaunt_schema::SanitizedText;
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::api_responses::busy_response;
use gaunt_api::{
    Answer, PeerAction, PeerReply, PeerStatus, Question,
    peer_exchange::{AggregatorProcess, posted_alerts},
};
use gaunt_engine::{EngineHandle, EngineStopped, MAX_PEER_PAST, PeerSnapshot};

/// States that are packed at once: each needs some hundred megabytes with 100,000 GPUs.
const PACKED_AT_ONCE: usize = 1;

/// Answers peers from this engine.
#[derive(Clone)]
pub(super) struct PeerService {
    engine: EngineHandle,
    cluster: SanitizedText,
    process: AggregatorProcess,
    packing: Arc<Semaphore>,
}

impl PeerService {
    /// A service of an aggregator of this cluster, in this process of it.
    pub(super) fn new(
        engine: EngineHandle,
        cluster: SanitizedText,
        process: AggregatorProcess,
    ) -> Self {
        Self { engine, cluster, process, packing: Arc::new(Semaphore::new(PACKED_AT_ONCE)) }
    }

    /// The status, with the alerts that this aggregator posts.
    pub(super) async fn read_status(&self) -> Result<PeerStatus, EngineStopped> {
        let mut posted = Vec::new();
        let alerts = self.engine.ask_question(Question::Alerts).await?;
        if matches!(alerts, Answer::Alerts(alerts) if !alerts.servers.is_empty())
            && let Answer::Findings(open) = self.engine.ask_question(Question::Findings).await?
        {
            posted = posted_alerts(&open.findings);
        }
        let AggregatorProcess { started, nonce } = self.process;
        Ok(PeerStatus { cluster: self.cluster.clone(), started, nonce, posted })
    }

    /// Findings, actions, baselines and history as they are now.
    pub(super) async fn pack_state(&self) -> Response {
        let Ok(permit) = self.packing.clone().try_acquire_owned() else {
            return busy_response("another peer reads the state; try again later");
        };
        let Ok(state) = self.engine.persisted_state().await else {
            return busy_response("the engine has stopped");
        };
        let Ok(past) = self.engine.recorded_past(MAX_PEER_PAST).await else {
            return busy_response("the engine has stopped");
        };
        let packed = spawn_blocking(move || {
            let at = state.saved_at().unwrap_or_default();
            let packed = PeerSnapshot::pack_state(&state, &past, at);
            drop(permit);
            packed
        });
        let content: [(HeaderName, &str); 1] = [(CONTENT_TYPE, "application/octet-stream")];
        match packed.await {
            Ok(Ok(packed)) => (content, packed).into_response(),
            Ok(Err(why)) => busy_response(&why),
            Err(_) => busy_response("the state cannot be packed; see the log"),
        }
    }

    /// Applies an action that a peer passes on.
    pub(super) async fn apply_action(
        &self,
        action: PeerAction,
    ) -> Result<PeerReply, EngineStopped> {
        let outcome = self.engine.send_peer_action(action).await?;
        Ok(PeerReply { outcome, started: self.process.started })
    }
}
