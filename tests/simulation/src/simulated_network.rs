//! A network in this process: connections to the nodes' exporters, with faults drawn from the seed.

use std::{
    fmt::{self, Write as _},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use gaunt_node::metrics_server::host_names;
use gaunt_schema::UnixMs;
use gaunt_scrape::{ConnectionResult, Network, NetworkStream};
use hyper::{Request, header::AUTHORIZATION};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    deliberate_bug::DeliberateBug,
    seeded_random::SeededRandom,
    simulated_aggregator::{MAX_BODY, MAX_SAMPLES},
    simulated_exporter::{
        DISCOVERY_PORT, ExporterAnswer, SimulatedExporter, discovery_host, fleet_certificates,
        list_node, parse_request, secret_of,
    },
    simulated_fleet::{PLAIN_PORT, SimulatedNode, TLS_PORT, UNCHECKED_TLS_PORT},
};

/// Time that the discovery server needs for a list.
const LIST_DELAY: Duration = Duration::from_millis(10);

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
    /// Until when another machine has the address of each node and claims to be it.
    impostor_until: Vec<UnixMs>,
    exporters: Vec<SimulatedExporter>,
    /// For each node: what happens to one must not depend on the order of two requests at one instant.
    random: Vec<SeededRandom>,
    /// One response in so many has a fault; none if there are no faults.
    fault_every: Option<u64>,
    /// What happened.
    counts: NetworkCounts,
    /// What a client did that it must not.
    broken: Vec<String>,
}

/// What answers at an address.
#[derive(Clone, Copy, Debug)]
enum ServedPlace {
    /// The exporter of a node, over TLS or not, whose clients check its certificate or not.
    Node { index: usize, is_tls: bool, is_checked: bool },
    /// The server that lists the target of a node.
    Discovery { index: usize },
}

impl ServedPlace {
    /// The number of its node.
    fn index(self) -> usize {
        match self {
            Self::Node { index, .. } | Self::Discovery { index } => index,
        }
    }
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
    /// It is encoded in a way that was not asked for.
    Encoded,
    /// It is said to be larger than any page may be.
    TooLarge,
    /// It has more samples than a page may have.
    TooMany,
}

impl SimulatedNetwork {
    pub(crate) fn new(
        nodes: Vec<SimulatedNode>,
        began: UnixMs,
        mut random: SeededRandom,
        bug: Option<DeliberateBug>,
    ) -> Self {
        let names = watch::channel(host_names(&[])).1;
        let state = NetworkState {
            cut_until: vec![began; nodes.len()],
            impostor_until: vec![began; nodes.len()],
            exporters: nodes.iter().map(|_| SimulatedExporter::new(names.clone())).collect(),
            random: nodes.iter().map(|_| random.split()).collect(),
            nodes,
            fault_every: None,
            counts: NetworkCounts::default(),
            broken: Vec::new(),
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

    fn place_at(&self, address: SocketAddr) -> Option<ServedPlace> {
        let (host, mut nodes) = (address.ip().to_string(), 0..self.node_count());
        if address.port() == DISCOVERY_PORT {
            let index = nodes.find(|node| discovery_host(*node) == host)?;
            return Some(ServedPlace::Discovery { index });
        }
        let (is_tls, is_checked) = match address.port() {
            PLAIN_PORT => (false, false),
            TLS_PORT => (true, true),
            UNCHECKED_TLS_PORT => (true, false),
            _ => return None,
        };
        let index = nodes.find(|node| SimulatedNode::host(*node) == host)?;
        Some(ServedPlace::Node { index, is_tls, is_checked })
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

    /// Gives the address of a node to another machine for so long.
    pub(crate) fn replace_node(&self, node: usize, lasts: Duration) {
        let until = self.now() + lasts;
        let mut state = self.state();
        state.impostor_until[node] = until;
        state.counts.faults += 1;
    }

    /// All nodes run, and have their network and their addresses, from now on.
    pub(crate) fn end_outages(&self) {
        let now = self.now();
        let mut state = self.state();
        let NetworkState { nodes, cut_until, impostor_until, .. } = &mut *state;
        for node in nodes {
            node.end_outage(now);
        }
        let ends = cut_until.iter_mut().chain(impostor_until);
        ends.for_each(|until| *until = now.min(*until));
    }

    /// What clients did that they must not, since the last call.
    pub(crate) fn take_broken(&self) -> Vec<String> {
        std::mem::take(&mut self.state().broken)
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

    /// Serves one connection until either side ends it.
    async fn serve(self, place: ServedPlace, stream: impl NetworkStream) {
        let ServedPlace::Node { index, is_tls: true, is_checked } = place else {
            return self.serve_requests(place, stream).await;
        };
        let is_impostor = self.state().impostor_until[index] > self.now();
        let Ok(certificates) = fleet_certificates() else { return };
        let acceptor = if is_impostor { &certificates.impostor } else { &certificates.nodes };
        let Ok(mut stream) = acceptor.accept(stream).await else { return };
        if is_impostor {
            // TLS 1.3 lets the client send first; what it sends to an impostor is lost.
            if stream.read(&mut [0]).await.is_ok_and(|count| count > 0) && is_checked {
                self.state().broken.push("a request is sent to an impostor".to_owned());
            }
            return;
        }
        self.serve_requests(place, stream).await;
    }

    async fn serve_requests(&self, place: ServedPlace, mut stream: impl NetworkStream) {
        let mut request = Vec::new();
        loop {
            let mut bytes = [0; 1024];
            match stream.read(&mut bytes).await {
                Ok(count) if count > 0 => request.extend_from_slice(&bytes[..count]),
                _ => return,
            }
            if !request.ends_with(b"\r\n\r\n") {
                continue;
            }
            let Some(parsed) = parse_request(&request) else {
                return self.state().broken.push("a request cannot be read".to_owned());
            };
            request.clear();
            if !self.answer(place, &parsed, &mut stream).await {
                return;
            }
        }
    }

    /// Answers one request; whether the connection is kept.
    async fn answer(
        &self,
        place: ServedPlace,
        request: &Request<()>,
        stream: &mut impl NetworkStream,
    ) -> bool {
        let (fault, unreachable) = {
            let now = self.now();
            let mut state = self.state();
            state.counts.requests += 1;
            (state.draw_fault(place), !state.is_reachable(place, now))
        };
        if unreachable {
            // Packets are lost: the other side waits until its deadline.
            return wait_for_end(stream).await;
        }
        if let Some(ResponseFault::Slow(wait)) = fault {
            sleep(wait).await;
        }
        let is_repeated = matches!(fault, Some(ResponseFault::Repeated));
        let is_discovery = matches!(place, ServedPlace::Discovery { .. });
        // A server of lists serves wrong ones.
        let is_hostile = is_discovery && matches!(fault, Some(ResponseFault::Garbage));
        let fault = fault.filter(|_| !is_hostile);
        let ExporterAnswer { head, body } = match place {
            ServedPlace::Discovery { .. } => {
                // A thread that reads a file at the same instant is done by then: the order of sources is always the same.
                sleep(LIST_DELAY).await;
                let mut state = self.state();
                let random = &mut state.random[place.index()];
                list_node(request, is_hostile.then_some(random))
            }
            ServedPlace::Node { index, .. } => {
                if !self.state().is_authorized(index, request) {
                    let refused = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
                    return stream.write_all(refused).await.is_ok() && stream.flush().await.is_ok();
                }
                let exporter = self.state().publish_page(index, self.now(), is_repeated);
                exporter.answer(request).await
            }
        };
        let (bytes, is_kept) = match fault {
            Some(ResponseFault::Silent) => return wait_for_end(stream).await,
            Some(ResponseFault::Closed) => return false,
            fault => {
                // The length differs a little from run to run: TLS and the numbers of ticks are random.
                let permille = match fault {
                    Some(ResponseFault::Torn { .. }) => {
                        self.state().random[place.index()].below(1_000) as usize
                    }
                    _ => 0,
                };
                spoil_response(fault, &head, &body, permille)
            }
        };
        let is_sent = stream.write_all(&bytes).await.is_ok() && stream.flush().await.is_ok();
        is_sent && is_kept
    }
}

/// The bytes of a response with this fault, and whether the connection is kept; a torn one has so many thousandths of its body.
fn spoil_response(
    fault: Option<ResponseFault>,
    head: &str,
    body: &[u8],
    permille: usize,
) -> (Vec<u8>, bool) {
    const FINE: &str = "HTTP/1.1 200 OK\r\n";
    let of_length = |head: &str, length: usize, body: &[u8]| {
        [head.as_bytes(), format!("content-length: {length}\r\n\r\n").as_bytes(), body].concat()
    };
    match fault {
        Some(ResponseFault::Torn { says_length }) => {
            let cut = &body[..permille * body.len() / 1_000];
            let bytes = if says_length {
                of_length(head, body.len(), cut)
            } else {
                [head.as_bytes(), b"connection: close\r\n\r\n", cut].concat()
            };
            (bytes, false)
        }
        Some(ResponseFault::Garbage) => {
            let garbage = "\u{1}<html>{not a page} \\ \n".repeat(3);
            (of_length(head, garbage.len(), garbage.as_bytes()), true)
        }
        Some(ResponseFault::Failed) => (of_length("HTTP/1.1 500 Failed\r\n", 0, b""), true),
        Some(ResponseFault::Encoded) => {
            let head = [FINE, "content-encoding: br\r\n"].concat();
            (of_length(&head, body.len(), body), true)
        }
        Some(ResponseFault::TooLarge) => (of_length(FINE, MAX_BODY + 1, body), false),
        Some(ResponseFault::TooMany) => {
            let mut lines = String::new();
            for number in 0..=MAX_SAMPLES {
                // Writing to a string cannot fail.
                _ = writeln!(lines, "a{{b=\"{number}\"}} 1");
            }
            (of_length(FINE, lines.len(), lines.as_bytes()), true)
        }
        _ => (of_length(head, body.len(), body), true),
    }
}

/// Waits until the other side ends the connection, which is not kept.
async fn wait_for_end(stream: &mut impl NetworkStream) -> bool {
    let mut bytes = [0; 64];
    while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
    false
}

impl NetworkState {
    /// Whether packets arrive; an address that another machine has does not lead to the node.
    fn is_reachable(&self, place: ServedPlace, now: UnixMs) -> bool {
        let ServedPlace::Node { index, .. } = place else { return true };
        self.cut_until[index] <= now && self.nodes[index].is_on(now)
    }

    /// Checks the credentials of a request, if it has any: those of another node must not be sent here.
    fn is_authorized(&mut self, node: usize, request: &Request<()>) -> bool {
        let Some(sent) = request.headers().get(AUTHORIZATION) else { return true };
        let sent = sent.to_str().unwrap_or_default();
        let is_of = |node: usize| {
            let secret = secret_of(node);
            let pair = BASE64_STANDARD.encode(format!("gaunt:{secret}"));
            sent == format!("Bearer {secret}") || sent == format!("Basic {pair}")
        };
        if (0..self.nodes.len()).any(|other| other != node && is_of(other)) {
            self.broken.push(format!("{} is sent {sent:?}", SimulatedNode::name_of(node)));
        }
        is_of(node)
    }

    /// Publishes the page of now, unless the page before `is_repeated`.
    fn publish_page(&mut self, node: usize, now: UnixMs, is_repeated: bool) -> SimulatedExporter {
        let exporter = self.exporters[node].clone();
        if !is_repeated || !exporter.has_page() {
            exporter.publish(self.nodes[node].report(now));
        }
        exporter
    }

    fn draw_fault(&mut self, place: ServedPlace) -> Option<ResponseFault> {
        let every = self.fault_every?;
        let random = &mut self.random[place.index()];
        if !random.once_in(every) {
            return None;
        }
        self.counts.faults += 1;
        Some(match random.below(11) {
            0 | 1 => ResponseFault::Slow(random.shorter_than(Duration::from_secs(3))),
            2 => ResponseFault::Silent,
            3 => ResponseFault::Torn { says_length: true },
            4 => ResponseFault::Torn { says_length: false },
            5 => ResponseFault::Closed,
            6 => ResponseFault::Repeated,
            7 => ResponseFault::Encoded,
            8 => ResponseFault::TooLarge,
            9 => ResponseFault::TooMany,
            _ if random.once_in(2) => ResponseFault::Garbage,
            _ => ResponseFault::Failed,
        })
    }
}

impl Network for SimulatedNetwork {
    fn connect(&self, address: SocketAddr) -> ConnectionResult {
        let network = self.clone();
        Box::pin(async move {
            let place = network.place_at(address).ok_or(io::ErrorKind::AddrNotAvailable)?;
            let now = network.now();
            let (is_cut, is_on, is_refused) = {
                let mut state = network.state();
                let is_faulty = state.fault_every.is_some();
                let faulty = is_faulty && state.random[place.index()].once_in(40);
                match place {
                    ServedPlace::Discovery { .. } => (false, true, faulty),
                    ServedPlace::Node { index, .. } => {
                        (state.cut_until[index] > now, state.nodes[index].is_on(now), faulty)
                    }
                }
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
            let serving = network.clone();
            tokio::spawn(async move {
                serving.clone().serve(place, theirs).await;
                if serving.bug != Some(DeliberateBug::UnboundedConnections) {
                    serving.state().counts.open -= 1;
                }
            });
            Ok(Box::new(ours) as Box<dyn NetworkStream>)
        })
    }
}
