//! Bench `ingest`: from a page in memory, or a report, into columns, history and rates; one core, processor time.

use std::{io::Write, time::Duration};

use anyhow::{Context, ensure};
use gaunt::cluster::Cluster;
use gaunt_schema::{
    Batch, Delivery, Dialect, Page, Rejected, Report, Target, TargetId, UnixMs,
    text::{self, Layouts, Limits, Memory},
};
use gaunt_sim::{Fleet, Scenario};
use serde_json::json;

use crate::clock;

/// Nodes: enough that columns do not fit into the cache of a core.
const NODES: usize = 500;
const QUICK_NODES: usize = 100;

/// Pages of each node that are taken in turn, as different as pages are that follow each other.
const FRAMES: usize = 4;

/// What a node is read every.
const PERIOD: Duration = Duration::from_secs(10);

/// Points of history: a quarter of an hour.
const SLOTS: usize = 90;

const START: UnixMs = UnixMs(1_700_000_000_000);

/// What it cost to take a number of samples.
#[derive(Default)]
struct Cost {
    samples: u64,
    seconds: f64,
}

impl Cost {
    fn per_second(&self) -> f64 {
        self.samples as f64 / self.seconds
    }
}

/// Measures, prints the table and the JSON line.
pub(crate) fn run(quick: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    ensure!(!cfg!(debug_assertions), "build with --release: a debug build says nothing");
    let nodes = if quick { QUICK_NODES } else { NODES };
    let mut fleet = Fleet::new(Scenario::named("healthy")?, nodes, 7, START);
    let mut frames: Vec<Vec<Report>> = Vec::new();
    for frame in 1..=FRAMES {
        fleet.advance(START + PERIOD * frame as u32);
        frames.push((0..nodes).map(|node| fleet.report(node)).collect());
    }
    let before = resident()?;
    let (columns, mut cluster) = columns(&frames);
    let grown = resident()?.saturating_sub(before);
    let series = frames[0].iter().map(|report| report.samples.len()).sum::<usize>();
    let text = text(&frames)?;
    let bytes = cluster.history_bytes();
    let kept = frames[0].iter().flat_map(|report| &report.samples);
    let kept = kept.filter(|sample| sample.metric.row().history).count();
    let a_point = bytes as f64 / (kept * SLOTS) as f64;
    writeln!(
        out,
        "{nodes} nodes, {series} series, of which {kept} keep {SLOTS} points of history"
    )?;
    writeln!(
        out,
        "{:44} {:>8.2} M samples/s",
        "reports into columns, history, rates",
        columns.per_second() / 1e6
    )?;
    writeln!(
        out,
        "{:44} {:>8.2} M samples/s",
        "text of a known layout, and into columns",
        text.per_second() / 1e6
    )?;
    writeln!(out, "{:44} {a_point:>8.2} bytes", "a point of history, all told")?;
    let a_series = grown as f64 / series as f64;
    writeln!(out, "{:44} {a_series:>8.0} bytes", "a series: cells, rates, history, devices")?;
    let line = json!({
        "nodes": nodes,
        "cluster_bytes_per_series": a_series.round(),
        "series": series,
        "column_samples_s_core": columns.per_second().round(),
        "text_memory_samples_s_core": text.per_second().round(),
        "history_bytes_per_point": (a_point * 1e3).round() / 1e3,
        "history_bytes_per_series": (bytes as f64 / kept as f64).round(),
    });
    writeln!(out, "{line}").context("cannot write")
}

/// Bytes of a page of memory.
const PAGE: u64 = 4096;

/// The memory that this process holds, in bytes.
fn resident() -> anyhow::Result<u64> {
    let statm =
        std::fs::read_to_string("/proc/self/statm").context("cannot read /proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).context("statm is strange")?.parse()?;
    Ok(pages * PAGE)
}

fn cluster(nodes: usize) -> Cluster {
    let mut cluster = Cluster::new(PERIOD, SLOTS);
    let target = |node: usize| Target {
        id: TargetId(node as u32),
        address: format!("10.0.0.{node}:9770").into(),
        node: Some(format!("gpu{node:05}").as_str().into()),
        origin: "bench".into(),
    };
    cluster.accept(Delivery::Targets((0..nodes).map(target).collect()));
    cluster
}

/// Rounds through all nodes until history is full, and then as many that are measured.
fn rounds(mut round: impl FnMut(usize, UnixMs) -> u64) -> Cost {
    let mut cost = Cost::default();
    for number in 0..2 * SLOTS {
        let at = START + PERIOD * (number as u32 + 1);
        let before = clock::cpu();
        let samples = round(number, at);
        if number >= SLOTS {
            cost.samples += samples;
            cost.seconds += clock::cpu().saturating_sub(before).as_secs_f64();
        }
    }
    cost
}

fn columns(frames: &[Vec<Report>]) -> (Cost, Cluster) {
    let mut cluster = cluster(frames[0].len());
    let cost = rounds(|number, at| {
        let mut samples = 0;
        for (node, report) in frames[number % FRAMES].iter().enumerate() {
            let mut report = report.clone();
            // A page that repeats its clock is not taken a second time.
            report.node_time = Some(at);
            samples += report.samples.len() as u64;
            let page =
                Page { report, dialect: Dialect::Gaunt, bytes: 0, rejected: Rejected::default() };
            let target = TargetId(node as u32);
            cluster.accept(Delivery::Batch(Batch {
                target,
                at,
                duration_ms: 1.0,
                outcome: Ok(page),
            }));
        }
        cluster.advance(at);
        samples
    });
    (cost, cluster)
}

fn text(frames: &[Vec<Report>]) -> anyhow::Result<Cost> {
    let nodes = frames[0].len();
    let written: Vec<Vec<String>> = frames
        .iter()
        .map(|reports| {
            let page = |report: &Report| {
                let mut page = String::new();
                let report = Report { node_time: None, ..report.clone() };
                text::write(&report, &mut page);
                page
            };
            reports.iter().map(page).collect()
        })
        .collect();
    let mut cluster = cluster(nodes);
    let (layouts, limits) = (Layouts::default(), Limits::default());
    let mut memories: Vec<Memory> = (0..nodes).map(|_| Memory::default()).collect();
    let cost = rounds(|number, at| {
        let mut samples = 0;
        for (node, memory) in memories.iter_mut().enumerate() {
            let body = written[number % FRAMES][node].as_bytes();
            let outcome = layouts.decode(memory, body, &limits);
            samples += outcome.as_ref().map_or(0, |page| page.report.samples.len() as u64);
            let target = TargetId(node as u32);
            cluster.accept(Delivery::Batch(Batch { target, at, duration_ms: 1.0, outcome }));
        }
        cluster.advance(at);
        samples
    });
    ensure!(cost.samples > 0, "no page was read");
    Ok(cost)
}
