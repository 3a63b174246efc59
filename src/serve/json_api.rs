//! JSON API: one path per question; each answer is its struct as JSON.

use std::sync::{Arc, Mutex, PoisonError};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Query, RawPathParams, State},
    http::{
        StatusCode,
        header::{CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use hyper::body::Bytes;
use tokio::sync::watch;

use super::{
    acknowledge::{self, WriteToken},
    answer_streams::{self, StreamHub},
    pairing_endpoint,
    recording_endpoint::{self, RecordingFollowFn},
};
use crate::answer_source::{AnswerSource, AnswerSourceError};
use gaunt_api::{Answer, Overview, PATHS, Question, Refusal};

/// The API description for programs.
const OPENAPI: &str = include_str!("../../config/openapi.json");

/// Query parameters of a question.
pub(super) type ApiParameters = Query<Vec<(String, String)>>;

/// Shared state of the routes.
#[derive(Clone)]
pub(super) struct ApiState {
    pub(super) source: AnswerSource,
    pub(super) hub: StreamHub,
    pub(super) token: WriteToken,
    pub(super) recording: Option<RecordingFollowFn>,
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) overview_cache: OverviewCache,
}

/// The overview as last serialized: all clients request the same one until the next tick.
#[derive(Clone, Default)]
pub(super) struct OverviewCache(Arc<Mutex<Option<CachedOverview>>>);

/// An overview and its JSON.
type CachedOverview = (Arc<Overview>, Bytes);

impl OverviewCache {
    fn of(&self, overview: Arc<Overview>) -> serde_json::Result<Bytes> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, bytes)) = &*kept
            && Arc::ptr_eq(known, &overview)
        {
            return Ok(bytes.clone());
        }
        let bytes = Bytes::from(serde_json::to_vec(&overview)?);
        *kept = Some((overview, bytes.clone()));
        Ok(bytes)
    }
}

impl axum::extract::FromRef<ApiState> for AnswerSource {
    fn from_ref(serving: &ApiState) -> Self {
        serving.source.clone()
    }
}

impl axum::extract::FromRef<ApiState> for StreamHub {
    fn from_ref(serving: &ApiState) -> Self {
        serving.hub.clone()
    }
}

pub(super) fn api_routes() -> Router<ApiState> {
    let mut routes = Router::new()
        .route("/openapi.json", get(handle_openapi))
        .route("/stream", get(answer_streams::handle_stream));
    routes = routes.route("/recording", get(recording_endpoint::handle_recording));
    for (path, ..) in PATHS {
        let answer =
            move |serving, parts, parameters| handle_question(serving, path, parts, parameters);
        // An id contains slashes.
        let place = path.replace("{finding}", "{*finding}");
        let mut route = get(answer);
        if path == "findings/{finding}" {
            let most = DefaultBodyLimit::max(acknowledge::MAX_BODY);
            route = route
                .post(acknowledge::handle_action)
                .delete(acknowledge::handle_action)
                .layer(most);
        }
        routes = routes.route(&format!("/{place}"), route);
    }
    let hears =
        post(pairing_endpoint::handle_pairing).layer(DefaultBodyLimit::max(acknowledge::MAX_BODY));
    routes.route(pairing_endpoint::PATH, hears)
}

async fn handle_openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn handle_question(
    State(serving): State<ApiState>,
    path: &'static str,
    parts: RawPathParams,
    Query(parameters): ApiParameters,
) -> Response {
    // No path has more than one name parameter.
    let name = parts.iter().next().map(|(_, name)| name.to_owned());
    let path = match (path.split_once('/'), name) {
        (Some((head, _)), Some(name)) => format!("{head}/{name}"),
        _ => path.to_owned(),
    };
    let question = match Question::parse_path(&path, &parameters) {
        Ok(question) => question,
        Err(refusal) => return refusal_response(&refusal),
    };
    match serving.source.ask_question(question).await {
        Ok(Answer::Overview(overview)) => match serving.overview_cache.of(overview) {
            Ok(bytes) => ([(CONTENT_TYPE, "application/json")], bytes).into_response(),
            Err(error) => busy_response(&error.to_string()),
        },
        Ok(Answer::Refused(refusal)) => refusal_response(&refusal),
        Ok(answer) => Json(answer).into_response(),
        Err(error) => unavailable_response(&error),
    }
}

/// A refusal with its message: 400 for a question that can never be answered, 401 and 403 for missing authorization,
/// 404 for an unknown object, 409 for an object in another state than required.
pub(super) fn refusal_response(refusal: &Refusal) -> Response {
    let status = match refusal {
        _ if refusal.is_invalid() => StatusCode::BAD_REQUEST,
        Refusal::WritingOff => StatusCode::FORBIDDEN,
        _ if refusal.is_denied() => StatusCode::UNAUTHORIZED,
        _ if refusal.is_conflict() => StatusCode::CONFLICT,
        _ => StatusCode::NOT_FOUND,
    };
    (status, Json(refusal_json(refusal))).into_response()
}

/// A refusal as JSON, with a message for people.
pub(super) fn refusal_json(refusal: &Refusal) -> serde_json::Value {
    let mut told = serde_json::to_value(refusal).unwrap_or_default();
    if let Some(members) = told.as_object_mut() {
        members.insert("message".to_owned(), refusal.to_string().into());
    }
    told
}

/// Response if the source has no answer.
pub(super) fn unavailable_response(error: &AnswerSourceError) -> Response {
    busy_response(&error.to_string())
}

/// Response if there is no answer now.
pub(super) fn busy_response(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], format!("{why}\n")).into_response()
}
