//! The sample: which labelled runs are played. It is the same each time, whatever the machine.

use std::time::Duration;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use gaunt_schema::{Dialect, SourceTopology};
use gaunt_sim::{
    SimFleet,
    suite::{self, FaultLevel, SuiteCase, SuiteSplit},
};

use super::played_run::{FleetScrapePlan, START};

/// Seeds of each scenario and level by default: about eight minutes on two cores.
const DEFAULT_SEEDS: u64 = 3;

/// The minimum of fault-free GPU-days for the rate of false pages.
const FAULT_FREE_GPU_DAYS: f64 = 2_000.0;

/// The part of them that is scraped at the real period by default: every second, or every 15 s for other exporters. The
/// rest is scraped every 30 s; the full sample scrapes all at the real period, which takes an hour on two cores.
const CLOSE_GPU_DAYS: f64 = 60.0;

/// The same for --quick, which is too short for a meaningful rate.
const QUICK_FAULT_FREE_GPU_DAYS: f64 = 20.0;
const QUICK_CLOSE_GPU_DAYS: f64 = 3.0;

/// A run at the real period lasts six hours by default, so that there are several.
const CLOSE_SECONDS: u32 = 6 * 3_600;

/// The first number of their fleets, which differ from those scraped every 30 s.
const CLOSE_FROM: u64 = 100;

/// Seed numbers of tuning runs from this one on would overlap those of test runs.
const MOST_NUMBERS: u64 = 500;

/// Seconds of a day.
const DAY_S: f64 = 86_400.0;

/// The scrape period of a long fault-free run, as at a large site: dcgm-exporter collects every 30 s.
const FAULT_FREE_STEP: Duration = Duration::from_secs(30);

/// Options of `judge` and `signals`.
#[expect(clippy::struct_excessive_bools, reason = "command-line flags")]
#[derive(Args, Clone, Debug)]
#[group(id = "sample")]
pub(crate) struct JudgeBenchOptions {
    /// `judge`: run all seeds instead of a balanced part.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// `judge`: run one seed at medium severity; takes less than a minute.
    #[arg(long)]
    pub(crate) quick: bool,
    /// `judge`: the runs for tuning thresholds, or those for published figures.
    #[arg(long, value_enum, default_value_t = SeedSet::Tune)]
    seeds: SeedSet,
    /// `judge`, `signals`: only these scenarios, such as F3,H5; long fault-free runs only with H0.
    #[arg(long, value_name = "IDS", value_delimiter = ',', alias = "scenario")]
    only: Vec<String>,
    /// `judge`, `signals`: only runs of this severity.
    #[arg(long, value_enum)]
    level: Option<FaultLevelFilter>,
    /// `judge`, `signals`: only runs in this exporter format.
    #[arg(long, value_enum)]
    dialect: Option<DialectFilter>,
    /// `judge`, `signals`: only the run of this seed, which `--explain` prints.
    #[arg(long)]
    seed: Option<u64>,
    /// `judge`: number of the first seed for tuning.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u64).range(..MOST_NUMBERS))]
    from: u64,
    /// `judge`: ingest gaunt's own pages without encoding and decoding: the same findings in a third of the time.
    #[arg(long)]
    unwired: bool,
    /// `judge`: print the run and the findings of every missed fault and every false flag.
    #[arg(long)]
    pub(crate) explain: bool,
}

/// Severity of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FaultLevelFilter {
    /// About 15 % of a job's throughput.
    Mild,
    /// About 30 %.
    Medium,
    /// About 60 %.
    Hard,
}

/// Exporter format of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DialectFilter {
    /// gaunt-node, every second.
    Gaunt,
    /// dcgm-exporter and node_exporter, every 15 s.
    Dcgm,
}

/// The set of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SeedSet {
    /// For tuning thresholds.
    Tune,
    /// For published figures.
    Test,
}

/// One run of the sample.
pub(crate) struct LabelledRun {
    /// `F1` to `F19`, `H1` to `H16`, or `H0` for days of harmless look-alikes.
    pub(crate) scenario: &'static str,
    /// Severity of its fault.
    pub(crate) level: FaultLevel,
    /// Its seed.
    pub(crate) seed: u64,
    /// Whether the GPUs report profiling counters.
    pub(crate) gpm: bool,
    /// Exporter format of its pages.
    pub(crate) dialect: Dialect,
    /// Whether the pages report the job of each GPU.
    pub(crate) labels: bool,
    /// The declared topology.
    pub(crate) topology: Option<SourceTopology>,
    /// Its GPUs.
    pub(crate) gpus: usize,
    /// How it is scraped.
    pub(crate) scrape_plan: FleetScrapePlan,
    /// Whether it is one of the long fault-free runs, which only count for the rate of false pages.
    pub(crate) is_fault_free: bool,
    /// Creates the fleet.
    pub(crate) fleet: Box<dyn Fn() -> SimFleet + Send + Sync>,
}

impl LabelledRun {
    /// Its relative duration: the longest runs start first, so that no core is idle at the end.
    pub(crate) fn run_weight(&self) -> u64 {
        u64::from(self.scrape_plan.steps) * self.gpus as u64
    }

    fn of(case: SuiteCase) -> Self {
        Self {
            scenario: case.scenario,
            level: case.level,
            seed: case.seed,
            gpm: case.gpm,
            dialect: case.dialect,
            labels: case.labels,
            topology: case.declared_topology(),
            gpus: case.shape.nodes * case.shape.gpus,
            scrape_plan: FleetScrapePlan::with_dialect(case.dialect, case.seconds, case.seed),
            is_fault_free: false,
            fleet: Box::new(move || case.build_fleet(START)),
        }
    }
}

impl JudgeBenchOptions {
    /// The name of the seed set.
    pub(crate) fn seed_set_name(&self) -> &'static str {
        match self.seeds {
            SeedSet::Tune => "tune",
            SeedSet::Test => "test",
        }
    }

    /// The name of the sample size.
    pub(crate) fn size_name(&self) -> &'static str {
        match (self.full, self.quick) {
            (true, _) => "full",
            (_, true) => "quick",
            _ => "usual",
        }
    }

    /// All runs of the sample.
    pub(crate) fn select_runs(&self) -> anyhow::Result<Vec<LabelledRun>> {
        let mut runs: Vec<LabelledRun> =
            self.select_cases()?.into_iter().map(LabelledRun::of).collect();
        let is_filtered = self.level.is_some() || self.dialect.is_some() || self.seed.is_some();
        if self.only.iter().any(|wanted| wanted == suite::CALM)
            || (self.only.is_empty() && !is_filtered)
        {
            let matches_seed = |run: &LabelledRun| self.seed.is_none_or(|seed| seed == run.seed);
            runs.extend(self.fault_free_runs().into_iter().filter(matches_seed));
        }
        for run in &mut runs {
            run.scrape_plan.without_encoding = self.unwired;
        }
        ensure!(
            !runs.is_empty(),
            "no run matches; leave out --level, --dialect or --seed, or add --full"
        );
        Ok(runs)
    }

    /// All labelled runs of the sample.
    pub(crate) fn select_cases(&self) -> anyhow::Result<Vec<SuiteCase>> {
        for wanted in self.only.iter().filter(|wanted| *wanted != suite::CALM) {
            let is_known = suite::SCENARIOS.iter().any(|(name, _)| name == wanted);
            ensure!(is_known, "unknown scenario {wanted}; use F1 to F19, H1 to H16 or H0");
        }
        ensure!(
            self.from == 0 || self.suite_split() == SuiteSplit::Tune,
            "--from applies to the seeds for tuning; leave out --from or --seeds test"
        );
        let mut cases = suite::list_cases_from(self.suite_split(), self.from);
        // The list has all scenarios and levels of one seed before those of the next.
        let cases_per_seed = cases.len() / suite::SEEDS as usize;
        let seeds = match self.size_name() {
            "full" => suite::SEEDS,
            "quick" => 1,
            // A single run is searched in all seeds.
            _ if self.seed.is_some() => suite::SEEDS,
            _ => DEFAULT_SEEDS,
        };
        cases.truncate(cases_per_seed * seeds as usize);
        let is_selected = |case: &SuiteCase| {
            let quick = !self.quick || self.level.is_some() || case.level == FaultLevel::Medium;
            let level = self.level.is_none_or(|level| level.matches_level(case.level));
            let dialect = self.dialect.is_none_or(|dialect| dialect.matches_dialect(case.dialect));
            let seed = self.seed.is_none_or(|seed| seed == case.seed);
            let only = self.only.is_empty() || self.only.iter().any(|id| *id == case.scenario);
            quick && level && dialect && seed && only
        };
        cases.retain(is_selected);
        Ok(cases)
    }

    pub(crate) fn suite_split(&self) -> SuiteSplit {
        match self.seeds {
            SeedSet::Tune => SuiteSplit::Tune,
            SeedSet::Test => SuiteSplit::Test,
        }
    }
}

impl FaultLevelFilter {
    fn matches_level(self, level: FaultLevel) -> bool {
        matches!(
            (self, level),
            (Self::Mild, FaultLevel::Mild)
                | (Self::Medium, FaultLevel::Medium)
                | (Self::Hard, FaultLevel::Hard)
        )
    }
}

impl DialectFilter {
    fn matches_dialect(self, dialect: Dialect) -> bool {
        (self == Self::Gaunt) == (dialect == Dialect::Gaunt)
    }
}

impl JudgeBenchOptions {
    /// Days of fleets without faults, in which look-alikes occur at a realistic rate: as many GPU-days in total as the
    /// sample size requires.
    fn fault_free_runs(&self) -> Vec<LabelledRun> {
        let split = self.suite_split();
        let (days, close_days) = match self.size_name() {
            "full" => (0.0, FAULT_FREE_GPU_DAYS),
            "quick" => (QUICK_FAULT_FREE_GPU_DAYS - QUICK_CLOSE_GPU_DAYS, QUICK_CLOSE_GPU_DAYS),
            _ => (FAULT_FREE_GPU_DAYS - CLOSE_GPU_DAYS, CLOSE_GPU_DAYS),
        };
        let (max_steps, first) =
            if self.full { (u32::MAX, 0) } else { (CLOSE_SECONDS, CLOSE_FROM) };
        let first = first + self.from;
        let mut runs = fault_free_runs_for_days(split, self.from, days, |run| {
            let steps = run.scrape_plan.steps.div_ceil(FAULT_FREE_STEP.as_secs() as u32).max(1);
            LabelledRun {
                scrape_plan: FleetScrapePlan {
                    steps,
                    step: FAULT_FREE_STEP,
                    steps_per_scrape: 1,
                    ..run.scrape_plan
                },
                ..run
            }
        });
        runs.extend(fault_free_runs_for_days(split, first, close_days, |run| {
            let steps = run.scrape_plan.steps.min(max_steps);
            LabelledRun { scrape_plan: FleetScrapePlan { steps, ..run.scrape_plan }, ..run }
        }));
        runs
    }
}

/// At least so many GPU-days, from the fault-free fleet of this number on, each scraped as `with_plan` defines.
fn fault_free_runs_for_days(
    split: SuiteSplit,
    first: u64,
    gpu_days: f64,
    with_plan: impl Fn(LabelledRun) -> LabelledRun,
) -> Vec<LabelledRun> {
    let mut remaining_days = gpu_days;
    let mut runs = Vec::new();
    for number in first.. {
        if remaining_days <= 0.0 {
            break;
        }
        let run = with_plan(LabelledRun::of(suite::calm_case(split, number)));
        let step = run.scrape_plan.step.as_secs_f64();
        let needed_steps = (remaining_days * DAY_S / (step * run.gpus as f64)).ceil() as u32;
        let steps = run.scrape_plan.steps.min(needed_steps);
        remaining_days -= f64::from(steps) * step * run.gpus as f64 / DAY_S;
        runs.push(LabelledRun {
            scrape_plan: FleetScrapePlan { steps, ..run.scrape_plan },
            is_fault_free: true,
            ..run
        });
    }
    runs
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn bench_options(full: bool, quick: bool, seeds: SeedSet) -> JudgeBenchOptions {
        JudgeBenchOptions {
            full,
            quick,
            seeds,
            only: Vec::new(),
            level: None,
            dialect: None,
            seed: None,
            from: 0,
            unwired: false,
            explain: false,
        }
    }

    #[test]
    fn scenarios_are_in_every_sample_equally_often() {
        for (full, quick, expected) in [(false, true, 1), (false, false, 9), (true, false, 60)] {
            let runs = bench_options(full, quick, SeedSet::Tune).select_runs().unwrap();
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for run in runs.iter().filter(|run| !run.is_fault_free) {
                *counts.entry(run.scenario).or_default() += 1;
            }
            assert_eq!(counts.len(), suite::SCENARIOS.len());
            assert!(counts.values().all(|count| *count == expected), "{counts:?}");
        }
    }

    #[test]
    fn fault_free_runs_last_the_required_gpu_days() {
        let days = |quick| -> f64 {
            let runs = bench_options(false, quick, SeedSet::Test).select_runs().unwrap();
            let fault_free = runs.iter().filter(|run| run.is_fault_free);
            fault_free
                .map(|run| {
                    let watched = run.scrape_plan.step * run.scrape_plan.steps;
                    run.gpus as f64 * watched.as_secs_f64() / DAY_S
                })
                .sum()
        };
        assert!((FAULT_FREE_GPU_DAYS..FAULT_FREE_GPU_DAYS * 1.01).contains(&days(false)));
        assert!((QUICK_FAULT_FREE_GPU_DAYS..QUICK_FAULT_FREE_GPU_DAYS * 1.1).contains(&days(true)));
    }
}
