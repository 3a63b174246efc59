//! gaunt: which GPUs of a cluster are starving, why, and which part of the network is to blame.
//!
//! ARCHITECTURE.md says what each room is for and which way the arrows point.

pub mod alert;
pub mod answer;
pub mod cli;
pub mod cluster;
pub mod command;
pub mod console;
pub mod gather;
pub mod judge;
pub mod meeting;
pub mod memory;
pub mod owner;
pub mod record;
pub mod serve;
pub mod settings;
pub mod site;
pub mod source;
pub mod tls;
