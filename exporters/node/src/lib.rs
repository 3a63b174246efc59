//! gaunt-node: what one node knows about itself, sampled every tick and served as a page.
//!
//! A [`NodeSampler`] runs the collectors on its own thread and publishes a report each tick. NVML lives in a worker
//! process (`nvml::nvml_worker`), so that a driver that hangs costs a few values and never a page.

mod collector;
pub mod connection_admission;
mod device_exclusions;
mod ethtool;
pub mod exporter_service;
pub mod host_check;
mod kernel_files;
mod kubelet;
mod metrics_page;
pub mod metrics_server;
pub mod negotiation;
mod node_sampler;
mod nvml;
mod pci_location;
mod reading_source;
mod sampler_options;
pub mod server_connection;
mod tick_frames;
mod wall_clock;
pub mod watchdog;

pub use metrics_page::MetricsPage;
pub use node_sampler::NodeSampler;
pub use nvml::nvml_worker;
pub use reading_source::{ReadingSource, UnknownSource};
pub use sampler_options::{ProbeSchedule, SamplerOptions};
