//! gaunt-node: samples the metrics of one node every tick and serves them as a page.
//!
//! A [`NodeSampler`] runs the collectors on its own thread and publishes a report each tick. NVML runs in a worker
//! process (`nvml::nvml_worker`), so that a hanging driver costs a few values and never a page.

mod collector;
pub mod connection_admission;
mod device_exclusions;
mod ethtool;
pub mod exporter_service;
pub mod exporter_settings;
pub mod host_check;
mod kernel_files;
mod kubelet;
mod local_addresses;
mod metrics_page;
pub mod metrics_server;
pub mod negotiation;
mod node_arguments;
pub mod node_doctor;
mod node_sampler;
mod nvml;
mod pci_location;
pub mod peer_rate;
mod process_gpus;
mod ras_monitor;
mod reading_source;
pub mod ready_notice;
mod sampler_options;
pub mod server_connection;
pub mod server_stream;
mod setting_values;
pub mod thread_read;
mod tick_frames;
pub mod toml_faults;
mod wall_clock;
pub mod watchdog;
pub mod web_access;

pub use metrics_page::MetricsPage;
pub use node_arguments::{NodeArguments, NodeCommand, NodeDoctorArguments, NodeDoctorFormat};
pub use node_sampler::NodeSampler;
pub use nvml::nvml_worker;
pub use reading_source::{ReadingSource, UnknownSource};
pub use sampler_options::{ProbeSchedule, SamplerOptions};
pub use setting_values::CompatExporter;
