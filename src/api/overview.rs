//! The overview: the summary of the fleet, small enough to be sent every second.

use gaunt_schema::{GpuState, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::{Finding, FindingContext, FindingGroup, FleetChange, NodeLine};

/// Summary of the fleet at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Overview {
    /// Cluster name from the settings; empty if not set.
    pub cluster: SanitizedText,
    /// Clusters of a console of several that do not answer: nothing of this holds for them. A bounded number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent_clusters: Vec<SanitizedText>,
    /// Engine time of this answer.
    pub at: UnixMs,
    /// Scrape interval of a target, in milliseconds.
    pub period_ms: u64,
    /// Nodes by freshness.
    pub nodes: NodeCounts,
    /// GPUs by state, in the order of [`GpuState::ALL`], only states that occur.
    pub states: Vec<StateCount>,
    /// GPU time lost now and in the last minutes.
    pub lost: LostGpuTime,
    /// Number of open findings.
    pub findings_open: u32,
    /// Number of acknowledged open findings.
    #[serde(default)]
    pub findings_acknowledged: u32,
    /// Findings with present evidence that are omitted because of the limit.
    #[serde(default)]
    pub findings_without_place: u32,
    /// The worst findings, worst first; a bounded number. The worst of each group is included, and others only where no
    /// more urgent line is omitted for them.
    pub findings: Vec<Finding>,
    /// Groups of many findings of one kind, each counted completely; the worst groups first, a bounded number.
    #[serde(default)]
    pub groups: Vec<FindingGroup>,
    /// Owners, cost and nearby changes of these findings, in their order; none of an older aggregator.
    #[serde(default)]
    pub contexts: Vec<FindingContext>,
    /// Changes of the fleet within the span of the history of lost GPUs, oldest first; a bounded number.
    #[serde(default)]
    pub changes: Vec<FleetChange>,
    /// The state of every GPU.
    pub heat: HeatMap,
    /// The worst nodes, worst first; a bounded number.
    pub worst: Vec<NodeLine>,
    /// State and recording that cannot be written, and the first sources and targets that cannot be read, as sentences with
    /// the next step; a bounded number.
    pub trouble: Vec<SanitizedText>,
    /// Those about target sources and site files alone.
    #[serde(default)]
    pub source_trouble: Vec<SanitizedText>,
    /// What reading a Prometheus costs it, how far its data is behind, and what it lacks; a bounded number.
    #[serde(default)]
    pub source_notes: Vec<SanitizedText>,
}

impl Overview {
    /// Names the clusters that do not answer in a few words: `hall-2 silent`; None if all do.
    pub fn describe_silent_clusters(&self) -> Option<String> {
        match self.silent_clusters.as_slice() {
            [] => None,
            [only] => Some(format!("{only} silent")),
            several => Some(format!("{} clusters silent", several.len())),
        }
    }

    /// Number of known GPUs.
    pub fn gpu_count(&self) -> u32 {
        self.states.iter().map(|count| count.gpus).sum()
    }

    /// GPUs in `state`.
    pub fn gpus_in_state(&self, state: GpuState) -> u32 {
        self.states.iter().find(|count| count.state == state).map_or(0, |count| count.gpus)
    }
}

/// Nodes by freshness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeCounts {
    /// Scraped each period.
    pub live: u32,
    /// Scraped once, and too old now.
    pub stale: u32,
    /// Failing.
    pub down: u32,
    /// Targets that are not tried yet, or whose node is not known yet.
    pub pending: u32,
}

/// Number of GPUs in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StateCount {
    /// The state.
    pub state: GpuState,
    /// The GPUs in it.
    pub gpus: u32,
}

/// GPU time that is lost to the jobs that hold it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LostGpuTime {
    /// Lost GPUs: the sum of the shares of time that GPUs lose now, which equals GPU-hours lost per hour. It is the sum
    /// of the next three fields, and of the losses of all nodes.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub gpus: f64,
    /// Lost GPUs attributed to open findings: the sum of their costs.
    pub findings_gpus: f64,
    /// GPUs that are allocated to a job and idle, without a finding.
    pub idle_gpus: f64,
    /// Lost GPUs that no finding explains.
    pub unexplained_gpus: f64,
    /// GPUs without telemetry: whether they are lost is unknown, and they are not counted.
    pub unknown_gpus: u32,
    /// Cost per hour, if a price is set.
    pub cost_per_hour: Option<f64>,
    /// Price of a GPU hour, if one is set.
    #[serde(default)]
    pub price_per_gpu_hour: Option<f64>,
    /// The currency of the price.
    pub currency: SanitizedText,
    /// Recent lost GPUs, oldest first; none where unknown.
    pub history: Vec<Option<f32>>,
    /// Time between two points of the history, in milliseconds.
    pub history_step_ms: u64,
}

/// State of every GPU as columns: by node name, then by GPU index.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HeatMap {
    /// The nodes that have GPUs.
    pub nodes: Vec<SanitizedText>,
    /// Number of GPUs of each node.
    pub gpus: Vec<u16>,
    /// One code letter per GPU (`GpuState::code`), all nodes in one string.
    pub states: String,
}

impl HeatMap {
    /// Each node with the code letters of its GPUs.
    pub fn node_rows(&self) -> impl Iterator<Item = (&SanitizedText, &str)> {
        let mut at = 0;
        self.nodes.iter().zip(&self.gpus).map(move |(node, gpus)| {
            let end = (at + usize::from(*gpus)).min(self.states.len());
            let row = self.states.get(at..end).unwrap_or("");
            at = end;
            (node, row)
        })
    }
}
