//! Bench `simulation`: seeds of the simulation of the whole, with faults; every violation is printed with its seed.

use std::{
    io::Write,
    num::NonZero,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::Context as _;
use clap::Args;
use gaunt_simulation::{SimulationReport, run_seed, run_served_seed};
use serde_json::json;

/// Options of `simulation`.
#[derive(Args)]
pub(crate) struct SimulationBenchOptions {
    /// Number of seeds of `simulation`; a night has 1,000,000.
    #[arg(long, default_value_t = 1_000)]
    runs: u64,
    /// Number of pairs of `simulation` that are served over HTTP, with Alertmanager and a console, after the seeds.
    #[arg(long, default_value_t = 0)]
    pairs: u64,
    /// First seed of `simulation`.
    #[arg(long, default_value_t = 0)]
    first_seed: u64,
}

/// The most violations that are printed.
const MAX_PRINTED: usize = 100;

/// Runs all seeds on all processors; an error if one violates an invariant.
pub(crate) fn run(options: &SimulationBenchOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let (next, broken) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let (virtual_seconds, faults) = (AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let report = match number.checked_sub(options.runs) {
                None => run_seed(options.first_seed + number),
                Some(pair) if pair < options.pairs => {
                    run_served_seed(options.first_seed + pair).report
                }
                Some(_) => return,
            };
            virtual_seconds.fetch_add(report.virtual_seconds, Ordering::Relaxed);
            faults.fetch_add(report.faults, Ordering::Relaxed);
            if !report.violations.is_empty() {
                broken.lock().unwrap_or_else(PoisonError::into_inner).push(report);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    let mut broken: Vec<SimulationReport> =
        broken.into_inner().unwrap_or_else(PoisonError::into_inner);
    broken.sort_by_key(|report| report.seed);
    for report in broken.iter().take(MAX_PRINTED) {
        writeln!(out, "{report}")?;
    }
    let runs = options.runs + options.pairs;
    writeln!(out, "{runs} seeds in {seconds:.1} s, {} of them violate an invariant", broken.len())?;
    let line = json!({
        "seeds": runs,
        "seeds_s": runs as f64 / seconds,
        "virtual_s": virtual_seconds.into_inner(),
        "faults_injected": faults.into_inner(),
        "violations": broken.len(),
        // It needs a build with instrumentation.
        "line_coverage": null,
    });
    writeln!(out, "{line}")?;
    let first = broken.first().map(|report| report.seed);
    first
        .map_or(Ok(()), |seed| Err(anyhow::anyhow!("seed {seed} is the first")))
        .context("violations")
}
