//! Follows the events of NCCL's RAS service on a thread of its own: one connection, which is opened again when a job
//! starts. It sends nothing that changes the job.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use gaunt_schema::{
    SanitizedText,
    ras_connection::{COLLECT_SECONDS, RasConnection, RasError, RasEventKind, RasEventOutcome},
    ras_status::RasStatus,
};
use tokio::sync::watch;

/// The timeout of a connection and of each read. The thread ends about this soon after its collector.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The timeout of a status: twice what NCCL may collect for.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2 * COLLECT_SECONDS + 2);

/// The wait before the service is tried again, doubled up to the longest while nothing listens. A refused connection on
/// loopback costs microseconds, and a job of half a minute must be seen.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How many events there were, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RasEventCounts {
    pub(crate) joined: u64,
    pub(crate) unresponsive: u64,
    pub(crate) recovered: u64,
    pub(crate) dead: u64,
}

/// The state of the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum RasConnectionState {
    /// The first attempt runs.
    #[default]
    Pending,
    /// The service answers, and sends events.
    Connected,
    /// The service answers, but is too old for events; the text says so.
    WithoutEvents(String),
    /// Nothing listens: no job with NCCL, or its RAS is off.
    NotFound,
    /// Something else listens, or the connection fails otherwise; the text is the reason.
    Failed(String),
}

/// What is known from the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RasMonitorState {
    pub(crate) connection: RasConnectionState,
    /// Since the start of gaunt-node, over all connections.
    pub(crate) counts: RasEventCounts,
    /// The process that died last in the job of this connection.
    pub(crate) last_dead: Option<SanitizedText>,
}

impl RasConnectionState {
    /// Whether the service answers.
    pub(crate) const fn is_connected(&self) -> bool {
        matches!(self, Self::Connected | Self::WithoutEvents(_))
    }
}

/// Starts to follow the service. The thread ends soon after the receiver is dropped.
pub(crate) fn start_monitor(service: SocketAddr) -> io::Result<watch::Receiver<RasMonitorState>> {
    let (sender, state) = watch::channel(RasMonitorState::default());
    let follow = move || follow_service(service, &sender);
    thread::Builder::new().name("ras-monitor".to_owned()).spawn(follow)?;
    Ok(state)
}

/// Reads the status of the job. It takes as long as the job's other nodes need, within a deadline.
pub(crate) fn query_status(service: SocketAddr) -> Result<RasStatus, RasError> {
    let end = Instant::now() + STATUS_TIMEOUT;
    connect_to(service)?.read_json_status(|| Instant::now() >= end)
}

fn follow_service(service: SocketAddr, sender: &watch::Sender<RasMonitorState>) {
    let mut wait = FIRST_WAIT;
    while !sender.is_closed() {
        let ended = match connect_to(service) {
            Ok(connection) => {
                wait = FIRST_WAIT;
                follow_connection(connection, sender)
            }
            Err(RasError::Silent { .. }) => RasConnectionState::NotFound,
            Err(error) => RasConnectionState::Failed(error.to_string()),
        };
        sender.send_if_modified(|state| {
            let changes = state.connection != ended;
            (state.connection, state.last_dead) = (ended, None);
            changes
        });
        wait_while_wanted(wait, sender);
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

fn connect_to(service: SocketAddr) -> Result<RasConnection<TcpStream>, RasError> {
    let no_answer = |why| RasError::Silent { address: service, why };
    let stream = TcpStream::connect_timeout(&service, TIMEOUT).map_err(no_answer)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(no_answer)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(no_answer)?;
    RasConnection::open(service, stream)
}

/// Counts the events of a connection until it ends, and returns why.
fn follow_connection(
    mut connection: RasConnection<TcpStream>,
    sender: &watch::Sender<RasMonitorState>,
) -> RasConnectionState {
    let started = match connection.start_events() {
        Ok(()) => RasConnectionState::Connected,
        Err(error @ RasError::NoEvents { .. }) => {
            RasConnectionState::WithoutEvents(error.to_string())
        }
        Err(error) => return RasConnectionState::Failed(error.to_string()),
    };
    sender.send_modify(|state| state.connection = started);
    while !sender.is_closed() {
        match connection.next_event() {
            Ok(RasEventOutcome::Event(event)) => sender.send_modify(|state| {
                let count = match event.kind {
                    RasEventKind::Joined => &mut state.counts.joined,
                    RasEventKind::Unresponsive => &mut state.counts.unresponsive,
                    RasEventKind::Recovered => &mut state.counts.recovered,
                    RasEventKind::Dead => &mut state.counts.dead,
                };
                *count += 1;
                if event.kind == RasEventKind::Dead {
                    state.last_dead = Some(event.process);
                }
            }),
            Ok(RasEventOutcome::Nothing) => {}
            // The job ended.
            Ok(RasEventOutcome::Closed) | Err(_) => break,
        }
    }
    RasConnectionState::NotFound
}

/// Waits, but not much longer than somebody wants the result.
fn wait_while_wanted(wait: Duration, sender: &watch::Sender<RasMonitorState>) {
    let end = Instant::now() + wait;
    while !sender.is_closed() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(TIMEOUT));
    }
}
