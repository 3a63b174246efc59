//! Pairing endpoint: requests of probes that measure with another node, for clients with the role write.

use axum::{
    Extension, Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use gaunt_schema::{SanitizedText, plain_error, probe_pairing::PairingRequest};
use hyper::body::Bytes;

use super::{
    api_responses::{denied_response, refusal_response, unavailable_response},
    api_state::ApiState,
    peer_address::PeerAddress,
};
use gaunt_api::{AccessRole, Refusal};

/// Path below the API base.
pub(super) const PATH: &str = "/probe/meeting";

/// Handles a pairing request and returns the reply.
pub(super) async fn handle_pairing(
    State(ApiState { source, roles, .. }): State<ApiState>,
    Extension(peer): Extension<PeerAddress>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let checked = roles.check_client(&headers, peer.address(), AccessRole::Write).await;
    if let Err(refusal) = checked {
        return denied_response(&refusal);
    }
    let request: PairingRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => {
            let parameter = SanitizedText::new("body");
            let why = plain_error::json(&error);
            let why = format!("invalid pairing request: {why}; use a gaunt-probe of this version");
            let why = SanitizedText::new(&why);
            return refusal_response(&Refusal::BadParameter { parameter, why });
        }
    };
    match source.send_pairing_request(request).await {
        Ok(reply) => Json(reply).into_response(),
        Err(error) => unavailable_response(&error),
    }
}
