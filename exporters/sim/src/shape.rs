//! Shapes: how many nodes of what kind a fleet has, and how they are cabled.

/// The machines and cables of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many nodes.
    pub nodes: usize,
    /// GPUs of one node: 4 or 8.
    pub gpus: usize,
    /// Rails of the fabric, and RDMA ports of one node: 1 to 8.
    pub rails: usize,
    /// Nodes under one leaf switch of a rail.
    pub leaf_nodes: usize,
}

impl Shape {
    /// The usual fleet: nodes of eight GPUs and eight rails.
    pub const fn usual(nodes: usize) -> Self {
        Self { nodes, gpus: 8, rails: 8, leaf_nodes: 16 }
    }
}
