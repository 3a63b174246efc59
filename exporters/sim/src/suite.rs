//! The scenario suite: labelled runs that measure a judge, split into tuning and test runs.

use gaunt_schema::{Dialect, SourceTopology, UnixMs};

use crate::{
    Scenario, SimFleet, fleet_shape::FleetShape, noise_key::NoiseKey,
    report_template::ReportedContent, sim_fleet::FleetPlan,
};

mod random_shape;
mod single_fault_fleet;
mod soak_fleet;
mod timeline;

pub use single_fault_fleet::SingleFaultFleet;
pub use soak_fleet::soak_fleet;

/// Which seeds, and therefore which parameters: a judge is not tested on the runs that it was tuned on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SuiteSplit {
    /// For choosing thresholds.
    Tune,
    /// For published figures.
    Test,
}

/// Severity of a fault: the share of throughput that it costs, where it costs any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultLevel {
    /// About 15 %.
    Mild,
    /// About 30 %.
    Medium,
    /// About 60 %.
    Hard,
}

impl FaultLevel {
    /// All levels, weakest first.
    pub const ALL: [Self; 3] = [Self::Mild, Self::Medium, Self::Hard];

    /// Name of the level in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mild => "mild",
            Self::Medium => "medium",
            Self::Hard => "hard",
        }
    }
}

/// One labelled run.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteCase {
    /// `F1` to `F19` for faults, `H1` to `H16` for harmless look-alikes.
    pub scenario: &'static str,
    /// Severity.
    pub level: FaultLevel,
    /// Random seed.
    pub seed: u64,
    /// The fleet shape.
    pub shape: FleetShape,
    /// Whether the GPUs report profiling counters.
    pub gpm: bool,
    /// Whether the pages report the job of each GPU.
    pub labels: bool,
    /// Exporter format of the pages: gaunt's, or dcgm-exporter's and node_exporter's.
    pub dialect: Dialect,
    /// Duration of the run, in seconds.
    pub seconds: u32,
    /// The split that it belongs to.
    pub split: SuiteSplit,
}

/// Seeds of each scenario at each level.
pub const SEEDS: u64 = 20;

/// First seed of the test split; the seeds of the two splits are far apart.
const TEST_SEEDS_FROM: u64 = 1_000_000;

/// Every scenario with a one-line description, faults first.
pub const SCENARIOS: [(&str, &str); 35] = [
    ("F1", "the data loader of one host is slow"),
    ("F2", "the shared storage is slow"),
    ("F3", "one GPU runs at a lower clock without a throttle reason"),
    ("F4", "one GPU overheats and is throttled"),
    ("F5", "a host launches kernels too slowly"),
    ("F6", "one GPU's PCIe link has reduced width or replays"),
    ("F7", "one GPU lost NVLinks"),
    ("F8", "a port goes down"),
    ("F9", "a port comes up at a lower rate"),
    ("F10", "a bad cable has bit errors"),
    ("F11", "the queues of a leaf switch are full"),
    ("F12", "a whole rail is slow"),
    ("F13", "a slow receiver: a host sends PFC pause frames"),
    ("F14", "a collective hangs"),
    ("F15", "a GPU falls off the bus"),
    ("F16", "a training job keeps its GPUs allocated and does nothing"),
    ("F17", "one pipeline stage has more to compute than the others"),
    ("F18", "in every step another rank has more to compute"),
    ("F19", "the processes of a job end again and again"),
    ("H1", "checkpoints: all ranks pause together"),
    ("H2", "an evaluation: little tensor activity for minutes"),
    ("H3", "a job starts: it loads, compiles, gathers its ranks"),
    ("H4", "a job ends: its nodes are released within seconds"),
    ("H5", "a pipeline with bubbles and permanently uneven stages"),
    ("H6", "inference with long idle periods"),
    ("H7", "inference on MIG instances or shared GPUs"),
    ("H8", "nodes are drained: their job ends, and they stay idle"),
    ("H9", "power is capped on all nodes"),
    ("H10", "counters wrap, saturate, restart at zero"),
    ("H11", "an exporter restarts, misses scrapes, repeats pages, has clock skew"),
    ("H12", "adaptive routing: packets out of order, none lost"),
    ("H13", "short probes on idle nodes"),
    ("H14", "two GPU generations in one job"),
    ("H15", "step times that differ twofold, equally for all ranks"),
    ("H16", "a job crashes, and its ports lose their peers"),
];

/// All cases of a split, ordered by seed first, so that every prefix of the list is balanced.
pub fn list_cases(split: SuiteSplit) -> Vec<SuiteCase> {
    list_cases_from(split, 0)
}

/// As many cases as a split has, from another first seed on: results on seeds that a judge was tuned on do not
/// measure it.
pub fn list_cases_from(split: SuiteSplit, first: u64) -> Vec<SuiteCase> {
    let mut cases = Vec::new();
    for number in first..first + SEEDS {
        for (index, (scenario, _)) in SCENARIOS.into_iter().enumerate() {
            for level in FaultLevel::ALL {
                cases.push(build_case(split, number, index as u64, scenario, level));
            }
        }
    }
    cases
}

fn build_case(
    split: SuiteSplit,
    number: u64,
    scenario_index: u64,
    scenario: &'static str,
    level: FaultLevel,
) -> SuiteCase {
    let first = if split == SuiteSplit::Test { TEST_SEEDS_FROM } else { 1 };
    let seed = first + number * 1_000 + scenario_index * 10 + level as u64;
    // Three seeds at three levels cover all eight combinations of telemetry options, and so do eight seeds at one
    // level.
    let variant = 3 * number + level as u64 + scenario_index;
    let mut case = SuiteCase {
        scenario,
        level,
        seed,
        shape: random_shape::random_shape(NoiseKey::new(seed), split, scenario, number, level),
        gpm: variant & 1 == 0,
        labels: variant & 2 == 0,
        dialect: if variant & 4 == 0 { Dialect::Gaunt } else { Dialect::Dcgm },
        seconds: 0,
        split,
    };
    case.seconds = case.watch_seconds();
    case
}

/// A fleet without faults for three days, in which harmless look-alikes occur at a realistic rate. The false page rate
/// is measured on these runs.
pub fn calm_case(split: SuiteSplit, number: u64) -> SuiteCase {
    let mut case = build_case(split, SEEDS + number, 0, CALM, FaultLevel::Medium);
    case.seconds = 72 * 3_600;
    case
}

/// The scenario of [`calm_case`].
pub const CALM: &str = "H0";

/// Observation time after the detection limit of a fault.
const AFTERWARDS_S: f64 = 90.0;

/// Observation time where there is no limit; inference is idle for longer than that.
const HARMLESS_S: u32 = 600;
const INFERENCE_S: u32 = 1_200;

impl SuiteCase {
    /// The case of this scenario, level and number, with full telemetry in gaunt's own format.
    pub fn from_name(scenario: &str, level: FaultLevel, number: u64) -> Option<Self> {
        let index = SCENARIOS.iter().position(|(name, _)| *name == scenario)?;
        let case = build_case(SuiteSplit::Tune, number, index as u64, SCENARIOS[index].0, level);
        Some(Self { gpm: true, labels: true, dialect: Dialect::Gaunt, ..case })
    }

    /// The fleet of this run, starting at `start`.
    pub fn build_fleet(&self, start: UnixMs) -> SimFleet {
        SimFleet::of(self.fleet_plan(), self.seed, start)
    }

    /// The topology that an operator knows and foreign exporters do not report, where it is declared: leaf switch and
    /// rail of each port, and trays of one NVLink domain. An operator that labels jobs also declares it.
    pub fn declared_topology(&self) -> Option<SourceTopology> {
        let is_declared = self.dialect == Dialect::Dcgm && self.labels;
        is_declared.then(|| self.shape.to_topology())
    }

    fn fleet_plan(&self) -> FleetPlan {
        let noise = NoiseKey::new(self.seed);
        let test = self.split == SuiteSplit::Test;
        let paces = random_shape::random_paces(noise, test, self.scenario, &self.shape);
        let faults = timeline::draw(self, noise.child_key(3), &paces);
        let summary = SCENARIOS.iter().find(|(name, _)| *name == self.scenario);
        let scenario = Scenario {
            name: self.scenario.to_owned(),
            summary: summary.map_or("days without a fault", |(_, line)| line).to_owned(),
            faults,
        };
        let content = ReportedContent {
            has_profiling: self.gpm,
            has_jobs: self.labels,
            dialect: self.dialect,
        };
        let has_saturated_counters = self.scenario == "H10";
        FleetPlan { scenario, shape: self.shape.clone(), paces, content, has_saturated_counters }
    }

    fn watch_seconds(&self) -> u32 {
        let truths = self.fleet_plan().ground_truths(UnixMs(0));
        let found_by = truths.iter().map(|truth| truth.onset + truth.limit).max();
        match (found_by, self.scenario) {
            (Some(found_by), _) => (found_by.to_seconds() + AFTERWARDS_S).ceil() as u32,
            (None, "H6" | "H7") => INFERENCE_S,
            (None, _) => HARMLESS_S,
        }
    }
}

#[cfg(test)]
mod tests;
