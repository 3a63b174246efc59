//! What can be switched off: each collector, and the parts of the driver's that cost more than the rest.

use std::{fmt, str::FromStr};

use serde::Deserialize;

/// A source of readings that can be switched off. What is off is not asked, and leaves no series on the page, not
/// even that of its collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub enum ReadingSource {
    /// How busy the processors are.
    Cpu,
    /// The node's memory.
    Memory,
    /// Pressure stall information.
    Pressure,
    /// The load, and processes that cannot be interrupted.
    Tasks,
    /// Block devices.
    Disks,
    /// Network file systems.
    Mounts,
    /// Temperatures, fans and voltages of the boards.
    Sensors,
    /// What the processors' packages use.
    Energy,
    /// Network devices.
    Netdev,
    /// The drivers' own statistics of network devices.
    Ethernet,
    /// RDMA ports.
    Ports,
    /// AMD GPUs.
    Amd,
    /// The kubelet, which knows the names of pods that hold GPUs.
    Kubelet,
    /// NVIDIA GPUs; without them there is no worker, and nothing of the driver's is read.
    Nvml,
    /// Activity from the GPUs' own counters.
    Gpm,
    /// Looks at GPUs several times a period.
    Glances,
    /// The driver's errors, from wherever they are told.
    Xid,
    /// The kernel's log, the second source of the driver's errors.
    KernelLog,
    /// Processes on GPUs, and whose they are; how many there are is still said.
    Processes,
    /// Files that are passed on.
    Textfiles,
    /// Probes of the wires between GPUs, if they are switched on at all.
    Probe,
}

impl ReadingSource {
    /// Every one with its name, as collectors are called on the page.
    pub const ALL: [(Self, &str); 21] = [
        (Self::Cpu, "cpu"),
        (Self::Memory, "memory"),
        (Self::Pressure, "pressure"),
        (Self::Tasks, "tasks"),
        (Self::Disks, "disks"),
        (Self::Mounts, "mounts"),
        (Self::Sensors, "sensors"),
        (Self::Energy, "energy"),
        (Self::Netdev, "netdev"),
        (Self::Ethernet, "ethernet"),
        (Self::Ports, "ports"),
        (Self::Amd, "amd"),
        (Self::Kubelet, "kubelet"),
        (Self::Nvml, "nvml"),
        (Self::Gpm, "gpm"),
        (Self::Glances, "glances"),
        (Self::Xid, "xid"),
        (Self::KernelLog, "kernel_log"),
        (Self::Processes, "processes"),
        (Self::Textfiles, "textfiles"),
        (Self::Probe, "probe"),
    ];
}

impl fmt::Display for ReadingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.iter().find(|(source, _)| source == self);
        f.write_str(named.map_or("", |(_, name)| name))
    }
}

/// A name that no source has.
#[derive(Debug, thiserror::Error)]
#[error("nothing is called {0:?}; it must be one of {all}", all = ReadingSource::ALL.map(|(_, name)| name).join(", "))]
pub struct UnknownSource(String);

impl FromStr for ReadingSource {
    type Err = UnknownSource;

    fn from_str(text: &str) -> Result<Self, UnknownSource> {
        let named = Self::ALL.iter().find(|(_, name)| *name == text);
        named.map(|(source, _)| *source).ok_or_else(|| UnknownSource(text.to_owned()))
    }
}

impl TryFrom<String> for ReadingSource {
    type Error = UnknownSource;

    fn try_from(text: String) -> Result<Self, UnknownSource> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::PathBuf};

    use super::*;
    use crate::{SamplerOptions, node_sampler};

    /// The collectors' names where these sources are switched off.
    fn collector_names(without: BTreeSet<ReadingSource>) -> Vec<String> {
        let textfiles = Some(PathBuf::from("/nowhere"));
        let probe = Some(crate::sampler_options::ProbeSchedule::default());
        let all = node_sampler::enabled_collectors(&SamplerOptions {
            textfiles,
            probe,
            without,
            ..SamplerOptions::default()
        });
        all.iter().map(|collector| collector.name().to_owned()).collect()
    }

    #[test]
    fn every_collector_can_be_switched_off_alone() {
        let all = collector_names(BTreeSet::new());
        for name in &all {
            let source: ReadingSource = name.parse().unwrap();
            let others: Vec<_> = all.iter().filter(|other| *other != name).cloned().collect();
            assert_eq!(collector_names([source].into()), others, "without {name}");
        }
        let every = ReadingSource::ALL.map(|(source, _)| source);
        assert_eq!(collector_names(every.into()), Vec::<String>::new());
    }

    #[test]
    fn every_source_has_a_name_of_its_own() {
        let names: BTreeSet<_> = ReadingSource::ALL.map(|(source, _)| source.to_string()).into();
        assert_eq!(names.len(), ReadingSource::ALL.len());
        for (source, name) in ReadingSource::ALL {
            assert_eq!(name.parse::<ReadingSource>().unwrap(), source);
        }
    }
}
