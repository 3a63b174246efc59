//! Links between programs for HTTP: from a Unix socket, which the client of a program connects to, to a service, with
//! faults drawn from a seed.
//!
//! The client connects through the system, so that its events cost virtual time: as long as until the next timer. A run
//! has one every [`HOP`].

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gaunt_node::server_stream::NetworkStream;
use tokio::{
    io::{
        AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex, sink,
        split,
    },
    net::{UnixListener, UnixStream},
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use crate::seeded_random::SeededRandom;

/// The time of one hop.
pub(crate) const HOP: Duration = Duration::from_millis(20);

/// Connections that wait to be accepted.
const BACKLOG: usize = 64;

/// Bytes in flight of a connection.
const WINDOW: usize = 64 << 10;

/// Connections as a service accepts them.
pub(crate) type Connections = mpsc::Receiver<(Box<dyn NetworkStream>, SocketAddr)>;

/// A place that links lead to; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServicePlace(Arc<Mutex<(ServiceState, u64)>>);

/// What is at a place.
#[derive(Clone, Debug, Default)]
enum ServiceState {
    /// A machine without a program: it refuses connections.
    #[default]
    Refuses,
    /// No machine: nothing answers.
    Silent,
    /// A program.
    Runs(mpsc::Sender<(Box<dyn NetworkStream>, SocketAddr)>),
}

impl ServicePlace {
    /// What is there, and the number of changes.
    fn state(&self) -> MutexGuard<'_, (ServiceState, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(&self, by: ServiceState) {
        let mut state = self.state();
        *state = (by, state.1 + 1);
    }

    /// A program starts here, with these connections.
    pub(crate) fn start_program(&self) -> Connections {
        let (sender, connections) = mpsc::channel(BACKLOG);
        self.replace(ServiceState::Runs(sender));
        connections
    }

    /// The program ends; the machine too if it `loses_power`.
    pub(crate) fn end_program(&self, loses_power: bool) {
        let refuses = ServiceState::Refuses;
        self.replace(if loses_power { ServiceState::Silent } else { refuses });
    }

    /// The number of the program that runs here; each has another one.
    pub(crate) fn running(&self) -> Option<u64> {
        let state = self.state();
        matches!(state.0, ServiceState::Runs(_)).then_some(state.1)
    }

    /// Connects without a link; returns the number of the program, too. None while none runs here.
    pub(crate) async fn connect(&self, client: SocketAddr) -> Option<(u64, DuplexStream)> {
        let number = self.running()?;
        let ServiceState::Runs(sender) = self.state().0.clone() else { return None };
        let (ours, theirs) = duplex(WINDOW);
        sender.send((Box::new(theirs), client)).await.ok()?;
        Some((number, ours))
    }
}

/// A link; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedLink(Arc<Mutex<LinkState>>);

#[derive(Debug)]
struct LinkState {
    cut_until: Instant,
    /// One connection in so many has a fault; none if there are no faults.
    fault_every: Option<u64>,
    random: SeededRandom,
    faults: u64,
    open: usize,
}

/// A fault of a connection.
#[derive(Clone, Copy, Debug)]
enum ConnectionFault {
    /// It is refused.
    Refused,
    /// It is never answered.
    Silent,
    /// Each part comes so much later.
    Slow(Duration),
    /// It ends after so many bytes of the answer.
    Torn(usize),
}

impl SimulatedLink {
    /// Opens a link from the socket at `path` to a service, which sees `client` as the address. It ends with `tasks`.
    pub(crate) fn open(
        path: &Path,
        client: SocketAddr,
        service: &ServicePlace,
        random: SeededRandom,
        tasks: &mut JoinSet<()>,
    ) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let state =
            LinkState { cut_until: Instant::now(), fault_every: None, random, faults: 0, open: 0 };
        let link = Self(Arc::new(Mutex::new(state)));
        tasks.spawn(link.clone().accept(listener, client, service.clone()));
        Ok(link)
    }

    /// The socket of a link in a folder.
    pub(crate) fn socket(folder: &Path, from: &str, to: &str) -> PathBuf {
        folder.join(format!("{from}-{to}"))
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the link for so long: nothing passes, and nothing ends.
    pub(crate) fn cut(&self, lasts: Duration) {
        let mut state = self.state();
        state.cut_until = Instant::now() + lasts;
        state.faults += 1;
    }

    /// Whether it is cut.
    pub(crate) fn is_cut(&self) -> bool {
        self.state().cut_until > Instant::now()
    }

    /// Whether connections have faults.
    pub(crate) fn has_faults(&self) -> bool {
        self.state().fault_every.is_some()
    }

    /// One connection in so many has a fault from now on; none has if it is none, and the link is not cut.
    pub(crate) fn set_faults(&self, every: Option<u64>) {
        let mut state = self.state();
        state.fault_every = every;
        if every.is_none() {
            state.cut_until = Instant::now();
        }
    }

    /// Faults so far.
    pub(crate) fn fault_count(&self) -> u64 {
        self.state().faults
    }

    /// Connections that are open.
    pub(crate) fn open_count(&self) -> usize {
        self.state().open
    }

    async fn accept(self, listener: UnixListener, client: SocketAddr, service: ServicePlace) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let Ok((stream, _)) = accepted else { return };
                    connections.spawn(self.clone().forward(stream, client, service.clone()));
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn forward(self, stream: UnixStream, client: SocketAddr, service: ServicePlace) {
        self.state().open += 1;
        // However it ends, both sides see the end.
        let _end = self.carry(stream, client, &service).await;
        self.state().open -= 1;
    }

    async fn carry(
        &self,
        mut stream: UnixStream,
        client: SocketAddr,
        service: &ServicePlace,
    ) -> io::Result<()> {
        let fault = self.state().draw_fault();
        self.wait_while_cut().await;
        let sender = service.state().0.clone();
        let sender = match (fault, sender) {
            (Some(ConnectionFault::Refused), _) | (_, ServiceState::Refuses) => return Ok(()),
            (Some(ConnectionFault::Silent), _) | (_, ServiceState::Silent) => {
                return tokio::io::copy(&mut stream, &mut sink()).await.map(drop);
            }
            (_, ServiceState::Runs(sender)) => sender,
        };
        let (ours, theirs) = duplex(WINDOW);
        let gone = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
        sender.send((Box::new(theirs), client)).await.map_err(gone)?;
        let (wait, limit) = match fault {
            Some(ConnectionFault::Slow(wait)) => (wait, usize::MAX),
            Some(ConnectionFault::Torn(limit)) => (Duration::ZERO, limit),
            _ => (Duration::ZERO, usize::MAX),
        };
        let (mut from_client, mut to_client) = split(stream);
        let (mut from_server, mut to_server) = split(ours);
        let requests = self.pump(&mut from_client, &mut to_server, wait, usize::MAX);
        let answers = self.pump(&mut from_server, &mut to_client, wait, limit);
        // A client that has closed its side reads the answer; a service that ended has nothing more to say.
        tokio::select! {
            ended = answers => ended,
            ended = async { requests.await?; std::future::pending().await } => ended,
        }
    }

    /// Carries bytes in one direction until its end, or so many.
    async fn pump(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        wait: Duration,
        mut limit: usize,
    ) -> io::Result<()> {
        let mut buffer = vec![0; WINDOW];
        loop {
            let count = from.read(&mut buffer).await?;
            if !wait.is_zero() {
                sleep(wait).await;
            }
            self.wait_while_cut().await;
            if count == 0 {
                return to.shutdown().await;
            }
            let passed = count.min(limit);
            to.write_all(&buffer[..passed]).await?;
            limit -= passed;
            if limit == 0 {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
    }

    async fn wait_while_cut(&self) {
        while self.is_cut() {
            let until = self.state().cut_until;
            sleep_until(until).await;
        }
    }
}

impl LinkState {
    fn draw_fault(&mut self) -> Option<ConnectionFault> {
        let every = self.fault_every?;
        if !self.random.once_in(every) {
            return None;
        }
        self.faults += 1;
        Some(match self.random.below(4) {
            0 => ConnectionFault::Refused,
            1 => ConnectionFault::Silent,
            2 => ConnectionFault::Slow(self.random.shorter_than(Duration::from_secs(3))),
            _ => ConnectionFault::Torn(1 + self.random.below(1_500) as usize),
        })
    }
}
