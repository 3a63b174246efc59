//! gaunt-sim: a fleet that is not there, whose signals follow from a small model of jobs, machines and fabric.
//!
//! A [`Scenario`] says what breaks and when; a [`Fleet`] lives through it and reports as its nodes' exporters would.
//! Nothing here knows how a verdict is reached: a fault changes how long a batch takes or where bytes flow, and what
//! the counters then show is a consequence.

mod fabric;
mod fault;
mod fleet;
mod gang;
mod gpu;
mod host;
mod job;
mod machine;
mod noise;
mod page;
mod placement;
mod port;
pub mod scenario;
mod scrape;
pub mod shape;
pub mod story;
pub mod suite;
pub mod truth;
mod wiring;
mod work;

pub use fault::{Effect, Fault};
pub use fleet::Fleet;
pub use scenario::{Scenario, ScenarioError};
pub use story::Story;
pub use truth::Truth;

/// GPUs of one node, and its rails: port `mlx5_K` belongs to GPU `K`.
pub const GPUS_PER_NODE: usize = 8;

/// Nodes under one leaf switch of a rail.
pub const NODES_PER_LEAF: usize = 16;
