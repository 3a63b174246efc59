//! Memory of the node, from `meminfo`.

use std::path::Path;

use gaunt_schema::{Absent, Device, MetricId, Reading, Report, catalogue::host};

use super::{CollectError, Collector, Outcome};
use crate::files::Attribute;

/// Which field is which metric.
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

/// Reads `PROC/meminfo`, and of `PROC/vmstat` how often memory ran out.
pub(super) struct Memory {
    file: Attribute,
    events: Attribute,
    buffer: Vec<u8>,
}

impl Memory {
    pub(super) fn new(proc_root: &Path) -> Self {
        let file = |name| Attribute::new(proc_root.join(name), true);
        Self { file: file("meminfo"), events: file("vmstat"), buffer: Vec::new() }
    }
}

impl Collector for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn collect(&mut self, report: &mut Report) -> Result<Outcome, CollectError> {
        let path = self.file.path().to_path_buf();
        let text = match self.file.read(&mut self.buffer) {
            Ok(text) => text,
            Err(source) => return Err(CollectError::Read { path, source }),
        };
        let node = report.device(Device::node());
        for (name, metric) in FIELDS {
            report.push(node, metric, field(text, name));
        }
        if let Ok(text) = self.events.read(&mut self.buffer) {
            let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
            if let Some(kills) = kills.and_then(|kills| kills.trim().parse::<u64>().ok()) {
                report.push(node, host::OOM_KILLS, kills as f64);
            }
        }
        Ok(Outcome::Found)
    }
}

/// A field in bytes. Kernels before 3.14 have no `MemAvailable`.
fn field(text: &str, name: &str) -> Reading {
    let Some(rest) = text.lines().find_map(|line| line.strip_prefix(name)) else {
        return Absent::Unsupported.into();
    };
    let kibibytes = rest.trim().strip_suffix("kB").and_then(|number| number.trim().parse().ok());
    kibibytes.map_or(Absent::Error.into(), |count: u64| Reading::of((count * 1024) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_bytes_or_says_why_not() {
        let text = "MemTotal:       24675328 kB\nMemFree: none\n";
        assert_eq!(field(text, "MemTotal:"), Reading::of(25_267_535_872.0));
        assert_eq!(field(text, "MemAvailable:"), Absent::Unsupported.into());
        assert_eq!(field(text, "MemFree:"), Absent::Error.into());
    }
}
