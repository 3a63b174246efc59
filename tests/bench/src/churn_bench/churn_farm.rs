//! The targets of bench `churn`: a simulated fleet whose nodes, jobs and ports get new names all the time, and hostile targets.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context;
use gaunt_schema::{
    Device, Report, SanitizedText, UnixMs,
    catalogue::{gpu, port},
    text,
};
use gaunt_sim::{Scenario, SimFleet};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
};

use super::{PACE, hostile_target};
use crate::farm_http;

/// Ports with a new name on each node.
const NEW_PORTS: u64 = 2;

/// How long nodes, jobs and series have the same name.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChurnPace {
    pub(super) node: Duration,
    /// Of a job of two nodes; they are half of the nodes.
    pub(super) short_job: Duration,
    /// Of a job of the others.
    pub(super) long_job: Duration,
    pub(super) series: Duration,
}

impl ChurnPace {
    /// How often the node of this number was replaced: not all at once.
    fn node_generation(self, node: usize, nodes: usize, elapsed: Duration) -> u64 {
        let life = self.node.as_secs();
        (elapsed.as_secs() + life * node as u64 / nodes as u64) / life
    }

    /// The name of a node's job, given what the simulation calls it.
    fn job_name(self, node: usize, nodes: usize, job: &str, elapsed: Duration) -> String {
        if node < nodes / 2 {
            format!("short{}-{}", node / 2, elapsed.as_secs() / self.short_job.as_secs())
        } else {
            format!("{job}-{}", elapsed.as_secs() / self.long_job.as_secs())
        }
    }

    /// How many nodes there were until now.
    pub(super) fn node_count(self, nodes: usize, elapsed: Duration) -> u64 {
        (0..nodes).map(|node| self.node_generation(node, nodes, elapsed) + 1).sum()
    }

    /// How many jobs of two nodes there were until now.
    pub(super) fn short_job_count(self, nodes: usize, elapsed: Duration) -> u64 {
        (elapsed.as_secs() / self.short_job.as_secs() + 1) * (nodes / 4) as u64
    }
}

/// A server of all targets, in a thread of its own.
pub(super) struct ChurnFarm {
    state: Arc<FarmState>,
    port: u16,
}

struct FarmState {
    fleet: Mutex<SimFleet>,
    nodes: usize,
    started: Instant,
    hostile_answers: AtomicU64,
}

/// A node, or a hostile target, by its address.
#[derive(Clone, Copy)]
enum FarmTarget {
    Node(usize),
    Hostile(usize),
}

impl FarmTarget {
    fn at(address: Ipv4Addr) -> Self {
        let [_, _, kind, number] = address.octets();
        let number = usize::from(number.saturating_sub(1));
        if kind == 0 { Self::Node(number) } else { Self::Hostile(number) }
    }

    fn address(self) -> Ipv4Addr {
        match self {
            Self::Node(number) => Ipv4Addr::new(127, 5, 0, number as u8 + 1),
            Self::Hostile(number) => Ipv4Addr::new(127, 5, 1, number as u8 + 1),
        }
    }
}

impl ChurnFarm {
    pub(super) fn start(nodes: usize, started: Instant) -> anyhow::Result<Self> {
        let fleet = SimFleet::new(Scenario::from_name("healthy")?, nodes, 1, unix_now());
        let state = Arc::new(FarmState {
            fleet: Mutex::new(fleet),
            nodes,
            started,
            hostile_answers: AtomicU64::new(0),
        });
        let listener = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))
            .context("cannot listen for the targets")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let served = Arc::clone(&state);
        // It ends with this program.
        thread::spawn(move || {
            if let Err(error) = runtime.block_on(served.serve(listener)) {
                panic!("the targets are not served any more: {error:#}");
            }
        });
        Ok(Self { state, port })
    }

    pub(super) fn hostile_answers(&self) -> u64 {
        self.state.hostile_answers.load(Ordering::Relaxed)
    }

    /// The lines of the list of targets now.
    pub(super) fn list_targets(&self) -> impl Iterator<Item = String> {
        let nodes = (0..self.state.nodes).map(|node| {
            format!(
                "{}={}:{}",
                self.state.node_name(node),
                FarmTarget::Node(node).address(),
                self.port
            )
        });
        let hostile = (0..hostile_target::KINDS).map(|number| {
            format!("hostile{number:02}={}:{}", FarmTarget::Hostile(number).address(), self.port)
        });
        nodes.chain(hostile)
    }
}

impl FarmState {
    fn node_name(&self, node: usize) -> String {
        let generation = PACE.node_generation(node, self.nodes, self.started.elapsed());
        format!("gpu{node:03}-{generation}")
    }

    async fn serve(self: Arc<Self>, listener: std::net::TcpListener) -> anyhow::Result<()> {
        let listener = TcpListener::from_std(listener)?;
        let state = Arc::clone(&self);
        tokio::spawn(async move {
            loop {
                state.fleet.lock().unwrap_or_else(PoisonError::into_inner).advance_to(unix_now());
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        loop {
            let (stream, peer) = listener.accept().await?;
            if peer.ip().is_loopback() {
                let state = Arc::clone(&self);
                tokio::spawn(async move { state.serve_connection(stream).await });
            }
        }
    }

    async fn serve_connection(&self, mut stream: TcpStream) -> Option<()> {
        let SocketAddr::V4(local) = stream.local_addr().ok()? else { return None };
        stream.set_nodelay(true).ok()?;
        let mut head = Vec::new();
        loop {
            farm_http::read_head(&mut stream, &mut head).await?;
            match FarmTarget::at(*local.ip()) {
                FarmTarget::Node(node) => {
                    let page = self.render_page(node);
                    farm_http::write_page(&mut stream, page.as_bytes(), "").await?;
                }
                FarmTarget::Hostile(number) => {
                    let count = self.hostile_answers.fetch_add(1, Ordering::Relaxed);
                    let page = self.render_page(number % self.nodes);
                    hostile_target::answer(&mut stream, number, count, &page).await?;
                }
            }
            stream.flush().await.ok()?;
        }
    }

    /// The page of a node with the names that it, its jobs and some ports have now.
    fn render_page(&self, node: usize) -> String {
        let elapsed = self.started.elapsed();
        let fleet = self.fleet.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = fleet.node_report(node);
        drop(fleet);
        report.node = Some(SanitizedText::from(self.node_name(node)));
        rename_job(&mut report, |job| PACE.job_name(node, self.nodes, job, elapsed));
        let minute = elapsed.as_secs() / PACE.series.as_secs();
        for number in 0..NEW_PORTS {
            let name = format!("pod{}", minute * NEW_PORTS + number);
            let device = report.ensure_device(Device::new_port(&name, "1"));
            report.push(device, port::STATE, 4.0);
            report.push(device, port::RATE, 25e9);
        }
        let mut page = String::new();
        text::write_text(&report, &mut page);
        page
    }
}

fn unix_now() -> UnixMs {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    UnixMs::from_seconds(since.as_secs_f64())
}

/// Replaces the name of the job that holds the GPUs.
fn rename_job(report: &mut Report, new_name: impl Fn(&str) -> String) {
    for info in report.infos.iter_mut().filter(|info| info.metric == gpu::JOB_INFO) {
        let renamed = info.labels.iter().map(|(name, value)| {
            let is_job = name.as_str() == "job";
            let value = if is_job { SanitizedText::from(new_name(value)) } else { value.clone() };
            (name.clone(), value)
        });
        info.labels = renamed.collect::<Vec<_>>().into();
    }
}
