//! Bench `past`: a Prometheus that is asked, that sends, and whose past is judged: its CPU time and ours.
//!
//! The Prometheus is Debian's; what it has was sent to it by remote write. Time is virtual for what is received and judged.

use std::{
    collections::BTreeMap,
    io::Write,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, ensure};
use clap::Args;
use gaunt::answer_source::{AnswerSource, PastSources};
use gaunt_api::{Answer, Question, TimeParam};
use gaunt_engine::EngineOptions;
use gaunt_schema::UnixMs;
use gaunt_series::SeriesReader;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::{bench_process::cpu_seconds, cpu_clock::process_cpu_time};

mod judged_run;
mod metrics_server;
mod past_fleet;
mod virtual_receiver;

use judged_run::{ReadBy, ToldFindings, judge_pages, judge_past};
use metrics_server::MetricsServer;
use past_fleet::{FAULTY_NODES, FIELDS, GPUS_PER_NODE, PERIOD_MS, PastFleet};
use virtual_receiver::{VirtualReceiver, judge_forwarded};

/// The time between two refreshes.
const REFRESH: Duration = Duration::from_secs(30);

/// Refreshes that are measured after one that asks for everything.
const REFRESHES: u32 = 4;

/// The time for which series that change rarely are not asked for again, as in a console.
const RARE_REFRESH: Duration = Duration::from_mins(5);

/// Fields of the queried fleet.
const ASKED_FIELDS: usize = 25;

/// Scrapes of the large fleet that are received, after three that are not measured.
const RECEIVED: u32 = 3;
const WARM: u32 = 3;

/// Scrapes of the recording that comes on each way: half an hour.
const WAYS_SCRAPES: i64 = 120;

/// One finding of each fault.
const EXPECTED_FINDINGS: usize = 6;

/// The scrape interval.
const PERIOD: Duration = Duration::from_millis(PERIOD_MS as u64);

/// How long ago the old screen is.
const WEEK: Duration = Duration::from_hours(7 * 24);

/// Options of `past`.
#[derive(Args, Clone, Debug)]
#[group(id = "past")]
pub(crate) struct PastBenchOptions {
    /// `past`: only compare the findings of one recording on each way on which it can come.
    #[arg(long)]
    only_ways: bool,
}

/// Sizes: GPUs that are asked for, whose past is judged, and that are received.
struct PastSizes {
    asked: usize,
    judged: usize,
    received: usize,
    /// Scrapes of the past.
    scrapes: i64,
}

fn unix_now() -> UnixMs {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(now.as_millis() as i64 / PERIOD_MS * PERIOD_MS)
}

/// CPU time of the thread that reads requests, in seconds.
fn receiver_cpu() -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        // A thread may have ended.
        let Ok(name) = std::fs::read_to_string(path.join("comm")) else { continue };
        if name.trim() == "receive" {
            let id = path.file_name().and_then(|id| id.to_str()?.parse().ok());
            sum += cpu_seconds(id.context("a thread has a number")?)?;
        }
    }
    Ok(sum)
}

/// Sends the past to a server: a node a week ago, the small cluster, and the whole fleet at last.
fn fill_server(fleet: &PastFleet, sizes: &PastSizes, now: UnixMs) -> anyhow::Result<MetricsServer> {
    /// Scrapes of the whole fleet.
    const RECENT: i64 = 8;
    let mut server = MetricsServer::start_prometheus(None)?;
    for scrape in (0..60).rev() {
        fleet.encode_scrape(0..1, now - WEEK - PERIOD * scrape, |body| server.send(&body))?;
    }
    for scrape in (0..sizes.scrapes).rev() {
        let at = now - PERIOD * scrape as u32;
        let nodes = if scrape < RECENT { sizes.asked / GPUS_PER_NODE } else { fleet.small_nodes };
        fleet.encode_scrape(0..nodes, at, |body| server.send(&body))?;
    }
    Ok(server)
}

/// What one refresh costs.
#[derive(Clone, Copy, Default)]
struct RefreshCost {
    samples: f64,
    answered_s: f64,
    their_cpu_s: f64,
    our_cpu_s: f64,
}

impl RefreshCost {
    /// The mean of refreshes of which one in `every` costs as much as `full`.
    fn with_full(self, full: Self, every: f64) -> Self {
        let mean = |usual: f64, full: f64| usual + (full - usual) / every;
        Self {
            samples: mean(self.samples, full.samples),
            answered_s: mean(self.answered_s, full.answered_s),
            their_cpu_s: mean(self.their_cpu_s, full.their_cpu_s),
            our_cpu_s: mean(self.our_cpu_s, full.our_cpu_s),
        }
    }
}

/// Refreshes of the whole fleet, as often as a console does: the mean of those that ask for what changes often, and the one
/// in ten that asks for everything.
fn measure_refreshes(
    runtime: &Runtime,
    server: &MetricsServer,
    now: UnixMs,
) -> anyhow::Result<(RefreshCost, RefreshCost)> {
    let reader = runtime.block_on(SeriesReader::open(&server.options()))?;
    let mut reader = reader.with_rare_refresh(RARE_REFRESH);
    runtime.block_on(reader.discover_names(now - Duration::from_mins(5), now))?;
    let end = |number: u32| now - PERIOD * (REFRESHES + 1 - number);
    // Templates of pages are made once.
    let mut measure = |numbers: std::ops::RangeInclusive<u32>| -> anyhow::Result<RefreshCost> {
        let (their_before, our_before) = (server.cpu()?, process_cpu_time());
        let (began, mut samples) = (Instant::now(), 0);
        let count = f64::from(numbers.end() + 1 - numbers.start());
        for number in numbers {
            let from = end(number) - REFRESH - Duration::from_secs(6);
            samples += runtime.block_on(reader.read_window(from, end(number)))?.load.samples;
        }
        Ok(RefreshCost {
            samples: samples as f64 / count,
            answered_s: began.elapsed().as_secs_f64() / count,
            their_cpu_s: (server.cpu()? - their_before) / count,
            our_cpu_s: process_cpu_time().saturating_sub(our_before).as_secs_f64() / count,
        })
    };
    let full = measure(0..=0)?;
    Ok((measure(1..=REFRESHES)?, full))
}

/// Milliseconds until a node is shown as it was a week ago.
fn measure_screen(runtime: &Runtime, server: &MetricsServer, now: UnixMs) -> anyhow::Result<f64> {
    let began = Instant::now();
    let answer = runtime.block_on(async {
        let clock = gaunt_engine::monotonic_clock();
        let live = gaunt_engine::spawn_new(EngineOptions::default(), clock);
        let (series, engine) = (Some(server.options()), EngineOptions::default());
        let source = AnswerSource::of_engine(live, PastSources { stored: None, series, engine });
        let node = Question::Node(PastFleet::node_name(0).as_str().into());
        source.ask_question(Question::AtTime(TimeParam::At(now - WEEK), Box::new(node))).await
    })?;
    ensure!(matches!(answer, Answer::Node(_)), "the node of last week: {answer:?}");
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// Seconds until the past of the small fleet is judged, and what that cost.
fn measure_postmortem(
    runtime: &Runtime,
    (server, read_by): (&MetricsServer, ReadBy),
    from: UnixMs,
    until: UnixMs,
) -> anyhow::Result<(f64, String)> {
    let halls = "cluster=~\"hall-1|hall-2\"";
    let (their_before, our_before) = (server.cpu()?, process_cpu_time());
    let bytes_before = server.answered_bytes()?;
    let (seconds, _) = judge_past(runtime, (server.options(), read_by), halls, from, until)?;
    let (theirs, ours) =
        (server.cpu()? - their_before, process_cpu_time().saturating_sub(our_before));
    let megabytes = (server.answered_bytes()? - bytes_before) / 1e6;
    let text = format!(
        "in {seconds:.1} s, CPU {theirs:.1} s of theirs, {:.1} s of ours, {megabytes:.1} MB of answers",
        ours.as_secs_f64()
    );
    Ok((seconds, text))
}

/// The findings of the nodes with faults, by the way on which their scrapes come.
fn judge_each_way(
    runtime: &Runtime,
    asked: &MetricsServer,
    fleet: &PastFleet,
    now: UnixMs,
) -> anyhow::Result<Vec<(&'static str, ToldFindings)>> {
    let (from, nodes) = (now - PERIOD * WAYS_SCRAPES as u32, FAULTY_NODES);
    let mut ways = vec![("pages", judge_pages(fleet, nodes, from, now))];
    let selector = "cluster=\"hall-1\"";
    ways.push((
        "asked of Prometheus",
        judge_past(runtime, (asked.options(), ReadBy::Queries), selector, from, now)?.1,
    ));

    let mut victoria = MetricsServer::start_victoria_metrics()?;
    for scrape in (0..WAYS_SCRAPES).rev() {
        let at = now - PERIOD * scrape as u32;
        fleet.encode_scrape(0..nodes, at, |body| victoria.send(&body))?;
    }
    // A new series is shown some seconds later.
    std::thread::sleep(Duration::from_secs(5));
    let options = (victoria.options(), ReadBy::Queries);
    let told = judge_past(runtime, options, selector, from, now)?.1;
    ways.push(("asked of VictoriaMetrics", told));
    drop(victoria);

    // A Prometheus forwards only what is newer than its start, and the bench has run for minutes.
    let shift = unix_now().duration_since(now) + PERIOD * (WAYS_SCRAPES as u32 + 20);
    let later = PastFleet { shift, ..*fleet };
    let start = |url: &str| MetricsServer::start_prometheus(Some(url));
    let told = judge_forwarded(runtime, &later, nodes, WAYS_SCRAPES, now + later.shift, start)?;
    let told = told.into_iter().map(|(id, (severity, at))| (id, (severity, at - later.shift)));
    ways.push(("sent by Prometheus", told.collect()));
    let told =
        judge_forwarded(runtime, fleet, nodes, WAYS_SCRAPES, now, MetricsServer::start_vmagent)?;
    ways.push(("sent by vmagent", told));
    Ok(ways)
}

/// Writes when each finding is told on each way, in seconds after the first fault, and returns whether all ways have the
/// same findings with the same severities.
fn compare_ways(
    ways: &[(&str, ToldFindings)],
    faults_from: UnixMs,
    out: &mut dyn Write,
) -> anyhow::Result<bool> {
    let mut findings: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (_, told) in ways {
        for id in told.keys() {
            findings.entry(id).or_default();
        }
    }
    let mut is_same = findings.len() >= EXPECTED_FINDINGS;
    let names: Vec<&str> = ways.iter().map(|(name, _)| *name).collect();
    writeln!(out, "findings, severity, and seconds after the first fault: {}", names.join(", "))?;
    writeln!(
        out,
        "  shown later by: asked each {:?} {:?}, sent {:?}",
        gaunt_series::REFRESH,
        gaunt_series::feed_lag(gaunt_series::REFRESH),
        gaunt_series::RECEIVE_LAG
    )?;
    for (id, cells) in &mut findings {
        let severity = ways.iter().find_map(|(_, told)| Some(told.get(*id)?.0));
        for (_, told) in ways {
            let found = told.get(*id);
            is_same &= found.map(|(severity, _)| *severity) == severity;
            cells.push(found.map_or("-".to_owned(), |(severity, at)| {
                let seconds = (at.0 - faults_from.0) as f64 / 1e3;
                format!("{} {seconds:.0}", severity.as_str())
            }));
        }
        writeln!(out, "  {id:40} {}", cells.join(", "))?;
    }
    Ok(is_same)
}

/// Cores that it takes to receive so many GPUs, and samples of one scrape.
fn measure_receiving(
    runtime: &Runtime,
    fleet: &PastFleet,
    gpus: usize,
    now: UnixMs,
) -> anyhow::Result<(f64, u64)> {
    let (mut sender, mut samples, mut before) = (VirtualReceiver::start(now)?, 0, 0.0);
    for scrape in 1..=WARM + RECEIVED {
        if scrape == WARM + 1 {
            before = receiver_cpu()?;
        }
        let at = now + PERIOD * scrape;
        samples = sender.receive(runtime, fleet, gpus / GPUS_PER_NODE, at, drop)?;
    }
    let seconds = f64::from(RECEIVED) * PERIOD.as_secs_f64();
    Ok(((receiver_cpu()? - before) / seconds, samples))
}

/// The fleet whose newest scrape is at `now`.
fn faulty_fleet(sizes: &PastSizes, now: UnixMs) -> PastFleet {
    PastFleet {
        small_nodes: sizes.judged / GPUS_PER_NODE,
        fields: ASKED_FIELDS,
        faults_from: now - Duration::from_mins(18),
        shift: Duration::ZERO,
    }
}

/// Compares the ways alone. Nothing is measured, so that a debug build will do.
fn run_ways(runtime: &Runtime, out: &mut dyn Write) -> anyhow::Result<()> {
    let gpus = FAULTY_NODES * GPUS_PER_NODE;
    let sizes = PastSizes { asked: gpus, judged: gpus, received: 0, scrapes: WAYS_SCRAPES };
    let now = unix_now();
    let fleet = faulty_fleet(&sizes, now);
    let server = fill_server(&fleet, &sizes, now)?;
    let ways = judge_each_way(runtime, &server, &fleet, now)?;
    let same = compare_ways(&ways, fleet.faults_from, out)?;
    writeln!(out, "{}", json!({ "gpus": gpus, "same_findings": same }))?;
    Ok(())
}

/// Measures, prints the table and the JSON line.
pub(crate) fn run(
    options: &PastBenchOptions,
    quick: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if options.only_ways {
        return run_ways(&runtime, out);
    }
    ensure!(
        !cfg!(debug_assertions) || quick,
        "build with --release: figures of a debug build are meaningless"
    );
    let sizes = if quick {
        PastSizes { asked: 520, judged: 520, received: 800, scrapes: WAYS_SCRAPES }
    } else {
        PastSizes { asked: 10_000, judged: 1_000, received: 100_000, scrapes: 240 }
    };
    let now = unix_now();
    let from = now - PERIOD * sizes.scrapes as u32;
    let fleet = faulty_fleet(&sizes, now);
    let began = Instant::now();
    // Each part is written as soon as it is measured: a bench that is stopped has shown what it had.
    let mut show = |text: String| -> anyhow::Result<()> {
        writeln!(out, "{:6.1} s  {text}", began.elapsed().as_secs_f64())?;
        Ok(out.flush()?)
    };
    // First, while no server of this bench uses the caches.
    let large = PastFleet { fields: FIELDS.len(), ..fleet };
    let (cores, samples) = measure_receiving(&runtime, &large, sizes.received, now)?;
    let received = sizes.received;
    show(format!("{received} GPUs received: {samples} samples each {PERIOD:?}, {cores:.3} cores"))?;
    let server = fill_server(&fleet, &sizes, now)?;
    show(format!("{} GPUs with {ASKED_FIELDS} fields are in the server", sizes.asked))?;
    let (usual, full) = measure_refreshes(&runtime, &server, now)?;
    let refresh = usual.with_full(full, RARE_REFRESH.as_secs_f64() / REFRESH.as_secs_f64());
    for (name, cost) in
        [("a refresh", usual), ("one in ten", full), ("the mean, each 30 s", refresh)]
    {
        let RefreshCost { samples, answered_s, their_cpu_s, our_cpu_s } = cost;
        show(format!(
            "{name:20} {samples:8.0} samples in {answered_s:.2} s, CPU {their_cpu_s:.3} s of theirs, {our_cpu_s:.3} s of ours"
        ))?;
    }
    let seconds = REFRESH.as_secs_f64();
    let (their_cores, our_cores) = (refresh.their_cpu_s / seconds, refresh.our_cpu_s / seconds);
    show(format!("CPU {their_cores:.3} cores of theirs, {our_cores:.3} of ours"))?;
    let screen_ms = measure_screen(&runtime, &server, now)?;
    show(format!("a node a week ago {screen_ms:.0} ms"))?;
    let mut postmortem_s = 0.0;
    // The last one is what a post-mortem does.
    for (name, read_by) in [("queries", ReadBy::Queries), ("remote read", ReadBy::RemoteRead)] {
        let text;
        (postmortem_s, text) = measure_postmortem(&runtime, (&server, read_by), from, now)?;
        show(format!(
            "{} scrapes of {} GPUs judged by {name} {text}",
            sizes.scrapes, sizes.judged
        ))?;
    }
    let ways = judge_each_way(&runtime, &server, &fleet, now)?;
    show(format!("judged on {} ways", ways.len()))?;

    let same = compare_ways(&ways, fleet.faults_from, out)?;
    let line = json!({
        "gpus": sizes.asked,
        "their_cpu_cores": their_cores,
        "our_cpu_cores": our_cores,
        "screen_7d_ms": screen_ms,
        "receive_cpu_cores": cores,
        "postmortem_s": postmortem_s,
        "same_findings": same,
    });
    writeln!(out, "{line}")?;
    Ok(())
}
