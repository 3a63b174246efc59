//! A network in this process: connections to the nodes' exporters, with faults drawn from the seed.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gaunt_schema::UnixMs;
use gaunt_scrape::{ConnectionResult, Network, NetworkStream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    time::{Instant, sleep},
};

use crate::{
    deliberate_bug::DeliberateBug, seeded_random::SeededRandom, simulated_fleet::SimulatedNode,
};

/// Bytes in flight of a connection.
const WINDOW: usize = 64 << 10;

/// The network and the nodes behind it; clones are the same.
#[derive(Clone)]
pub(crate) struct SimulatedNetwork {
    state: Arc<Mutex<NetworkState>>,
    start: Instant,
    began: UnixMs,
    bug: Option<DeliberateBug>,
}

struct NetworkState {
    nodes: Vec<SimulatedNode>,
    /// Until when each node cannot be reached.
    cut_until: Vec<UnixMs>,
    /// The last page of each node that was sent as a whole.
    last_pages: Vec<String>,
    random: SeededRandom,
    /// One response in so many has a fault; none if there are no faults.
    fault_every: Option<u64>,
    /// What happened.
    counts: NetworkCounts,
}

/// What the network did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NetworkCounts {
    /// Requests that arrived.
    pub(crate) requests: u64,
    /// Faults.
    pub(crate) faults: u64,
    /// Connections that are open.
    pub(crate) open: usize,
}

impl fmt::Debug for SimulatedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedNetwork").finish_non_exhaustive()
    }
}

/// A fault of one response.
#[derive(Clone, Copy, Debug)]
enum ResponseFault {
    /// It comes after this time.
    Slow(Duration),
    /// It never comes.
    Silent,
    /// It ends in the middle; its length was said before, or not.
    Torn { says_length: bool },
    /// The connection ends before it.
    Closed,
    /// It is the page before.
    Repeated,
    /// It is no page.
    Garbage,
    /// It is an error of the exporter.
    Failed,
}

impl SimulatedNetwork {
    pub(crate) fn new(
        nodes: Vec<SimulatedNode>,
        began: UnixMs,
        random: SeededRandom,
        bug: Option<DeliberateBug>,
    ) -> Self {
        let state = NetworkState {
            cut_until: vec![began; nodes.len()],
            last_pages: vec![String::new(); nodes.len()],
            nodes,
            random,
            fault_every: None,
            counts: NetworkCounts::default(),
        };
        Self { state: Arc::new(Mutex::new(state)), start: Instant::now(), began, bug }
    }

    fn state(&self) -> MutexGuard<'_, NetworkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The true time.
    pub(crate) fn now(&self) -> UnixMs {
        self.began + self.start.elapsed()
    }

    /// The number of nodes.
    pub(crate) fn node_count(&self) -> usize {
        self.state().nodes.len()
    }

    /// Changes a node now.
    #[cfg(test)]
    pub(crate) fn change_node(&self, node: usize, change: impl FnOnce(&mut SimulatedNode, UnixMs)) {
        let now = self.now();
        change(&mut self.state().nodes[node], now);
    }

    /// One response in so many has a fault from now on; none has if it is none.
    pub(crate) fn set_faults(&self, every: Option<u64>) {
        self.state().fault_every = every;
    }

    /// Cuts a node off for so long.
    pub(crate) fn cut_node(&self, node: usize, lasts: Duration) {
        let until = self.now() + lasts;
        let mut state = self.state();
        state.cut_until[node] = until;
        state.counts.faults += 1;
    }

    /// Reboots a node.
    pub(crate) fn reboot_node(&self, node: usize, off: Duration) {
        let now = self.now();
        let mut state = self.state();
        state.nodes[node].reboot(now, off);
        state.counts.faults += 1;
    }

    /// Whether a node has booted, or is off, since so long ago.
    pub(crate) fn has_booted_within(&self, node: usize, time: Duration) -> bool {
        self.state().nodes[node].booted_after(self.now() - time)
    }

    /// What happened so far.
    pub(crate) fn counts(&self) -> NetworkCounts {
        self.state().counts
    }

    /// Serves one connection to a node until either side ends it.
    async fn serve(self, node: usize, mut stream: DuplexStream) {
        let mut request = Vec::new();
        loop {
            let mut bytes = [0; 1024];
            match stream.read(&mut bytes).await {
                Ok(count) if count > 0 => request.extend_from_slice(&bytes[..count]),
                _ => break,
            }
            if !request.ends_with(b"\r\n\r\n") {
                continue;
            }
            request.clear();
            if !self.answer(node, &mut stream).await {
                break;
            }
        }
        if self.bug != Some(DeliberateBug::UnboundedConnections) {
            self.state().counts.open -= 1;
        }
    }

    /// Answers one request; whether the connection is kept.
    async fn answer(&self, node: usize, stream: &mut DuplexStream) -> bool {
        let (fault, unreachable) = {
            let now = self.now();
            let mut state = self.state();
            state.counts.requests += 1;
            (state.draw_fault(), state.cut_until[node] > now || !state.nodes[node].is_on(now))
        };
        if unreachable {
            // Packets are lost: the other side waits until its deadline.
            return wait_for_end(stream).await;
        }
        if let Some(ResponseFault::Slow(wait)) = fault {
            sleep(wait).await;
        }
        let page = {
            let now = self.now();
            let mut state = self.state();
            let page = state.nodes[node].write_page(now);
            if matches!(fault, Some(ResponseFault::Repeated)) && !state.last_pages[node].is_empty()
            {
                state.last_pages[node].clone()
            } else {
                state.last_pages[node].clone_from(&page);
                page
            }
        };
        let head = |status: &str, length: Option<usize>| {
            let length = length.map_or_else(
                || "connection: close\r\n".to_owned(),
                |length| format!("content-length: {length}\r\n"),
            );
            format!("HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\n{length}\r\n")
        };
        let (answer, is_kept) = match fault {
            Some(ResponseFault::Silent) => return wait_for_end(stream).await,
            Some(ResponseFault::Closed) => return false,
            Some(ResponseFault::Torn { says_length }) => {
                let cut = self.state().random.below(page.len() as u64) as usize;
                let length = says_length.then_some(page.len());
                (head("200 OK", length) + page.get(..cut).unwrap_or_default(), false)
            }
            Some(ResponseFault::Garbage) => {
                let garbage = "\u{1}<html>{not a page} \\ \n".repeat(3);
                (head("200 OK", Some(garbage.len())) + &garbage, true)
            }
            Some(ResponseFault::Failed) => (head("500 Failed", Some(0)), true),
            Some(ResponseFault::Slow(_) | ResponseFault::Repeated) | None => {
                (head("200 OK", Some(page.len())) + &page, true)
            }
        };
        stream.write_all(answer.as_bytes()).await.is_ok() && is_kept
    }
}

/// Waits until the other side ends the connection, which is not kept.
async fn wait_for_end(stream: &mut DuplexStream) -> bool {
    let mut bytes = [0; 64];
    while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
    false
}

impl NetworkState {
    fn draw_fault(&mut self) -> Option<ResponseFault> {
        let every = self.fault_every?;
        if !self.random.once_in(every) {
            return None;
        }
        self.counts.faults += 1;
        Some(match self.random.below(8) {
            0 | 1 => ResponseFault::Slow(self.random.shorter_than(Duration::from_secs(3))),
            2 => ResponseFault::Silent,
            3 => ResponseFault::Torn { says_length: true },
            4 => ResponseFault::Torn { says_length: false },
            5 => ResponseFault::Closed,
            6 => ResponseFault::Repeated,
            _ if self.random.once_in(2) => ResponseFault::Garbage,
            _ => ResponseFault::Failed,
        })
    }
}

impl Network for SimulatedNetwork {
    fn connect(&self, address: SocketAddr) -> ConnectionResult {
        let network = self.clone();
        Box::pin(async move {
            let node = (0..network.node_count())
                .find(|node| SimulatedNode::address(*node) == address.to_string())
                .ok_or(io::ErrorKind::AddrNotAvailable)?;
            let now = network.now();
            let (is_cut, is_on, is_refused) = {
                let mut state = network.state();
                let faulty = state.fault_every.is_some() && state.random.once_in(40);
                (state.cut_until[node] > now, state.nodes[node].is_on(now), faulty)
            };
            if is_cut {
                sleep(Duration::from_mins(10)).await;
                return Err(io::ErrorKind::TimedOut.into());
            }
            if !is_on || is_refused {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = duplex(WINDOW);
            network.state().counts.open += 1;
            tokio::spawn(network.clone().serve(node, theirs));
            Ok(Box::new(ours) as Box<dyn NetworkStream>)
        })
    }
}
