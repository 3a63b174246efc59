//! The sources that can be disabled: each collector, and the more expensive features of the driver.

use std::{fmt, str::FromStr};

use serde::Deserialize;

/// A source of readings that can be disabled. A disabled one is not read, and has no series on the page, not even that
/// of its collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub enum ReadingSource {
    /// CPU usage.
    Cpu,
    /// The node's memory.
    Memory,
    /// Pressure stall information.
    Pressure,
    /// The load average, and processes in uninterruptible sleep.
    Tasks,
    /// Block devices.
    Disks,
    /// Network file systems.
    Mounts,
    /// File systems on the node's own disks.
    Filesystems,
    /// Temperatures, fans and voltages.
    Sensors,
    /// Energy of the CPU packages.
    Energy,
    /// Network devices.
    Netdev,
    /// The drivers' own statistics of network devices.
    Ethernet,
    /// RDMA ports.
    Ports,
    /// AMD GPUs.
    Amd,
    /// The kubelet, which reports the names of pods that hold GPUs.
    Kubelet,
    /// NVIDIA GPUs; without this source there is no worker, and the driver is not called.
    Nvml,
    /// Activity from the GPUs' own counters.
    Gpm,
    /// Fast sampling: GPUs are sampled several times a period.
    FastSampling,
    /// XIDs, from both sources.
    Xid,
    /// The kernel log, the second source of XIDs.
    KernelLog,
    /// The IMEX daemon of a node in a multi-node NVLink domain.
    Imex,
    /// Processes on GPUs, and their owners; their number is still reported.
    Processes,
    /// Metrics files of other programs.
    Textfiles,
    /// The logs of NCCL's inspector, if their folder is set.
    Inspector,
    /// Probes of GPU interconnects, if they are enabled at all.
    Probe,
    /// NCCL's RAS service, if it is enabled at all.
    Ras,
}

/// The former name of [`ReadingSource::FastSampling`], still accepted.
const FORMER_FAST_SAMPLING: &str = "glances";

impl ReadingSource {
    /// Every source with its name, which is that of its collector on the page.
    pub const ALL: [(Self, &str); 25] = [
        (Self::Cpu, "cpu"),
        (Self::Memory, "memory"),
        (Self::Pressure, "pressure"),
        (Self::Tasks, "tasks"),
        (Self::Disks, "disks"),
        (Self::Mounts, "mounts"),
        (Self::Filesystems, "filesystems"),
        (Self::Sensors, "sensors"),
        (Self::Energy, "energy"),
        (Self::Netdev, "netdev"),
        (Self::Ethernet, "ethernet"),
        (Self::Ports, "ports"),
        (Self::Amd, "amd"),
        (Self::Kubelet, "kubelet"),
        (Self::Nvml, "nvml"),
        (Self::Gpm, "gpm"),
        (Self::FastSampling, "fast-sampling"),
        (Self::Xid, "xid"),
        (Self::KernelLog, "kernel_log"),
        (Self::Imex, "imex"),
        (Self::Processes, "processes"),
        (Self::Textfiles, "textfiles"),
        (Self::Inspector, "inspector"),
        (Self::Probe, "probe"),
        (Self::Ras, "ras"),
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
#[error("unknown collector {0:?}; must be one of {all}", all = ReadingSource::ALL.map(|(_, name)| name).join(", "))]
pub struct UnknownSource(String);

impl FromStr for ReadingSource {
    type Err = UnknownSource;

    fn from_str(text: &str) -> Result<Self, UnknownSource> {
        if text == FORMER_FAST_SAMPLING {
            return Ok(Self::FastSampling);
        }
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
    use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

    use tokio::sync::watch;

    use super::*;
    use crate::{SamplerOptions, node_sampler};

    /// The collectors' names where these sources are disabled.
    fn collector_names(disabled: BTreeSet<ReadingSource>) -> Vec<String> {
        let textfiles = Some(PathBuf::from("/nowhere"));
        let probe = Some(crate::sampler_options::ProbeSchedule::default());
        let collectors = node_sampler::enabled_collectors(
            &SamplerOptions {
                inspector_logs: textfiles.clone(),
                textfiles,
                probe,
                ras: Some(([127, 0, 0, 1], 9).into()),
                without: disabled,
                ..SamplerOptions::default()
            },
            watch::channel(0).1,
            watch::channel(Arc::default()).1,
        );
        collectors.iter().map(|collector| collector.name().to_owned()).collect()
    }

    #[test]
    fn collectors_can_be_disabled_one_by_one() {
        let all = collector_names(BTreeSet::new());
        for name in &all {
            let source: ReadingSource = name.parse().unwrap();
            let others: Vec<_> = all.iter().filter(|other| *other != name).cloned().collect();
            assert_eq!(collector_names([source].into()), others, "without {name}");
        }
        let sources = ReadingSource::ALL.map(|(source, _)| source);
        assert_eq!(collector_names(sources.into()), Vec::<String>::new());
    }

    #[test]
    fn source_names_are_unique() {
        let names: BTreeSet<_> = ReadingSource::ALL.map(|(source, _)| source.to_string()).into();
        assert_eq!(names.len(), ReadingSource::ALL.len());
        for (source, name) in ReadingSource::ALL {
            assert_eq!(name.parse::<ReadingSource>().unwrap(), source);
        }
        assert_eq!("glances".parse::<ReadingSource>().unwrap(), ReadingSource::FastSampling);
    }
}
