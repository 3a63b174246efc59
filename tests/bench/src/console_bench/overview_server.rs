//! Serves the overview stream of 100,000 GPUs as an aggregator does; values change slightly even in a calm fleet.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::Context as _;
use gaunt_api::{
    Finding, HeatMap, LostGpuTime, NodeCounts, NodeLine, NodeState, Overview, StateCount, json_diff,
};
use gaunt_schema::{Entity, EntityKind, FindingKind, GpuState, SanitizedText, Severity, UnixMs};
use serde_json::{Value, json};

use super::NODES;

/// GPUs of a node.
const GPUS: usize = 8;

/// Timestamp of the first event.
const BEGIN: i64 = 1_700_000_000_000;

/// Number of worst nodes and of history points, as an aggregator sends.
const WORST: usize = 32;
const PAST: usize = 90;

/// Seconds of a history point, as an aggregator sends.
const STEP_SECONDS: usize = 10;

/// Serves until the bench ends; `busy` is the number of waiting nodes, different ones in each second.
pub(super) fn serve_overview(busy: Arc<AtomicUsize>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let busy = Arc::clone(&busy);
            // A client that disconnects ends its stream.
            thread::spawn(move || _ = stream_overview(&stream, &busy));
        }
    });
    Ok(address)
}

fn stream_overview(stream: &TcpStream, busy: &AtomicUsize) -> anyhow::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().context("no request")??;
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let mut out = stream;
    if !request.contains("ask=overview") {
        let body = json!({ "refused": "unknown_node", "node": "none" }).to_string();
        write!(out, "HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
        return Ok(());
    }
    write!(
        out,
        "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n"
    )?;
    let mut noise = OverviewNoise(1);
    let mut last = serde_json::to_value(build_overview(&BTreeSet::new(), 0, &mut noise))?;
    write_line(out, &json!({ "stream": "bench", "number": 1, "whole": last }))?;
    for second in 1_usize.. {
        thread::sleep(Duration::from_secs(1));
        let count = busy.load(Ordering::Relaxed);
        let waiting: BTreeSet<usize> = (0..count).map(|_| noise.next_below(NODES)).collect();
        let next = serde_json::to_value(build_overview(&waiting, second, &mut noise))?;
        let change = json_diff::diff_values(&last, &next).context("nothing changed")?;
        write_line(out, &json!({ "number": second + 1, "change": change }))?;
        last = next;
    }
    Ok(())
}

/// Writes a line at once, as an aggregator does: token by token, the first one would take 75,000 calls of the system.
fn write_line(mut out: &TcpStream, line: &Value) -> std::io::Result<()> {
    out.write_all(format!("{line}\n").as_bytes())
}

/// The whole fleet in one second: all GPUs compute except one on each waiting node.
fn build_overview(waiting: &BTreeSet<usize>, second: usize, noise: &mut OverviewNoise) -> Overview {
    let mut states = "C".repeat(NODES * GPUS).into_bytes();
    for node in waiting {
        states[node * GPUS + 3] = b'w';
    }
    let name = |node: usize| SanitizedText::new(&format!("gpu{node:05}"));
    let heat = HeatMap {
        nodes: (0..NODES).map(name).collect(),
        gpus: vec![GPUS as u16; NODES],
        // The bytes are ASCII letters.
        states: String::from_utf8(states).unwrap_or_default(),
    };
    let at = UnixMs(BEGIN + second as i64 * 1_000);
    let lost = 2_000.0 + noise.next_below(60) as f64 + waiting.len() as f64;
    let past = (0..PAST).map(|point| {
        // As in a real fleet, a point stands for a step, and the bar moves only then.
        let point = (second / STEP_SECONDS + point) as f32;
        Some(2_000.0 + 500.0 * (point / 40.0).sin() + 60.0 * (point * 1.7).sin())
    });
    let count = |state, gpus: usize| StateCount { state, gpus: gpus as u32 };
    let busy = NODES * GPUS - waiting.len() - lost as usize;
    Overview {
        cluster: "bench".into(),
        silent_clusters: Vec::new(),
        at,
        period_ms: 1_000,
        nodes: NodeCounts { live: NODES as u32, ..NodeCounts::default() },
        states: vec![
            count(GpuState::Computing, busy),
            count(GpuState::Waiting, waiting.len() + lost as usize),
        ],
        lost: LostGpuTime {
            gpus: lost,
            cost_per_hour: Some(lost * 2.0),
            currency: "USD".into(),
            history: past.collect(),
            history_step_ms: STEP_SECONDS as u64 * 1_000,
            ..LostGpuTime::default()
        },
        findings_open: 2,
        findings_acknowledged: 0,
        findings_without_place: 0,
        findings: [(3, Severity::Critical), (700, Severity::Warning)]
            .map(|(node, severity)| build_finding(&name(node), severity))
            .into(),
        groups: Vec::new(),
        contexts: Vec::new(),
        changes: Vec::new(),
        heat,
        worst: (0..WORST).map(|index| build_worst_node(name(3 + index * 37), noise)).collect(),
        trouble: Vec::new(),
        source_trouble: Vec::new(),
        source_notes: Vec::new(),
    }
}

fn build_finding(node: &SanitizedText, severity: Severity) -> Finding {
    let entity = Entity { node: Some(node.clone()), ..Entity::new(EntityKind::Node) };
    let finding = Finding {
        since: UnixMs(BEGIN - 130_000),
        confidence: 0.9,
        summary: format!("data-starved: the GPUs of {node} wait for input (IO pressure 76 %)"),
        next: "Check the host's disks.".into(),
        ..Finding::new(FindingKind::DataStarved, severity, entity)
    };
    finding.with_lost_gpus(6.0)
}

/// A node whose power and utilization vary slightly.
fn build_worst_node(node: SanitizedText, noise: &mut OverviewNoise) -> NodeLine {
    NodeLine {
        node,
        state: NodeState::Live,
        age_ms: Some(400),
        gpu_states: "CCCwCCCC".into(),
        lost_gpus: 1.0,
        utilization_ratio: Some(0.95 + noise.next_below(5) as f64 / 100.0),
        power_watts: Some(3_400.0 + noise.next_below(40) as f64),
        ports: (8, 8),
        jobs: vec!["8812".into()],
        finding: None,
    }
}

/// Pseudo-random numbers with the same sequence in every run.
struct OverviewNoise(u64);

impl OverviewNoise {
    fn next_below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit as u64) as usize
    }
}
