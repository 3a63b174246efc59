//! Fleet shapes: number and type of nodes, cabling, and the jobs that run on them.

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
    /// Number of nodes.
    pub nodes: usize,
    /// GPUs of one node: 4 or 8.
    pub gpus: usize,
    /// Rails of the fabric, and RDMA ports of one node: 1, 2, 4 or 8, and no more than GPUs.
    pub rails: usize,
    /// Nodes under one leaf switch of a rail.
    pub leaf_nodes: usize,
    /// GPU models of the nodes.
    pub gpu_models: GpuModelMix,
    /// Nodes in one NVLink domain: 1 for single servers, more for the trays of a rack.
    pub domain_nodes: usize,
    /// The jobs; a fault affects the first one.
    pub jobs: Vec<JobShape>,
    /// Nodes that are allocated to an idle job. Nodes in no job are free.
    pub held: Range<usize>,
}

/// GPU models of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuModelMix {
    /// The default GPU model in all nodes.
    #[default]
    Usual,
    /// GPUs with more memory in all nodes.
    Larger,
    /// Tray GPUs in all nodes.
    Tray,
    /// The default model, and the previous generation in every second node.
    HalfOlder,
    /// GPUs with more memory, and the next generation in every second node.
    HalfNewer,
    /// The default model in the nodes of the first job, and the previous generation in all others.
    OthersOlder,
    /// The next generation in the nodes of the first job, and GPUs with more memory in all others.
    OthersLarger,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobShape {
    /// Its nodes, as positions in the fleet.
    pub nodes: Range<usize>,
    /// Its workload.
    pub work: JobWorkload,
    /// Pipeline stages; nodes are assigned to them in order.
    pub stages: usize,
    /// Whether it is a mixture-of-experts job: every rank then exchanges data with every other rank in each layer.
    pub experts: bool,
}

impl FleetShape {
    /// The default fleet: nodes of eight GPUs and eight rails, most of them in job groups.
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
            jobs: placement.job_groups.into_iter().map(job).collect(),
            held: placement.held,
        }
    }

    /// The GPU model of a node.
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

    /// The nodes in the NVLink domain of this node.
    pub(crate) fn domain_of(&self, node: usize) -> Range<usize> {
        let first = node / self.domain_nodes * self.domain_nodes;
        first..(first + self.domain_nodes).min(self.nodes)
    }

    /// The nodes below the same leaf switches as this one.
    pub(crate) fn nodes_below_leaf(&self, node: usize) -> Range<usize> {
        let first = node / self.leaf_nodes * self.leaf_nodes;
        first..(first + self.leaf_nodes).min(self.nodes)
    }

    /// The name of a node's leaf switch on a rail.
    pub(crate) fn leaf_name(&self, node: usize, rail: usize) -> String {
        format!("leaf-{:02}-r{rail}", node / self.leaf_nodes)
    }
}
