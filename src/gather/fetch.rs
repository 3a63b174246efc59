//! Fetching one page: a kept-alive HTTP/1.1 connection, a bounded body, and one deadline over every step.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use gaunt_schema::{Failure, Page, Safe, text};
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    Request, Response, StatusCode,
    body::{Body as _, Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
    header::{ACCEPT, CONTENT_ENCODING, HOST, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, sync::Semaphore, task::AbortHandle, time::timeout};

use super::Place;

/// The read buffer of one connection, in bytes, which also bounds the headers: 20,000 connections hold 320 MiB at
/// the very most, and pages are copied out of it chunk by chunk.
const BUFFER: usize = 16 << 10;

/// The part of a body that is read without a seat, in bytes: twice a dcgm-exporter page of 8 GPUs with all labels.
const SMALL_BODY: usize = 512 << 10;

/// Bodies above [`SMALL_BODY`] that may be read at once: with the default limit of 16 MiB they hold 256 MiB together.
pub(super) const LARGE_BODIES: usize = 16;

/// What is asked of a target.
const TEXT_PAGE: &str = "text/plain;version=0.0.4";

/// Who asks.
const AGENT: &str = concat!("gaunt/", env!("CARGO_PKG_VERSION"));

/// How a page is fetched, the same for every target.
#[derive(Debug)]
pub(super) struct Rules {
    /// The time for connecting, headers, body and decoding together.
    pub(super) timeout: Duration,
    /// What a page may hold.
    pub(super) limits: text::Limits,
    /// Seats for large bodies.
    pub(super) large: Semaphore,
}

/// The way to one target: its place, and its connection while it lasts.
#[derive(Debug)]
pub(super) struct Line {
    place: Place,
    host: String,
    connection: Option<Connection>,
    body: Vec<u8>,
}

/// An open connection. Dropping it ends the task that drives it.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    driver: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The steps of a fetch, as a timeout names them.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Step {
    Connecting,
    Waiting,
    Reading,
    Seat,
}

/// Where a fetch stands, so that its timeout can say so.
#[derive(Clone)]
struct Progress(Arc<AtomicU8>);

impl Progress {
    fn at(&self, step: Step) {
        self.0.store(step as u8, Ordering::Relaxed);
    }

    fn failure(&self, limit: Duration) -> Failure {
        let step = match self.0.load(Ordering::Relaxed) {
            at if at == Step::Connecting as u8 => "connecting",
            at if at == Step::Waiting as u8 => "waiting for headers",
            at if at == Step::Reading as u8 => "reading the page",
            _ => return Failure::Skipped,
        };
        Failure::Timeout(Safe::new(&format!("{step} (limit {limit:?})")))
    }
}

impl Line {
    pub(super) fn new(place: Place) -> Self {
        let host = place.to_string();
        Self { place, host, connection: None, body: Vec::new() }
    }

    /// One page, or why there is none. A connection that failed is not used again.
    pub(super) async fn fetch(&mut self, rules: &Rules) -> Result<Page, Failure> {
        let progress = Progress(Arc::new(AtomicU8::new(Step::Connecting as u8)));
        let attempt = timeout(rules.timeout, self.attempt(rules, &progress)).await;
        let result = attempt.unwrap_or_else(|_| Err(progress.failure(rules.timeout)));
        if result.is_err() {
            self.connection = None;
        }
        // One large page does not keep its buffer for ever.
        if self.body.capacity() > SMALL_BODY {
            self.body = Vec::new();
        }
        result
    }

    async fn attempt(&mut self, rules: &Rules, progress: &Progress) -> Result<Page, Failure> {
        let response = self.respond(progress).await?;
        if response.status() != StatusCode::OK {
            return Err(Failure::Status(response.status().as_u16()));
        }
        if let Some(coding) = response.headers().get(CONTENT_ENCODING)
            && coding != "identity"
        {
            let coding = String::from_utf8_lossy(coding.as_bytes());
            let why = format!("it is encoded as {coding}, which was not asked for");
            return Err(Failure::NotAPage(Safe::new(&why)));
        }
        progress.at(Step::Reading);
        self.read(response.into_body(), rules, progress).await?;
        text::decode(&self.body, &rules.limits)
    }

    /// The head of the answer. A kept connection that the other side closed meanwhile is replaced once.
    async fn respond(&mut self, progress: &Progress) -> Result<Response<Incoming>, Failure> {
        if let Some(mut kept) = self.connection.take()
            && kept.sender.ready().await.is_ok()
        {
            progress.at(Step::Waiting);
            match kept.sender.send_request(self.request()?).await {
                Ok(response) => {
                    self.connection = Some(kept);
                    return Ok(response);
                }
                Err(error) if !is_stale(&error) => return Err(broken(&error)),
                Err(_) => progress.at(Step::Connecting),
            }
        }
        let mut fresh = self.connect().await?;
        progress.at(Step::Waiting);
        let response =
            fresh.sender.send_request(self.request()?).await.map_err(|error| broken(&error))?;
        self.connection = Some(fresh);
        Ok(response)
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let refused = |error: io::Error| Failure::Connect(Safe::new(&reason(&error)));
        let stream = TcpStream::connect((self.place.host.as_str(), self.place.port))
            .await
            .map_err(refused)?;
        stream.set_nodelay(true).map_err(refused)?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(&error))?;
        // What goes wrong on the connection is told to whoever waits on the sender.
        let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Connection { sender, driver })
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>, Failure> {
        Request::get("/metrics")
            .header(HOST, &self.host)
            .header(ACCEPT, TEXT_PAGE)
            .header(USER_AGENT, AGENT)
            .body(Empty::new())
            .map_err(|error| Failure::Connect(Safe::new(&error.to_string())))
    }

    async fn read(
        &mut self,
        mut incoming: Incoming,
        rules: &Rules,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let limit = rules.limits.body_bytes;
        let too_large = || Failure::TooLarge(limit as u64);
        if incoming.size_hint().lower() > limit as u64 {
            return Err(too_large());
        }
        self.body.clear();
        let mut seat = None;
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(|error| broken(&error))?;
            let Ok(chunk) = frame.into_data() else { continue };
            let size = self.body.len() + chunk.len();
            if size > limit {
                return Err(too_large());
            }
            if size > SMALL_BODY && seat.is_none() {
                progress.at(Step::Seat);
                seat = rules.large.acquire().await.ok();
                progress.at(Step::Reading);
            }
            self.body.extend_from_slice(&chunk);
        }
        Ok(())
    }
}

/// Whether a request on a kept connection met one that the other side had closed before it answered.
fn is_stale(error: &hyper::Error) -> bool {
    error.is_canceled() || error.is_closed() || error.is_incomplete_message()
}

fn broken(error: &hyper::Error) -> Failure {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let mut why = error.to_string();
    let last = cause.to_string();
    if !why.contains(&last) {
        why = format!("{why}: {last}");
    }
    Failure::Broken(Safe::new(&why))
}

/// The system's reason in words that a person uses.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "host unreachable".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network unreachable".to_owned(),
        _ => error.to_string(),
    }
}
