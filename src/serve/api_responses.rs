//! The responses that routes share: refusals, and no answer now.

use axum::{
    Json,
    http::{
        HeaderValue, StatusCode,
        header::{RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};

use crate::answer_source::AnswerSourceError;
use gaunt_api::Refusal;

/// A refusal with its message: 400 for a question that can never be answered, 401 and 403 for missing authorization,
/// 404 for an unknown object, 409 for an object in another state than required, 500 for an error of gaunt itself.
pub(super) fn refusal_response(refusal: &Refusal) -> Response {
    let status = match refusal {
        _ if refusal.is_invalid() => StatusCode::BAD_REQUEST,
        Refusal::WritingOff | Refusal::RoleTooLow { .. } => StatusCode::FORBIDDEN,
        _ if refusal.is_denied() => StatusCode::UNAUTHORIZED,
        Refusal::ActedMeanwhile { .. } => StatusCode::PRECONDITION_FAILED,
        Refusal::Failed { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        _ if refusal.is_conflict() => StatusCode::CONFLICT,
        _ => StatusCode::NOT_FOUND,
    };
    (status, Json(refusal_json(refusal))).into_response()
}

/// A refusal as JSON, with a message for people.
pub(super) fn refusal_json(refusal: &Refusal) -> serde_json::Value {
    let mut json = serde_json::to_value(refusal).unwrap_or_default();
    if let Some(members) = json.as_object_mut() {
        members.insert("message".to_owned(), refusal.to_string().into());
    }
    json
}

/// Response if the source has no answer.
pub(super) fn unavailable_response(error: &AnswerSourceError) -> Response {
    busy_response(&error.to_string())
}

/// Response if there is no answer now.
pub(super) fn busy_response(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], format!("{why}\n")).into_response()
}

/// Response to an unauthorized request, with the authentication scheme.
pub(super) fn denied_response(refusal: &Refusal) -> Response {
    let mut response = refusal_response(refusal);
    if matches!(refusal, Refusal::NoToken | Refusal::WrongToken) {
        let challenge = HeaderValue::from_static("Bearer realm=\"gaunt\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}
