//! The JSON API: each question a path, each answer its struct as JSON.

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use gaunt_schema::Safe;

use crate::{
    answer::{Answer, Question},
    source::{Source, SourceError},
};

pub(super) fn routes() -> Router<Source> {
    Router::new()
        .route("/overview", get(|source| ask(source, Question::Overview)))
        .route("/nodes", get(|source| ask(source, Question::Nodes)))
        .route("/nodes/{node}", get(node))
        .route("/findings", get(|source| ask(source, Question::Findings)))
        .route("/targets", get(|source| ask(source, Question::Targets)))
}

async fn node(source: State<Source>, Path(node): Path<String>) -> Response {
    ask(source, Question::Node(Safe::new(&node))).await
}

async fn ask(State(source): State<Source>, question: Question) -> Response {
    match source.ask(question).await {
        Ok(Answer::Overview(overview)) => Json(&*overview).into_response(),
        Ok(Answer::Nodes(nodes)) => Json(&*nodes).into_response(),
        Ok(Answer::Node(node)) => Json(&*node).into_response(),
        Ok(Answer::Findings(findings)) => Json(&*findings).into_response(),
        Ok(Answer::Targets(targets)) => Json(&*targets).into_response(),
        Ok(Answer::Refused(refusal)) => (StatusCode::NOT_FOUND, Json(refusal)).into_response(),
        Err(error) => unavailable(&error),
    }
}

/// The answer when the source has none.
pub(super) fn unavailable(error: &SourceError) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response()
}
