//! Scenarios: what breaks in a simulated fleet, and when. Each is a short TOML file built into the program.

use std::sync::LazyLock;

use gaunt_schema::plain_error;
use serde::Deserialize;

use crate::{FaultEffect, GPUS_PER_NODE, SimFault};

/// The default scenario, which shows both faults of the demonstration.
pub const DEFAULT: &str = "demo";

/// All built-in scenarios, in the order in which they are listed.
const FILES: [&str; 14] = [
    include_str!("../scenarios/demo.toml"),
    include_str!("../scenarios/healthy.toml"),
    include_str!("../scenarios/port_down.toml"),
    include_str!("../scenarios/data_starved.toml"),
    include_str!("../scenarios/storage_slow.toml"),
    include_str!("../scenarios/slow_gpu.toml"),
    include_str!("../scenarios/throttled.toml"),
    include_str!("../scenarios/launch_bound.toml"),
    include_str!("../scenarios/leaf_congested.toml"),
    include_str!("../scenarios/link_errors.toml"),
    include_str!("../scenarios/hang.toml"),
    include_str!("../scenarios/gpu_lost.toml"),
    include_str!("../scenarios/checkpoint.toml"),
    include_str!("../scenarios/tour.toml"),
];

/// Upper limits for plausibility: no fault starts later than a day after the start, and no batch takes longer than an
/// hour.
const LONGEST_ONSET_S: f64 = 86_400.0;
const LONGEST_BATCH_S: f64 = 3_600.0;
/// Largest slowdown factor.
const LARGEST_FACTOR: f64 = 1_000.0;

/// A scenario: the events in a simulated fleet.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The name that selects it.
    pub name: String,
    /// One-line description.
    pub summary: String,
    /// Its faults; empty for a healthy fleet.
    #[serde(default, rename = "fault")]
    pub faults: Vec<SimFault>,
}

/// Why a scenario cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// No scenario has this name.
    #[error(
        "no scenario is called {name:?}; choose one of {known}, or a case F1 to F19 or H1 to H16"
    )]
    Unknown {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The text is not a valid scenario.
    #[error("the scenario, line {line}: {what}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// A value is outside the range that can be simulated.
    #[error("scenario {scenario:?}, fault {fault}: {what}")]
    Impossible {
        /// The name of the scenario.
        scenario: String,
        /// Which of its faults, counted from 1.
        fault: usize,
        /// The value, and what it may be.
        what: String,
    },
}

/// All built-in scenarios.
pub fn list_all() -> &'static [Scenario] {
    static ALL: LazyLock<Vec<Scenario>> = LazyLock::new(|| {
        let parsed = FILES.iter().map(|text| Scenario::parse(text));
        parsed.map(|file| file.expect("a test parses every embedded scenario")).collect()
    });
    &ALL
}

/// The names of all scenarios, each with its one-line description.
pub fn list_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    list_all().iter().map(|scenario| (scenario.name.as_str(), scenario.summary.as_str()))
}

impl Scenario {
    /// The scenario of this name.
    pub fn from_name(name: &str) -> Result<Self, ScenarioError> {
        let scenario = list_all().iter().find(|scenario| scenario.name == name);
        scenario.cloned().ok_or_else(|| ScenarioError::Unknown {
            name: name.to_owned(),
            known: list_names().map(|(name, _)| name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Reads a scenario from TOML.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let message = plain_error::document(
                error.message(),
                "TOML",
                toml::from_str::<toml::Table>(text).is_ok(),
            );
            ScenarioError::Syntax { line: before.matches('\n').count() + 1, what: message }
        })?;
        for (index, fault) in scenario.faults.iter().enumerate() {
            check_fault(fault).map_err(|message| ScenarioError::Impossible {
                scenario: scenario.name.clone(),
                fault: index + 1,
                what: message,
            })?;
        }
        Ok(scenario)
    }
}

fn check_fault(fault: &SimFault) -> Result<(), String> {
    let onset = fault.onset_s;
    if !(0.0..=LONGEST_ONSET_S).contains(&onset) {
        return Err(format!("onset_s is {onset}; it must be between 0 and {LONGEST_ONSET_S}"));
    }
    if let Some(duration) = fault.lasts_s.filter(|&duration| duration.is_nan() || duration <= 0.0) {
        return Err(format!("lasts_s is {duration}; it must be above 0, or left out"));
    }
    match fault.effect {
        FaultEffect::PortDown { rail }
        | FaultEffect::RateLow { rail, .. }
        | FaultEffect::LinkErrors { rail, .. }
        | FaultEffect::LeafCongested { rail, .. }
        | FaultEffect::RailSlow { rail, .. }
            if rail >= GPUS_PER_NODE =>
        {
            return Err(format!("rail is {rail}; a node has rails 0 to {}", GPUS_PER_NODE - 1));
        }
        FaultEffect::SlowGpu { gpu, .. }
        | FaultEffect::Throttled { gpu, .. }
        | FaultEffect::PcieSlow { gpu, .. }
        | FaultEffect::NvlinkSlow { gpu, .. }
        | FaultEffect::GpuLost { gpu, .. }
            if gpu >= GPUS_PER_NODE =>
        {
            return Err(format!("gpu is {gpu}; a node has GPUs 0 to {}", GPUS_PER_NODE - 1));
        }
        _ => {}
    }
    check_amount(fault.effect)
}

/// Whether the strength of an effect can be simulated.
fn check_amount(effect: FaultEffect) -> Result<(), String> {
    let (name, amount, limit) = match effect {
        FaultEffect::DataStarved { batch_s, .. } | FaultEffect::StorageSlow { batch_s } => {
            ("batch_s", batch_s, LONGEST_BATCH_S)
        }
        FaultEffect::SlowGpu { clock, .. }
        | FaultEffect::Throttled { clock, .. }
        | FaultEffect::PowerCap { clock } => ("clock", clock, 1.0),
        FaultEffect::LaunchBound { duty, .. } => ("duty", duty, 1.0),
        FaultEffect::PcieSlow { factor, .. }
        | FaultEffect::NvlinkSlow { factor, .. }
        | FaultEffect::RateLow { factor, .. }
        | FaultEffect::LinkErrors { factor, .. }
        | FaultEffect::LeafCongested { factor, .. }
        | FaultEffect::RailSlow { factor, .. }
        | FaultEffect::HostBlocks { factor }
        | FaultEffect::StageImbalance { factor, .. }
        | FaultEffect::Skew { factor }
        | FaultEffect::LongTail { factor } => ("factor", factor, LARGEST_FACTOR),
        _ => return Ok(()),
    };
    if amount > 0.0 && amount <= limit {
        return Ok(());
    }
    Err(format!("{name} is {amount}; it must be above 0 and at most {limit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_scenarios_parse_and_are_found_by_name() {
        for text in FILES {
            let scenario = Scenario::parse(text).unwrap();
            assert_eq!(Scenario::from_name(&scenario.name).unwrap(), scenario);
            assert!(!scenario.summary.is_empty() && !scenario.summary.contains('\n'));
        }
        assert_eq!(list_names().next().unwrap().0, DEFAULT);
    }

    #[test]
    fn unknown_scenario_error_lists_known_names() {
        let error = Scenario::from_name("port_up").unwrap_err().to_string();
        assert_eq!(
            error,
            "no scenario is called \"port_up\"; choose one of demo, healthy, port_down, data_starved, \
             storage_slow, slow_gpu, throttled, launch_bound, leaf_congested, link_errors, hang, \
             gpu_lost, checkpoint, tour, or a case F1 to F19 or H1 to H16"
        );
    }

    #[test]
    fn unsupported_field_is_rejected_by_name() {
        let fault = |body: &str| {
            let text = format!("name = \"x\"\nsummary = \"y\"\n[[fault]]\n{body}");
            Scenario::parse(&text).unwrap_err().to_string()
        };
        let member = "gang = 0\nmember = 0\n";
        let port = format!("{member}effect.port_down.rail = ");
        assert_eq!(
            fault(&format!("onset_s = 1.0\n{port}8")),
            "scenario \"x\", fault 1: rail is 8; a node has rails 0 to 7"
        );
        assert!(fault(&format!("onset_s = -1.0\n{port}0")).contains("onset_s is -1"));
        assert!(fault(&format!("onset_s = nan\n{port}0")).contains("onset_s is NaN"));
        assert!(fault(&format!("onset_s = 1.0\nlasts_s = 0.0\n{port}0")).contains("lasts_s is 0"));
        let starved = format!("onset_s = 1.0\n{member}effect.data_starved.batch_s = 0.0");
        assert!(fault(&starved).contains("batch_s is 0"));
        assert!(
            fault(&format!("onset_s = 1.0\nwhen = 2\n{port}0")).contains("unknown field \"when\"")
        );
        assert!(
            fault(&format!("onset_s = 1.0\n{member}effect.fire.x = 1"))
                .contains("\"fire\" is invalid")
        );
    }
}
