//! Worlds: clusters drawn at random, as their exporters show them, with known faults, to measure the judge on.
//!
//! A world is drawn in this order: its family and seed give the exporters and the cluster (`draw`), then the jobs,
//! then the fault with a given loss of speed. The physics (`physics`, or the simulator's own) turn the plan into
//! the state of every node at any instant; `pages` turns that state into the text that the exporters of this world
//! would serve.

pub mod cluster_plan;
pub mod draw;
pub mod exporter_plan;
pub mod fault_plan;
pub mod job_plan;
pub mod node_state;
pub mod pages;
pub mod physics;
pub mod random;
pub mod world;
