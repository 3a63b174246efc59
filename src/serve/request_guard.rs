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
use gaunt_api::{AccessRole, Refusal};
use gaunt_node::{
    host_check::{HostNames, protect_from_browsers},
    peer_rate::PeerRateLimit,
    web_access::WebAccess,
};
use tokio::time::timeout;

use super::{
    access_roles::AccessRoles,
    acknowledge,
    api_responses::{busy_response, denied_response},
    peer_address::PeerAddress,
    receive_service::{RECEIVE_PATH, is_receive_request},
};

/// Time limit for the start of a response. The engine answers in milliseconds; a longer wait is pointless.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Paths that need no role: they say whether the aggregator works, and nothing of the fleet.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

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
    /// Who may do what.
    roles: AccessRoles,
    /// Whether remote write is received.
    is_receiving: bool,
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
        None => guard.deny_request(request.headers(), RequestNeeds::of(&request), peer).await,
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
    peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.address())
}

fn limited_response(wait: Duration) -> Response {
    let headers = [(RETRY_AFTER, (wait.as_secs() + 1).to_string())];
    let why = "too many wrong tokens or passwords; try again later\n";
    (StatusCode::TOO_MANY_REQUESTS, headers, why).into_response()
}

impl RequestGuard {
    /// Passes requests for these names, as access and roles permit.
    pub(super) fn new(
        names: HostNames,
        access: Option<Arc<WebAccess>>,
        roles: AccessRoles,
    ) -> Self {
        let refusals = Arc::new(PeerRateLimit::new(REFUSAL_INTERVAL, REFUSALS));
        Self { names, access, roles, is_receiving: false, refusals }
    }

    /// Passes writes of senders if remote write is received.
    pub(super) fn with_receiving(self, is_receiving: bool) -> Self {
        Self { is_receiving, ..self }
    }

    /// Counts a wrong token; the time to wait if the peer sent too many.
    fn limit_refusals(&self, peer: IpAddr) -> Option<Duration> {
        self.refusals.take_event(peer, Instant::now()).err()
    }

    /// Refuses a request that neither the web configuration nor a role permits. Whoever passed the web configuration's check
    /// of a password or certificate may read; the routes that write check roles themselves.
    async fn deny_request(
        &self,
        headers: &HeaderMap,
        needed: RequestNeeds,
        peer: IpAddr,
    ) -> Option<Response> {
        let denied = match &self.access {
            Some(access) => access.check_request(headers, peer).await.err(),
            None => None,
        };
        let Some(denied) = denied else {
            let has_identity =
                self.access.as_ref().is_some_and(|access| access.requires_identity());
            let is_checked = needed.role == AccessRole::Read
                && !needed.is_open
                && !has_identity
                && self.roles.read_needs_role();
            if !is_checked {
                return None;
            }
            let checked = self.roles.check_client(headers, peer, AccessRole::Read).await;
            return checked.err().map(|refusal| denied_response(&refusal));
        };
        if denied.status == StatusCode::UNAUTHORIZED {
            match self.roles.check_client(headers, peer, needed.role).await {
                Ok(_) => return None,
                // Who it is is known: a password would not help.
                Err(refusal @ Refusal::RoleTooLow { .. }) => {
                    return Some(denied_response(&refusal));
                }
                Err(_) => {}
            }
        }
        let mut response = (denied.status, denied.why).into_response();
        denied.add_headers(response.headers_mut());
        Some(response)
    }

    /// Refuses a request that no client may send.
    fn reject_request(&self, request: &Request) -> Option<Response> {
        let headers = request.headers();
        let is_received = self.is_receiving && is_receive_request(request.method(), request.uri());
        if request.uri().path() == RECEIVE_PATH && !is_received {
            let why =
                "gaunt receives remote write by POST, and only with serve.receive_token_file\n";
            return Some((StatusCode::NOT_FOUND, why).into_response());
        }
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let needed = acknowledge::needed_role(request.method(), request.uri());
        let is_write = needed.is_some() && !is_read && !is_received;
        if !is_write && !is_received && !is_read {
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

/// What a request needs.
#[derive(Clone, Copy)]
struct RequestNeeds {
    role: AccessRole,
    /// Whether it needs no role where only roles guard reading.
    is_open: bool,
}

impl RequestNeeds {
    /// Of a request that was not rejected for its method.
    fn of(request: &Request) -> Self {
        let role = acknowledge::needed_role(request.method(), request.uri());
        let is_open = OPEN.contains(&request.uri().path());
        Self { role: role.unwrap_or(AccessRole::Admin), is_open }
    }
}
