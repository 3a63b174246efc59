//! Peer endpoints: what the other aggregators of the cluster ask and send, with the token.

use axum::{
    Extension, Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use gaunt_schema::{SanitizedText, plain_error};
use hyper::body::Bytes;

use super::{
    access_roles::AccessRoles,
    api_responses::{busy_response, denied_response, refusal_response},
    api_state::ApiState,
    health_endpoints::handle_not_found,
    peer_address::PeerAddress,
    peer_service::PeerService,
};
use gaunt_api::{AccessRole, PeerAction, Refusal};

/// The service, if the client has the role admin.
async fn open_service(
    peers: Option<PeerService>,
    roles: &AccessRoles,
    headers: &HeaderMap,
    peer: PeerAddress,
) -> Result<PeerService, Response> {
    let checked = roles.check_client(headers, peer.address(), AccessRole::Admin).await;
    checked.map_err(|refusal| denied_response(&refusal))?;
    match peers {
        Some(service) => Ok(service),
        None => Err(handle_not_found().await.into_response()),
    }
}

/// Handles a request for the status.
pub(super) async fn handle_status(
    State(ApiState { peers, roles, .. }): State<ApiState>,
    Extension(peer): Extension<PeerAddress>,
    headers: HeaderMap,
) -> Response {
    match open_service(peers, &roles, &headers, peer).await {
        Ok(service) => match service.read_status().await {
            Ok(status) => Json(status).into_response(),
            Err(error) => busy_response(&error.to_string()),
        },
        Err(response) => response,
    }
}

/// Handles a request for the state.
pub(super) async fn handle_state(
    State(ApiState { peers, roles, .. }): State<ApiState>,
    Extension(peer): Extension<PeerAddress>,
    headers: HeaderMap,
) -> Response {
    match open_service(peers, &roles, &headers, peer).await {
        Ok(service) => service.pack_state().await,
        Err(response) => response,
    }
}

/// Handles an action that a peer passes on.
pub(super) async fn handle_action(
    State(ApiState { peers, roles, .. }): State<ApiState>,
    Extension(peer): Extension<PeerAddress>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let service = match open_service(peers, &roles, &headers, peer).await {
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
