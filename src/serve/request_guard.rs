//! Request guard before every route: allows reads and authorized writes, only under accepted host names, no
//! cross-origin requests of web pages, and only short requests on reserve connections.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, Method, StatusCode,
        header::{ALLOW, AUTHORIZATION, CONTENT_LENGTH, RETRY_AFTER, TRANSFER_ENCODING},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use gaunt_node::{
    host_check::{HostNames, protect_from_browsers},
    peer_rate::PeerRateLimit,
    web_access::WebAccess,
};
use tokio::time::timeout;

use super::{
    acknowledge::{self, PeerAddress},
    api_responses::busy_response,
    receive_service::{RECEIVE_PATH, is_receive_request},
    write_token::WriteToken,
};

/// Time limit for the start of a response. The engine answers in milliseconds; a longer wait is pointless.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Paths that are allowed while all regular connections are busy: health and metrics.
const SHORT: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Marks a request on a connection of the reserve.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReserveConnection;

/// Which requests pass.
#[derive(Clone)]
pub(super) struct RequestGuard {
    /// The accepted host names.
    names: HostNames,
    /// Who may read, if there is a web configuration.
    access: Option<Arc<WebAccess>>,
    /// The token for writes.
    token: WriteToken,
    /// The token of senders of remote write, if that is received.
    sender_token: Option<WriteToken>,
    /// The wrong tokens and passwords of each peer.
    refusals: Arc<PeerRateLimit>,
}

/// Wrong tokens of one peer that are answered with 401: so many at once, then one each interval; others with 429. The
/// right token is always accepted: 16 random characters cannot be guessed at any rate.
const REFUSALS: u32 = 20;
const REFUSAL_INTERVAL: Duration = Duration::from_secs(3);

/// Passes a request on, or refuses it.
pub(super) async fn guard_request(
    State(guard): State<RequestGuard>,
    request: Request,
    next: Next,
) -> Response {
    let (presents, peer) = (request.headers().contains_key(AUTHORIZATION), find_peer(&request));
    let rejected = match guard.reject_request(&request) {
        None => {
            let is_receive = is_receive_request(request.method(), request.uri());
            guard.deny_request(request.headers(), is_receive, peer).await
        }
        rejected => rejected,
    };
    let mut response = match rejected {
        Some(response) => response,
        None => timeout(ANSWER_TIMEOUT, next.run(request)).await.unwrap_or_else(|_| {
            busy_response("no response in time: gaunt is overloaded; try again later")
        }),
    };
    if response.status() == StatusCode::UNAUTHORIZED
        && presents
        && let Some(wait) = guard.limit_refusals(peer)
    {
        response = limited_response(wait);
    }
    protect_from_browsers(response.headers_mut());
    if let Some(access) = &guard.access {
        access.add_headers(response.headers_mut());
    }
    response
}

/// The address of the client.
fn find_peer(request: &Request) -> IpAddr {
    let peer = request.extensions().get::<PeerAddress>();
    peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |PeerAddress(peer)| peer.ip())
}

fn limited_response(wait: Duration) -> Response {
    let headers = [(RETRY_AFTER, (wait.as_secs() + 1).to_string())];
    let why = "too many wrong tokens or passwords; try again later\n";
    (StatusCode::TOO_MANY_REQUESTS, headers, why).into_response()
}

impl RequestGuard {
    /// Passes requests for these names, as access and token permit.
    pub(super) fn new(names: HostNames, access: Option<Arc<WebAccess>>, token: WriteToken) -> Self {
        let refusals = Arc::new(PeerRateLimit::new(REFUSAL_INTERVAL, REFUSALS));
        Self { names, access, token, sender_token: None, refusals }
    }

    /// Passes writes of senders with this token.
    pub(super) fn with_sender_token(self, sender_token: Option<WriteToken>) -> Self {
        Self { sender_token, ..self }
    }

    /// Counts a wrong token; the time to wait if the peer sent too many.
    fn limit_refusals(&self, peer: IpAddr) -> Option<Duration> {
        self.refusals.take_event(peer, Instant::now()).err()
    }

    /// Refuses a request that the web configuration does not permit. The token permits everything that a password does.
    async fn deny_request(
        &self,
        headers: &HeaderMap,
        is_receive: bool,
        peer: IpAddr,
    ) -> Option<Response> {
        let access = self.access.as_ref()?;
        let token = self.sender_token.as_ref().filter(|_| is_receive).unwrap_or(&self.token);
        let denied = access.check_request(headers, peer).await.err()?;
        if denied.status == StatusCode::UNAUTHORIZED && token.check_headers(headers).await.is_ok() {
            return None;
        }
        let mut response = (denied.status, denied.why).into_response();
        denied.add_headers(response.headers_mut());
        Some(response)
    }

    /// Refuses a request that no client may send.
    fn reject_request(&self, request: &Request) -> Option<Response> {
        let headers = request.headers();
        let is_received =
            self.sender_token.is_some() && is_receive_request(request.method(), request.uri());
        if request.uri().path() == RECEIVE_PATH && !is_received {
            let why =
                "gaunt receives remote write by POST, and only with serve.receive_token_file\n";
            return Some((StatusCode::NOT_FOUND, why).into_response());
        }
        let is_write = acknowledge::is_write_request(request.method(), request.uri());
        if !is_write && !is_received && !matches!(*request.method(), Method::GET | Method::HEAD) {
            let allowed = [(ALLOW, "GET, HEAD")];
            let why = "read-only except for POST and DELETE on findings/ID/acknowledge and POST on \
                   probe/meeting and peer/actions; use GET\n";
            return Some((StatusCode::METHOD_NOT_ALLOWED, allowed, why).into_response());
        }
        let length = headers.get(CONTENT_LENGTH);
        let declared = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        let fits_limit =
            length.is_none() || declared.is_some_and(|declared| declared <= acknowledge::MAX_BODY);
        if is_write && (!fits_limit || headers.contains_key(TRANSFER_ENCODING)) {
            let why = format!(
                "a write needs a Content-Length of at most {} bytes\n",
                acknowledge::MAX_BODY
            );
            return Some((StatusCode::PAYLOAD_TOO_LARGE, why).into_response());
        }
        let length = length.is_some_and(|length| length != "0");
        if !is_write && !is_received && (length || headers.contains_key(TRANSFER_ENCODING)) {
            let why = "a read has no body; put the question into the URL\n";
            return Some((StatusCode::PAYLOAD_TOO_LARGE, why).into_response());
        }
        if let Err(refused) = self.names.check_request(request.uri(), headers) {
            return Some((refused.status, refused.why).into_response());
        }
        if request.extensions().get::<ReserveConnection>().is_some()
            && !SHORT.contains(&request.uri().path())
        {
            return Some(busy_response("all connections are busy; try again later"));
        }
        None
    }
}
