//! A connection to a target: the checked address, TLS if required, and HTTP/1.1 over it.
//!
//! The task that sends the request also drives the connection, instead of a task of its own: 12,500 idle connections
//! need no tasks, and a page needs no task switch for each piece. Between two pages only the stream is kept: idle
//! connections have no buffers.

use std::{
    fmt,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    task::Poll,
};

use gaunt_schema::{SanitizedText, ScrapeFailure, plain_error};
use http_body_util::Empty;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, sync::OwnedSemaphorePermit, time::timeout};
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::{FetchContext, FetchProgress, FetchStep, poll_waker::PollWaker};
use crate::{
    AddressPolicy, Endpoint, endpoint::UrlScheme, network::NetworkStream,
    server_access::LoadedCredentials,
};

/// The read buffer of an active connection, in bytes, which also bounds the headers; pages are copied out of it chunk
/// by chunk. Hyper may use twice as much: 20,000 simultaneous responses take 320 MiB at the very most.
const BUFFER: usize = 8 << 10;

/// A page that was longer than [`BUFFER`] the last time is read into a wider buffer: each read is a system call, and
/// opens the window of the sender with a packet of its own. Such buffers have so many bytes, or up to
/// [`MOST_WIDE_STEPS`] times as many where the page was that long.
const WIDE_STEP: usize = 64 << 10;
const MOST_WIDE_STEPS: usize = 4;

/// All such buffers together have so many steps: 32 MiB at the very most. A few connections are active at a time,
/// unless targets answer slowly.
pub(super) const WIDE_STEPS: usize = 256;

/// How to connect to an endpoint.
pub(super) struct EndpointConnector<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) address_policy: &'a AddressPolicy,
    pub(super) credentials: &'a LoadedCredentials,
}

impl EndpointConnector<'_> {
    pub(super) async fn open_connection(
        &self,
        context: &FetchContext,
        progress: &FetchProgress,
    ) -> Result<IdleConnection, ScrapeFailure> {
        progress.enter_step(FetchStep::LookingUp);
        let (host, port) = (&self.endpoint.host, self.endpoint.port);
        let addresses = context
            .names
            .look_up(host, port)
            .await
            .map_err(|why| ScrapeFailure::Connect(SanitizedText::new(&why)))?;
        let check = |address: &SocketAddr| {
            self.address_policy.check_address(*address, self.endpoint.named_by)
        };
        if let Some(why) = addresses.iter().find_map(|address| check(address).err()) {
            // One forbidden address is enough to reject the host: its name is malicious or misconfigured.
            return Err(ScrapeFailure::Forbidden(SanitizedText::new(&why)));
        }
        progress.enter_step(FetchStep::Connecting);
        let (permits, max_connections) = &context.connections;
        let Ok(permit) = permits.clone().try_acquire_owned() else {
            return Err(ScrapeFailure::OutOfFiles(*max_connections as u64));
        };
        let tcp = connect_first(&addresses, context).await?;
        let stream = match self.endpoint.scheme {
            UrlScheme::Http => Either::Left(tcp),
            UrlScheme::Https => {
                progress.enter_step(FetchStep::TlsHandshake);
                Either::Right(Box::new(self.start_tls(tcp).await?))
            }
        };
        Ok(IdleConnection { stream, permit })
    }

    async fn start_tls(&self, tcp: PlainStream) -> Result<TlsStream<PlainStream>, ScrapeFailure> {
        let name = self.credentials.server_name(&self.endpoint.host);
        let name = name.map_err(|why| ScrapeFailure::Forbidden(SanitizedText::new(&why)))?;
        self.credentials.tls_connector().connect(name, tcp).await.map_err(|error| {
            let cause = plain_error::network(&error);
            let text = format!("TLS: {cause}; {}", tls_step(&cause));
            ScrapeFailure::Broken(SanitizedText::new(&text))
        })
    }
}

/// What to do about a TLS handshake that failed for this cause.
fn tls_step(cause: &str) -> &'static str {
    const STEPS: [(&str, &str); 5] = [
        ("untrusted CA", "set ca_file of its group to the CA that signed it"),
        ("another name", "set server_name of its group to a name that it has"),
        ("has expired", "renew it on that host, such as with `gaunt certs --renew`"),
        ("not valid yet", "check the clocks of both hosts"),
        ("does not speak TLS", "set scheme of its group to http, or web_config there"),
    ];
    let step = STEPS.iter().find(|(part, _)| cause.contains(part));
    step.map_or("check ca_file and server_name of its group", |(_, step)| step)
}

/// Connects to the first address that accepts; each but the last gets its share of the time.
async fn connect_first(
    addresses: &[SocketAddr],
    context: &FetchContext,
) -> Result<PlainStream, ScrapeFailure> {
    let share = context.timeout / (addresses.len() as u32).max(1);
    let mut last = ScrapeFailure::Connect("its host name has no address".into());
    for address in addresses {
        match timeout(share, connect(*address, context)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = connect_failure(&error, context),
            Err(_) => {
                last = ScrapeFailure::Timeout(SanitizedText::new(&format!(
                    "connecting (limit {share:?})"
                )));
            }
        }
    }
    Err(last)
}

/// Connects by TCP, or by the network of a simulation.
async fn connect(address: SocketAddr, context: &FetchContext) -> io::Result<PlainStream> {
    if let Some(network) = &context.network {
        return network.connect(address).await.map(Either::Right);
    }
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(Either::Left(stream))
}

fn connect_failure(error: &io::Error, context: &FetchContext) -> ScrapeFailure {
    /// The process may open no more files.
    const EMFILE: i32 = 24;
    /// The system may open no more files.
    const ENFILE: i32 = 23;

    let why = match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::ConnectionRefused, _) => "connection refused".to_owned(),
        (io::ErrorKind::HostUnreachable, _) => "host unreachable".to_owned(),
        (io::ErrorKind::NetworkUnreachable, _) => "network unreachable".to_owned(),
        (_, Some(EMFILE | ENFILE)) => {
            return ScrapeFailure::OutOfFiles(context.connections.1 as u64);
        }
        _ => plain_error::io(error),
    };
    ScrapeFailure::Connect(SanitizedText::new(&why))
}

/// An open connection without a request.
pub(super) struct IdleConnection {
    stream: ConnectionStream,
    /// Its permit among all connections.
    permit: OwnedSemaphorePermit,
}

impl IdleConnection {
    /// Prepares it for a request whose last response had this many bytes; no byte is sent before.
    pub(super) async fn into_active(
        self,
        last_bytes: usize,
        context: &FetchContext,
    ) -> hyper::Result<ActiveConnection> {
        let Self { stream, permit } = self;
        let wide = wide_buffer(last_bytes, context);
        let mut builder = http1::Builder::new();
        builder.read_buf_exact_size(Some(wide.as_ref().map_or(BUFFER, wide_bytes)));
        let (sender, driver) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(ActiveConnection { sender, driver: Some(Box::new(driver)), permit, _wide: wide })
    }
}

/// The permit for a wide buffer, for a page that had this many bytes the last time; none if a narrow one is wide enough,
/// or if there is no permit.
fn wide_buffer(last_bytes: usize, context: &FetchContext) -> Option<OwnedSemaphorePermit> {
    if last_bytes <= BUFFER {
        return None;
    }
    let steps = (last_bytes / WIDE_STEP + 1).min(MOST_WIDE_STEPS);
    let permit_of = |steps| context.wide_buffers.clone().try_acquire_many_owned(steps).ok();
    permit_of(steps as u32).or_else(|| permit_of(1))
}

/// The size of the wide buffer that a permit is for.
fn wide_bytes(permit: &OwnedSemaphorePermit) -> usize {
    permit.num_permits() * WIDE_STEP
}

impl fmt::Debug for IdleConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idle").finish_non_exhaustive()
    }
}

/// Drives the I/O of a connection.
type ConnectionDriver = http1::Connection<TokioIo<ConnectionStream>, Empty<Bytes>>;

/// An open connection with a request.
pub(super) struct ActiveConnection {
    sender: SendRequest<Empty<Bytes>>,
    /// The I/O driver; none once the connection has ended.
    driver: Option<Box<ConnectionDriver>>,
    permit: OwnedSemaphorePermit,
    /// Its permit among those with a wide buffer.
    _wide: Option<OwnedSemaphorePermit>,
}

impl fmt::Debug for ActiveConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("open", &self.driver.is_some()).finish_non_exhaustive()
    }
}

impl ActiveConnection {
    /// Sends a request once the connection is free, and waits for the response head.
    pub(super) async fn send_request(
        &mut self,
        request: Request<Empty<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        let Self { sender, driver, .. } = self;
        drive_connection(driver, async {
            sender.ready().await?;
            sender.send_request(request).await
        })
        .await
    }

    /// Drives this connection while `work` waits for its bytes.
    pub(super) async fn drive_while<T>(&mut self, work: impl Future<Output = T>) -> T {
        drive_connection(&mut self.driver, work).await
    }

    /// Returns it to idle once the response is read; none if the peer closes it, or sent bytes beyond the response.
    pub(super) async fn into_idle(mut self) -> Option<IdleConnection> {
        let Self { sender, driver, .. } = &mut self;
        drive_connection(driver, sender.ready()).await.ok()?;
        let parts = self.driver?.into_parts();
        let (stream, permit) = (parts.io.into_inner(), self.permit);
        parts.read_buf.is_empty().then_some(IdleConnection { stream, permit })
    }
}

async fn drive_connection<T, D: Future + Unpin>(
    driver: &mut Option<D>,
    work: impl Future<Output = T>,
) -> T {
    let (mut work, mut waker) = (pin!(work), PollWaker::default());
    poll_fn(|context| {
        waker.poll_until_idle(context, |context| {
            if let Poll::Ready(output) = work.as_mut().poll(context) {
                return Poll::Ready(output);
            }
            if let Some(connection) = driver
                && Pin::new(connection).poll(context).is_ready()
            {
                // The error is returned by the work, which waits on the other end.
                *driver = None;
            }
            work.as_mut().poll(context)
        })
    })
    .await
}

/// Whether a request on a kept connection failed because the peer had closed it before responding.
pub(super) fn is_stale(error: &hyper::Error) -> bool {
    error.is_canceled() || error.is_closed() || error.is_incomplete_message()
}

/// A stream without TLS: of the network, or of a simulated one.
pub(super) type PlainStream = Either<TcpStream, Box<dyn NetworkStream>>;

/// The stream of a connection, without or with TLS.
type ConnectionStream = Either<PlainStream, Box<TlsStream<PlainStream>>>;
