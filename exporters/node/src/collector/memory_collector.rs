//! Memory of the node, from `meminfo`.

use std::path::Path;

use gaunt_schema::{AbsenceReason, Device, MetricId, Reading, Report, catalogue::host};

use super::{CollectError, CollectOutcome, Collector};
use crate::kernel_files::KernelFile;

/// Each field with its metric.
const FIELDS: [(&str, MetricId); 10] = [
    ("MemTotal:", host::MEMORY_TOTAL),
    ("MemAvailable:", host::MEMORY_AVAILABLE),
    ("MemFree:", host::MEMORY_FREE),
    ("Cached:", host::MEMORY_CACHED),
    ("Buffers:", host::MEMORY_BUFFERS),
    ("Dirty:", host::MEMORY_DIRTY),
    ("Writeback:", host::MEMORY_WRITEBACK),
    ("Shmem:", host::MEMORY_SHARED),
    ("SwapTotal:", host::SWAP_TOTAL),
    ("SwapFree:", host::SWAP_FREE),
];

/// Reads `PROC/meminfo`, and the OOM count of `PROC/vmstat`.
pub(super) struct MemoryCollector {
    file: KernelFile,
    events: KernelFile,
    buffer: Vec<u8>,
}

impl MemoryCollector {
    pub(super) fn new(proc_root: &Path) -> Self {
        let file = |name| KernelFile::new(proc_root.join(name), true);
        Self { file: file("meminfo"), events: file("vmstat"), buffer: Vec::new() }
    }
}

impl Collector for MemoryCollector {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        let path = self.file.path().to_path_buf();
        let text = match self.file.read_text(&mut self.buffer) {
            Ok(text) => text,
            Err(source) => return Err(CollectError::Read { path, source }),
        };
        if parse_field(text, "MemTotal:").value().is_none() {
            return Err(CollectError::Malformed { path, what: "no MemTotal in kB" });
        }
        let node = report.ensure_device(Device::new_node());
        for (name, metric) in FIELDS {
            report.push(node, metric, parse_field(text, name));
        }
        if let Ok(text) = self.events.read_text(&mut self.buffer) {
            let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
            if let Some(kills) = kills.and_then(|kills| kills.trim().parse::<u64>().ok()) {
                report.push(node, host::OOM_KILLS, kills as f64);
            }
        }
        Ok(CollectOutcome::Found)
    }
}

/// A field in bytes. Kernels before 3.14 have no `MemAvailable`.
fn parse_field(text: &str, name: &str) -> Reading {
    let Some(rest) = text.lines().find_map(|line| line.strip_prefix(name)) else {
        return AbsenceReason::Unsupported.into();
    };
    let kibibytes = rest.trim().strip_suffix("kB").and_then(|number| number.trim().parse().ok());
    kibibytes.map_or(AbsenceReason::Error.into(), |count: u64| Reading::of((count * 1024) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_field_is_bytes_or_absent_with_reason() {
        let text = "MemTotal:       24675328 kB\nMemFree: none\n";
        assert_eq!(parse_field(text, "MemTotal:"), Reading::of(25_267_535_872.0));
        assert_eq!(parse_field(text, "MemAvailable:"), AbsenceReason::Unsupported.into());
        assert_eq!(parse_field(text, "MemFree:"), AbsenceReason::Error.into());
    }
}
