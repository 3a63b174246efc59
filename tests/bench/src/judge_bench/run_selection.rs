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

/// Seeds of each scenario and level that are played by default: about eight minutes on two cores.
const USUAL_SEEDS: u64 = 3;

/// Fault-free days of GPUs that the rate of false pages is worked out from at least.
const PEACE_GPU_DAYS: f64 = 2_000.0;

/// How much of them is lived through by default as it is read: each second, or each 15 where other exporters speak.
/// All of them take an hour of two cores that way, which is what the full sample is for; the rest is read each 30 s.
const CLOSE_GPU_DAYS: f64 = 60.0;

/// The same for a quick look, which is too short for a rate that means anything.
const QUICK_PEACE_GPU_DAYS: f64 = 20.0;
const QUICK_CLOSE_GPU_DAYS: f64 = 3.0;

/// A run that is read so closely lasts six hours by default, so that there are several.
const CLOSE_SECONDS: u32 = 6 * 3_600;

/// Their fleets are others than those that are read each 30 s.
const CLOSE_FROM: u64 = 100;

/// Further numbers of seeds for tuning would be some of those for testing.
const MOST_NUMBERS: u64 = 500;

/// Seconds of a day.
const DAY_S: f64 = 86_400.0;

/// A long fault-free run is read as seldom as a large site reads its exporters: dcgm-exporter collects every 30 s.
const PEACE_STEP: Duration = Duration::from_secs(30);

/// Which runs are played.
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
#[derive(Args, Clone, Debug)]
#[group(id = "sample")]
pub(crate) struct JudgeBenchOptions {
    /// `judge`: all seeds instead of a balanced part of them.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// `judge`: one seed at medium strength; within a minute.
    #[arg(long)]
    pub(crate) quick: bool,
    /// `judge`: the runs to choose thresholds on, or those whose figures are published.
    #[arg(long, value_enum, default_value_t = SeedSet::Tune)]
    seeds: SeedSet,
    /// `judge`, `signals`: only these scenarios, such as F3,H5; without the long fault-free runs unless H0 is among them.
    #[arg(long, value_name = "IDS", value_delimiter = ',', alias = "scenario")]
    only: Vec<String>,
    /// `judge`, `signals`: only runs of this strength.
    #[arg(long, value_enum)]
    level: Option<FaultLevelFilter>,
    /// `judge`, `signals`: only runs in these words.
    #[arg(long, value_enum)]
    dialect: Option<DialectFilter>,
    /// `judge`, `signals`: only the run of this seed, as `--explain` prints it.
    #[arg(long)]
    seed: Option<u64>,
    /// `judge`: begin at this number of the seeds for tuning, of which the sample has the first few.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u64).range(..MOST_NUMBERS))]
    from: u64,
    /// `judge`: hand gaunt's own pages over without writing and reading them: the same findings in a third of the time.
    #[arg(long)]
    unwired: bool,
    /// `judge`: tell of every missed fault and every false flag in which run it was, and what was said there.
    #[arg(long)]
    pub(crate) explain: bool,
}

/// How strong a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FaultLevelFilter {
    /// About 15 per cent of a job's throughput.
    Mild,
    /// About 30 per cent.
    Medium,
    /// About 60 per cent.
    Hard,
}

/// In whose words the pages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DialectFilter {
    /// gaunt-node's, each second.
    Gaunt,
    /// Those of dcgm-exporter and node_exporter, each 15 s.
    Dcgm,
}

/// Which of the two sets of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SeedSet {
    /// For choosing thresholds.
    Tune,
    /// For the figures that are published.
    Test,
}

/// One run that is to be played.
pub(crate) struct LabelledRun {
    /// `F1` to `F18`, `H1` to `H16`, or `H0` for days of all that is harmless.
    pub(crate) scenario: &'static str,
    /// How strong its fault is.
    pub(crate) level: FaultLevel,
    /// The seed by which it is found again.
    pub(crate) seed: u64,
    /// Whether the GPUs tell profiling counters.
    pub(crate) gpm: bool,
    /// In whose words it is told.
    pub(crate) dialect: Dialect,
    /// Whether the pages say which job holds a GPU.
    pub(crate) labels: bool,
    /// What the operator wrote down of the wiring.
    pub(crate) topology: Option<SourceTopology>,
    /// Its GPUs.
    pub(crate) gpus: usize,
    /// How it is watched.
    pub(crate) scrape_plan: FleetScrapePlan,
    /// Whether it is one of the long fault-free runs, which only count for the rate of false pages.
    pub(crate) is_fault_free: bool,
    /// Makes the fleet.
    pub(crate) fleet: Box<dyn Fn() -> SimFleet + Send + Sync>,
}

impl LabelledRun {
    /// How long it takes, in a unit of no name: the longest are played first, so that no core is idle at the end.
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
    /// The name of the set of runs.
    pub(crate) fn seed_set_name(&self) -> &'static str {
        match self.seeds {
            SeedSet::Tune => "tune",
            SeedSet::Test => "test",
        }
    }

    /// How much of it is played.
    pub(crate) fn size_name(&self) -> &'static str {
        match (self.full, self.quick) {
            (true, _) => "full",
            (_, true) => "quick",
            _ => "usual",
        }
    }

    /// Every run that is played.
    pub(crate) fn select_runs(&self) -> anyhow::Result<Vec<LabelledRun>> {
        let mut runs: Vec<LabelledRun> =
            self.select_cases()?.into_iter().map(LabelledRun::of).collect();
        let chosen = self.level.is_some() || self.dialect.is_some() || self.seed.is_some();
        if self.only.iter().any(|wanted| wanted == suite::CALM) || (self.only.is_empty() && !chosen)
        {
            let wanted = |run: &LabelledRun| self.seed.is_none_or(|seed| seed == run.seed);
            runs.extend(self.fault_free_runs().into_iter().filter(wanted));
        }
        for run in &mut runs {
            run.scrape_plan.without_encoding = self.unwired;
        }
        ensure!(
            !runs.is_empty(),
            "no run is like that; leave out --level, --dialect or --seed, or add --full"
        );
        Ok(runs)
    }

    /// Every labelled run that is played.
    pub(crate) fn select_cases(&self) -> anyhow::Result<Vec<SuiteCase>> {
        for wanted in self.only.iter().filter(|wanted| *wanted != suite::CALM) {
            let known = suite::SCENARIOS.iter().any(|(name, _)| name == wanted);
            ensure!(known, "no scenario is named {wanted}; write F1 to F18, H1 to H16 or H0");
        }
        ensure!(
            self.from == 0 || self.suite_split() == SuiteSplit::Tune,
            "--from is for the seeds that limits are chosen on; leave it out, or --seeds test"
        );
        let mut cases = suite::list_cases_from(self.suite_split(), self.from);
        // The list goes through all scenarios and levels with one seed before it takes the next.
        let a_seed = cases.len() / suite::SEEDS as usize;
        let seeds = match self.size_name() {
            "full" => suite::SEEDS,
            "quick" => 1,
            // A single run is found wherever it is.
            _ if self.seed.is_some() => suite::SEEDS,
            _ => USUAL_SEEDS,
        };
        cases.truncate(a_seed * seeds as usize);
        let wanted = |case: &SuiteCase| {
            let quick = !self.quick || self.level.is_some() || case.level == FaultLevel::Medium;
            let level = self.level.is_none_or(|level| level.matches_level(case.level));
            let words = self.dialect.is_none_or(|words| words.matches_dialect(case.dialect));
            let seed = self.seed.is_none_or(|seed| seed == case.seed);
            let only = self.only.is_empty() || self.only.iter().any(|id| *id == case.scenario);
            quick && level && words && seed && only
        };
        cases.retain(wanted);
        Ok(cases)
    }

    fn suite_split(&self) -> SuiteSplit {
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
    /// Days of fleets in which nothing is wrong, and all that only looks like it happens as often as in life: as many
    /// days of GPUs together as are wanted.
    fn fault_free_runs(&self) -> Vec<LabelledRun> {
        let split = self.suite_split();
        let (days, close) = match self.size_name() {
            "full" => (0.0, PEACE_GPU_DAYS),
            "quick" => (QUICK_PEACE_GPU_DAYS - QUICK_CLOSE_GPU_DAYS, QUICK_CLOSE_GPU_DAYS),
            _ => (PEACE_GPU_DAYS - CLOSE_GPU_DAYS, CLOSE_GPU_DAYS),
        };
        let (longest, first) = if self.full { (u32::MAX, 0) } else { (CLOSE_SECONDS, CLOSE_FROM) };
        let first = first + self.from;
        let mut runs = fault_free_runs_for_days(split, self.from, days, |run| {
            let steps = run.scrape_plan.steps.div_ceil(PEACE_STEP.as_secs() as u32).max(1);
            LabelledRun {
                scrape_plan: FleetScrapePlan {
                    steps,
                    step: PEACE_STEP,
                    steps_per_scrape: 1,
                    ..run.scrape_plan
                },
                ..run
            }
        });
        runs.extend(fault_free_runs_for_days(split, first, close, |run| {
            let steps = run.scrape_plan.steps.min(longest);
            LabelledRun { scrape_plan: FleetScrapePlan { steps, ..run.scrape_plan }, ..run }
        }));
        runs
    }
}

/// So many days of GPUs, or a little more, from the fault-free fleet of this number on, each watched as `watched` says.
fn fault_free_runs_for_days(
    split: SuiteSplit,
    first: u64,
    gpu_days: f64,
    watched: impl Fn(LabelledRun) -> LabelledRun,
) -> Vec<LabelledRun> {
    let mut left = gpu_days;
    let mut runs = Vec::new();
    for number in first.. {
        if left <= 0.0 {
            break;
        }
        let run = watched(LabelledRun::of(suite::calm_case(split, number)));
        let step = run.scrape_plan.step.as_secs_f64();
        let wanted = (left * DAY_S / (step * run.gpus as f64)).ceil() as u32;
        let steps = run.scrape_plan.steps.min(wanted);
        left -= f64::from(steps) * step * run.gpus as f64 / DAY_S;
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
    fn every_scenario_is_in_every_sample_as_often_as_any_other() {
        for (full, quick, each) in [(false, true, 1), (false, false, 9), (true, false, 60)] {
            let runs = bench_options(full, quick, SeedSet::Tune).select_runs().unwrap();
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for run in runs.iter().filter(|run| !run.is_fault_free) {
                *counts.entry(run.scenario).or_default() += 1;
            }
            assert_eq!(counts.len(), suite::SCENARIOS.len());
            assert!(counts.values().all(|count| *count == each), "{counts:?}");
        }
    }

    #[test]
    fn false_pages_are_counted_over_days_enough() {
        let days = |quick| -> f64 {
            let runs = bench_options(false, quick, SeedSet::Test).select_runs().unwrap();
            let long = runs.iter().filter(|run| run.is_fault_free);
            long.map(|run| {
                let watched = run.scrape_plan.step * run.scrape_plan.steps;
                run.gpus as f64 * watched.as_secs_f64() / DAY_S
            })
            .sum()
        };
        assert!((PEACE_GPU_DAYS..PEACE_GPU_DAYS * 1.01).contains(&days(false)));
        assert!((QUICK_PEACE_GPU_DAYS..QUICK_PEACE_GPU_DAYS * 1.1).contains(&days(true)));
    }
}
