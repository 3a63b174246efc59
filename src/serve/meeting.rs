//! Probes over HTTP: what one says to meet another, for who has the token.

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use gaunt_schema::{Safe, meeting::Word, plain_error};
use hyper::body::Bytes;

use super::{
    act::denied,
    api::{Serving, refused, unavailable},
};
use crate::answer::Refusal;

/// Its path below the API.
pub(super) const PATH: &str = "/probe/meeting";

/// Hears a word, and answers with the reply to it.
pub(super) async fn hear(
    State(Serving { source, token, .. }): State<Serving>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(refusal) = token.check(&headers).await {
        return denied(&refusal);
    }
    let word: Word = match serde_json::from_slice(&body) {
        Ok(word) => word,
        Err(error) => {
            let parameter = Safe::new("body");
            let why = plain_error::json(&error);
            let why = format!("is no word of a probe: {why}; use a gaunt-probe of this version");
            let why = Safe::new(&why);
            return refused(&Refusal::BadParameter { parameter, why });
        }
    };
    match source.meet(word).await {
        Ok(reply) => Json(reply).into_response(),
        Err(error) => unavailable(&error),
    }
}
