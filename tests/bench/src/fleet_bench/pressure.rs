//! Bench `pressure`: the aggregator beside programs that keep every core busy, as on a machine that it shares.
//!
//! No page may be lost without a word, and there is no cliff: with half of each core a target is read half as often, the
//! answers stay fast, and gaunt says that it is behind.

use std::{
    io::Write,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Args;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};

use super::{
    BenchServerProcess, FleetBenchOptions, PAUSE, SETTLING, fetch_targets, percentile_of,
    start_aggregator, start_simulator, total_of, wait_for_scrapes,
};
use crate::{
    bench_process::{BenchProcess, CpuUsage},
    scrape_client::{PLAIN, ScrapeClient},
};

/// Competing threads on each core in each window.
const COMPETITORS: [usize; 4] = [0, 1, 3, 0];

/// The window whose figures are in the JSON line: one competitor on each core.
const REPORTED: usize = 1;

/// Time between two looks at the ages of all targets, whose answer is large.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Periods without a page after which a target is old.
const OLD_PERIODS: f64 = 3.0;

/// Options of `pressure`.
#[derive(Args, Clone, Debug)]
#[group(id = "pressure")]
pub(crate) struct PressureBenchOptions {
    /// `pressure`: number of nodes, 960 samples each, as frames every second.
    #[arg(long, default_value_t = 1_500)]
    pressure_nodes: usize,
    /// `pressure`: seconds of each of the four windows.
    #[arg(long, default_value_t = 45)]
    pressure_seconds: u64,
}

/// Figures of one window.
struct PressureFigures {
    competitors: usize,
    cores: f64,
    /// Pages taken / pages due.
    taken_share: f64,
    /// Targets that are shown as live although nothing was read of them for three periods, while gaunt does not say that it
    /// is behind: per million looks at a target.
    unsaid_per_million: f64,
    freshness_median: f64,
    freshness_p99: f64,
    heatmap_p99: f64,
    behind_said: bool,
}

/// Measures, prints the table and the JSON line.
pub(crate) fn run(options: &PressureBenchOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    ensure!(
        !cfg!(debug_assertions),
        "build with --release: figures of a debug build are meaningless"
    );
    let cores = thread::available_parallelism()?.get();
    let nodes = options.pressure_nodes;
    let fleet = FleetBenchOptions::frames_every_second(nodes);
    let (_farm, targets): (BenchServerProcess, String) = start_simulator(nodes, fleet.period, 0)?;
    let (gaunt, _settings) = start_aggregator(&targets, &fleet)?;
    let mut client = ScrapeClient::new(&gaunt.address)?;
    wait_for_scrapes(&mut client, 2 * nodes as u64)?;
    writeln!(
        out,
        "{:>11} {:>7} {:>8} {:>11} {:>9} {:>9} {:>9} {:>7}",
        "competitors", "cores", "taken %", "unsaid ppm", "age s", "p99 s", "heat ms", "behind"
    )?;
    let mut windows = Vec::new();
    for each in COMPETITORS {
        let span = Duration::from_secs(options.pressure_seconds);
        let figures = compete(each, cores, || {
            observe(&gaunt, &mut client, (each * cores, nodes), span, fleet.period)
        })?;
        writeln!(
            out,
            "{:>11} {:>7.3} {:>8.1} {:>11.1} {:>9.2} {:>9.2} {:>9.1} {:>7}",
            figures.competitors,
            figures.cores,
            figures.taken_share * 100.0,
            figures.unsaid_per_million,
            figures.freshness_median,
            figures.freshness_p99,
            figures.heatmap_p99,
            if figures.behind_said { "said" } else { "-" },
        )?;
        windows.push(figures);
    }
    let (alone, under) = (&windows[0], &windows[REPORTED]);
    let round = |value: f64| (value * 1e3).round() / 1e3;
    let line = json!({
        "cpu_cores": round(under.cores),
        "share_left": round(under.cores / alone.cores),
        "missed_unsaid_per_million": round(windows.iter().map(|it| it.unsaid_per_million).fold(0.0, f64::max)),
        "freshness_p99_s": round(under.freshness_p99),
        "heatmap_p99_ms": round(under.heatmap_p99),
        "behind_said": under.behind_said,
        "taken_share": round(under.taken_share),
        "recovered_taken_share": round(windows[windows.len() - 1].taken_share),
        "nodes": nodes,
    });
    writeln!(out, "{line}").context("cannot write")
}

/// Runs an observation while so many threads on each core do nothing else than being busy.
fn compete<T>(
    each: usize,
    cores: usize,
    observe: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for core in (0..cores).flat_map(|core| std::iter::repeat_n(core, each)) {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut own = CpuSet::new();
                own.set(core);
                // Where this core is not available the scheduler chooses one.
                _ = sched_setaffinity(None, &own);
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        thread::sleep(SETTLING);
        let observed = observe();
        is_over.store(true, Ordering::Relaxed);
        observed
    })
}

/// Counters of all targets until now.
struct PressureCounters {
    at: Instant,
    cpu: CpuUsage,
    taken: f64,
}

impl PressureCounters {
    fn read_now(gaunt: &BenchProcess, answer: &Value) -> anyhow::Result<Self> {
        let taken = answer["totals"]["scrapes"]["ok"].as_f64().unwrap_or_default();
        ensure!(total_of(answer, "samples") > 0.0, "no sample was taken");
        Ok(Self { at: Instant::now(), cpu: gaunt.read_cpu_usage()?, taken })
    }
}

fn observe(
    gaunt: &BenchProcess,
    client: &mut ScrapeClient,
    (competitors, nodes): (usize, usize),
    span: Duration,
    period: u64,
) -> anyhow::Result<PressureFigures> {
    let before = PressureCounters::read_now(gaunt, &fetch_targets(client)?)?;
    let (mut waits, mut ages, mut behind_said, mut unsaid) = (Vec::new(), Vec::new(), false, 0);
    let (end, mut look) = (before.at + span, before.at);
    while Instant::now() < end {
        let (time, body) = client.get("/api/gaunt/v1/overview", PLAIN)?;
        waits.push(time.as_secs_f64() * 1e3);
        let overview: Value = serde_json::from_slice(body)?;
        let mut findings = overview["findings"].as_array().into_iter().flatten();
        let is_behind = findings.any(|finding| finding["kind"] == "aggregator_late");
        behind_said |= is_behind;
        if Instant::now() >= look {
            look += LOOK_EVERY;
            let seen = live_ages(&fetch_targets(client)?);
            let old = seen.iter().filter(|age| **age > OLD_PERIODS * period as f64).count();
            unsaid += if is_behind { 0 } else { old };
            ages.extend(seen);
        }
        thread::sleep(PAUSE);
    }
    let after = PressureCounters::read_now(gaunt, &fetch_targets(client)?)?;
    let seconds = (after.at - before.at).as_secs_f64();
    let due = nodes as f64 * seconds / period as f64;
    Ok(PressureFigures {
        competitors,
        cores: after.cpu.percent_since(before.cpu, seconds).total_percent() / 100.0,
        taken_share: (after.taken - before.taken) / due,
        unsaid_per_million: unsaid as f64 / ages.len().max(1) as f64 * 1e6,
        freshness_median: percentile_of(&mut ages, 50),
        freshness_p99: percentile_of(&mut ages, 99),
        heatmap_p99: percentile_of(&mut waits, 99),
        behind_said,
    })
}

/// Returns the seconds since the last page of each target that is shown as live.
fn live_ages(answer: &Value) -> Vec<f64> {
    let now = answer["at"].as_f64().unwrap_or_default();
    let lines = answer["targets"].as_array().into_iter().flatten();
    let live = lines.filter(|line| line["state"] == "live");
    live.filter_map(|line| Some((now - line["last_success"].as_f64()?).max(0.0) / 1e3)).collect()
}
