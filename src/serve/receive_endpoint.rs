//! Receive endpoint: a Prometheus or vmagent sends a copy of what it scrapes by remote write 1.0, with a token of its own.

use axum::{
    body::Body,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};

use super::{api_state::ApiState, health_endpoints::handle_not_found};

/// Handles a request of a sender.
pub(super) async fn handle_write(
    State(ApiState { receive, .. }): State<ApiState>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match receive {
        Some(service) => service.receive_request(&headers, body).await,
        None => handle_not_found().await.into_response(),
    }
}
