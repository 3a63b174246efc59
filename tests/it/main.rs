//! The integration tests: gaunt's programs, run as a user runs them.

mod binaries;
mod commands;
mod console;
mod fake_driver;
mod fleet;
mod node;
mod node_host;
mod node_network;
mod prometheus;
mod sim;
mod walls;
