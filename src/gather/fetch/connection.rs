//! A connection to a target: the address that was checked, TLS where it is asked for, and HTTP/1.1 over it.
//!
//! It is driven by whoever asks on it, not by a task of its own: 12,500 idle connections are as many tasks less, and a
//! page costs no switch between two of them for each piece. Between two pages nothing but the stream is kept: idle
//! connections have no buffers.

use std::{
    fmt,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use gaunt_schema::{Failure, Safe, plain_error};
use http_body_util::Empty;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    time::timeout,
};
use tokio_rustls::client::TlsStream;

use super::{Progress, Rules, Step};
use crate::gather::{Place, Reach, access::Keys, place::Scheme};

/// The read buffer of a connection on which somebody asks, in bytes, which also bounds the headers; pages are copied out
/// of it chunk by chunk. Hyper may hold twice as much: 20,000 answers at once 320 MiB at the very most.
const BUFFER: usize = 8 << 10;

/// How to get to a place.
pub(super) struct Way<'a> {
    pub(super) place: &'a Place,
    pub(super) reach: &'a Reach,
    pub(super) keys: &'a Keys,
}

impl Way<'_> {
    pub(super) async fn connect(
        &self,
        rules: &Rules,
        progress: &Progress,
    ) -> Result<Idle, Failure> {
        progress.at(Step::LookingUp);
        let (host, port) = (&self.place.host, self.place.port);
        let addresses = rules
            .names
            .look_up(host, port)
            .await
            .map_err(|why| Failure::Connect(Safe::new(&why)))?;
        let check = |address: &SocketAddr| self.reach.check(*address, self.place.named_by);
        if let Some(why) = addresses.iter().find_map(|address| check(address).err()) {
            // One address that is forbidden is enough: whoever named it meant no good, or does not know.
            return Err(Failure::Forbidden(Safe::new(&why)));
        }
        progress.at(Step::Connecting);
        let (room, most) = &rules.connections;
        let Ok(place) = room.clone().try_acquire_owned() else {
            return Err(Failure::OutOfFiles(*most as u64));
        };
        let tcp = first(&addresses, rules).await?;
        let stream = match self.place.scheme {
            Scheme::Http => Stream::Plain(tcp),
            Scheme::Https => {
                progress.at(Step::Greeting);
                Stream::Tls(Box::new(self.greet(tcp).await?))
            }
        };
        Ok(Idle { stream, place })
    }

    async fn greet(&self, tcp: TcpStream) -> Result<TlsStream<TcpStream>, Failure> {
        let name = self.keys.server_name(&self.place.host);
        let name = name.map_err(|why| Failure::Forbidden(Safe::new(&why)))?;
        self.keys.connector().connect(name, tcp).await.map_err(|error| {
            Failure::Broken(Safe::new(&format!(
                "TLS: {}; see ca_file and server_name of its group",
                plain_error::network(&error)
            )))
        })
    }
}

/// A connection to the first address that takes one; each but the last gets its share of the time.
async fn first(addresses: &[SocketAddr], rules: &Rules) -> Result<TcpStream, Failure> {
    let share = rules.timeout / (addresses.len() as u32).max(1);
    let mut last = Failure::Connect("its name has no address".into());
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true).map_err(|error| refused(&error, rules))?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = refused(&error, rules),
            Err(_) => last = Failure::Timeout(Safe::new(&format!("connecting (limit {share:?})"))),
        }
    }
    Err(last)
}

fn refused(error: &io::Error, rules: &Rules) -> Failure {
    /// The process may open no more files.
    const EMFILE: i32 = 24;
    /// The system may open no more files.
    const ENFILE: i32 = 23;

    let why = match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::ConnectionRefused, _) => "connection refused".to_owned(),
        (io::ErrorKind::HostUnreachable, _) => "host unreachable".to_owned(),
        (io::ErrorKind::NetworkUnreachable, _) => "network unreachable".to_owned(),
        (_, Some(EMFILE | ENFILE)) => return Failure::OutOfFiles(rules.connections.1 as u64),
        _ => plain_error::io(error),
    };
    Failure::Connect(Safe::new(&why))
}

/// An open connection on which nobody asks.
pub(super) struct Idle {
    stream: Stream,
    /// Its place among all connections.
    place: OwnedSemaphorePermit,
}

impl Idle {
    /// Makes it ready for a question; no byte moves before it is asked.
    pub(super) async fn wake(self) -> hyper::Result<Connection> {
        let Self { stream, place } = self;
        let mut builder = http1::Builder::new();
        builder.read_buf_exact_size(Some(BUFFER));
        let (sender, driver) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Connection { sender, driver: Some(Box::new(driver)), place })
    }
}

impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idle").finish_non_exhaustive()
    }
}

/// What moves the bytes of a connection.
type Driver = http1::Connection<TokioIo<Stream>, Empty<Bytes>>;

/// An open connection on which somebody asks.
pub(super) struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    /// What moves bytes; none once the connection has ended.
    driver: Option<Box<Driver>>,
    place: OwnedSemaphorePermit,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("open", &self.driver.is_some()).finish_non_exhaustive()
    }
}

impl Connection {
    /// Asks once the connection is free, and waits for the head of the answer.
    pub(super) async fn ask(
        &mut self,
        request: Request<Empty<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        let Self { sender, driver, .. } = self;
        drive(driver, async {
            sender.ready().await?;
            sender.send_request(request).await
        })
        .await
    }

    /// Does work that waits for bytes of this connection.
    pub(super) async fn drive<T>(&mut self, work: impl Future<Output = T>) -> T {
        drive(&mut self.driver, work).await
    }

    /// Puts it to rest once the answer is read; none if the other side closes it, or said more than it was asked for.
    pub(super) async fn rest(mut self) -> Option<Idle> {
        let Self { sender, driver, .. } = &mut self;
        drive(driver, sender.ready()).await.ok()?;
        let parts = self.driver?.into_parts();
        let (stream, place) = (parts.io.into_inner(), self.place);
        parts.read_buf.is_empty().then_some(Idle { stream, place })
    }
}

async fn drive<T, D: Future + Unpin>(driver: &mut Option<D>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(done);
        }
        if let Some(open) = driver
            && Pin::new(open).poll(context).is_ready()
        {
            // What went wrong is told to the work, which waits on the other end.
            *driver = None;
        }
        work.as_mut().poll(context)
    })
    .await
}

/// Whether a request on a kept connection met one that the other side had closed before it answered.
pub(super) fn is_stale(error: &hyper::Error) -> bool {
    error.is_canceled() || error.is_closed() || error.is_incomplete_message()
}

/// The bytes of a connection, in the clear or not.
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
