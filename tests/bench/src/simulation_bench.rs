//! Bench `simulation`: seeds of the simulation of the whole, with faults; the seed of every violation is printed.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::Write,
    num::NonZero,
    path::{Path, PathBuf},
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
    /// File with the output of `tests/simulation/line-coverage`, for the last line of `simulation`.
    #[arg(long, value_name = "FILE")]
    line_coverage: Option<PathBuf>,
}

/// The most runs whose violations are printed; of others the seeds are.
const MAX_EXPLAINED: usize = 100;

/// A run that violates an invariant.
struct BrokenRun {
    /// Whether it is a pair that is served: its seed is another run than that of `run_seed`.
    is_pair: bool,
    report: SimulationReport,
}

impl fmt::Display for BrokenRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_pair { "pair" } else { "seed" };
        write!(f, "{kind} {}", self.report.seed)
    }
}

/// Prints every run, and what the first of them violate.
fn print_broken(broken: &[BrokenRun], out: &mut dyn Write) -> anyhow::Result<()> {
    for (number, run) in broken.iter().enumerate() {
        if number < MAX_EXPLAINED {
            let violations = &run.report.violations;
            let shown = violations.iter().take(3).map(|it| format!("; {it}"));
            writeln!(out, "{run}: {} violations{}", violations.len(), shown.collect::<String>())?;
        } else {
            writeln!(out, "{run}")?;
        }
    }
    Ok(())
}

/// The percentages of a file that `tests/simulation/line-coverage` wrote, by part of the program.
fn read_line_coverage(path: &Path) -> anyhow::Result<BTreeMap<String, f64>> {
    let what = || format!("{}: run tests/simulation/line-coverage >FILE", path.display());
    let text = fs::read_to_string(path).with_context(what)?;
    let percentages = text.lines().map(|line| {
        let (part, percent) = line.rsplit_once(' ')?;
        Some((part.to_owned(), percent.strip_suffix('%')?.parse().ok()?))
    });
    let percentages: Option<BTreeMap<String, f64>> = percentages.collect();
    percentages.filter(|it| !it.is_empty()).context("no lines with a percentage").with_context(what)
}

/// Runs all seeds on all processors; an error if one violates an invariant.
pub(crate) fn run(options: &SimulationBenchOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let line_coverage = options.line_coverage.as_deref().map(read_line_coverage).transpose()?;
    let (next, broken) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let (virtual_seconds, faults) = (AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let pair = number.checked_sub(options.runs);
            let report = match pair {
                None => run_seed(options.first_seed + number),
                Some(pair) if pair < options.pairs => {
                    run_served_seed(options.first_seed + pair).report
                }
                Some(_) => return,
            };
            virtual_seconds.fetch_add(report.virtual_seconds, Ordering::Relaxed);
            faults.fetch_add(report.faults, Ordering::Relaxed);
            if !report.violations.is_empty() {
                let run = BrokenRun { is_pair: pair.is_some(), report };
                broken.lock().unwrap_or_else(PoisonError::into_inner).push(run);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    let mut broken: Vec<BrokenRun> = broken.into_inner().unwrap_or_else(PoisonError::into_inner);
    broken.sort_by_key(|run| (run.is_pair, run.report.seed));
    print_broken(&broken, out)?;
    let runs = options.runs + options.pairs;
    writeln!(out, "{runs} seeds in {seconds:.1} s, {} of them violate an invariant", broken.len())?;
    let line = json!({
        "seeds": runs,
        "seeds_s": runs as f64 / seconds,
        "virtual_s": virtual_seconds.into_inner(),
        "faults_injected": faults.into_inner(),
        "violations": broken.len(),
        // It needs a build with instrumentation, and so comes from another run.
        "line_coverage": line_coverage,
    });
    writeln!(out, "{line}")?;
    let first = broken.first();
    first.map_or(Ok(()), |run| Err(anyhow::anyhow!("{run} is the first"))).context("violations")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken_run(is_pair: bool, seed: u64) -> BrokenRun {
        let violations = vec!["at 3 s it broke".to_owned()];
        let report = SimulationReport { seed, violations, ..SimulationReport::default() };
        BrokenRun { is_pair, report }
    }

    #[test]
    fn every_seed_that_violates_is_printed_and_pairs_are_told_from_seeds() {
        let mut broken: Vec<BrokenRun> = (0..150).map(|seed| broken_run(false, seed)).collect();
        broken.push(broken_run(true, 7));
        let mut out = Vec::new();
        print_broken(&broken, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 151);
        assert_eq!(lines[7], "seed 7: 1 violations; at 3 s it broke");
        assert_eq!((lines[149], lines[150]), ("seed 149", "pair 7"));
    }

    #[test]
    fn line_coverage_is_read_as_the_script_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("coverage");
        fs::write(&file, "engine 84.90%\nscrape 100.00%\n").unwrap();
        let expected = [("engine".to_owned(), 84.9), ("scrape".to_owned(), 100.0)];
        assert_eq!(read_line_coverage(&file).unwrap(), expected.into());
        for text in ["", "engine -\n", "running 3 tests\n"] {
            fs::write(&file, text).unwrap();
            let why = format!("{:#}", read_line_coverage(&file).unwrap_err());
            assert!(why.contains("run tests/simulation/line-coverage"), "{why}");
        }
    }
}
