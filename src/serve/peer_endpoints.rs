//! Peer endpoints: what the other aggregators of the cluster ask and send, with the token.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{
        HeaderMap,
        header::{CONTENT_TYPE, HeaderName},
    },
    response::{IntoResponse, Response},
};
use gaunt_schema::{SanitizedText, UnixMs, plain_error};
use hyper::body::Bytes;
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::{
    api_responses::{busy_response, denied_response, refusal_response},
    api_state::ApiState,
    health_endpoints::handle_not_found,
    write_token::WriteToken,
};
use gaunt_api::{
    Answer, PeerAction, PeerReply, PeerStatus, Question, Refusal, peer_exchange::posted_alerts,
};
use gaunt_engine::{EngineHandle, EngineStopped, PeerSnapshot};

/// States that are packed at once: each needs some hundred megabytes with 100,000 GPUs.
const PACKED_AT_ONCE: usize = 1;

/// Answers peers from this engine.
#[derive(Clone)]
pub(super) struct PeerService {
    engine: EngineHandle,
    cluster: SanitizedText,
    started: UnixMs,
    packing: Arc<Semaphore>,
}

impl PeerService {
    /// A service of an aggregator of this cluster that started at this time.
    pub(super) fn new(engine: EngineHandle, cluster: SanitizedText, started: UnixMs) -> Self {
        Self { engine, cluster, started, packing: Arc::new(Semaphore::new(PACKED_AT_ONCE)) }
    }

    /// The status, with the alerts that this aggregator posts.
    async fn read_status(&self) -> Result<PeerStatus, EngineStopped> {
        let mut posted = Vec::new();
        let alerts = self.engine.ask_question(Question::Alerts).await?;
        if matches!(alerts, Answer::Alerts(alerts) if !alerts.servers.is_empty())
            && let Answer::Findings(open) = self.engine.ask_question(Question::Findings).await?
        {
            posted = posted_alerts(&open.findings);
        }
        Ok(PeerStatus { cluster: self.cluster.clone(), started: self.started, posted })
    }

    /// Findings, actions and baselines as they are now.
    async fn pack_state(&self) -> Response {
        let Ok(permit) = self.packing.clone().try_acquire_owned() else {
            return busy_response("another peer reads the state; try again later");
        };
        let Ok(state) = self.engine.persisted_state().await else {
            return busy_response("the engine has stopped");
        };
        let packed = spawn_blocking(move || {
            let at = state.saved_at().unwrap_or_default();
            let packed = PeerSnapshot::pack_state(&state, at);
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
}

/// The service, if the request has the token.
async fn open_service(
    peers: Option<PeerService>,
    token: &WriteToken,
    headers: &HeaderMap,
) -> Result<PeerService, Response> {
    token.check_headers(headers).await.map_err(|refusal| denied_response(&refusal))?;
    match peers {
        Some(service) => Ok(service),
        None => Err(handle_not_found().await.into_response()),
    }
}

/// Handles a request for the status.
pub(super) async fn handle_status(
    State(ApiState { peers, token, .. }): State<ApiState>,
    headers: HeaderMap,
) -> Response {
    match open_service(peers, &token, &headers).await {
        Ok(service) => match service.read_status().await {
            Ok(status) => Json(status).into_response(),
            Err(error) => busy_response(&error.to_string()),
        },
        Err(response) => response,
    }
}

/// Handles a request for the state.
pub(super) async fn handle_state(
    State(ApiState { peers, token, .. }): State<ApiState>,
    headers: HeaderMap,
) -> Response {
    match open_service(peers, &token, &headers).await {
        Ok(service) => service.pack_state().await,
        Err(response) => response,
    }
}

/// Handles an action that a peer passes on.
pub(super) async fn handle_action(
    State(ApiState { peers, token, .. }): State<ApiState>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let service = match open_service(peers, &token, &headers).await {
        Ok(service) => service,
        Err(response) => return response,
    };
    let action: PeerAction = match serde_json::from_slice(&body) {
        Ok(action) => action,
        Err(error) => {
            let why = plain_error::json(&error);
            let why = format!("invalid action: {why}; use the same version of gaunt on both");
            let (parameter, why) = (SanitizedText::new("body"), SanitizedText::new(&why));
            return refusal_response(&Refusal::BadParameter { parameter, why });
        }
    };
    let (finding, by) = (SanitizedText::new(&action.finding), action.by.clone());
    match service.engine.send_peer_action(action).await {
        Ok(outcome) => {
            let outcome_name = outcome.as_str();
            tracing::debug!(target: "gaunt::audit", %finding, %by, outcome_name, "passed on by a peer");
            Json(PeerReply { outcome, started: service.started }).into_response()
        }
        Err(error) => busy_response(&error.to_string()),
    }
}
