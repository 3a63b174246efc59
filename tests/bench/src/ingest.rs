//! Bench `ingest`: from a page in memory, or a report, into columns, history and rates; one core, processor time.

use std::{io::Write, time::Duration};

use anyhow::{Context, ensure};
use gaunt::cluster::Cluster;
use gaunt_schema::{
    Batch, Delivery, Dialect, Page, Rejected, Report, Target, TargetId, UnixMs,
    frame::{self, Frames, Told},
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

/// The same at one a second, of a few nodes.
const LONG_SLOTS: usize = 900;
const FEW_NODES: usize = 20;

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
    let past = past(&frames, Kept::USUAL)?;
    let mut every = self::past(&frames, Kept { every: true, ..Kept::USUAL })?;
    // The second one lives where the first one was.
    every.cluster_bytes = past.cluster_bytes + (every.bytes - past.bytes) as u64;
    let few: Vec<Vec<Report>> =
        frames.iter().map(|reports| reports[..FEW_NODES].to_vec()).collect();
    let long = self::past(&few, Kept { slots: LONG_SLOTS, every: false })?;
    report_on(&frames, &past, &every, &long, out)
}

/// Which past is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Points of each series.
    slots: usize,
    /// Whether of every metric.
    every: bool,
}

impl Kept {
    const USUAL: Self = Self { slots: SLOTS, every: false };
}

/// What it costs to keep a past.
struct Past {
    cost: Cost,
    /// Bytes of history.
    bytes: usize,
    /// Bytes of the process that came with it.
    cluster_bytes: u64,
}

fn past(frames: &[Vec<Report>], kept: Kept) -> anyhow::Result<Past> {
    let before = resident()?;
    let (cost, mut cluster) = columns(frames, kept);
    let cluster_bytes = resident()?.saturating_sub(before);
    Ok(Past { cost, bytes: cluster.history_bytes(), cluster_bytes })
}

fn report_on(
    frames: &[Vec<Report>],
    past: &Past,
    every: &Past,
    long: &Past,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let nodes = frames[0].len();
    let series = frames[0].iter().map(|report| report.samples.len()).sum::<usize>();
    let text = text(frames)?;
    let binary = framed(frames)?;
    let bytes = past.bytes;
    let kept = with_past(frames[0].iter());
    let long_bytes = long.bytes as f64 / with_past(frames[0].iter().take(FEW_NODES)) as f64;
    let a_point = bytes as f64 / (kept * SLOTS) as f64;
    writeln!(
        out,
        "{nodes} nodes, {series} series, of which {kept} keep {SLOTS} points of history"
    )?;
    for (what, cost) in [
        ("reports into columns, history, rates", &past.cost),
        ("the same with a past of every metric", &every.cost),
        ("text of a known layout, and into columns", &text),
        ("frames of what changed, and into columns", &binary.cost),
        ("frames of what changed, read alone", &binary.read),
    ] {
        writeln!(out, "{what:44} {:>8.2} M samples/s", cost.per_second() / 1e6)?;
    }
    let a_sample = binary.bytes as f64 / binary.cost.samples as f64;
    writeln!(out, "{:44} {a_sample:>8.2} bytes", "a sample in a frame of what changed")?;
    writeln!(out, "{:44} {a_point:>8.2} bytes", "a point of history, all told")?;
    writeln!(out, "{:44} {long_bytes:>8.0} bytes", "900 points of history: 15 minutes at 1 s")?;
    let a_series = |past: &Past| (past.cluster_bytes as f64 / series as f64).round();
    let told = "a series: cells, rates, history, devices";
    writeln!(out, "{told:44} {:>8.0} bytes", a_series(past))?;
    writeln!(out, "{:44} {:>8.0} bytes", "the same with a past of every metric", a_series(every))?;
    let line = json!({
        "nodes": nodes,
        "cluster_bytes_per_series": a_series(past),
        "cluster_bytes_per_series_every_metric": a_series(every),
        "column_samples_s_core_every_metric": every.cost.per_second().round(),
        "history_bytes_per_series_every_metric": (every.bytes as f64 / series as f64).round(),
        "series": series,
        "column_samples_s_core": past.cost.per_second().round(),
        "text_memory_samples_s_core": text.per_second().round(),
        "frame_samples_s_core": binary.cost.per_second().round(),
        "frame_read_samples_s_core": binary.read.per_second().round(),
        "frame_bytes_per_sample": (a_sample * 1e3).round() / 1e3,
        "history_bytes_per_point": (a_point * 1e3).round() / 1e3,
        "history_bytes_per_series_900": long_bytes.round(),
        "history_bytes_per_series": (bytes as f64 / kept as f64).round(),
    });
    writeln!(out, "{line}").context("cannot write")
}

/// Series of which a past is kept.
fn with_past<'a>(reports: impl Iterator<Item = &'a Report>) -> usize {
    let samples = reports.flat_map(|report| &report.samples);
    samples.filter(|sample| sample.metric.row().history).count()
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

fn cluster(nodes: usize, kept: Kept) -> Cluster {
    let cluster = Cluster::new(PERIOD, kept.slots);
    let mut cluster = if kept.every { cluster.with_every_past(kept.slots) } else { cluster };
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
fn rounds(slots: usize, mut round: impl FnMut(usize, UnixMs) -> u64) -> Cost {
    prepared(slots, |_, _| (), |number, at, ()| round(number, at))
}

/// The same with something that is made for each round before it is measured.
fn prepared<T>(
    slots: usize,
    mut prepare: impl FnMut(usize, UnixMs) -> T,
    mut round: impl FnMut(usize, UnixMs, T) -> u64,
) -> Cost {
    let mut cost = Cost::default();
    for number in 0..2 * slots {
        let at = START + PERIOD * (number as u32 + 1);
        let made = prepare(number, at);
        let before = clock::cpu();
        let samples = round(number, at, made);
        if number >= slots {
            cost.samples += samples;
            cost.seconds += clock::cpu().saturating_sub(before).as_secs_f64();
        }
    }
    cost
}

fn columns(frames: &[Vec<Report>], kept: Kept) -> (Cost, Cluster) {
    let mut cluster = cluster(frames[0].len(), kept);
    let cost = rounds(kept.slots, |number, at| {
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
    let mut cluster = cluster(nodes, Kept::USUAL);
    let (layouts, limits) = (Layouts::default(), Limits::default());
    let mut memories: Vec<Memory> = (0..nodes).map(|_| Memory::default()).collect();
    let cost = rounds(SLOTS, |number, at| {
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

/// What frames cost.
struct Framed {
    cost: Cost,
    /// The part of it that goes by before columns are written.
    read: Cost,
    /// Bytes of the frames that were measured.
    bytes: u64,
}

fn framed(frames: &[Vec<Report>]) -> anyhow::Result<Framed> {
    let nodes = frames[0].len();
    let reader = Frames::default();
    let mut memories: Vec<frame::Memory> = (0..nodes).map(|_| frame::Memory::default()).collect();
    let mut last: Vec<Option<Told>> = vec![None; nodes];
    let (mut cluster, limits) = (cluster(nodes, Kept::USUAL), Limits::default());
    let (mut bytes, mut read) = (0, Cost::default());
    let write = |number: usize, at: UnixMs| {
        let node = |(report, last): (&Report, &mut Option<Told>)| {
            let report = Report { node_time: Some(at), ..report.clone() };
            let told = Told::of(&report, number as u64, last.as_ref());
            let holds = last.as_ref().map_or_else(frame::Holds::default, |last| frame::Holds {
                layout: Some(last.layout().hash()),
                tick: Some(last.tick()),
            });
            let mut body = Vec::new();
            told.write(holds, last.as_ref(), &mut body);
            *last = Some(told);
            body
        };
        frames[number % FRAMES].iter().zip(&mut last).map(node).collect::<Vec<Vec<u8>>>()
    };
    let cost = prepared(SLOTS, write, |number, at, bodies| {
        let mut samples = 0;
        for (node, (memory, body)) in memories.iter_mut().zip(&bodies).enumerate() {
            let before = clock::cpu();
            let outcome = reader.decode(memory, body, &limits);
            if number >= SLOTS {
                read.seconds += clock::cpu().saturating_sub(before).as_secs_f64();
                bytes += body.len() as u64;
            }
            samples += outcome.as_ref().map_or(0, |page| page.report.samples.len() as u64);
            let target = TargetId(node as u32);
            cluster.accept(Delivery::Batch(Batch { target, at, duration_ms: 1.0, outcome }));
        }
        cluster.advance(at);
        samples
    });
    let tidings = reader.tidings();
    ensure!(tidings.faults == 0 && tidings.differences > 0, "frames were not read: {tidings:?}");
    read.samples = cost.samples;
    Ok(Framed { cost, read, bytes })
}
