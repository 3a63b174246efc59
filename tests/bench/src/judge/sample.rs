//! The sample: which labelled runs are played. It is the same each time, whatever the machine.

use std::time::Duration;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use gaunt_schema::Dialect;
use gaunt_sim::{
    Fleet, Scenario,
    suite::{self, Case, Level, Split},
};

use super::play::{START, Watch};

/// Seeds of each scenario and level that are played by default: about eight minutes on two cores.
const USUAL_SEEDS: u64 = 3;

/// Fault-free days of GPUs that the rate of false pages is worked out from at least.
const PEACE_GPU_DAYS: f64 = 2_000.0;

/// The same for a quick look, which is too short for a rate that means anything.
const QUICK_PEACE_GPU_DAYS: f64 = 20.0;

/// Nodes of a long fault-free run.
const PEACE_NODES: usize = 128;

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
    /// `F1` to `F18`, `H1` to `H16`; or the name of a fleet without a story.
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
        let peace = peace(&cases, days)?;
        Ok(cases.into_iter().map(Run::of).chain(peace).collect())
    }
}

/// Long runs of large fleets in which nothing is wrong: every hard negative of the sample once, and as many days of
/// GPUs together as are wanted.
fn peace(cases: &[Case], gpu_days: f64) -> anyhow::Result<Vec<Run>> {
    let mut stories: Vec<&Case> = Vec::new();
    for case in cases.iter().filter(|case| case.scenario.starts_with('H')) {
        if stories.iter().all(|known| known.scenario != case.scenario) {
            stories.push(case);
        }
    }
    let runs = stories.len().max(1);
    let steps = |gpus: usize| {
        let days = gpu_days / runs as f64 / gpus as f64;
        (days * 86_400.0 / PEACE_STEP.as_secs_f64()).ceil() as u32
    };
    let watch = |dialect, gpus| {
        let steps = steps(gpus);
        Watch { steps, step: PEACE_STEP, every: 1, ..Watch::usual(dialect, steps, 1) }
    };
    if stories.is_empty() {
        let healthy = Scenario::named("healthy")?;
        let gpus = PEACE_NODES * gaunt_sim::GPUS_PER_NODE;
        return Ok(vec![Run {
            scenario: "healthy",
            level: Level::Medium,
            dialect: Dialect::Gaunt,
            labels: true,
            gpus,
            watch: watch(Dialect::Gaunt, gpus),
            peace: true,
            fleet: Box::new(move || Fleet::new(healthy.clone(), PEACE_NODES, 1, START)),
        }]);
    }
    let run = |case: &Case| {
        let mut case = case.clone();
        case.shape.nodes = PEACE_NODES;
        let watch = watch(case.dialect, case.shape.nodes * case.shape.gpus);
        case.seconds = watch.steps * PEACE_STEP.as_secs() as u32;
        Run { watch, peace: true, ..Run::of(case) }
    };
    Ok(stories.into_iter().map(run).collect())
}
