//! Stories: all that can be told by name, a scenario of a usual fleet or a case of the suite with a fleet of its own.

use std::time::Duration;

use gaunt_schema::{Dialect, UnixMs};

use crate::{
    Fleet, Scenario, ScenarioError, scenario,
    shape::Shape,
    suite::{self, Case, Level},
};

/// So many nodes are simulated unless told otherwise.
pub const USUAL_NODES: usize = 32;

/// By then every fault of a usual scenario has begun, and who judges has had half a minute for it.
const USUAL_TELLING: Duration = Duration::from_secs(75);

/// How long a scenario is worth watching that has no length of its own.
const USUAL_SPAN: Duration = Duration::from_mins(5);

/// What only looks like a fault is seen best so long after it begins; a fault so long after its limit.
const HARMLESS_LOOK: Duration = Duration::from_secs(40);
const FAULT_LOOK: Duration = Duration::from_secs(10);

/// What is told, and of how many.
#[derive(Clone, Debug)]
pub struct Story {
    /// The name of a scenario, or `F1` to `F18` and `H1` to `H16`.
    pub name: String,
    /// How many nodes; a case has a fleet of its own.
    pub nodes: Option<usize>,
    /// The seed of everything that varies.
    pub seed: u64,
    /// How strong a case is.
    pub level: Level,
    /// In whose words the pages are.
    pub dialect: Dialect,
}

/// Why a story cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum StoryError {
    /// Nothing has this name.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A case has as many nodes as it has.
    #[error("case {name} has {own} nodes; leave out --nodes")]
    OwnFleet {
        /// The case.
        name: String,
        /// Its nodes.
        own: usize,
    },
}

/// When a story is worth looking at, counted from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Until something happens.
    pub first: Duration,
    /// Until there is most to see.
    pub look: Duration,
    /// Until it is over.
    pub span: Duration,
}

/// The name and one line of all that can be told, usual scenarios first.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    scenario::names().chain(suite::SCENARIOS)
}

impl Story {
    /// The fleet that tells it from the instant `start` on.
    pub fn fleet(&self, start: UnixMs) -> Result<Fleet, StoryError> {
        if let Some(case) = self.case()? {
            return Ok(case.fleet(start));
        }
        let scenario = Scenario::named(&self.name)?;
        let nodes = self.nodes.unwrap_or(USUAL_NODES);
        Ok(Fleet::speaking(self.dialect, scenario, nodes, self.seed, start))
    }

    /// When it is worth looking.
    pub fn timing(&self) -> Result<Timing, StoryError> {
        let Some(case) = self.case()? else {
            let first = first(&Scenario::named(&self.name)?);
            return Ok(Timing { first, look: USUAL_TELLING, span: USUAL_SPAN });
        };
        let fleet = case.fleet(UnixMs(0));
        let first = first(fleet.scenario());
        let found = fleet.truths().iter().map(|truth| truth.onset + truth.limit + FAULT_LOOK).max();
        let look = found.map_or(first + HARMLESS_LOOK, |found| found.since(UnixMs(0)));
        Ok(Timing { first, look, span: Duration::from_secs(case.seconds.into()) })
    }

    /// Its machines and cables.
    pub fn shape(&self) -> Result<Shape, StoryError> {
        Ok(match self.case()? {
            Some(case) => case.shape,
            None => Shape::usual(self.nodes.unwrap_or(USUAL_NODES)),
        })
    }

    /// The case of this name, if it is one.
    fn case(&self) -> Result<Option<Case>, StoryError> {
        let Some(case) = Case::named(&self.name, self.level, self.seed) else { return Ok(None) };
        let own = case.shape.nodes;
        if self.nodes.is_some_and(|nodes| nodes != own) {
            return Err(StoryError::OwnFleet { name: self.name.clone(), own });
        }
        Ok(Some(Case { dialect: self.dialect, ..case }))
    }
}

/// Until something happens; no time at all if it is so from the start.
fn first(scenario: &Scenario) -> Duration {
    let onsets = scenario.faults.iter().map(|fault| fault.onset_s).filter(|onset| *onset > 0.0);
    let first = onsets.fold(f64::MAX, f64::min);
    if first < f64::MAX { Duration::from_secs_f64(first) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story(name: &str) -> Story {
        let (nodes, seed, level) = (None, 3, Level::Hard);
        Story { name: name.into(), nodes, seed, level, dialect: Dialect::Gaunt }
    }

    #[test]
    fn every_name_is_told_and_is_worth_a_look_while_it_lasts() {
        for (name, line) in names() {
            let timing = story(name).timing().unwrap();
            assert!(!line.is_empty() && timing.look > timing.first, "{name}: {timing:?}");
            assert!(timing.look <= timing.span, "{name}: {timing:?}");
        }
    }

    #[test]
    fn a_case_has_a_fleet_of_its_own() {
        let few = Story { nodes: Some(3_000), ..story("F3") };
        let own = story("F3").fleet(UnixMs(0)).unwrap().nodes();
        let refusal = few.fleet(UnixMs(0)).unwrap_err().to_string();
        assert_eq!(refusal, format!("case F3 has {own} nodes; leave out --nodes"));
        assert!(Story { nodes: Some(own), ..story("F3") }.fleet(UnixMs(0)).is_ok());
        assert_eq!(Story { nodes: Some(3), ..story("demo") }.fleet(UnixMs(0)).unwrap().nodes(), 3);
    }
}
