//! gaunt: finds the GPUs of a cluster that starve, the reason, and the part of the network at fault.
//!
//! ARCHITECTURE.md describes each module and the direction of dependencies.

pub mod alert;
pub mod answer;
pub mod answer_source;
pub mod cli;
pub mod cluster;
pub mod command;
pub mod console;
pub mod engine;
pub mod gather;
pub mod judge;
pub mod pairing_scheduler;
pub mod record;
pub mod serve;
pub mod settings;
pub mod site;
pub mod state_store;
pub mod tls;
