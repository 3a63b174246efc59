//! gaunt: which GPUs of a cluster are starving, why, and which part of the network is to blame.
//!
//! ARCHITECTURE.md says what each room is for and which way the arrows point.

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
