//! Bench `ingest`: from a page in memory, or a report, into columns, history and rates; one core, CPU time.

use std::{io::Write, time::Duration};

use anyhow::{Context, ensure};
use gaunt_cluster::Cluster;
use gaunt_schema::{
    Batch, Delivery, Dialect, RejectionCounts, Report, ScrapeTarget, ScrapedPage, TargetId, UnixMs,
    frame::{self, FrameDecoder, FrameEncoder},
    text::{self, PageLimits, TemplateCache, TemplateState},
};
use gaunt_sim::{Scenario, SimFleet};
use serde_json::json;

use crate::cpu_clock;

/// Number of nodes: enough that the columns exceed the cache of a core.
const NODES: usize = 500;
const QUICK_NODES: usize = 100;

/// Pages of each node that are ingested in turn, as different as consecutive pages.
const FRAMES: usize = 4;

/// Scrape period of a node.
const PERIOD: Duration = Duration::from_secs(10);

/// Points of history: a quarter of an hour.
const SLOTS: usize = 90;

/// The same at one point per second, for a few nodes.
const LONG_SLOTS: usize = 900;
const FEW_NODES: usize = 20;

const START: UnixMs = UnixMs(1_700_000_000_000);

/// Cost of ingesting a number of samples.
#[derive(Default)]
struct IngestCost {
    samples: u64,
    seconds: f64,
}

impl IngestCost {
    fn per_second(&self) -> f64 {
        self.samples as f64 / self.seconds
    }
}

/// Measures, prints the table and the JSON line.
pub(crate) fn run(quick: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    ensure!(
        !cfg!(debug_assertions),
        "build with --release: figures of a debug build are meaningless"
    );
    let nodes = if quick { QUICK_NODES } else { NODES };
    let mut fleet = SimFleet::new(Scenario::from_name("healthy")?, nodes, 7, START);
    let mut frames: Vec<Vec<Report>> = Vec::new();
    for frame in 1..=FRAMES {
        fleet.advance_to(START + PERIOD * frame as u32);
        frames.push((0..nodes).map(|node| fleet.node_report(node)).collect());
    }
    let default_history = measure_history(&frames, HistoryRetention::DEFAULT)?;
    let mut full_history = self::measure_history(
        &frames,
        HistoryRetention { every_metric: true, ..HistoryRetention::DEFAULT },
    )?;
    // The second cluster reuses the memory of the first.
    full_history.cluster_bytes =
        default_history.cluster_bytes + (full_history.bytes - default_history.bytes) as u64;
    let few_nodes: Vec<Vec<Report>> =
        frames.iter().map(|reports| reports[..FEW_NODES].to_vec()).collect();
    let long_history = self::measure_history(
        &few_nodes,
        HistoryRetention { slots: LONG_SLOTS, every_metric: false },
    )?;
    write_results(&frames, &default_history, &full_history, &long_history, out)
}

/// Which history is retained.
#[derive(Clone, Copy, Debug)]
struct HistoryRetention {
    /// Points of each series.
    slots: usize,
    /// Whether for every metric.
    every_metric: bool,
}

impl HistoryRetention {
    const DEFAULT: Self = Self { slots: SLOTS, every_metric: false };
}

/// Cost of keeping history.
struct HistoryCost {
    cost: IngestCost,
    /// Bytes of history.
    bytes: usize,
    /// Growth of the process in bytes.
    cluster_bytes: u64,
}

fn measure_history(
    frames: &[Vec<Report>],
    retention: HistoryRetention,
) -> anyhow::Result<HistoryCost> {
    let before = resident_bytes()?;
    let (cost, mut cluster) = measure_reports(frames, retention);
    let cluster_bytes = resident_bytes()?.saturating_sub(before);
    Ok(HistoryCost { cost, bytes: cluster.history_bytes(), cluster_bytes })
}

fn write_results(
    frames: &[Vec<Report>],
    default_history: &HistoryCost,
    full_history: &HistoryCost,
    long_history: &HistoryCost,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let nodes = frames[0].len();
    let series = frames[0].iter().map(|report| report.samples.len()).sum::<usize>();
    let text = measure_text(frames)?;
    let binary = measure_frames(frames)?;
    let bytes = default_history.bytes;
    let series_with_history = count_with_history(frames[0].iter());
    let long_bytes =
        long_history.bytes as f64 / count_with_history(frames[0].iter().take(FEW_NODES)) as f64;
    let bytes_per_point = bytes as f64 / (series_with_history * SLOTS) as f64;
    writeln!(
        out,
        "{nodes} nodes, {series} series, of which {series_with_history} keep {SLOTS} points of history"
    )?;
    for (what, cost) in [
        ("reports into columns, history, rates", &default_history.cost),
        ("the same with history of every metric", &full_history.cost),
        ("text of a known layout, into columns", &text),
        ("frames of differences, into columns", &binary.cost),
        ("frames of differences, decoding alone", &binary.decode_cost),
    ] {
        writeln!(out, "{what:44} {:>8.2} M samples/s", cost.per_second() / 1e6)?;
    }
    let bytes_per_sample = binary.bytes as f64 / binary.cost.samples as f64;
    writeln!(out, "{:44} {bytes_per_sample:>8.2} bytes", "a sample in a frame of differences")?;
    writeln!(out, "{:44} {bytes_per_point:>8.2} bytes", "a point of history, overhead included")?;
    writeln!(out, "{:44} {long_bytes:>8.0} bytes", "900 points of history: 15 minutes at 1 s")?;
    let bytes_per_series = |cost: &HistoryCost| (cost.cluster_bytes as f64 / series as f64).round();
    let what = "a series: cells, rates, history, devices";
    writeln!(out, "{what:44} {:>8.0} bytes", bytes_per_series(default_history))?;
    writeln!(
        out,
        "{:44} {:>8.0} bytes",
        "the same with history of every metric",
        bytes_per_series(full_history)
    )?;
    let line = json!({
        "nodes": nodes,
        "cluster_bytes_per_series": bytes_per_series(default_history),
        "cluster_bytes_per_series_every_metric": bytes_per_series(full_history),
        "column_samples_s_core_every_metric": full_history.cost.per_second().round(),
        "history_bytes_per_series_every_metric": (full_history.bytes as f64 / series as f64).round(),
        "series": series,
        "column_samples_s_core": default_history.cost.per_second().round(),
        "text_memory_samples_s_core": text.per_second().round(),
        "frame_samples_s_core": binary.cost.per_second().round(),
        "frame_read_samples_s_core": binary.decode_cost.per_second().round(),
        "frame_bytes_per_sample": (bytes_per_sample * 1e3).round() / 1e3,
        "history_bytes_per_point": (bytes_per_point * 1e3).round() / 1e3,
        "history_bytes_per_series_900": long_bytes.round(),
        "history_bytes_per_series": (bytes as f64 / series_with_history as f64).round(),
    });
    writeln!(out, "{line}").context("cannot write")
}

/// Number of series with history.
fn count_with_history<'a>(reports: impl Iterator<Item = &'a Report>) -> usize {
    let samples = reports.flat_map(|report| &report.samples);
    samples.filter(|sample| sample.metric.catalogue_row().history).count()
}

/// Bytes of a page of memory.
const PAGE: u64 = 4096;

/// Resident memory of this process, in bytes.
fn resident_bytes() -> anyhow::Result<u64> {
    let statm =
        std::fs::read_to_string("/proc/self/statm").context("cannot read /proc/self/statm")?;
    let pages: u64 =
        statm.split(' ').nth(1).context("/proc/self/statm has an unexpected format")?.parse()?;
    Ok(pages * PAGE)
}

fn build_cluster(nodes: usize, retention: HistoryRetention) -> Cluster {
    let cluster = Cluster::new(PERIOD, retention.slots);
    let mut cluster =
        if retention.every_metric { cluster.with_full_history(retention.slots) } else { cluster };
    let target = |node: usize| ScrapeTarget {
        id: TargetId(node as u32),
        address: format!("10.0.0.{node}:9770").into(),
        node: Some(format!("gpu{node:05}").as_str().into()),
        origin: "bench".into(),
    };
    cluster.ingest_delivery(Delivery::Targets((0..nodes).map(target).collect()));
    cluster
}

/// Rounds through all nodes until history is full, and then as many measured ones.
fn time_rounds(slots: usize, mut round: impl FnMut(usize, UnixMs) -> u64) -> IngestCost {
    time_prepared_rounds(slots, |_, _| (), |number, at, ()| round(number, at))
}

/// The same with an input that is prepared before each measured round.
fn time_prepared_rounds<T>(
    slots: usize,
    mut prepare: impl FnMut(usize, UnixMs) -> T,
    mut round: impl FnMut(usize, UnixMs, T) -> u64,
) -> IngestCost {
    let mut cost = IngestCost::default();
    for number in 0..2 * slots {
        let at = START + PERIOD * (number as u32 + 1);
        let input = prepare(number, at);
        let before = cpu_clock::process_cpu_time();
        let samples = round(number, at, input);
        if number >= slots {
            cost.samples += samples;
            cost.seconds += cpu_clock::process_cpu_time().saturating_sub(before).as_secs_f64();
        }
    }
    cost
}

fn measure_reports(frames: &[Vec<Report>], retention: HistoryRetention) -> (IngestCost, Cluster) {
    let mut cluster = build_cluster(frames[0].len(), retention);
    let cost = time_rounds(retention.slots, |number, at| {
        let mut samples = 0;
        for (node, report) in frames[number % FRAMES].iter().enumerate() {
            let mut report = report.clone();
            // A page with a repeated timestamp is not ingested again.
            report.node_time = Some(at);
            samples += report.samples.len() as u64;
            let page = ScrapedPage {
                report,
                dialect: Dialect::Gaunt,
                bytes: 0,
                rejected: RejectionCounts::default(),
            };
            let target = TargetId(node as u32);
            cluster.ingest_delivery(Delivery::Batch(Batch {
                target,
                at,
                duration_ms: 1.0,
                outcome: Ok(page),
            }));
        }
        cluster.advance_to(at);
        samples
    });
    (cost, cluster)
}

fn measure_text(frames: &[Vec<Report>]) -> anyhow::Result<IngestCost> {
    let nodes = frames[0].len();
    let pages: Vec<Vec<String>> = frames
        .iter()
        .map(|reports| {
            let page = |report: &Report| {
                let mut page = String::new();
                let report = Report { node_time: None, ..report.clone() };
                text::write_text(&report, &mut page);
                page
            };
            reports.iter().map(page).collect()
        })
        .collect();
    let mut cluster = build_cluster(nodes, HistoryRetention::DEFAULT);
    let (layouts, limits) = (TemplateCache::default(), PageLimits::default());
    let mut states: Vec<TemplateState> = (0..nodes).map(|_| TemplateState::default()).collect();
    let cost = time_rounds(SLOTS, |number, at| {
        let mut samples = 0;
        for (node, state) in states.iter_mut().enumerate() {
            let body = pages[number % FRAMES][node].as_bytes();
            let outcome = layouts.decode_page(state, body, &limits);
            samples += outcome.as_ref().map_or(0, |page| page.report.samples.len() as u64);
            let target = TargetId(node as u32);
            cluster.ingest_delivery(Delivery::Batch(Batch {
                target,
                at,
                duration_ms: 1.0,
                outcome,
            }));
        }
        cluster.advance_to(at);
        samples
    });
    ensure!(cost.samples > 0, "no page was decoded");
    Ok(cost)
}

/// Cost of frames.
struct FrameCost {
    cost: IngestCost,
    /// The part of it before columns are written.
    decode_cost: IngestCost,
    /// Bytes of the measured frames.
    bytes: u64,
}

fn measure_frames(frames: &[Vec<Report>]) -> anyhow::Result<FrameCost> {
    let nodes = frames[0].len();
    let reader = FrameDecoder::default();
    let mut states: Vec<frame::FrameDecodeState> =
        (0..nodes).map(|_| frame::FrameDecodeState::default()).collect();
    let mut last: Vec<Option<FrameEncoder>> = vec![None; nodes];
    let (mut cluster, limits) =
        (build_cluster(nodes, HistoryRetention::DEFAULT), PageLimits::default());
    let (mut bytes, mut decode_cost) = (0, IngestCost::default());
    let encode_round = |number: usize, at: UnixMs| {
        let node = |(report, last): (&Report, &mut Option<FrameEncoder>)| {
            let report = Report { node_time: Some(at), ..report.clone() };
            let encoder = FrameEncoder::of(&report, number as u64, last.as_ref());
            let client =
                last.as_ref().map_or_else(frame::ClientState::default, |last| frame::ClientState {
                    layout: Some(last.layout().content_hash()),
                    tick: Some(last.tick()),
                });
            let mut body = Vec::new();
            encoder.encode_frame(client, last.as_ref(), &mut body);
            *last = Some(encoder);
            body
        };
        frames[number % FRAMES].iter().zip(&mut last).map(node).collect::<Vec<Vec<u8>>>()
    };
    let cost = time_prepared_rounds(SLOTS, encode_round, |number, at, bodies| {
        let mut samples = 0;
        for (node, (state, body)) in states.iter_mut().zip(&bodies).enumerate() {
            let before = cpu_clock::process_cpu_time();
            let outcome = reader.decode_frame(state, body, &limits);
            if number >= SLOTS {
                decode_cost.seconds +=
                    cpu_clock::process_cpu_time().saturating_sub(before).as_secs_f64();
                bytes += body.len() as u64;
            }
            samples += outcome.as_ref().map_or(0, |page| page.report.samples.len() as u64);
            let target = TargetId(node as u32);
            cluster.ingest_delivery(Delivery::Batch(Batch {
                target,
                at,
                duration_ms: 1.0,
                outcome,
            }));
        }
        cluster.advance_to(at);
        samples
    });
    let totals = reader.decoder_stats();
    ensure!(totals.faults == 0 && totals.differences > 0, "frames were not decoded: {totals:?}");
    decode_cost.samples = cost.samples;
    Ok(FrameCost { cost, decode_cost, bytes })
}
