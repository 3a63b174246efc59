//! Shapes: how many nodes of what kind a fleet has, how they are cabled, and which jobs run on them.

use std::ops::Range;

pub use crate::work::Work;
use crate::{GPUS_PER_NODE, NODES_PER_LEAF, placement::Placement};

/// The machines, cables and jobs of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many nodes.
    pub nodes: usize,
    /// GPUs of one node: 4 or 8.
    pub gpus: usize,
    /// Rails of the fabric, and RDMA ports of one node: 1, 2, 4 or 8, and no more than GPUs.
    pub rails: usize,
    /// Nodes under one leaf switch of a rail.
    pub leaf_nodes: usize,
    /// Whether every second node has boards of an older generation.
    pub mixed: bool,
    /// The jobs, the one that a fault strikes first.
    pub jobs: Vec<JobShape>,
    /// Nodes that a job holds and leaves idle. The nodes that are in no job are free.
    pub held: Range<usize>,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobShape {
    /// Its nodes, by their positions in the fleet.
    pub nodes: Range<usize>,
    /// What it does.
    pub work: Work,
    /// Pipeline stages; its nodes are shared out to them in order.
    pub stages: usize,
}

impl Shape {
    /// The usual fleet: nodes of eight GPUs and eight rails, most of them in gangs.
    pub fn usual(nodes: usize) -> Self {
        let placement = Placement::of(nodes);
        let job = |nodes| JobShape { nodes, work: Work::Train, stages: 1 };
        Self {
            nodes,
            gpus: GPUS_PER_NODE,
            rails: GPUS_PER_NODE,
            leaf_nodes: NODES_PER_LEAF,
            mixed: false,
            jobs: placement.gangs.into_iter().map(job).collect(),
            held: placement.held,
        }
    }

    /// The nodes below the same leaves as this one.
    pub(crate) fn below_leaf_of(&self, node: usize) -> Range<usize> {
        let first = node / self.leaf_nodes * self.leaf_nodes;
        first..(first + self.leaf_nodes).min(self.nodes)
    }

    /// The name of the leaf of a node on a rail.
    pub(crate) fn leaf(&self, node: usize, rail: usize) -> String {
        format!("leaf-{:02}-r{rail}", node / self.leaf_nodes)
    }
}
