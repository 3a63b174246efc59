//! Fetching one page: a kept-alive HTTP/1.1 connection, a bounded body, and one deadline over every step.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use gaunt_schema::{Budget, Excess, Failure, Safe, frame, plain_error, text};
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

use super::{Place, Reach, access::Ring, budget::Limits, reach::Names};

mod body;
mod coding;
mod connection;

pub(super) use body::Body;
use body::Pool;
use coding::Coding;
use connection::{Connection, Idle};

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
pub(super) struct Rules {
    /// The time for looking up, connecting, headers, body and decoding together.
    pub(super) timeout: Duration,
    /// The same as requests tell it.
    timeout_told: HeaderValue,
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
    steps: Arc<Semaphore>,
    pool: Arc<Pool>,
    names: Names,
    /// What the pages of all targets have in common.
    pub(super) layouts: text::Layouts,
    /// The same of frames.
    pub(super) frames: frame::Frames,
}

/// As many connections as the limit of open files leaves room for.
fn connections() -> (Arc<Semaphore>, usize) {
    use rustix::process::{Resource, getrlimit};

    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let others = (limit / 4).clamp(LEAST_OTHERS, MOST_OTHERS);
    let room = usize::try_from(limit.saturating_sub(others)).unwrap_or(usize::MAX);
    let room = room.clamp(1, Semaphore::MAX_PERMITS);
    (Arc::new(Semaphore::new(room)), room)
}

impl Rules {
    pub(super) fn new(timeout: Duration, max_body: usize, limits: &Limits) -> Self {
        let steps = usize::try_from(limits.all_bytes).unwrap_or(usize::MAX) / STEP;
        let told = HeaderValue::try_from(timeout.as_secs_f64().to_string());
        Self {
            timeout,
            timeout_told: told.unwrap_or(HeaderValue::from_static("1")),
            max_body,
            samples: usize::try_from(limits.samples).unwrap_or(usize::MAX),
            ratio: limits.ratio,
            large: Semaphore::new(LARGE_BODIES),
            connections: connections(),
            steps: Arc::new(Semaphore::new(steps.clamp(1, Semaphore::MAX_PERMITS))),
            pool: Arc::default(),
            names: Names::default(),
            layouts: text::Layouts::default(),
            frames: frame::Frames::default(),
        }
    }
}

/// What is asked for besides the page itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Manners {
    /// The media types that are understood.
    pub(super) accept: &'static str,
    /// Whether compression is asked for: it spares the wire and costs both ends more than it saves on a fast one.
    pub(super) compress: bool,
    /// Another header.
    pub(super) extra: Option<(HeaderName, HeaderValue)>,
}

/// The way to one target: its place, and its connection while it lasts.
#[derive(Debug)]
pub(super) struct Line {
    place: Place,
    /// The address of the page and the host, as every request says them.
    asked: Result<(Uri, HeaderValue), Safe>,
    reach: Arc<Reach>,
    keys: watch::Receiver<Ring>,
    manners: Manners,
    idle: Option<Idle>,
}

/// The steps of a fetch, as a timeout names them.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Step {
    LookingUp,
    Connecting,
    Greeting,
    Waiting,
    Reading,
    Seat,
}

/// Where a fetch stands, so that its timeout can say so.
#[derive(Debug, Default)]
struct Progress(AtomicU8);

impl Progress {
    fn at(&self, step: Step) {
        self.0.store(step as u8, Ordering::Relaxed);
    }

    fn failure(&self, limit: Duration) -> Failure {
        let step = match self.0.load(Ordering::Relaxed) {
            at if at == Step::LookingUp as u8 => "looking up its name",
            at if at == Step::Connecting as u8 => "connecting",
            at if at == Step::Greeting as u8 => "starting TLS",
            at if at == Step::Waiting as u8 => "waiting for headers",
            at if at == Step::Reading as u8 => "reading the page",
            _ => {
                let found = SMALL_BODY as u64;
                return Failure::OverBudget(Excess { budget: Budget::AllBytes, found, limit: 0 });
            }
        };
        Failure::Timeout(Safe::new(&format!("{step} (limit {limit:?})")))
    }
}

impl Line {
    pub(super) fn new(
        place: Place,
        reach: Arc<Reach>,
        keys: watch::Receiver<Ring>,
        manners: Manners,
    ) -> Self {
        let asked = asked(&place);
        Self { place, asked, reach, keys, manners, idle: None }
    }

    /// Says from now on what is held already; nothing if it is none.
    pub(super) fn hold(&mut self, holds: Option<frame::Holds>) {
        let said = holds.filter(|holds| holds.layout.is_some()).map(|holds| holds.to_string());
        let said = said.and_then(|said| HeaderValue::try_from(said).ok());
        self.manners.extra = said.map(|said| (HOLDS, said));
    }

    /// Asks for other media types from now on.
    pub(super) fn ask_for(&mut self, accept: &'static str) {
        self.manners.accept = accept;
    }

    /// One body, or why there is none. A connection that failed is not used again.
    pub(super) async fn fetch(&mut self, rules: &Rules) -> Result<Body, Failure> {
        let progress = Progress::default();
        let attempt = timeout(rules.timeout, self.attempt(rules, &progress)).await;
        attempt.unwrap_or_else(|_| Err(progress.failure(rules.timeout)))
    }

    async fn attempt(&mut self, rules: &Rules, progress: &Progress) -> Result<Body, Failure> {
        let (mut connection, response) = self.respond(rules, progress).await?;
        if response.status() != StatusCode::OK {
            return Err(Failure::Status(response.status().as_u16()));
        }
        let coding = Coding::of(response.headers().get(CONTENT_ENCODING))?;
        let media = media(response.headers());
        progress.at(Step::Reading);
        let mut body = Body::new(rules.pool.clone(), coding, media);
        connection.drive(read(response.into_body(), &mut body, rules, progress)).await?;
        body.finish()?;
        self.idle = connection.rest().await;
        Ok(body)
    }

    /// The head of the answer. A kept connection that the other side closed meanwhile is replaced once.
    async fn respond(
        &mut self,
        rules: &Rules,
        progress: &Progress,
    ) -> Result<(Connection, Response<Incoming>), Failure> {
        let keys = self.keys.borrow().clone().map_err(Failure::Forbidden)?;
        let authorization = keys.authorization.as_ref();
        if let Some(idle) = self.idle.take() {
            progress.at(Step::Waiting);
            match ask(idle, self.request(authorization, rules)?).await {
                Err(error) if connection::is_stale(&error) => {}
                answer => return answer.map_err(|error| broken(&error)),
            }
        }
        let way = connection::Way { place: &self.place, reach: &self.reach, keys: &keys };
        let fresh = way.connect(rules, progress).await?;
        progress.at(Step::Waiting);
        let answer = ask(fresh, self.request(authorization, rules)?).await;
        answer.map_err(|error| broken(&error))
    }

    fn request(
        &self,
        authorization: Option<&HeaderValue>,
        rules: &Rules,
    ) -> Result<Request<Empty<Bytes>>, Failure> {
        let (uri, host) = self.asked.clone().map_err(Failure::Forbidden)?;
        let codings = if self.manners.compress { CODINGS } else { "identity" };
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(HOST, host);
        headers.insert(ACCEPT, HeaderValue::from_static(self.manners.accept));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(codings));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(TIMEOUT, rules.timeout_told.clone());
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if let Some((name, value)) = &self.manners.extra {
            headers.insert(name, value.clone());
        }
        Ok(request)
    }
}

/// Wakes a connection, asks, and waits for the head of the answer.
async fn ask(
    idle: Idle,
    request: Request<Empty<Bytes>>,
) -> hyper::Result<(Connection, Response<Incoming>)> {
    let mut connection = idle.wake().await?;
    let response = connection.ask(request).await?;
    Ok((connection, response))
}

/// What every request to a place says, or why none can.
fn asked(place: &Place) -> Result<(Uri, HeaderValue), Safe> {
    let uri = Uri::try_from(&place.path).map_err(|_| Safe::new("its path cannot be asked for"))?;
    let host = HeaderValue::try_from(place.authority());
    Ok((uri, host.map_err(|_| Safe::new("its name cannot stand in a request"))?))
}

/// The media type of an answer, without its parameters' case.
fn media(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_ascii_lowercase()
}

/// Reads a body to its end, within every limit.
async fn read(
    mut incoming: Incoming,
    body: &mut Body,
    rules: &Rules,
    progress: &Progress,
) -> Result<(), Failure> {
    if incoming.size_hint().lower() > rules.max_body as u64 {
        return Err(Failure::TooLarge(rules.max_body as u64));
    }
    let mut seat = None;
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|error| broken(&error))?;
        let Ok(chunk) = frame.into_data() else { continue };
        let mut rest = &*chunk;
        while body.wants(rest) {
            if body.is_full() {
                progress.at(Step::Seat);
                if body.room() < SMALL_BODY {
                    body.widen(STEP, rules.steps.clone().acquire_owned().await.ok());
                } else {
                    if seat.is_none() {
                        seat = rules.large.acquire().await.ok();
                    }
                    body.widen(body.room(), None);
                }
                progress.at(Step::Reading);
            }
            body.take(&mut rest, rules.max_body, rules.ratio)?;
        }
    }
    Ok(())
}

pub(super) fn broken(error: &hyper::Error) -> Failure {
    Failure::Broken(Safe::new(&plain_error::network(error)))
}
