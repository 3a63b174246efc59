//! The JSON API: each question a path, each answer its struct as JSON.

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
    act::{self, Token},
    meeting,
    recording::{self, Recording},
    stream::{self, Hub},
};
use crate::{
    answer::{Answer, Overview, PATHS, Question, Refusal},
    source::{Source, SourceError},
};

/// What can be asked here and how it is answered, for programs.
const OPENAPI: &str = include_str!("../../config/openapi.json");

/// Parameters of a question.
pub(super) type Parameters = Query<Vec<(String, String)>>;

/// What the routes answer from.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) source: Source,
    pub(super) hub: Hub,
    pub(super) token: Token,
    pub(super) recording: Option<Recording>,
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) written: Written,
}

/// The overview as it was last written: everybody asks for the same one until the next tick.
#[derive(Clone, Default)]
pub(super) struct Written(Arc<Mutex<Option<Page>>>);

/// An overview and its JSON.
type Page = (Arc<Overview>, Bytes);

impl Written {
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

impl axum::extract::FromRef<Serving> for Source {
    fn from_ref(serving: &Serving) -> Self {
        serving.source.clone()
    }
}

impl axum::extract::FromRef<Serving> for Hub {
    fn from_ref(serving: &Serving) -> Self {
        serving.hub.clone()
    }
}

pub(super) fn routes() -> Router<Serving> {
    let mut routes =
        Router::new().route("/openapi.json", get(openapi)).route("/stream", get(stream::stream));
    routes = routes.route("/recording", get(recording::recording));
    for (path, _) in PATHS {
        let answer = move |serving, parts, parameters| ask(serving, path, parts, parameters);
        // An id has slashes of its own.
        let place = path.replace("{finding}", "{*finding}");
        let mut route = get(answer);
        if path == "findings/{finding}" {
            let most = DefaultBodyLimit::max(act::MAX_BODY);
            route = route.post(act::act).delete(act::act).layer(most);
        }
        routes = routes.route(&format!("/{place}"), route);
    }
    let hears = post(meeting::hear).layer(DefaultBodyLimit::max(act::MAX_BODY));
    routes.route(meeting::PATH, hears)
}

async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn ask(
    State(serving): State<Serving>,
    path: &'static str,
    parts: RawPathParams,
    Query(parameters): Parameters,
) -> Response {
    // No path has more than one part that is a name.
    let name = parts.iter().next().map(|(_, name)| name.to_owned());
    let path = match (path.split_once('/'), name) {
        (Some((head, _)), Some(name)) => format!("{head}/{name}"),
        _ => path.to_owned(),
    };
    let question = match Question::read(&path, &parameters) {
        Ok(question) => question,
        Err(refusal) => return refused(&refusal),
    };
    match serving.source.ask(question).await {
        Ok(Answer::Overview(overview)) => match serving.written.of(overview) {
            Ok(bytes) => ([(CONTENT_TYPE, "application/json")], bytes).into_response(),
            Err(error) => busy(&error.to_string()),
        },
        Ok(Answer::Refused(refusal)) => refused(&refusal),
        Ok(answer) => Json(answer).into_response(),
        Err(error) => unavailable(&error),
    }
}

/// A refusal with its sentence: 400 for what can never be answered, 401 and 403 for who may not act, 404 for what is not
/// there, 409 for what is not in the state that is needed.
pub(super) fn refused(refusal: &Refusal) -> Response {
    let status = match refusal {
        _ if refusal.is_senseless() => StatusCode::BAD_REQUEST,
        Refusal::WritingOff => StatusCode::FORBIDDEN,
        _ if refusal.is_denied() => StatusCode::UNAUTHORIZED,
        _ if refusal.is_conflict() => StatusCode::CONFLICT,
        _ => StatusCode::NOT_FOUND,
    };
    (status, Json(told(refusal))).into_response()
}

/// A refusal as JSON, with its sentence for people.
pub(super) fn told(refusal: &Refusal) -> serde_json::Value {
    let mut told = serde_json::to_value(refusal).unwrap_or_default();
    if let Some(members) = told.as_object_mut() {
        members.insert("message".to_owned(), refusal.to_string().into());
    }
    told
}

/// The answer when the source has none.
pub(super) fn unavailable(error: &SourceError) -> Response {
    busy(&error.to_string())
}

/// The answer when it cannot be given now.
pub(super) fn busy(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], format!("{why}\n")).into_response()
}
