//! Shapes: how many nodes of what kind a fleet has, how they are cabled, and which jobs run on them.

use std::ops::Range;

pub use crate::job_workload::JobWorkload;
use crate::{
    GPUS_PER_NODE, NODES_PER_LEAF,
    gpu_activity::{self, GpuModel},
    node_placement::NodePlacement,
};

/// The machines, cables and jobs of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetShape {
    /// How many nodes.
    pub nodes: usize,
    /// GPUs of one node: 4 or 8.
    pub gpus: usize,
    /// Rails of the fabric, and RDMA ports of one node: 1, 2, 4 or 8, and no more than GPUs.
    pub rails: usize,
    /// Nodes under one leaf switch of a rail.
    pub leaf_nodes: usize,
    /// Which boards are in which nodes.
    pub gpu_models: GpuModelMix,
    /// Nodes whose GPUs are joined by one NVLink fabric: 1 for boxes, more for the trays of a rack.
    pub domain_nodes: usize,
    /// The jobs, the one that a fault strikes first.
    pub jobs: Vec<JobShape>,
    /// Nodes that a job holds and leaves idle. The nodes that are in no job are free.
    pub held: Range<usize>,
}

/// Which boards are in which nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuModelMix {
    /// The usual ones in all.
    #[default]
    Usual,
    /// Boards with more memory in all.
    Larger,
    /// Those of trays in all.
    Tray,
    /// The usual ones, and those of the generation before in every second node.
    HalfOlder,
    /// Boards with more memory, and those of the next generation in every second node.
    HalfNewer,
    /// The usual ones in the first job's nodes, and those of the generation before in all others.
    OthersOlder,
    /// Those of the next generation in the first job's nodes, and boards with more memory in all others.
    OthersLarger,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobShape {
    /// Its nodes, by their positions in the fleet.
    pub nodes: Range<usize>,
    /// What it does.
    pub work: JobWorkload,
    /// Pipeline stages; its nodes are shared out to them in order.
    pub stages: usize,
    /// Whether its layers are spread over experts: every rank then trades with every other in each of them.
    pub experts: bool,
}

impl FleetShape {
    /// The usual fleet: nodes of eight GPUs and eight rails, most of them in gangs.
    pub fn new_usual(nodes: usize) -> Self {
        let placement = NodePlacement::of(nodes);
        let job = |nodes| JobShape { nodes, work: JobWorkload::Train, stages: 1, experts: false };
        Self {
            nodes,
            gpus: GPUS_PER_NODE,
            rails: GPUS_PER_NODE,
            leaf_nodes: NODES_PER_LEAF,
            gpu_models: GpuModelMix::Usual,
            domain_nodes: 1,
            jobs: placement.gangs.into_iter().map(job).collect(),
            held: placement.held,
        }
    }

    /// The boards of a node.
    pub(crate) fn gpu_model(&self, node: usize) -> GpuModel {
        let first = self.jobs.first().is_some_and(|job| job.nodes.contains(&node));
        match self.gpu_models {
            GpuModelMix::Tray => gpu_activity::TRAY,
            GpuModelMix::HalfOlder if node % 2 == 1 => gpu_activity::OLDER,
            GpuModelMix::HalfNewer if node % 2 == 1 => gpu_activity::NEWER,
            GpuModelMix::OthersLarger if first => gpu_activity::NEWER,
            GpuModelMix::OthersOlder if !first => gpu_activity::OLDER,
            GpuModelMix::Larger | GpuModelMix::HalfNewer | GpuModelMix::OthersLarger => {
                gpu_activity::LARGER
            }
            GpuModelMix::Usual | GpuModelMix::HalfOlder | GpuModelMix::OthersOlder => {
                gpu_activity::USUAL
            }
        }
    }

    /// The nodes of the same NVLink fabric as this one.
    pub(crate) fn domain_of(&self, node: usize) -> Range<usize> {
        let first = node / self.domain_nodes * self.domain_nodes;
        first..(first + self.domain_nodes).min(self.nodes)
    }

    /// The nodes below the same leaves as this one.
    pub(crate) fn nodes_below_leaf(&self, node: usize) -> Range<usize> {
        let first = node / self.leaf_nodes * self.leaf_nodes;
        first..(first + self.leaf_nodes).min(self.nodes)
    }

    /// The name of the leaf of a node on a rail.
    pub(crate) fn leaf_name(&self, node: usize, rail: usize) -> String {
        format!("leaf-{:02}-r{rail}", node / self.leaf_nodes)
    }
}
