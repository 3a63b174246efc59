//! The overview: the fleet at a glance, small enough to be sent every second.

use gaunt_schema::{GpuState, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::{Finding, FindingGroup, NodeLine};

/// The whole fleet at one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// The cluster's name as the operator gave it; empty if he gave none.
    pub cluster: SanitizedText,
    /// The owner's clock when this was true.
    pub at: UnixMs,
    /// The time between two scrapes of a target, in milliseconds.
    pub period_ms: u64,
    /// Nodes by freshness.
    pub nodes: NodeCounts,
    /// GPUs by state, in the order of [`GpuState::ALL`], only states that occur.
    pub states: Vec<StateCount>,
    /// What is lost now, and was lost in the last minutes.
    pub lost: LostGpuTime,
    /// All open findings.
    pub findings_open: u32,
    /// Those of them that somebody took on.
    #[serde(default)]
    pub findings_acknowledged: u32,
    /// Findings whose evidence is there and that are not among them, because there is no place for them.
    #[serde(default)]
    pub findings_without_place: u32,
    /// The worst of them, worst first; a bounded number. Of a group the worst is among them, and others only where no
    /// more urgent line lacks a place for them.
    pub findings: Vec<Finding>,
    /// Those that are many of one kind, all of each counted; the worst groups first, a bounded number.
    #[serde(default)]
    pub groups: Vec<FindingGroup>,
    /// The state of every GPU.
    pub heat: HeatMap,
    /// The worst nodes, worst first; a bounded number.
    pub worst: Vec<NodeLine>,
    /// The first targets that cannot be read, as sentences with the next step; a bounded number.
    pub trouble: Vec<SanitizedText>,
}

impl Overview {
    /// All GPUs that are known.
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
pub struct NodeCounts {
    /// Read each period.
    pub live: u32,
    /// Read once, and too old now.
    pub stale: u32,
    /// Failing.
    pub down: u32,
    /// Targets that were not tried yet, or whose node is not known yet.
    pub pending: u32,
}

/// How many GPUs are in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateCount {
    /// The state.
    pub state: GpuState,
    /// The GPUs in it.
    pub gpus: u32,
}

/// GPU time that is lost to the jobs that hold it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LostGpuTime {
    /// Lost GPUs: the shares of their time that GPUs lose now, added up, which is also GPU-hours lost in an hour. It is the
    /// sum of the next three, and of what all nodes lose.
    pub gpus: f64,
    /// Lost GPUs that are attributed to open findings: the sum of their costs.
    pub findings_gpus: f64,
    /// GPUs that a job holds and does nothing with, without a finding.
    pub idle_gpus: f64,
    /// Lost GPUs that no finding explains.
    pub unexplained_gpus: f64,
    /// GPUs of which telemetry is missing: whether they are lost is not known, and they are not counted.
    pub unknown_gpus: u32,
    /// What they cost in an hour, if the operator gave a price.
    pub cost_per_hour: Option<f64>,
    /// The currency of the price.
    pub currency: SanitizedText,
    /// Lost GPUs in the recent past, oldest first; none where nothing was known.
    pub history: Vec<Option<f32>>,
    /// The time between two points of the history, in milliseconds.
    pub history_step_ms: u64,
}

/// The state of every GPU as columns: node by node in name order, GPU by GPU by index.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeatMap {
    /// The nodes that have GPUs.
    pub nodes: Vec<SanitizedText>,
    /// How many GPUs each has.
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
