//! Receive endpoint: a Prometheus or vmagent sends a copy of what it scrapes by remote write 1.0, with the role
//! `write`.

use axum::{
    Extension,
    body::Body,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};

use gaunt_api::AccessRole;

use super::{
    api_responses::denied_response, api_state::ApiState, health_endpoints::handle_not_found,
    peer_address::PeerAddress,
};

/// Handles a request of a sender.
pub(super) async fn handle_write(
    State(ApiState { receive, roles, .. }): State<ApiState>,
    Extension(peer): Extension<PeerAddress>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let Some(service) = receive else { return handle_not_found().await.into_response() };
    match roles.check_client(&headers, peer.address(), AccessRole::Write).await {
        Ok(_) => service.receive_request(&headers, body).await,
        Err(refusal) => denied_response(&refusal),
    }
}
