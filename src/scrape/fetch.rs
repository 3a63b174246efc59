//! Fetches one page: a keep-alive HTTP/1.1 connection, a bounded body, and one deadline over every step.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use gaunt_schema::{
    LimitExceeded, Quota, SanitizedText, ScrapeFailure, frame, plain_error, ras_connection, text,
};
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    HeaderMap, Request, Response, StatusCode, Uri,
    body::{Body as _, Bytes, Incoming},
    header::{
        ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName,
        HeaderValue, TRANSFER_ENCODING, USER_AGENT,
    },
};
use tokio::{
    sync::{Semaphore, watch},
    time::timeout,
};

use super::{
    AddressPolicy, Endpoint, address_policy::NameResolver, network::Network, quotas::ScrapeQuotas,
    server_access::CredentialState,
};

mod content_decoder;
mod fetched_body;
mod poll_waker;
mod target_connection;

use content_decoder::ContentDecoder;
use fetched_body::BodyBufferPool;
pub(super) use fetched_body::FetchedBody;
use target_connection::{ActiveConnection, IdleConnection};

/// The part of a body that is read without a permit, in bytes: twice a dcgm-exporter page of 8 GPUs with all labels.
const SMALL_BODY: usize = 512 << 10;

/// Bodies above [`SMALL_BODY`] that may be read at once: with the default limit of 16 MiB they take 256 MiB together.
const LARGE_BODIES: usize = 16;

/// File descriptors that are reserved for API clients, sources of targets and the recording. If targets used them all,
/// users could not connect to find out why.
const LEAST_OTHERS: u64 = 32;
const MOST_OTHERS: u64 = 1_024;

/// Bodies reserve memory in steps of this many bytes.
const STEP: usize = 64 << 10;

/// The `User-Agent` header.
const AGENT: &str = concat!("gaunt/", env!("CARGO_PKG_VERSION"));

/// The scrape timeout, for exporters that abort in time.
const TIMEOUT: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");

/// The client state for differential frames.
const HOLDS: HeaderName = HeaderName::from_static(frame::HOLDS);

/// Requests the status of NCCL's RAS.
const RAS_REQUEST: HeaderName = HeaderName::from_static(ras_connection::REQUEST_HEADER);

/// The supported content encodings, the cheaper one first.
const CODINGS: &str = "zstd, gzip;q=0.8, identity;q=0.5";

/// What all fetches of this process share.
#[derive(Debug)]
pub(super) struct FetchContext {
    /// The deadline of name lookup, connecting, headers, body and decoding together.
    pub(super) timeout: Duration,
    /// The same as a header value.
    timeout_header: HeaderValue,
    /// The largest body, in bytes, decompressed.
    pub(super) max_body: usize,
    /// Maximum number of samples of a page.
    pub(super) samples: usize,
    /// Maximum ratio of a body to its compressed size.
    ratio: u64,
    /// Permits for large bodies.
    large: Semaphore,
    /// Permits for open connections; their total number, for error messages.
    connections: (Arc<Semaphore>, usize),
    /// Permits for wide read buffers, in steps.
    wide_buffers: Arc<Semaphore>,
    /// Permits for memory of all bodies that are being read, in steps.
    memory_steps: Arc<Semaphore>,
    pool: Arc<BodyBufferPool>,
    names: NameResolver,
    /// The network that replaces TCP, if any.
    network: Option<Arc<dyn Network>>,
    /// Page templates of all targets.
    pub(super) layouts: text::TemplateCache,
    /// Decoder of frames, with what frames of all targets share.
    pub(super) frames: frame::FrameDecoder,
}

/// As many connections as the limit of open files allows.
fn connection_limit() -> (Arc<Semaphore>, usize) {
    use rustix::process::{Resource, getrlimit};

    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let reserved = (limit / 4).clamp(LEAST_OTHERS, MOST_OTHERS);
    let connections = usize::try_from(limit.saturating_sub(reserved)).unwrap_or(usize::MAX);
    let connections = connections.clamp(1, Semaphore::MAX_PERMITS);
    (Arc::new(Semaphore::new(connections)), connections)
}

impl FetchContext {
    /// Connects over this network instead of TCP.
    pub(super) fn with_network(self, network: Option<Arc<dyn Network>>) -> Self {
        Self { network, ..self }
    }

    pub(super) fn new(timeout: Duration, max_body: usize, limits: &ScrapeQuotas) -> Self {
        let steps = usize::try_from(limits.all_bytes).unwrap_or(usize::MAX) / STEP;
        let timeout_header = HeaderValue::try_from(timeout.as_secs_f64().to_string());
        Self {
            timeout,
            timeout_header: timeout_header.unwrap_or(HeaderValue::from_static("1")),
            max_body,
            samples: usize::try_from(limits.samples).unwrap_or(usize::MAX),
            ratio: limits.ratio,
            large: Semaphore::new(LARGE_BODIES),
            connections: connection_limit(),
            wide_buffers: Arc::new(Semaphore::new(target_connection::WIDE_STEPS)),
            memory_steps: Arc::new(Semaphore::new(steps.clamp(1, Semaphore::MAX_PERMITS))),
            pool: Arc::default(),
            names: NameResolver::default(),
            network: None,
            layouts: text::TemplateCache::default(),
            frames: frame::FrameDecoder::default(),
        }
    }
}

/// Request options besides the URL.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestOptions {
    /// The `Accept` header.
    pub(super) accept: &'static str,
    /// Whether compression is requested: it saves bandwidth, but on a fast network costs both ends more than it saves.
    pub(super) compress: bool,
    /// An additional header.
    pub(super) extra: Option<(HeaderName, HeaderValue)>,
    /// Whether the status of NCCL's RAS is requested as well.
    pub(super) requests_ras: bool,
}

/// The client of one target: its endpoint, and its connection while it is open.
#[derive(Debug)]
pub(super) struct TargetClient {
    endpoint: Endpoint,
    /// The URI of the page and the `Host` header of every request.
    uri_and_host: Result<(Uri, HeaderValue), SanitizedText>,
    address_policy: Arc<AddressPolicy>,
    credentials: watch::Receiver<CredentialState>,
    options: RequestOptions,
    idle: Option<IdleConnection>,
    /// Bytes of the last body, as they were transferred.
    last_bytes: usize,
}

/// The steps of a fetch, as timeout errors name them.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum FetchStep {
    LookingUp,
    Connecting,
    TlsHandshake,
    Waiting,
    Reading,
    WaitingForMemory,
}

/// The current step of a fetch, for timeout errors.
#[derive(Debug, Default)]
struct FetchProgress(AtomicU8);

impl FetchProgress {
    fn enter_step(&self, step: FetchStep) {
        self.0.store(step as u8, Ordering::Relaxed);
    }

    fn timeout_failure(&self, limit: Duration) -> ScrapeFailure {
        let step = match self.0.load(Ordering::Relaxed) {
            current if current == FetchStep::LookingUp as u8 => "resolving its name",
            current if current == FetchStep::Connecting as u8 => "connecting",
            current if current == FetchStep::TlsHandshake as u8 => "starting TLS",
            current if current == FetchStep::Waiting as u8 => "waiting for headers",
            current if current == FetchStep::Reading as u8 => "reading the page",
            _ => {
                let found = SMALL_BODY as u64;
                return ScrapeFailure::OverBudget(LimitExceeded {
                    budget: Quota::AllBytes,
                    found,
                    limit: 0,
                });
            }
        };
        ScrapeFailure::Timeout(SanitizedText::new(&format!("{step} (limit {limit:?})")))
    }
}

impl TargetClient {
    pub(super) fn new(
        endpoint: Endpoint,
        address_policy: Arc<AddressPolicy>,
        credentials: watch::Receiver<CredentialState>,
        options: RequestOptions,
    ) -> Self {
        let uri_and_host = uri_and_host(&endpoint);
        Self {
            endpoint,
            uri_and_host,
            address_policy,
            credentials,
            options,
            idle: None,
            last_bytes: 0,
        }
    }

    /// Sends this client state from now on; nothing if it is none.
    pub(super) fn set_client_state(&mut self, state: Option<frame::ClientState>) {
        let header = state.filter(|state| state.layout.is_some()).map(|state| state.to_string());
        let header = header.and_then(|header| HeaderValue::try_from(header).ok());
        self.options.extra = header.map(|header| (HOLDS, header));
    }

    /// Sets whether each request also asks for the status of NCCL's RAS.
    pub(super) fn set_ras_request(&mut self, requests_ras: bool) {
        self.options.requests_ras = requests_ras;
    }

    /// Requests other media types from now on.
    pub(super) fn set_accept(&mut self, accept: &'static str) {
        self.options.accept = accept;
    }

    /// Fetches one body. A connection that failed is not used again.
    pub(super) async fn fetch_body(
        &mut self,
        context: &FetchContext,
    ) -> Result<FetchedBody, ScrapeFailure> {
        let progress = FetchProgress::default();
        let attempt = timeout(context.timeout, self.try_fetch(context, &progress)).await;
        attempt.unwrap_or_else(|_| Err(progress.timeout_failure(context.timeout)))
    }

    async fn try_fetch(
        &mut self,
        context: &FetchContext,
        progress: &FetchProgress,
    ) -> Result<FetchedBody, ScrapeFailure> {
        let (mut connection, response) = self.send_with_retry(context, progress).await?;
        if response.status() != StatusCode::OK {
            return Err(ScrapeFailure::Status(response.status().as_u16()));
        }
        let coding = ContentDecoder::of(response.headers().get(CONTENT_ENCODING))?;
        let media_type = content_type(response.headers());
        let has_length = response.body().size_hint().exact().is_some()
            || response.headers().contains_key(TRANSFER_ENCODING);
        progress.enter_step(FetchStep::Reading);
        let mut body = FetchedBody::new(context.pool.clone(), coding, media_type);
        self.last_bytes = connection
            .drive_while(read_body(response.into_body(), &mut body, context, progress))
            .await?;
        body.check_complete(has_length)?;
        self.idle = connection.into_idle().await;
        Ok(body)
    }

    /// Sends a request and returns the response head. A kept connection that the peer has closed is replaced once.
    async fn send_with_retry(
        &mut self,
        context: &FetchContext,
        progress: &FetchProgress,
    ) -> Result<(ActiveConnection, Response<Incoming>), ScrapeFailure> {
        let credentials = self.credentials.borrow().clone().map_err(ScrapeFailure::Forbidden)?;
        let authorization = credentials.authorization.as_ref();
        if let Some(idle) = self.idle.take() {
            progress.enter_step(FetchStep::Waiting);
            let request = self.build_request(authorization, context)?;
            match send_on_idle(idle, request, self.last_bytes, context).await {
                Err(error) if target_connection::is_stale(&error) => {}
                response => return response.map_err(|error| connection_failure(&error)),
            }
        }
        let connector = target_connection::EndpointConnector {
            endpoint: &self.endpoint,
            address_policy: &self.address_policy,
            credentials: &credentials,
        };
        let connection = connector.open_connection(context, progress).await?;
        progress.enter_step(FetchStep::Waiting);
        let request = self.build_request(authorization, context)?;
        let response = send_on_idle(connection, request, self.last_bytes, context).await;
        response.map_err(|error| connection_failure(&error))
    }

    fn build_request(
        &self,
        authorization: Option<&HeaderValue>,
        context: &FetchContext,
    ) -> Result<Request<Empty<Bytes>>, ScrapeFailure> {
        let (uri, host) = self.uri_and_host.clone().map_err(ScrapeFailure::Forbidden)?;
        let codings = if self.options.compress { CODINGS } else { "identity" };
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(HOST, host);
        headers.insert(ACCEPT, HeaderValue::from_static(self.options.accept));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(codings));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(TIMEOUT, context.timeout_header.clone());
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if self.options.requests_ras {
            headers.insert(RAS_REQUEST, HeaderValue::from_static("status"));
        }
        if let Some((name, value)) = &self.options.extra {
            headers.insert(name, value.clone());
        }
        Ok(request)
    }
}

/// Activates an idle connection, sends a request, and waits for the response head.
async fn send_on_idle(
    idle: IdleConnection,
    request: Request<Empty<Bytes>>,
    last_bytes: usize,
    context: &FetchContext,
) -> hyper::Result<(ActiveConnection, Response<Incoming>)> {
    let mut connection = idle.into_active(last_bytes, context).await?;
    let response = connection.send_request(request).await?;
    Ok((connection, response))
}

/// The URI and `Host` header for an endpoint, or why it has none.
fn uri_and_host(endpoint: &Endpoint) -> Result<(Uri, HeaderValue), SanitizedText> {
    let uri = Uri::try_from(&endpoint.path)
        .map_err(|_| SanitizedText::new("its path is not valid in a request"))?;
    let host = HeaderValue::try_from(endpoint.host_and_port());
    Ok((uri, host.map_err(|_| SanitizedText::new("its host name is not valid in a request"))?))
}

/// The content type of a response, in lower case.
fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_ascii_lowercase()
}

/// Reads a body to its end, within all limits; returns its bytes as they were transferred.
async fn read_body(
    mut incoming: Incoming,
    body: &mut FetchedBody,
    context: &FetchContext,
    progress: &FetchProgress,
) -> Result<usize, ScrapeFailure> {
    if incoming.size_hint().lower() > context.max_body as u64 {
        return Err(ScrapeFailure::TooLarge(context.max_body as u64));
    }
    let (mut permit, mut transferred) = (None, 0);
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|error| connection_failure(&error))?;
        let Ok(chunk) = frame.into_data() else { continue };
        transferred += chunk.len();
        let mut input = &*chunk;
        while body.has_pending(input) {
            if body.is_full() {
                progress.enter_step(FetchStep::WaitingForMemory);
                if body.usable_bytes() < SMALL_BODY {
                    body.grow_buffer(STEP, context.memory_steps.clone().acquire_owned().await.ok());
                } else {
                    if permit.is_none() {
                        permit = context.large.acquire().await.ok();
                    }
                    body.grow_buffer(body.usable_bytes(), None);
                }
                progress.enter_step(FetchStep::Reading);
            }
            body.decode_chunk(&mut input, context.max_body, context.ratio)?;
        }
    }
    Ok(transferred)
}

pub(super) fn connection_failure(error: &hyper::Error) -> ScrapeFailure {
    ScrapeFailure::Broken(SanitizedText::new(&plain_error::network(error)))
}
