//! Disks of the node, from `diskstats`: traffic, times, and requests in flight.

use std::{io, path::PathBuf};

use gaunt_schema::{Device, MetricId, Report, catalogue::hardware};

use super::{CollectError, CollectOutcome, Collector};
use crate::{
    SamplerOptions,
    device_exclusions::DeviceExclusions,
    kernel_files::{KernelFile, list_names},
};

/// The kernel counts in sectors of 512 bytes, whatever the disk's own are: sectors per byte.
const SECTORS: f64 = 1.0 / 512.0;

/// The kernel counts times in milliseconds.
const MILLISECONDS: f64 = 1e3;

/// The most disks that are reported: storage servers have a hundred.
const MAX_DISKS: usize = 128;

/// Devices backed by files or memory: their traffic is counted elsewhere.
const UNREAL: [&str; 4] = ["loop", "ram", "zram", "sr"];

/// Field after the name, metric, and how many of the field's units make one of ours.
const FIELDS: [(usize, MetricId, f64); 8] = [
    (0, hardware::DISK_READS, 1.0),
    (2, hardware::DISK_READ_BYTES, SECTORS),
    (3, hardware::DISK_READ_TIME, MILLISECONDS),
    (4, hardware::DISK_WRITES, 1.0),
    (6, hardware::DISK_WRITE_BYTES, SECTORS),
    (7, hardware::DISK_WRITE_TIME, MILLISECONDS),
    (8, hardware::DISK_IN_FLIGHT, 1.0),
    (9, hardware::DISK_BUSY, MILLISECONDS),
];

/// Reads `PROC/diskstats`, of the disks in `SYS/block`.
pub(super) struct DiskCollector {
    file: KernelFile,
    folder: PathBuf,
    exclude: DeviceExclusions,
    buffer: Vec<u8>,
}

impl DiskCollector {
    pub(super) fn new(options: &SamplerOptions) -> Self {
        Self {
            file: KernelFile::new(options.proc_root.join("diskstats"), true),
            folder: options.sys_root.join("block"),
            exclude: DeviceExclusions::new(&options.exclude),
            buffer: Vec::new(),
        }
    }
}

impl Collector for DiskCollector {
    fn name(&self) -> &'static str {
        "disks"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        let path = self.file.path().to_path_buf();
        let text = match self.file.read_text(&mut self.buffer) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => "",
            Err(source) => return Err(CollectError::Read { path, source }),
        };
        // The file also lists partitions, whose traffic is included in that of their disks.
        let disk_names = list_names(&self.folder).unwrap_or_default();
        if !text.is_empty() && text.lines().find_map(parse).is_none() {
            return Err(CollectError::Malformed { path, what: "no line of a disk" });
        }
        let mut disks = 0;
        for (name, fields) in text.lines().filter_map(parse) {
            let is_unreal = UNREAL.iter().any(|kind| {
                name.strip_prefix(kind).is_some_and(|rest| rest.parse::<u32>().is_ok())
            });
            let is_disk = disk_names.iter().any(|disk| disk == name) && !is_unreal;
            if !is_disk || self.exclude.is_excluded(name) || disks == MAX_DISKS {
                continue;
            }
            disks += 1;
            let device = report.ensure_device(Device::new_disk(name));
            for (index, metric, divisor) in FIELDS {
                report.push(device, metric, fields[index] as f64 / divisor);
            }
        }
        if disks == 0 {
            return Ok(CollectOutcome::Nothing("no disk except loop and RAM devices".to_owned()));
        }
        Ok(CollectOutcome::Found)
    }
}

/// The name and the numbers of a line such as `259 0 nvme0n1 47114 4 4643973 21650 1078320 43950 39451633 …`.
fn parse(line: &str) -> Option<(&str, [u64; 10])> {
    let mut columns = line.split_ascii_whitespace().skip(2);
    let name = columns.next()?;
    let mut fields = [0; 10];
    for field in &mut fields {
        *field = columns.next()?.parse().ok()?;
    }
    Some((name, fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_line_needs_name_and_ten_numbers() {
        let line = " 259 0 nvme0n1 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17";
        assert_eq!(parse(line), Some(("nvme0n1", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])));
        for garbage in ["", "259 0 nvme0n1", "259 0 nvme0n1 1 2 3 4 5 6 7 8 -9 10"] {
            assert_eq!(parse(garbage), None, "{garbage}");
        }
    }
}
