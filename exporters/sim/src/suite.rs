//! The suite: labelled runs on which a judge is measured, some to tune it on, others to test it with.

use gaunt_schema::{Dialect, UnixMs};

use crate::{Effect, Fault, Fleet, Scenario, noise::Noise, shape::Shape};

/// Which seeds, and with them which parameters: what a judge is tuned on it is not tested with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// For choosing thresholds.
    Tune,
    /// For the figures that are published.
    Test,
}

/// How strong a fault is: the share of throughput that it costs, where it costs any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// About 15 per cent.
    Mild,
    /// About 30 per cent.
    Medium,
    /// About 60 per cent.
    Hard,
}

impl Level {
    /// Every level, weakest first.
    pub const ALL: [Self; 3] = [Self::Mild, Self::Medium, Self::Hard];

    /// One word for tables.
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
pub struct Case {
    /// `F1` to `F18` for faults, `H1` to `H16` for what looks like one and is none.
    pub scenario: &'static str,
    /// How strong it is.
    pub level: Level,
    /// The seed of all that varies.
    pub seed: u64,
    /// The machines.
    pub shape: Shape,
    /// Whether the GPUs tell profiling counters.
    pub gpm: bool,
    /// Whether the pages say which job holds a GPU.
    pub labels: bool,
    /// In whose words the pages are: gaunt's, or dcgm-exporter's and node_exporter's.
    pub dialect: Dialect,
    /// How long to watch, in seconds.
    pub seconds: u32,
    /// Which seeds it belongs to.
    pub split: Split,
}

/// Seeds of each scenario at each level.
pub const SEEDS: u64 = 20;

/// Seeds of the two splits are far from each other.
const TEST_SEEDS_FROM: u64 = 1_000_000;

/// Every scenario, faults first.
pub const SCENARIOS: [&str; 2] = ["F1", "F8"];

/// All cases of a split, ordered by seed first, so that any beginning of the list is balanced.
pub fn cases(split: Split) -> Vec<Case> {
    let mut cases = Vec::new();
    for number in 0..SEEDS {
        for (at, scenario) in SCENARIOS.into_iter().enumerate() {
            for level in Level::ALL {
                cases.push(case(split, number, at as u64, scenario, level));
            }
        }
    }
    cases
}

fn case(split: Split, number: u64, at: u64, scenario: &'static str, level: Level) -> Case {
    let first = if split == Split::Test { TEST_SEEDS_FROM } else { 1 };
    let seed = first + number * 1_000 + at * 10 + level as u64;
    // Each scenario and level goes through all eight ways to be told.
    let way = number + at + level as u64;
    let noise = Noise::new(seed);
    Case {
        scenario,
        level,
        seed,
        shape: Shape::usual(8 << noise.child(0).below(3)),
        gpm: way & 1 == 0,
        labels: way & 2 == 0,
        dialect: if way & 4 == 0 { Dialect::Gaunt } else { Dialect::Dcgm },
        seconds: 240,
        split,
    }
}

impl Case {
    /// The fleet of this run, at the instant `start`.
    pub fn fleet(&self, start: UnixMs) -> Fleet {
        let noise = Noise::new(self.seed).child(1);
        let usual = 0.25;
        let lost = [0.15, 0.3, 0.6][self.level as usize];
        let effect = match self.scenario {
            "F8" => Effect::PortDown { rail: noise.child(0).below(8) as usize },
            _ => Effect::DataStarved { batch_s: usual / (1.0 - lost) },
        };
        let fault = Fault {
            onset_s: noise.child(1).between(60.0, 120.0).round(),
            lasts_s: None,
            gang: 0,
            member: noise.child(2).below(64) as usize,
            effect,
        };
        let scenario = Scenario {
            name: self.scenario.to_owned(),
            summary: String::new(),
            faults: vec![fault],
        };
        Fleet::new(scenario, self.shape.nodes, self.seed, start).told(
            self.gpm,
            self.labels,
            self.dialect,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_seed_is_in_both_splits_and_every_way_of_telling_is_there() {
        let (tune, test) = (cases(Split::Tune), cases(Split::Test));
        assert!(tune.iter().all(|a| test.iter().all(|b| a.seed != b.seed)));
        for scenario in SCENARIOS {
            let mut ways: Vec<_> = tune
                .iter()
                .filter(|case| case.scenario == scenario)
                .map(|case| (case.gpm, case.labels, case.dialect))
                .collect();
            ways.sort_unstable();
            ways.dedup();
            assert_eq!(ways.len(), 8, "{scenario}");
        }
    }
}
