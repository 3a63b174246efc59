//! The integration tests: gaunt's programs, run as a user runs them.

mod api;
mod api_guard;
mod api_stream;
mod binaries;
mod commands;
mod console;
mod fake_driver;
mod fleet;
mod gpu;
mod gpu_faults;
mod judge;
mod kubelet;
mod node;
mod node_host;
mod node_network;
mod node_page;
mod node_unit;
mod prometheus;
mod real_gpu;
mod running;
mod sim;
mod snapshot;
mod walls;
