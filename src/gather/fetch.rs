//! Fetching one page: a kept-alive HTTP/1.1 connection, a bounded body, and one deadline over every step.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use gaunt_schema::{LimitExceeded, Quota, SanitizedText, ScrapeFailure, frame, plain_error, text};
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    HeaderMap, Request, Response, StatusCode, Uri,
    body::{Body as _, Bytes, Incoming},
    header::{
        ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName,
        HeaderValue, USER_AGENT,
    },
};
use tokio::{
    sync::{Semaphore, watch},
    time::timeout,
};

use super::{
    AddressPolicy, Endpoint, address_policy::NameResolver, quotas::ScrapeQuotas,
    server_access::CredentialState,
};

mod content_decoder;
mod fetched_body;
mod target_connection;

use content_decoder::ContentDecoder;
use fetched_body::BodyBufferPool;
pub(super) use fetched_body::FetchedBody;
use target_connection::{ActiveConnection, IdleConnection};

/// The part of a body that is read without a seat, in bytes: twice a dcgm-exporter page of 8 GPUs with all labels.
const SMALL_BODY: usize = 512 << 10;

/// Bodies above [`SMALL_BODY`] that may be read at once: with the default limit of 16 MiB they hold 256 MiB together.
const LARGE_BODIES: usize = 16;

/// Files that are left for others: who asks, sources of targets, the recording. Targets that took them all would lock
/// out those who want to know why.
const LEAST_OTHERS: u64 = 32;
const MOST_OTHERS: u64 = 1_024;

/// Bodies claim memory in steps of this many bytes.
const STEP: usize = 64 << 10;

/// Who asks.
const AGENT: &str = concat!("gaunt/", env!("CARGO_PKG_VERSION"));

/// How long the answer may take, for exporters that give up in time.
const TIMEOUT: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");

/// What is held already.
const HOLDS: HeaderName = HeaderName::from_static(frame::HOLDS);

/// The codings that are understood, the cheaper one first.
const CODINGS: &str = "zstd, gzip;q=0.8, identity;q=0.5";

/// What every fetch of this process shares.
#[derive(Debug)]
pub(super) struct FetchContext {
    /// The time for looking up, connecting, headers, body and decoding together.
    pub(super) timeout: Duration,
    /// The same as requests tell it.
    timeout_header: HeaderValue,
    /// The largest body, in bytes, decompressed.
    pub(super) max_body: usize,
    /// The most samples of a page.
    pub(super) samples: usize,
    /// How many times its compressed size a body may have.
    ratio: u64,
    /// Seats for large bodies.
    large: Semaphore,
    /// Connections that may stand at once; how many, for whoever gets none.
    connections: (Arc<Semaphore>, usize),
    /// Steps of memory for all bodies that are being read.
    memory_steps: Arc<Semaphore>,
    pool: Arc<BodyBufferPool>,
    names: NameResolver,
    /// What the pages of all targets have in common.
    pub(super) layouts: text::TemplateCache,
    /// The same of frames.
    pub(super) frames: frame::FrameDecoder,
}

/// As many connections as the limit of open files leaves room for.
fn connection_limit() -> (Arc<Semaphore>, usize) {
    use rustix::process::{Resource, getrlimit};

    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let others = (limit / 4).clamp(LEAST_OTHERS, MOST_OTHERS);
    let room = usize::try_from(limit.saturating_sub(others)).unwrap_or(usize::MAX);
    let room = room.clamp(1, Semaphore::MAX_PERMITS);
    (Arc::new(Semaphore::new(room)), room)
}

impl FetchContext {
    pub(super) fn new(timeout: Duration, max_body: usize, limits: &ScrapeQuotas) -> Self {
        let steps = usize::try_from(limits.all_bytes).unwrap_or(usize::MAX) / STEP;
        let told = HeaderValue::try_from(timeout.as_secs_f64().to_string());
        Self {
            timeout,
            timeout_header: told.unwrap_or(HeaderValue::from_static("1")),
            max_body,
            samples: usize::try_from(limits.samples).unwrap_or(usize::MAX),
            ratio: limits.ratio,
            large: Semaphore::new(LARGE_BODIES),
            connections: connection_limit(),
            memory_steps: Arc::new(Semaphore::new(steps.clamp(1, Semaphore::MAX_PERMITS))),
            pool: Arc::default(),
            names: NameResolver::default(),
            layouts: text::TemplateCache::default(),
            frames: frame::FrameDecoder::default(),
        }
    }
}

/// What is asked for besides the page itself.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestOptions {
    /// The media types that are understood.
    pub(super) accept: &'static str,
    /// Whether compression is asked for: it spares the wire and costs both ends more than it saves on a fast one.
    pub(super) compress: bool,
    /// Another header.
    pub(super) extra: Option<(HeaderName, HeaderValue)>,
}

/// The way to one target: its place, and its connection while it lasts.
#[derive(Debug)]
pub(super) struct TargetClient {
    endpoint: Endpoint,
    /// The address of the page and the host, as every request says them.
    uri_and_host: Result<(Uri, HeaderValue), SanitizedText>,
    address_policy: Arc<AddressPolicy>,
    credentials: watch::Receiver<CredentialState>,
    options: RequestOptions,
    idle: Option<IdleConnection>,
}

/// The steps of a fetch, as a timeout names them.
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

/// Where a fetch stands, so that its timeout can say so.
#[derive(Debug, Default)]
struct FetchProgress(AtomicU8);

impl FetchProgress {
    fn enter_step(&self, step: FetchStep) {
        self.0.store(step as u8, Ordering::Relaxed);
    }

    fn timeout_failure(&self, limit: Duration) -> ScrapeFailure {
        let step = match self.0.load(Ordering::Relaxed) {
            at if at == FetchStep::LookingUp as u8 => "looking up its name",
            at if at == FetchStep::Connecting as u8 => "connecting",
            at if at == FetchStep::TlsHandshake as u8 => "starting TLS",
            at if at == FetchStep::Waiting as u8 => "waiting for headers",
            at if at == FetchStep::Reading as u8 => "reading the page",
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
        place: Endpoint,
        reach: Arc<AddressPolicy>,
        keys: watch::Receiver<CredentialState>,
        manners: RequestOptions,
    ) -> Self {
        let asked = uri_and_host(&place);
        Self {
            endpoint: place,
            uri_and_host: asked,
            address_policy: reach,
            credentials: keys,
            options: manners,
            idle: None,
        }
    }

    /// Says from now on what is held already; nothing if it is none.
    pub(super) fn set_client_state(&mut self, holds: Option<frame::ClientState>) {
        let said = holds.filter(|holds| holds.layout.is_some()).map(|holds| holds.to_string());
        let said = said.and_then(|said| HeaderValue::try_from(said).ok());
        self.options.extra = said.map(|said| (HOLDS, said));
    }

    /// Asks for other media types from now on.
    pub(super) fn set_accept(&mut self, accept: &'static str) {
        self.options.accept = accept;
    }

    /// One body, or why there is none. A connection that failed is not used again.
    pub(super) async fn fetch_body(
        &mut self,
        rules: &FetchContext,
    ) -> Result<FetchedBody, ScrapeFailure> {
        let progress = FetchProgress::default();
        let attempt = timeout(rules.timeout, self.try_fetch(rules, &progress)).await;
        attempt.unwrap_or_else(|_| Err(progress.timeout_failure(rules.timeout)))
    }

    async fn try_fetch(
        &mut self,
        rules: &FetchContext,
        progress: &FetchProgress,
    ) -> Result<FetchedBody, ScrapeFailure> {
        let (mut connection, response) = self.send_with_retry(rules, progress).await?;
        if response.status() != StatusCode::OK {
            return Err(ScrapeFailure::Status(response.status().as_u16()));
        }
        let coding = ContentDecoder::of(response.headers().get(CONTENT_ENCODING))?;
        let media = content_type(response.headers());
        progress.enter_step(FetchStep::Reading);
        let mut body = FetchedBody::new(rules.pool.clone(), coding, media);
        connection.drive_while(read_body(response.into_body(), &mut body, rules, progress)).await?;
        body.check_complete()?;
        self.idle = connection.into_idle().await;
        Ok(body)
    }

    /// The head of the answer. A kept connection that the other side closed meanwhile is replaced once.
    async fn send_with_retry(
        &mut self,
        rules: &FetchContext,
        progress: &FetchProgress,
    ) -> Result<(ActiveConnection, Response<Incoming>), ScrapeFailure> {
        let keys = self.credentials.borrow().clone().map_err(ScrapeFailure::Forbidden)?;
        let authorization = keys.authorization.as_ref();
        if let Some(idle) = self.idle.take() {
            progress.enter_step(FetchStep::Waiting);
            match send_on_idle(idle, self.build_request(authorization, rules)?).await {
                Err(error) if target_connection::is_stale(&error) => {}
                answer => return answer.map_err(|error| connection_failure(&error)),
            }
        }
        let way = target_connection::EndpointConnector {
            endpoint: &self.endpoint,
            address_policy: &self.address_policy,
            credentials: &keys,
        };
        let fresh = way.open_connection(rules, progress).await?;
        progress.enter_step(FetchStep::Waiting);
        let answer = send_on_idle(fresh, self.build_request(authorization, rules)?).await;
        answer.map_err(|error| connection_failure(&error))
    }

    fn build_request(
        &self,
        authorization: Option<&HeaderValue>,
        rules: &FetchContext,
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
        headers.insert(TIMEOUT, rules.timeout_header.clone());
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if let Some((name, value)) = &self.options.extra {
            headers.insert(name, value.clone());
        }
        Ok(request)
    }
}

/// Wakes a connection, asks, and waits for the head of the answer.
async fn send_on_idle(
    idle: IdleConnection,
    request: Request<Empty<Bytes>>,
) -> hyper::Result<(ActiveConnection, Response<Incoming>)> {
    let mut connection = idle.into_active().await?;
    let response = connection.send_request(request).await?;
    Ok((connection, response))
}

/// What every request to a place says, or why none can.
fn uri_and_host(place: &Endpoint) -> Result<(Uri, HeaderValue), SanitizedText> {
    let uri = Uri::try_from(&place.path)
        .map_err(|_| SanitizedText::new("its path cannot be asked for"))?;
    let host = HeaderValue::try_from(place.host_and_port());
    Ok((uri, host.map_err(|_| SanitizedText::new("its name cannot stand in a request"))?))
}

/// The media type of an answer, without its parameters' case.
fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_ascii_lowercase()
}

/// Reads a body to its end, within every limit.
async fn read_body(
    mut incoming: Incoming,
    body: &mut FetchedBody,
    rules: &FetchContext,
    progress: &FetchProgress,
) -> Result<(), ScrapeFailure> {
    if incoming.size_hint().lower() > rules.max_body as u64 {
        return Err(ScrapeFailure::TooLarge(rules.max_body as u64));
    }
    let mut seat = None;
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|error| connection_failure(&error))?;
        let Ok(chunk) = frame.into_data() else { continue };
        let mut rest = &*chunk;
        while body.has_pending(rest) {
            if body.is_full() {
                progress.enter_step(FetchStep::WaitingForMemory);
                if body.usable_bytes() < SMALL_BODY {
                    body.grow_buffer(STEP, rules.memory_steps.clone().acquire_owned().await.ok());
                } else {
                    if seat.is_none() {
                        seat = rules.large.acquire().await.ok();
                    }
                    body.grow_buffer(body.usable_bytes(), None);
                }
                progress.enter_step(FetchStep::Reading);
            }
            body.decode_chunk(&mut rest, rules.max_body, rules.ratio)?;
        }
    }
    Ok(())
}

pub(super) fn connection_failure(error: &hyper::Error) -> ScrapeFailure {
    ScrapeFailure::Broken(SanitizedText::new(&plain_error::network(error)))
}
