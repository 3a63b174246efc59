//! Nodes: one line per node, and the detail answer of one node.

use std::collections::BTreeMap;

use gaunt_schema::{DeviceClass, FindingKind, GpuState, Reading, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::{Finding, TargetLine};

/// All nodes, one line each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeList {
    /// Engine time of this answer.
    pub at: UnixMs,
    /// The nodes, worst first: by lost GPUs, then by name.
    pub nodes: Vec<NodeLine>,
    /// Number of nodes before filtering.
    #[serde(default)]
    pub total: u32,
    /// Number of nodes that match the filter; the list may be only a page of them.
    #[serde(default)]
    pub matched: u32,
}

/// Freshness of a node's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Scraped each period.
    Live,
    /// Scraped before, but its values are too old.
    Stale,
    /// Its targets fail.
    Down,
}

impl NodeState {
    /// The name in labels and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Stale => "stale",
            Self::Down => "down",
        }
    }
}

/// One node as a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeLine {
    /// Its name.
    pub node: SanitizedText,
    /// Freshness of its data.
    pub state: NodeState,
    /// Age of its newest values in milliseconds, in engine time.
    pub age_ms: Option<u64>,
    /// State of each GPU by index, one code letter each (`GpuState::code`).
    pub gpu_states: String,
    /// Lost GPUs on it.
    pub lost_gpus: f64,
    /// Mean utilization of its GPUs.
    pub utilization_ratio: Option<f64>,
    /// Total power of its GPUs.
    pub power_watts: Option<f64>,
    /// Number of active ports, and of all ports whose state is known.
    pub ports: (u32, u32),
    /// The jobs on it.
    pub jobs: Vec<SanitizedText>,
    /// The worst open finding on it or its devices, else the one that its loss is attributed to.
    pub finding: Option<FindingKind>,
}

/// Detail of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeDetail {
    /// Engine time of this answer.
    pub at: UnixMs,
    /// Its line.
    pub line: NodeLine,
    /// Clock skew: the node's clock minus the engine clock, in milliseconds, as last observed.
    pub clock_skew_ms: Option<i64>,
    /// The node itself, its GPUs by index, its ports and network devices by name, its collectors.
    pub devices: Vec<DeviceDetail>,
    /// Time between two points of every history here, in milliseconds.
    pub history_step_ms: u64,
    /// Open findings on the node or its devices, then those about something else that most of its loss is attributed to.
    pub findings: Vec<Finding>,
    /// Its targets.
    pub targets: Vec<TargetLine>,
}

/// One device with its values and recent history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceDetail {
    /// Its class.
    pub class: DeviceClass,
    /// Its display name: `GPU 5`, `mlx5_0/1`.
    pub name: SanitizedText,
    /// Labels that identify it on its node.
    pub labels: BTreeMap<String, SanitizedText>,
    /// Identity: the labels of its info series, by series and label name.
    pub info: BTreeMap<String, BTreeMap<SanitizedText, SanitizedText>>,
    /// Judged state, for GPUs.
    pub state: Option<GpuState>,
    /// Last reading of each metric, by catalogue key; counters as raw values.
    pub values: BTreeMap<String, Reading>,
    /// Rate of each counter per second, by catalogue key.
    pub rates: BTreeMap<String, f64>,
    /// Recent history of the metrics that have one; counters as rates.
    pub history: Vec<MetricSeries>,
}

impl DeviceDetail {
    /// Last value of a metric, if any.
    pub fn last_value(&self, metric: &str) -> Option<f64> {
        self.values.get(metric)?.value()
    }

    /// Message of a collector about its last run, if any.
    pub fn collector_message(&self) -> Option<&SanitizedText> {
        let labels = self.info.values().flat_map(|labels| labels.iter());
        let mut messages = labels.filter(|(label, text)| *label == "message" && !text.is_empty());
        messages.next().map(|(_, text)| text)
    }

    /// Recent history of a metric, oldest first; empty if none is retained.
    pub fn recent_points(&self, metric: &str) -> &[Option<f32>] {
        self.history.iter().find(|series| series.metric == metric).map_or(&[], |s| &s.points)
    }
}

/// Recent history of one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MetricSeries {
    /// The catalogue key.
    pub metric: String,
    /// Oldest first, the last one is now; none where nothing was read.
    pub points: Vec<Option<f32>>,
}
