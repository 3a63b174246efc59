//! Peer endpoints: what the other aggregators of the cluster ask and send, with the token.

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use gaunt_schema::{SanitizedText, plain_error};
use hyper::body::Bytes;

use super::{
    api_responses::{busy_response, denied_response, refusal_response},
    api_state::ApiState,
    health_endpoints::handle_not_found,
    peer_service::PeerService,
    write_token::WriteToken,
};
use gaunt_api::{PeerAction, Refusal};

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
    match service.apply_action(action).await {
        Ok(reply) => {
            let outcome = reply.outcome.as_str();
            tracing::debug!(target: "gaunt::audit", %finding, %by, outcome, "passed on by a peer");
            Json(reply).into_response()
        }
        Err(error) => busy_response(&error.to_string()),
    }
}
