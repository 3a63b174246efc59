//! Request guard before every route: allows reads and authorized writes, only under accepted host names, no
//! cross-origin requests of web pages, and only short requests on reserve connections.

use std::time::Duration;

use axum::{
    extract::{Request, State},
    http::{
        Method, StatusCode,
        header::{ALLOW, CONTENT_LENGTH, TRANSFER_ENCODING},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use gaunt_node::host_check::{HostNames, protect_from_browsers};
use tokio::time::timeout;

use super::{acknowledge, api_responses::busy_response};

/// Time limit for the start of a response. The engine answers in milliseconds; a longer wait is pointless.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Paths that are allowed while all regular connections are busy: health and metrics.
const SHORT: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Marks a request on a connection of the reserve.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReserveConnection;

/// Passes a request on, or refuses it.
pub(super) async fn guard_request(
    State(names): State<HostNames>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match reject_request(&names, &request) {
        Some(response) => response,
        None => timeout(ANSWER_TIMEOUT, next.run(request)).await.unwrap_or_else(|_| {
            busy_response("no response in time: gaunt is overloaded; try again later")
        }),
    };
    protect_from_browsers(response.headers_mut());
    response
}

fn reject_request(names: &HostNames, request: &Request) -> Option<Response> {
    let headers = request.headers();
    let is_write = acknowledge::is_write_request(request.method(), request.uri());
    if !is_write && !matches!(*request.method(), Method::GET | Method::HEAD) {
        let allowed = [(ALLOW, "GET, HEAD")];
        let why = "read-only except for POST and DELETE on findings/ID/acknowledge and POST on \
                   probe/meeting; use GET\n";
        return Some((StatusCode::METHOD_NOT_ALLOWED, allowed, why).into_response());
    }
    let length = headers.get(CONTENT_LENGTH);
    let declared = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let fits_limit =
        length.is_none() || declared.is_some_and(|declared| declared <= acknowledge::MAX_BODY);
    if is_write && (!fits_limit || headers.contains_key(TRANSFER_ENCODING)) {
        let why =
            format!("a write needs a Content-Length of at most {} bytes\n", acknowledge::MAX_BODY);
        return Some((StatusCode::PAYLOAD_TOO_LARGE, why).into_response());
    }
    let length = length.is_some_and(|length| length != "0");
    if !is_write && (length || headers.contains_key(TRANSFER_ENCODING)) {
        let why = "a read has no body; put the question into the URL\n";
        return Some((StatusCode::PAYLOAD_TOO_LARGE, why).into_response());
    }
    if let Err(refused) = names.check_request(request.uri(), headers) {
        return Some((refused.status, refused.why).into_response());
    }
    if request.extensions().get::<ReserveConnection>().is_some()
        && !SHORT.contains(&request.uri().path())
    {
        return Some(busy_response("all connections are busy; try again later"));
    }
    None
}
