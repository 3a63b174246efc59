//! JSON API: one path per question; each answer is its struct as JSON.

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Query, RawPathParams, State},
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
    routing::{get, post},
};

use super::{
    acknowledge, answer_streams,
    api_responses::{busy_response, refusal_response, unavailable_response},
    api_state::ApiState,
    pairing_endpoint, peer_endpoints, recording_endpoint,
};
use gaunt_api::{
    Answer, PATHS, Question,
    peer_exchange::{PEER_ACTION_PATH, PEER_PATH, PEER_STATE_PATH},
};

/// The API description for programs.
const OPENAPI: &str = include_str!("../../config/openapi.json");

pub(super) fn api_routes() -> Router<ApiState> {
    let mut routes = Router::new()
        .route("/openapi.json", get(handle_openapi))
        .route("/stream", get(answer_streams::handle_stream));
    routes = routes.route("/recording", get(recording_endpoint::handle_recording));
    for (path, ..) in PATHS {
        let handler =
            move |state, parts, parameters| handle_question(state, path, parts, parameters);
        // An id contains slashes.
        let route_path = path.replace("{finding}", "{*finding}");
        let mut route = get(handler);
        if path == "findings/{finding}" {
            let body_limit = DefaultBodyLimit::max(acknowledge::MAX_BODY);
            route = route
                .post(acknowledge::handle_action)
                .delete(acknowledge::handle_action)
                .layer(body_limit);
        }
        routes = routes.route(&format!("/{route_path}"), route);
    }
    let pairing_route =
        post(pairing_endpoint::handle_pairing).layer(DefaultBodyLimit::max(acknowledge::MAX_BODY));
    routes
        .route(pairing_endpoint::PATH, pairing_route)
        .route(&format!("/{PEER_PATH}"), get(peer_endpoints::handle_status))
        .route(&format!("/{PEER_STATE_PATH}"), get(peer_endpoints::handle_state))
        .route(
            &format!("/{PEER_ACTION_PATH}"),
            post(peer_endpoints::handle_action).layer(DefaultBodyLimit::max(acknowledge::MAX_BODY)),
        )
}

async fn handle_openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn handle_question(
    State(state): State<ApiState>,
    path: &'static str,
    parts: RawPathParams,
    Query(parameters): Query<Vec<(String, String)>>,
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
    match state.source.ask_question(question).await {
        Ok(Answer::Overview(overview)) => match state.overview_cache.of(overview) {
            Ok(bytes) => ([(CONTENT_TYPE, "application/json")], bytes).into_response(),
            Err(error) => busy_response(&error.to_string()),
        },
        Ok(Answer::Refused(refusal)) => refusal_response(&refusal),
        Ok(answer) => Json(answer).into_response(),
        Err(error) => unavailable_response(&error),
    }
}
