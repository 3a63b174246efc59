//! HTTP server of the simulator: one listener for all nodes, which answers only clients on this machine.

use std::{
    cell::RefCell,
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use gaunt_schema::{Dialect, UnixMs, text};
use gaunt_sim::SimFleet;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{self, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task,
    time::{MissedTickBehavior, interval, sleep},
};
use tracing::{debug, warn};

use crate::node_address;

/// Time limit for a client to send its request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// A request head is a few hundred bytes; the smallest buffer that the server accepts is enough.
const BUFFER_BYTES: usize = 8 * 1024;
/// Pause after accept fails for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The fleet as the connections of one thread see it.
pub(crate) type SharedFleet = Rc<RefCell<SimFleet>>;

/// Why the listener cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FleetListenError {
    /// Another process listens on the port.
    #[error(
        "cannot listen on port {port}: it is in use; stop what listens there, or pass another --listen-port"
    )]
    InUse { port: u16 },
    /// The bind call failed for another reason.
    #[error("cannot listen on port {port}: {error}; pass another --listen-port")]
    Listen { port: u16, error: io::Error },
}

/// Binds the listener. Port 0 selects a free port.
pub(crate) async fn bind_listener(port: u16) -> Result<(TcpListener, u16), FleetListenError> {
    let result = async {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    };
    result.await.map_err(|error: io::Error| FleetListenError::of(error, port))
}

impl FleetListenError {
    /// Maps an I/O error of the bind call to its reason.
    pub(crate) fn of(error: io::Error, port: u16) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { port },
            _ => Self::Listen { port, error },
        }
    }
}

/// Advances the fleet to the time of `clock` once a period, forever.
pub(crate) async fn advance_on_clock(
    fleet: SharedFleet,
    period: Duration,
    clock: impl Fn() -> UnixMs,
) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        fleet.borrow_mut().advance_to(clock());
    }
}

/// Serves pages in one exporter format forever, to as many clients at once as `connections` has permits.
/// Must run in a `LocalSet`.
pub(crate) async fn serve_pages(
    listener: TcpListener,
    fleet: SharedFleet,
    dialect: Dialect,
    connections: Arc<Semaphore>,
) {
    loop {
        let permit = Arc::clone(&connections).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, peer)) if is_local_peer(peer) => {
                let fleet = Rc::clone(&fleet);
                task::spawn_local(async move {
                    serve_connection(stream, fleet, dialect).await;
                    drop(permit);
                });
            }
            Ok((_, peer)) => debug!(%peer, "connection closed: only local clients are served"),
            Err(error) => {
                warn!(%error, "cannot accept");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whether a client is on this machine; the simulated fleet serves only local clients.
fn is_local_peer(peer: SocketAddr) -> bool {
    peer.ip().is_loopback()
}

/// Serves one connection until it ends.
async fn serve_connection(stream: TcpStream, fleet: SharedFleet, dialect: Dialect) {
    let Ok(SocketAddr::V4(local)) = stream.local_addr() else { return };
    let answer = service_fn(|request: Request<Incoming>| {
        let response = answer_request(&request, local, &fleet.borrow(), dialect);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), answer);
    if let Err(error) = connection.await {
        debug!(%error, %local, "connection ended early");
    }
}

fn answer_request<B>(
    request: &Request<B>,
    local: SocketAddrV4,
    fleet: &SimFleet,
    dialect: Dialect,
) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text_response(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and HEAD are allowed\n".into(),
        );
    }
    let Some(node) = node_address::node_at(*local.ip()).filter(|&node| node < fleet.node_count())
    else {
        let list = node_address::host_list(fleet.node_count(), local.port());
        let message = format!("no node has the address {}; the nodes are at {list}\n", local.ip());
        return text_response(StatusCode::NOT_FOUND, message);
    };
    match request.uri().path() {
        "/metrics" => respond_page(fleet, node, dialect),
        "/" => {
            let name = fleet.node_name(node);
            text_response(
                StatusCode::OK,
                format!("gaunt-sim: {name}, a simulated node; see /metrics\n"),
            )
        }
        "/healthz" => text_response(StatusCode::OK, "ok\n".into()),
        path => text_response(StatusCode::NOT_FOUND, format!("no page at {path}; see /metrics\n")),
    }
}

/// The page of one node's exporter, if the node has that exporter and it responds.
fn respond_page(fleet: &SimFleet, node: usize, dialect: Dialect) -> Response<Full<Bytes>> {
    let mut pages = fleet.scraped_pages(node).into_iter();
    match pages.find(|(format, _)| *format == dialect) {
        Some((_, page)) => text_response(StatusCode::OK, page),
        None => text_response(
            StatusCode::SERVICE_UNAVAILABLE,
            "this exporter does not respond\n".into(),
        ),
    }
}

/// The pages of one node, concatenated.
pub(crate) fn join_pages(fleet: &SimFleet, node: usize) -> String {
    fleet.scraped_pages(node).into_iter().map(|(_, page)| page).collect()
}

/// The content type is the same for all responses, errors included, because a browser may show them.
fn text_response(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(text::CONTENT_TYPE));
    response
}

#[cfg(test)]
mod tests {
    use gaunt_sim::Scenario;

    use super::*;

    fn request_path(method: Method, path: &str, address: [u8; 4]) -> (u16, Bytes) {
        let fleet = SimFleet::new(Scenario::from_name("healthy").unwrap(), 3, 1, UnixMs(0));
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let response = answer_request(
            &request,
            SocketAddrV4::new(address.into(), 9770),
            &fleet,
            Dialect::Gaunt,
        );
        let status = response.status().as_u16();
        let body = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(http_body_util::BodyExt::collect(response.into_body()));
        (status, body.unwrap().to_bytes())
    }

    #[test]
    fn addresses_answer_with_their_node() {
        for node in 1..=3 {
            let (status, body) = request_path(Method::GET, "/metrics", [127, 1, 0, node]);
            let page = text::decode_page(&body, &text::PageLimits::default()).unwrap();
            assert_eq!((status, page.rejected.total_count()), (200, 0), "{:?}", page.rejected);
            assert_eq!(page.report.node.unwrap().as_str(), format!("gpu00{node}"));
        }
    }

    #[test]
    fn clients_of_other_machines_are_refused() {
        for (peer, expected) in [
            ("127.0.0.1:40000", true),
            ("127.1.3.250:1", true),
            ("10.0.0.7:40000", false),
            ("192.168.1.1:9770", false),
            ("[::1]:5", true),
            ("[2001:db8::1]:5", false),
        ] {
            assert_eq!(is_local_peer(peer.parse().unwrap()), expected, "{peer}");
        }
    }

    #[test]
    fn missing_page_error_names_the_right_path() {
        let refusal = |method, path, address| {
            let (status, body) = request_path(method, path, address);
            format!("{status} {}", str::from_utf8(&body).unwrap())
        };
        assert_eq!(
            refusal(Method::GET, "/metrics", [127, 1, 0, 4]),
            "404 no node has the address 127.1.0.4; the nodes are at 127.1.0.[1-3]:9770\n"
        );
        assert_eq!(refusal(Method::GET, "/x", [127, 1, 0, 1]), "404 no page at /x; see /metrics\n");
        assert_eq!(
            refusal(Method::POST, "/metrics", [127, 1, 0, 1]),
            "405 only GET and HEAD are allowed\n"
        );
    }
}
