//! Pairing endpoint: requests of probes that measure with another node, for clients with the token.

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use gaunt_schema::{SanitizedText, plain_error, probe_pairing::PairingRequest};
use hyper::body::Bytes;

use super::{
    api_responses::{denied_response, refusal_response, unavailable_response},
    api_state::ApiState,
};
use gaunt_api::Refusal;

/// Path below the API base.
pub(super) const PATH: &str = "/probe/meeting";

/// Handles a pairing request and returns the reply.
pub(super) async fn handle_pairing(
    State(ApiState { source, token, .. }): State<ApiState>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(refusal) = token.check_headers(&headers).await {
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
