//! gaunt-node: what one node knows about itself, sampled every tick and served as a page.
//!
//! A [`Sampler`] runs the collectors on its own thread and publishes a report each tick. NVML lives in a worker
//! process ([`worker`]), so that a driver that hangs costs a few values and never a page.

pub mod admission;
mod clock;
mod collector;
pub mod connection;
mod ethtool;
mod exclude;
mod files;
mod frames;
pub mod host_check;
mod kubelet;
pub mod negotiation;
mod nvml;
mod options;
mod page;
mod pci;
mod sampler;
pub mod server;
pub mod service;
mod source;
pub mod watchdog;

pub use nvml::worker;
pub use options::{Options, Probe};
pub use page::Page;
pub use sampler::Sampler;
pub use source::{Source, UnknownSource};
