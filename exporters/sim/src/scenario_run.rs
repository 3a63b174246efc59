//! Scenario runs by name: a scenario on the default fleet, or a suite case with its own fleet.

use std::time::Duration;

use gaunt_schema::{Dialect, UnixMs};

use crate::{
    Scenario, ScenarioError, SimFleet,
    fleet_shape::FleetShape,
    scenario,
    suite::{self, FaultLevel, SuiteCase},
};

/// Default number of simulated nodes.
pub const USUAL_NODES: usize = 32;

/// By then every fault of a scenario has begun at least half a minute ago.
const USUAL_TELLING: Duration = Duration::from_secs(75);

/// What a scenario is shown with of the time before it, so that what is usual is known when its first fault begins.
const USUAL_PAST: Duration = Duration::from_mins(2);

/// Duration of a scenario without a length of its own.
const USUAL_SPAN: Duration = Duration::from_mins(5);

/// When a harmless look-alike is checked, counted from its onset; a fault is checked this long after its limit.
const HARMLESS_LOOK: Duration = Duration::from_secs(40);
const FAULT_LOOK: Duration = Duration::from_secs(10);

/// Parameters of a scenario run.
#[derive(Clone, Debug)]
pub struct ScenarioRun {
    /// The name of a scenario, or `F1` to `F19` and `H1` to `H16`.
    pub name: String,
    /// Number of nodes; a case has its own fleet.
    pub nodes: Option<usize>,
    /// Random seed.
    pub seed: u64,
    /// Severity level of a case.
    pub level: FaultLevel,
    /// Exporter format of the pages.
    pub dialect: Dialect,
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioRunError {
    /// No scenario has this name.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The number of nodes of a case is fixed.
    #[error("case {name} has {own} nodes; leave out --nodes")]
    OwnFleet {
        /// The case.
        name: String,
        /// Its nodes.
        own: usize,
    },
}

/// Points in time of a run, counted from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTiming {
    /// Before its start, where nothing is wrong yet: the first event of a case is late enough without it.
    pub past: Duration,
    /// Until the first event.
    pub first: Duration,
    /// Until the moment of the check.
    pub look: Duration,
    /// Until the end.
    pub span: Duration,
}

/// Name and one-line description of all scenarios and cases, scenarios first.
pub fn list_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    scenario::list_names().chain(suite::SCENARIOS)
}

impl ScenarioRun {
    /// The fleet of this run from the instant `start` on.
    pub fn build_fleet(&self, start: UnixMs) -> Result<SimFleet, ScenarioRunError> {
        self.build_fleet_before(start, Duration::ZERO)
    }

    /// The same fleet from `past` before the instant `start` on: what happens in it is as long after `start`.
    pub fn build_fleet_before(
        &self,
        start: UnixMs,
        past: Duration,
    ) -> Result<SimFleet, ScenarioRunError> {
        let start = start - past;
        if let Some(case) = self.find_case()? {
            return Ok(case.build_fleet(start));
        }
        let mut scenario = Scenario::from_name(&self.name)?;
        for fault in scenario.faults.iter_mut().filter(|fault| fault.onset_s > 0.0) {
            fault.onset_s += past.as_secs_f64();
        }
        let nodes = self.nodes.unwrap_or(USUAL_NODES);
        Ok(SimFleet::with_dialect(self.dialect, scenario, nodes, self.seed, start))
    }

    /// The points in time of the run.
    pub fn run_timing(&self) -> Result<RunTiming, ScenarioRunError> {
        let Some(case) = self.find_case()? else {
            let first = first_onset(&Scenario::from_name(&self.name)?);
            return Ok(RunTiming {
                past: USUAL_PAST,
                first,
                look: USUAL_TELLING,
                span: USUAL_SPAN,
            });
        };
        let fleet = case.build_fleet(UnixMs(0));
        let first = first_onset(fleet.scenario());
        let found_by =
            fleet.ground_truths().iter().map(|truth| truth.onset + truth.limit + FAULT_LOOK).max();
        let look = found_by.map_or(first + HARMLESS_LOOK, |time| time.duration_since(UnixMs(0)));
        let span = Duration::from_secs(case.seconds.into());
        Ok(RunTiming { past: Duration::ZERO, first, look, span })
    }

    /// Its fleet shape.
    pub fn fleet_shape(&self) -> Result<FleetShape, ScenarioRunError> {
        Ok(match self.find_case()? {
            Some(case) => case.shape,
            None => FleetShape::new_usual(self.nodes.unwrap_or(USUAL_NODES)),
        })
    }

    /// The suite case of this name, if it is one.
    fn find_case(&self) -> Result<Option<SuiteCase>, ScenarioRunError> {
        let Some(case) = SuiteCase::from_name(&self.name, self.level, self.seed) else {
            return Ok(None);
        };
        let case_nodes = case.shape.nodes;
        if self.nodes.is_some_and(|nodes| nodes != case_nodes) {
            return Err(ScenarioRunError::OwnFleet { name: self.name.clone(), own: case_nodes });
        }
        Ok(Some(SuiteCase { dialect: self.dialect, ..case }))
    }
}

/// Time until the first event; zero if it is present from the start.
fn first_onset(scenario: &Scenario) -> Duration {
    let onsets = scenario.faults.iter().map(|fault| fault.onset_s).filter(|onset| *onset > 0.0);
    let first = onsets.fold(f64::MAX, f64::min);
    if first < f64::MAX { Duration::from_secs_f64(first) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named_run(name: &str) -> ScenarioRun {
        let (nodes, seed, level) = (None, 3, FaultLevel::Hard);
        ScenarioRun { name: name.into(), nodes, seed, level, dialect: Dialect::Gaunt }
    }

    #[test]
    fn scenarios_have_a_summary_and_a_look_time_within_the_span() {
        for (name, line) in list_names() {
            let timing = named_run(name).run_timing().unwrap();
            assert!(!line.is_empty() && timing.look > timing.first, "{name}: {timing:?}");
            assert!(timing.look <= timing.span, "{name}: {timing:?}");
        }
    }

    #[test]
    fn case_has_its_own_fleet() {
        let with_nodes = ScenarioRun { nodes: Some(3_000), ..named_run("F3") };
        let case_nodes = named_run("F3").build_fleet(UnixMs(0)).unwrap().node_count();
        let refusal = with_nodes.build_fleet(UnixMs(0)).unwrap_err().to_string();
        assert_eq!(refusal, format!("case F3 has {case_nodes} nodes; leave out --nodes"));
        assert!(
            ScenarioRun { nodes: Some(case_nodes), ..named_run("F3") }
                .build_fleet(UnixMs(0))
                .is_ok()
        );
        assert_eq!(
            ScenarioRun { nodes: Some(3), ..named_run("demo") }
                .build_fleet(UnixMs(0))
                .unwrap()
                .node_count(),
            3
        );
    }
}
