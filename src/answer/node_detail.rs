//! Nodes: a line for each, and one of them in full.

use std::collections::BTreeMap;

use gaunt_schema::{DeviceClass, FindingKind, GpuState, Reading, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::{Finding, TargetLine};

/// Every node in a line each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeList {
    /// The owner's clock when this was true.
    pub at: UnixMs,
    /// The nodes, worst first: by what they lose, then by name.
    pub nodes: Vec<NodeLine>,
    /// How many there are in all.
    #[serde(default)]
    pub total: u32,
    /// How many of them match the filter; the list may be only a page of them.
    #[serde(default)]
    pub matched: u32,
}

/// How fresh a node's data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It is read each period.
    Live,
    /// It was read, and its values are too old to stand for now.
    Stale,
    /// Its targets fail.
    Down,
}

impl NodeState {
    /// The word in labels and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Stale => "stale",
            Self::Down => "down",
        }
    }
}

/// One node in a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeLine {
    /// Its name.
    pub node: SanitizedText,
    /// How fresh its data is.
    pub state: NodeState,
    /// Age of its newest values in milliseconds, by the owner's clock.
    pub age_ms: Option<u64>,
    /// The state of each of its GPUs by index, one code letter each (`GpuState::code`).
    pub gpu_states: String,
    /// Lost GPUs on it.
    pub lost_gpus: f64,
    /// Mean utilization of its GPUs.
    pub utilization_ratio: Option<f64>,
    /// Power of its GPUs together.
    pub power_watts: Option<f64>,
    /// Ports that are active, and ports that there are.
    pub ports: (u32, u32),
    /// The jobs on it.
    pub jobs: Vec<SanitizedText>,
    /// The worst open finding that blames it or something on it.
    pub finding: Option<FindingKind>,
}

/// One node in full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeDetail {
    /// The owner's clock when this was true.
    pub at: UnixMs,
    /// The node in a line.
    pub line: NodeLine,
    /// The node's clock minus the owner's, in milliseconds, as last seen.
    pub clock_skew_ms: Option<i64>,
    /// The node itself, its GPUs by index, its ports and network devices by name, its collectors.
    pub devices: Vec<DeviceDetail>,
    /// The time between two points of every history here, in milliseconds.
    pub history_step_ms: u64,
    /// Open findings that blame the node or something on it.
    pub findings: Vec<Finding>,
    /// The targets that speak for it.
    pub targets: Vec<TargetLine>,
}

/// One device with its values and their recent past.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceDetail {
    /// What it is.
    pub class: DeviceClass,
    /// Which one it is, as a person says it: `GPU 5`, `mlx5_0/1`.
    pub name: SanitizedText,
    /// The labels that name it on its node.
    pub labels: BTreeMap<String, SanitizedText>,
    /// Who it is: the labels of its info series, by series and label name.
    pub info: BTreeMap<String, BTreeMap<SanitizedText, SanitizedText>>,
    /// The judged state, for GPUs.
    pub state: Option<GpuState>,
    /// The last reading of each metric, by catalogue key; counters as they were read.
    pub values: BTreeMap<String, Reading>,
    /// What each counter grows by in a second, by catalogue key.
    pub rates: BTreeMap<String, f64>,
    /// The recent past of the metrics that keep one; counters as rates.
    pub history: Vec<MetricSeries>,
}

impl DeviceDetail {
    /// The last value of a metric, if there is one.
    pub fn last_value(&self, metric: &str) -> Option<f64> {
        self.values.get(metric)?.value()
    }

    /// What a collector says about its last run, if anything.
    pub fn collector_message(&self) -> Option<&SanitizedText> {
        let labels = self.info.values().flat_map(|labels| labels.iter());
        let mut messages = labels.filter(|(label, text)| *label == "message" && !text.is_empty());
        messages.next().map(|(_, text)| text)
    }

    /// The recent past of a metric, oldest first; empty if none is kept.
    pub fn recent_points(&self, metric: &str) -> &[Option<f32>] {
        self.history.iter().find(|series| series.metric == metric).map_or(&[], |s| &s.points)
    }
}

/// The recent past of one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricSeries {
    /// The catalogue key.
    pub metric: String,
    /// Oldest first, the last one now; none where nothing was read.
    pub points: Vec<Option<f32>>,
}
