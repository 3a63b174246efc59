//! Serves the page over HTTP: rendered at most once a tick per format, served from memory, never calling the driver.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use gaunt_schema::{frame, ras_connection};
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY},
    service::service_fn,
};
use tokio::{
    net::TcpListener,
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    MetricsPage,
    connection_admission::{ConnectionAdmission, ConnectionLimits},
    host_check::{HostNames, protect_from_browsers},
    negotiation,
    server_connection::serve_connection,
    server_stream::{ConnectionStream, open_stream},
    web_access::{WebAccess, WebConfigError},
};

#[cfg(test)]
mod tests;

/// Some scrapers, their standbys, a few people. Responses are immediate, so every connection is idle or waits for its
/// client and one of them can always be evicted: no reserve is needed.
const LIMITS: ConnectionLimits = ConnectionLimits {
    seats: 64,
    seats_per_peer: 32,
    reserve: 0,
    head: Duration::from_secs(5),
    // Slightly longer than the period of a scraper that scrapes twice a minute.
    idle: Duration::from_secs(40),
    write: Duration::from_secs(5),
    answer: Some(Duration::from_secs(30)),
};

/// The delay after a failed accept: usually descriptors are exhausted, and immediate retries make it worse.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The text for people who open the address.
const INDEX: &str = "gaunt-node\n\n/metrics  metrics of this node, as Prometheus text\n\
                     /healthz  200 while the process lives\n";

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum MetricsServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {why}; pass --listen ADDRESS:PORT", why = render_bind_error(.said))]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// The kernel's error; part of the message, and therefore not its source.
        said: io::Error,
    },
    /// The web configuration is invalid.
    #[error(transparent)]
    WebConfig(#[from] WebConfigError),
}

/// The bind error in plain words.
fn render_bind_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "address in use".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// Binds an address.
pub async fn bind_listener(address: SocketAddr) -> Result<TcpListener, MetricsServeError> {
    TcpListener::bind(address)
        .await
        .map_err(|error| MetricsServeError::Listen { address, said: error })
}

/// The host names of this machine's exporter, and these `names`.
pub fn host_names(names: &[String]) -> HostNames {
    HostNames::new(names, "this exporter", "--name or names in its settings")
}

/// The served content; each part can change while connections stay.
#[derive(Clone)]
pub struct ServedPages {
    /// The newest page.
    pub pages: watch::Receiver<Arc<MetricsPage>>,
    /// The accepted host names.
    pub names: watch::Receiver<HostNames>,
    /// Changes with each request for the status of NCCL's RAS.
    pub ras_requests: watch::Sender<u64>,
    /// Who may read, if there is a web configuration.
    pub access: watch::Receiver<Option<Arc<WebAccess>>>,
}

/// Serves the newest page until it is dropped; keep-alive connections then end after the current response.
pub async fn serve_pages(listener: TcpListener, served: ServedPages) {
    serve_with_limits(listener, served, LIMITS).await;
}

/// The same, with other limits.
async fn serve_with_limits(listener: TcpListener, served: ServedPages, limits: ConnectionLimits) {
    let mut admission = ConnectionAdmission::new(limits);
    // Dropped with this task, which waiting connections observe.
    let (_open, closed) = watch::channel(());
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(permit) = admission.admit_connection(peer.ip(), Instant::now()) else {
            tracing::debug!("too many connections; closing one");
            continue;
        };
        let (served, mut closed) = (served.clone(), closed.clone());
        tokio::spawn(async move {
            let tls = served.access.borrow().as_ref().and_then(|access| access.server_tls());
            let Some(stream) = open_stream(ConnectionStream::Left(stream), tls, &permit).await
            else {
                return;
            };
            let answers = service_fn(move |request: Request<Incoming>| {
                let served = served.clone();
                async move { Ok::<_, Infallible>(answer_request(&request, &served, peer.ip()).await) }
            });
            let stop = async move { while closed.changed().await.is_ok() {} };
            serve_connection(stream, permit, answers, stop).await;
        });
    }
}

/// The media type of texts for people.
const PLAIN: &str = "text/plain; charset=utf-8";

/// The request headers that a response depends on.
const VARIES: &str = "accept, accept-encoding, x-gaunt-frame";

/// Answers a request if the web configuration permits it.
pub async fn answer_request<B>(
    request: &Request<B>,
    served: &ServedPages,
    peer: IpAddr,
) -> Response<Full<Bytes>> {
    let access = served.access.borrow().clone();
    let Some(access) = access else {
        let mut response = handle_request(request, served);
        protect_from_browsers(response.headers_mut());
        return response;
    };
    let mut response = match access.check_request(request.headers(), peer).await {
        Ok(()) => handle_request(request, served),
        Err(denied) => {
            let mut response = build_response(denied.status, PLAIN, denied.why);
            denied.add_headers(response.headers_mut());
            response
        }
    };
    protect_from_browsers(response.headers_mut());
    access.add_headers(response.headers_mut());
    response
}

fn handle_request<B>(request: &Request<B>, served: &ServedPages) -> Response<Full<Bytes>> {
    if let Err(refused) = served.names.borrow().check_request(request.uri(), request.headers()) {
        return build_response(refused.status, PLAIN, refused.why);
    }
    let method = request.method();
    if method != Method::GET && method != Method::HEAD {
        let mut refused = build_response(
            StatusCode::METHOD_NOT_ALLOWED,
            PLAIN,
            "method not allowed; use GET or HEAD\n",
        );
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match request.uri().path() {
        "/metrics" => {
            if request.headers().contains_key(ras_connection::REQUEST_HEADER) {
                served.ras_requests.send_modify(|requests| *requests += 1);
            }
            respond_metrics(request.headers(), &Arc::clone(&served.pages.borrow()))
        }
        "/healthz" => build_response(StatusCode::OK, PLAIN, "ok\n"),
        "/" => build_response(StatusCode::OK, PLAIN, INDEX),
        _ => build_response(StatusCode::NOT_FOUND, PLAIN, "not found; see /\n"),
    }
}

/// The page in the format that the client accepts.
fn respond_metrics(headers: &HeaderMap, page: &MetricsPage) -> Response<Full<Bytes>> {
    if !page.is_sampled() {
        let why = "no sample yet; retry in a second\n";
        return build_response(StatusCode::SERVICE_UNAVAILABLE, PLAIN, why);
    }
    if let Some(client_state) = negotiation::negotiate_frame(headers) {
        let mut response =
            build_response(StatusCode::OK, frame::CONTENT_TYPE, page.encode_frame(client_state));
        response.headers_mut().insert(VARY, HeaderValue::from_static(VARIES));
        return response;
    }
    let (format, gzip) =
        (negotiation::negotiate_format(headers), negotiation::accepts_gzip(headers));
    let bytes = match page.encode_page(format, gzip) {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::error!(%error, "cannot compress the page");
            let why = "cannot compress the page; retry without Accept-Encoding\n";
            return build_response(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, why);
        }
    };
    let mut response = build_response(StatusCode::OK, format.content_type(), bytes);
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static(VARIES));
    if gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// A complete response. The server omits the body if the request was HEAD.
fn build_response(
    status: StatusCode,
    content: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response
}
