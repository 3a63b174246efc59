//! gaunt: finds the GPUs of a cluster that wait or are slow, the reason, and the part of the network at fault.
//!
//! ARCHITECTURE.md describes each module and the direction of dependencies.

pub mod alert;
pub mod answer_source;
pub mod cli;
pub mod command;
pub mod peers;
pub mod serve;
pub mod settings;
