//! gaunt-sim: a simulated fleet whose signals follow from a small model of jobs, machines and fabric.
//!
//! A [`Scenario`] defines what breaks and when; a [`SimFleet`] simulates it and reports as its nodes' exporters would.
//! The model does not know how findings are detected: a fault changes how long a batch takes or where bytes flow, and
//! the counters follow from that.

pub mod fleet_shape;
mod fleet_topology;
mod gpu_activity;
pub mod ground_truth;
mod job_workload;
mod node_placement;
mod noise_key;
mod report_template;
mod ring_routes;
pub mod scenario;
pub mod scenario_run;
mod scrape_behaviour;
mod sim_fault;
mod sim_fleet;
mod sim_host;
mod sim_job;
mod sim_job_group;
mod sim_machine;
mod sim_port;
pub mod suite;

pub use ground_truth::GroundTruth;
pub use scenario::{Scenario, ScenarioError};
pub use scenario_run::ScenarioRun;
pub use sim_fault::{FaultEffect, SimFault};
pub use sim_fleet::SimFleet;

/// GPUs and rails of one node: port `mlx5_K` belongs to GPU `K`.
pub const GPUS_PER_NODE: usize = 8;

/// Nodes under one leaf switch of a rail.
pub const NODES_PER_LEAF: usize = 16;
