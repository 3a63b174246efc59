//! The sample: which labelled runs are played. It is the same each time, whatever the machine.

use std::time::Duration;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use gaunt_schema::Dialect;
use gaunt_sim::{
    Fleet,
    suite::{self, Case, Level, Split},
};

use super::play::{START, Watch};

/// Seeds of each scenario and level that are played by default: about eight minutes on two cores.
const USUAL_SEEDS: u64 = 3;

/// Fault-free days of GPUs that the rate of false pages is worked out from at least.
const PEACE_GPU_DAYS: f64 = 2_000.0;

/// The same for a quick look, which is too short for a rate that means anything.
const QUICK_PEACE_GPU_DAYS: f64 = 20.0;

/// Seconds of a day.
const DAY_S: f64 = 86_400.0;

/// A long fault-free run is read as seldom as a large site reads its exporters: dcgm-exporter collects every 30 s.
const PEACE_STEP: Duration = Duration::from_secs(30);

/// Which runs are played.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// `judge`: all seeds instead of a balanced part of them.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// `judge`: one seed at medium strength; within a minute.
    #[arg(long)]
    quick: bool,
    /// `judge`: the runs to choose thresholds on, or those whose figures are published.
    #[arg(long, value_enum, default_value_t = Seeds::Tune)]
    seeds: Seeds,
    /// `judge`: only this scenario, such as F3; without the long fault-free runs.
    #[arg(long, value_name = "ID")]
    scenario: Option<String>,
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
    /// In whose words it is told.
    pub(crate) dialect: Dialect,
    /// Whether the pages say which job holds a GPU.
    pub(crate) labels: bool,
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
            dialect: case.dialect,
            labels: case.labels,
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
        let split = match self.seeds {
            Seeds::Tune => Split::Tune,
            Seeds::Test => Split::Test,
        };
        let mut cases = suite::cases(split);
        let a_seed = cases.len() / suite::SEEDS as usize;
        let seeds = match self.size() {
            "full" => suite::SEEDS,
            "quick" => 1,
            _ => USUAL_SEEDS,
        };
        // The list goes through all scenarios and levels with one seed before it takes the next.
        cases.truncate(a_seed * seeds as usize);
        if self.quick {
            cases.retain(|case| case.level == Level::Medium);
        }
        if let Some(wanted) = &self.scenario {
            cases.retain(|case| case.scenario == wanted);
            ensure!(
                !cases.is_empty(),
                "no scenario is named {wanted}; write F1 to F18 or H1 to H16"
            );
            return Ok(cases.into_iter().map(Run::of).collect());
        }
        let days = if self.quick { QUICK_PEACE_GPU_DAYS } else { PEACE_GPU_DAYS };
        Ok(cases.into_iter().map(Run::of).chain(peace(split, days)).collect())
    }
}

/// Days of fleets in which nothing is wrong, and all that only looks like it happens as often as in life: as many days
/// of GPUs together as are wanted.
fn peace(split: Split, gpu_days: f64) -> Vec<Run> {
    let mut left = gpu_days;
    let mut runs = Vec::new();
    for number in 0.. {
        if left <= 0.0 {
            break;
        }
        let case = suite::calm(split, number);
        let gpus = (case.shape.nodes * case.shape.gpus) as f64;
        let wanted = (left / gpus * DAY_S).ceil() as u32;
        let steps = case.seconds.min(wanted).div_ceil(PEACE_STEP.as_secs() as u32).max(1);
        left -= f64::from(steps) * PEACE_STEP.as_secs_f64() * gpus / DAY_S;
        let run = Run::of(case);
        let watch = Watch { steps, step: PEACE_STEP, every: 1, ..run.watch };
        runs.push(Run { watch, peace: true, ..run });
    }
    runs
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn options(full: bool, quick: bool, seeds: Seeds) -> Options {
        Options { full, quick, seeds, scenario: None }
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
