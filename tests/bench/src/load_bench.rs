//! Bench `load`: cost of serving a fleet of page rings, with one scrape of each node every ten seconds.

use std::{
    io::{BufRead, BufReader},
    net::{Ipv4Addr, SocketAddrV4, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use rustix::{
    event::epoll,
    net::{RecvFlags, SendFlags, recv, send},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use serde_json::json;

use crate::bench_process::{cpu_seconds, resident_bytes};

/// Number of nodes: the largest fleet that gaunt is designed for.
const NODES: usize = 12_500;

/// Scrape period of each node.
const PERIOD: Duration = Duration::from_secs(10);

/// Measured time, once every node was scraped.
const MEASURED: Duration = Duration::from_secs(40);

/// Interval at which the client processes due requests.
const INTERVAL: Duration = Duration::from_millis(20);

/// Descriptors that are not connections.
const RESERVED: u64 = 64;

const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nhost: node\r\n\r\n";

/// A minimal client: it sends requests and counts bytes.
struct LoadClient {
    epoll: rustix::fd::OwnedFd,
    peers: Vec<LoadConnection>,
    answers: u64,
    bytes: u64,
    unanswered: u64,
}

struct LoadConnection {
    stream: TcpStream,
    /// Remaining bytes of the response.
    remaining_bytes: usize,
    awaits_head: bool,
}

/// Serves, scrapes and measures.
pub(crate) fn run(out: &mut dyn std::io::Write) -> anyhow::Result<()> {
    let (server, port) = start_simulator()?;
    let mut client = LoadClient::connect_all(port)?;
    let started = Instant::now();
    client.request_until(started, PERIOD)?;
    client.answers = 0;
    client.bytes = 0;
    let before = cpu_seconds(server.0.id())?;
    let began = Instant::now();
    client.request_until(started, PERIOD + MEASURED)?;
    let span = began.elapsed().as_secs_f64();
    let used = cpu_seconds(server.0.id())? - before;
    let resident = resident_bytes(server.0.id())?;
    let (cores, per_page) = (used / span, used / client.answers.max(1) as f64);
    let figures = [
        ("nodes", NODES as f64),
        ("pages per second", client.answers as f64 / span),
        ("megabytes per second", client.bytes as f64 / span / 1e6),
        ("bytes per page", client.bytes as f64 / client.answers.max(1) as f64),
        ("cores", cores),
        ("microseconds per page", per_page * 1e6),
        ("resident megabytes", resident as f64 / 1e6),
        ("not answered in time", client.unanswered as f64),
    ];
    for (name, value) in figures {
        writeln!(out, "{name:24} {value:>14.3}")?;
    }
    let line = json!({
        "nodes": NODES, "period_s": PERIOD.as_secs(), "cores": cores, "us_per_page": per_page * 1e6,
        "pages_per_second": client.answers as f64 / span, "resident_bytes": resident,
        "unanswered": client.unanswered,
    });
    writeln!(out, "{line}")?;
    Ok(())
}

/// A program that is killed when the bench ends.
struct LoadServerProcess(Child);

impl Drop for LoadServerProcess {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn start_simulator() -> anyhow::Result<(LoadServerProcess, u16)> {
    let program = std::env::current_exe()?.with_file_name("gaunt-sim");
    ensure!(program.exists(), "{} is not built; run cargo build --release", program.display());
    let child = Command::new(&program)
        .args(["--load", "--scenario", "healthy", "--listen-port", "0"])
        .args(["--nodes", &NODES.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let mut server = LoadServerProcess(child);
    let mut line = String::new();
    let output = server.0.stdout.take().context("the simulator has no standard output")?;
    BufReader::new(output).read_line(&mut line)?;
    let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
    Ok((server, port.context("the simulator printed no address")?))
}

impl LoadClient {
    fn connect_all(port: u16) -> anyhow::Result<Self> {
        let hard_limit = getrlimit(Resource::Nofile).maximum;
        let needed = NODES as u64 + RESERVED;
        ensure!(
            hard_limit.is_none_or(|hard_limit| hard_limit >= needed),
            "{needed} open files are needed and the hard limit is lower; raise it with `ulimit -Hn {needed}` as root"
        );
        setrlimit(Resource::Nofile, Rlimit { current: hard_limit, maximum: hard_limit })?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut peers = Vec::with_capacity(NODES);
        for node in 0..NODES {
            let address = Ipv4Addr::new(127, 1, (node / 250) as u8, (node % 250 + 1) as u8);
            let stream = TcpStream::connect(SocketAddrV4::new(address, port))
                .with_context(|| format!("cannot connect to node {node} at {address}"))?;
            stream.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(node as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN)?;
            peers.push(LoadConnection { stream, remaining_bytes: 0, awaits_head: false });
        }
        Ok(Self { epoll, peers, answers: 0, bytes: 0, unanswered: 0 })
    }

    /// Requests every node at its own offset in each period and reads responses, until so long after the start.
    fn request_until(&mut self, started: Instant, until: Duration) -> anyhow::Result<()> {
        let requests_due = |elapsed: Duration| {
            (elapsed.as_secs_f64() / PERIOD.as_secs_f64() * NODES as f64) as usize
        };
        let mut next = requests_due(started.elapsed());
        let mut scratch = vec![0; 1 << 18];
        let mut events = Vec::with_capacity(1_024);
        while started.elapsed() < until {
            let now = requests_due(started.elapsed());
            for node in next..now {
                self.send_request(node % NODES)?;
            }
            next = now;
            events.clear();
            let interval =
                rustix::event::Timespec { tv_sec: 0, tv_nsec: INTERVAL.subsec_nanos().into() };
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&interval))?;
            for event in events.drain(..) {
                self.receive_response(event.data.u64() as usize, &mut scratch)?;
            }
        }
        Ok(())
    }

    fn send_request(&mut self, node: usize) -> anyhow::Result<()> {
        let peer = &mut self.peers[node];
        if peer.awaits_head || peer.remaining_bytes > 0 {
            self.unanswered += 1;
            return Ok(());
        }
        peer.awaits_head = true;
        send(&peer.stream, REQUEST, SendFlags::NOSIGNAL).context("cannot send a request")?;
        Ok(())
    }

    fn receive_response(&mut self, node: usize, scratch: &mut [u8]) -> anyhow::Result<()> {
        let peer = &mut self.peers[node];
        let read = match recv(&peer.stream, &mut *scratch, RecvFlags::empty()) {
            Ok((read, _)) => read,
            Err(rustix::io::Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error).context("a node closed its connection"),
        };
        ensure!(read > 0, "node {node} closed its connection");
        if peer.awaits_head {
            peer.awaits_head = false;
            peer.remaining_bytes =
                response_length(&scratch[..read]).context("a response without content-length")?;
        }
        self.bytes += read as u64;
        peer.remaining_bytes = peer
            .remaining_bytes
            .checked_sub(read)
            .context("a response longer than its content-length")?;
        self.answers += u64::from(peer.remaining_bytes == 0);
        Ok(())
    }
}

/// The length of a response with its head, from its first bytes.
fn response_length(answer: &[u8]) -> Option<usize> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = str::from_utf8(&answer[..end]).ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    Some(end + length.parse::<usize>().ok()?)
}
