//! The sample: which labelled runs are played. It is the same each time, whatever the machine.

use std::time::Duration;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use gaunt_schema::{Dialect, Topology};
use gaunt_sim::{
    Fleet,
    suite::{self, Case, Level, Split},
};

use super::play::{START, Watch};

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
pub(crate) struct Options {
    /// `judge`: all seeds instead of a balanced part of them.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// `judge`: one seed at medium strength; within a minute.
    #[arg(long)]
    pub(crate) quick: bool,
    /// `judge`: the runs to choose thresholds on, or those whose figures are published.
    #[arg(long, value_enum, default_value_t = Seeds::Tune)]
    seeds: Seeds,
    /// `judge`, `signals`: only these scenarios, such as F3,H5; without the long fault-free runs unless H0 is among them.
    #[arg(long, value_name = "IDS", value_delimiter = ',', alias = "scenario")]
    only: Vec<String>,
    /// `judge`, `signals`: only runs of this strength.
    #[arg(long, value_enum)]
    level: Option<Strength>,
    /// `judge`, `signals`: only runs in these words.
    #[arg(long, value_enum)]
    dialect: Option<Words>,
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
pub(crate) enum Strength {
    /// About 15 per cent of a job's throughput.
    Mild,
    /// About 30 per cent.
    Medium,
    /// About 60 per cent.
    Hard,
}

/// In whose words the pages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Words {
    /// gaunt-node's, each second.
    Gaunt,
    /// Those of dcgm-exporter and node_exporter, each 15 s.
    Dcgm,
}

/// Which of the two sets of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Seeds {
    /// For choosing thresholds.
    Tune,
    /// For the figures that are published.
    Test,
}

/// One run that is to be played.
pub(crate) struct Run {
    /// `F1` to `F18`, `H1` to `H16`, or `H0` for days of all that is harmless.
    pub(crate) scenario: &'static str,
    /// How strong its fault is.
    pub(crate) level: Level,
    /// The seed by which it is found again.
    pub(crate) seed: u64,
    /// Whether the GPUs tell profiling counters.
    pub(crate) gpm: bool,
    /// In whose words it is told.
    pub(crate) dialect: Dialect,
    /// Whether the pages say which job holds a GPU.
    pub(crate) labels: bool,
    /// What the operator wrote down of the wiring.
    pub(crate) topology: Option<Topology>,
    /// Its GPUs.
    pub(crate) gpus: usize,
    /// How it is watched.
    pub(crate) watch: Watch,
    /// Whether it is one of the long fault-free runs, which only count for the rate of false pages.
    pub(crate) peace: bool,
    /// Makes the fleet.
    pub(crate) fleet: Box<dyn Fn() -> Fleet + Send + Sync>,
}

impl Run {
    /// How long it takes, in a unit of no name: the longest are played first, so that no core is idle at the end.
    pub(crate) fn weight(&self) -> u64 {
        u64::from(self.watch.steps) * self.gpus as u64
    }

    fn of(case: Case) -> Self {
        Self {
            scenario: case.scenario,
            level: case.level,
            seed: case.seed,
            gpm: case.gpm,
            dialect: case.dialect,
            labels: case.labels,
            topology: case.topology(),
            gpus: case.shape.nodes * case.shape.gpus,
            watch: Watch::usual(case.dialect, case.seconds, case.seed),
            peace: false,
            fleet: Box::new(move || case.fleet(START)),
        }
    }
}

impl Options {
    /// The name of the set of runs.
    pub(crate) fn seeds(&self) -> &'static str {
        match self.seeds {
            Seeds::Tune => "tune",
            Seeds::Test => "test",
        }
    }

    /// How much of it is played.
    pub(crate) fn size(&self) -> &'static str {
        match (self.full, self.quick) {
            (true, _) => "full",
            (_, true) => "quick",
            _ => "usual",
        }
    }

    /// Every run that is played.
    pub(crate) fn runs(&self) -> anyhow::Result<Vec<Run>> {
        let mut runs: Vec<Run> = self.cases()?.into_iter().map(Run::of).collect();
        let chosen = self.level.is_some() || self.dialect.is_some() || self.seed.is_some();
        if self.only.iter().any(|wanted| wanted == suite::CALM) || (self.only.is_empty() && !chosen)
        {
            let wanted = |run: &Run| self.seed.is_none_or(|seed| seed == run.seed);
            runs.extend(self.peace().into_iter().filter(wanted));
        }
        for run in &mut runs {
            run.watch.unwired = self.unwired;
        }
        ensure!(
            !runs.is_empty(),
            "no run is like that; leave out --level, --dialect or --seed, or add --full"
        );
        Ok(runs)
    }

    /// Every labelled run that is played.
    pub(crate) fn cases(&self) -> anyhow::Result<Vec<Case>> {
        for wanted in self.only.iter().filter(|wanted| *wanted != suite::CALM) {
            let known = suite::SCENARIOS.iter().any(|(name, _)| name == wanted);
            ensure!(known, "no scenario is named {wanted}; write F1 to F18, H1 to H16 or H0");
        }
        ensure!(
            self.from == 0 || self.split() == Split::Tune,
            "--from is for the seeds that limits are chosen on; leave it out, or --seeds test"
        );
        let mut cases = suite::cases_from(self.split(), self.from);
        // The list goes through all scenarios and levels with one seed before it takes the next.
        let a_seed = cases.len() / suite::SEEDS as usize;
        let seeds = match self.size() {
            "full" => suite::SEEDS,
            "quick" => 1,
            // A single run is found wherever it is.
            _ if self.seed.is_some() => suite::SEEDS,
            _ => USUAL_SEEDS,
        };
        cases.truncate(a_seed * seeds as usize);
        let wanted = |case: &Case| {
            let quick = !self.quick || self.level.is_some() || case.level == Level::Medium;
            let level = self.level.is_none_or(|level| level.is(case.level));
            let words = self.dialect.is_none_or(|words| words.are(case.dialect));
            let seed = self.seed.is_none_or(|seed| seed == case.seed);
            let only = self.only.is_empty() || self.only.iter().any(|id| *id == case.scenario);
            quick && level && words && seed && only
        };
        cases.retain(wanted);
        Ok(cases)
    }

    fn split(&self) -> Split {
        match self.seeds {
            Seeds::Tune => Split::Tune,
            Seeds::Test => Split::Test,
        }
    }
}

impl Strength {
    fn is(self, level: Level) -> bool {
        matches!(
            (self, level),
            (Self::Mild, Level::Mild) | (Self::Medium, Level::Medium) | (Self::Hard, Level::Hard)
        )
    }
}

impl Words {
    fn are(self, dialect: Dialect) -> bool {
        (self == Self::Gaunt) == (dialect == Dialect::Gaunt)
    }
}

impl Options {
    /// Days of fleets in which nothing is wrong, and all that only looks like it happens as often as in life: as many
    /// days of GPUs together as are wanted.
    fn peace(&self) -> Vec<Run> {
        let split = self.split();
        let (days, close) = match self.size() {
            "full" => (0.0, PEACE_GPU_DAYS),
            "quick" => (QUICK_PEACE_GPU_DAYS - QUICK_CLOSE_GPU_DAYS, QUICK_CLOSE_GPU_DAYS),
            _ => (PEACE_GPU_DAYS - CLOSE_GPU_DAYS, CLOSE_GPU_DAYS),
        };
        let (longest, first) = if self.full { (u32::MAX, 0) } else { (CLOSE_SECONDS, CLOSE_FROM) };
        let first = first + self.from;
        let mut runs = some_days(split, self.from, days, |run| {
            let steps = run.watch.steps.div_ceil(PEACE_STEP.as_secs() as u32).max(1);
            Run { watch: Watch { steps, step: PEACE_STEP, every: 1, ..run.watch }, ..run }
        });
        runs.extend(some_days(split, first, close, |run| {
            let steps = run.watch.steps.min(longest);
            Run { watch: Watch { steps, ..run.watch }, ..run }
        }));
        runs
    }
}

/// So many days of GPUs, or a little more, from the fault-free fleet of this number on, each watched as `watched` says.
fn some_days(split: Split, first: u64, gpu_days: f64, watched: impl Fn(Run) -> Run) -> Vec<Run> {
    let mut left = gpu_days;
    let mut runs = Vec::new();
    for number in first.. {
        if left <= 0.0 {
            break;
        }
        let run = watched(Run::of(suite::calm(split, number)));
        let step = run.watch.step.as_secs_f64();
        let wanted = (left * DAY_S / (step * run.gpus as f64)).ceil() as u32;
        let steps = run.watch.steps.min(wanted);
        left -= f64::from(steps) * step * run.gpus as f64 / DAY_S;
        runs.push(Run { watch: Watch { steps, ..run.watch }, peace: true, ..run });
    }
    runs
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn options(full: bool, quick: bool, seeds: Seeds) -> Options {
        Options {
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
            let runs = options(full, quick, Seeds::Tune).runs().unwrap();
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for run in runs.iter().filter(|run| !run.peace) {
                *counts.entry(run.scenario).or_default() += 1;
            }
            assert_eq!(counts.len(), suite::SCENARIOS.len());
            assert!(counts.values().all(|count| *count == each), "{counts:?}");
        }
    }

    #[test]
    fn false_pages_are_counted_over_days_enough() {
        let days = |quick| -> f64 {
            let runs = options(false, quick, Seeds::Test).runs().unwrap();
            let long = runs.iter().filter(|run| run.peace);
            long.map(|run| {
                let watched = run.watch.step * run.watch.steps;
                run.gpus as f64 * watched.as_secs_f64() / DAY_S
            })
            .sum()
        };
        assert!((PEACE_GPU_DAYS..PEACE_GPU_DAYS * 1.01).contains(&days(false)));
        assert!((QUICK_PEACE_GPU_DAYS..QUICK_PEACE_GPU_DAYS * 1.1).contains(&days(true)));
    }
}
