//! Mounted network file systems: the traffic and the latency of NFS and Lustre clients.

use std::{io, path::PathBuf};

use gaunt_schema::{Device, Report, catalogue::hardware};

use super::{CollectError, CollectOutcome, Collector};
use crate::{
    SamplerOptions,
    kernel_files::{KernelFile, list_names, read_once},
};

mod lustre_mounts;
mod nfs_mounts;

/// The most mounts that are reported: container hosts repeat theirs for each container.
const MAX_MOUNTS: usize = 64;

/// The counts of one mounted file system, as far as its client reports them.
#[derive(Clone, Debug, Default, PartialEq)]
struct MountCounts {
    read_bytes: Option<f64>,
    write_bytes: Option<f64>,
    reads: Option<f64>,
    writes: Option<f64>,
    read_seconds: Option<f64>,
    write_seconds: Option<f64>,
    metadata: Option<f64>,
    metadata_seconds: Option<f64>,
    retransmits: Option<f64>,
    timeouts: Option<f64>,
}

/// One mounted file system.
#[derive(Clone, Debug, PartialEq)]
struct MountedFileSystem {
    name: String,
    kind: String,
    source: String,
    counts: MountCounts,
}

/// Reads `PROC/self/mountstats`, and the statistics of Lustre where they are readable.
pub(super) struct MountCollector {
    nfs: KernelFile,
    lustre: [PathBuf; 2],
    buffer: Vec<u8>,
}

impl MountCollector {
    pub(super) fn new(options: &SamplerOptions) -> Self {
        Self {
            nfs: KernelFile::new(options.proc_root.join("self/mountstats"), true),
            // Newer clients have them in debugfs, which only root can read.
            lustre: [
                options.proc_root.join("fs/lustre/llite"),
                options.sys_root.join("kernel/debug/lustre/llite"),
            ],
            buffer: Vec::new(),
        }
    }

    fn find_mounts(&mut self) -> io::Result<Vec<MountedFileSystem>> {
        let mut file_systems = match self.nfs.read_text(&mut self.buffer) {
            Ok(text) => nfs_mounts::parse(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        for folder in &self.lustre {
            for name in list_names(folder).unwrap_or_default() {
                if let Some(text) = read_once(&folder.join(&name).join("stats")) {
                    file_systems.push(lustre_mounts::parse(&name, &text));
                }
            }
        }
        file_systems.truncate(MAX_MOUNTS);
        Ok(file_systems)
    }
}

impl Collector for MountCollector {
    fn name(&self) -> &'static str {
        "mounts"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        let file_systems = self.find_mounts().map_err(|source| {
            let path = self.nfs.path().to_path_buf();
            CollectError::Read { path, source }
        })?;
        for mount in &file_systems {
            let device = report.ensure_device(Device::new_mount(&mount.name));
            let labels = [("kind", mount.kind.as_str()), ("source", mount.source.as_str())];
            report.add_info(device, hardware::MOUNT_INFO, &labels);
            let counts = &mount.counts;
            for (metric, count) in [
                (hardware::MOUNT_READ_BYTES, counts.read_bytes),
                (hardware::MOUNT_WRITE_BYTES, counts.write_bytes),
                (hardware::MOUNT_READS, counts.reads),
                (hardware::MOUNT_WRITES, counts.writes),
                (hardware::MOUNT_READ_TIME, counts.read_seconds),
                (hardware::MOUNT_WRITE_TIME, counts.write_seconds),
                (hardware::MOUNT_METADATA_OPERATIONS, counts.metadata),
                (hardware::MOUNT_METADATA_TIME, counts.metadata_seconds),
                (hardware::MOUNT_RETRANSMITS, counts.retransmits),
                (hardware::MOUNT_TIMEOUTS, counts.timeouts),
            ] {
                if let Some(count) = count {
                    report.push(device, metric, count);
                }
            }
        }
        if file_systems.is_empty() {
            return Ok(CollectOutcome::Nothing(
                "no NFS or Lustre file system is mounted".to_owned(),
            ));
        }
        Ok(CollectOutcome::Found)
    }
}
