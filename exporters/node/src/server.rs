//! The page over HTTP: written at most once a tick in each form, served from memory, never touching the driver.

use std::{io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use gaunt_schema::frame;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncReadExt, copy, sink},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    time::{sleep, timeout},
};

use crate::{Page, negotiation};

/// The most connections at a time: some scrapers, their standbys, a few people. More are closed at once.
const MAX_CONNECTIONS: usize = 64;

/// How long a client may take to send its request's head, and how long an idle connection is kept.
const HEADER_DEADLINE: Duration = Duration::from_secs(90);

/// How long a connection may live. A client that reads nothing holds its place no longer than this.
const CONNECTION_LIFE: Duration = Duration::from_mins(10);

/// How long a connection may take for what is under way when its life ends.
const LAST_ANSWER: Duration = Duration::from_secs(5);

/// The room for a request's head in bytes. Prometheus sends about 300.
const MAX_HEAD: usize = 16 * 1024;

/// How many bytes of a refused request are still taken, and for how long.
const MAX_UNREAD: u64 = 1024 * 1024;
const LINGER: Duration = Duration::from_secs(1);

/// The wait after the listener failed: out of descriptors, usually, which more haste makes worse.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a person sees who opens the address.
const INDEX: &str = "gaunt-node\n\n/metrics  everything that is known of this node, as Prometheus text\n\
                     /healthz  whether this program lives\n";

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {why}; pass --listen ADDRESS:PORT", why = reason(.said))]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// What the kernel said; part of the sentence, and so not its source.
        said: io::Error,
    },
}

/// What the kernel said, in the words that people know.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "address in use".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// Listens on an address.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|said| ServeError::Listen { address, said })
}

/// Serves the newest page until the process ends.
pub async fn serve(listener: TcpListener, pages: watch::Receiver<Arc<Page>>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::debug!("too many connections; one is closed");
            continue;
        };
        let pages = pages.clone();
        tokio::spawn(async move {
            converse(stream, pages).await;
            drop(place);
        });
    }
}

/// Answers one connection's requests.
async fn converse(stream: TcpStream, pages: watch::Receiver<Arc<Page>>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(&request, &pages);
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let ended = if let Ok(ended) = timeout(CONNECTION_LIFE, &mut connection).await {
        ended
    } else {
        Pin::new(&mut connection).graceful_shutdown();
        timeout(LAST_ANSWER, &mut connection).await.unwrap_or(Ok(()))
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection broke");
        linger(connection.into_parts().io.into_inner()).await;
    }
}

/// Reads on for a moment after a request was refused. Closed with bytes unread, the kernel resets the connection, and the
/// client loses the answer that says why.
async fn linger(stream: TcpStream) {
    let mut rest = stream.take(MAX_UNREAD);
    // However this ends, the connection is closed next.
    let _ended = timeout(LINGER, copy(&mut rest, &mut sink())).await;
}

/// The media type of what is meant for people.
const PLAIN: &str = "text/plain; charset=utf-8";

/// What an answer hangs on beside its address.
const VARIES: &str = "accept, accept-encoding, x-gaunt-frame";

fn answer(
    request: &Request<Incoming>,
    pages: &watch::Receiver<Arc<Page>>,
) -> Response<Full<Bytes>> {
    let method = request.method();
    if method != Method::GET && method != Method::HEAD {
        let mut refused = respond(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET and HEAD\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match request.uri().path() {
        "/metrics" => metrics(request.headers(), &Arc::clone(&pages.borrow())),
        "/healthz" => respond(StatusCode::OK, PLAIN, "ok\n"),
        "/" => respond(StatusCode::OK, PLAIN, INDEX),
        _ => respond(StatusCode::NOT_FOUND, PLAIN, "not here; see /\n"),
    }
}

/// The page in the form that the client can read.
fn metrics(headers: &HeaderMap, page: &Page) -> Response<Full<Bytes>> {
    if !page.is_sampled() {
        let why = "the first sample is being taken; ask again in a second\n";
        return respond(StatusCode::SERVICE_UNAVAILABLE, PLAIN, why);
    }
    if let Some(holds) = negotiation::frame(headers) {
        let mut response = respond(StatusCode::OK, frame::CONTENT_TYPE, page.frame(holds));
        response.headers_mut().insert(VARY, HeaderValue::from_static(VARIES));
        return response;
    }
    let (form, gzip) = (negotiation::form(headers), negotiation::gzip(headers));
    let bytes = match page.bytes(form, gzip) {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::error!(%error, "cannot compress the page");
            let why = "the page cannot be compressed; ask without Accept-Encoding\n";
            return respond(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, why);
        }
    };
    let mut response = respond(StatusCode::OK, form.content_type(), bytes);
    let answered = response.headers_mut();
    answered.insert(VARY, HeaderValue::from_static(VARIES));
    if gzip {
        answered.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// A whole response. The server leaves the body out where the request was HEAD.
fn respond(
    status: StatusCode,
    content: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response
}
