//! Memory of the node, from `meminfo`.

use std::path::Path;

use gaunt_schema::{Absent, Device, Reading, Report, catalogue::host};

use super::{CollectError, Collector, Outcome};
use crate::files::Attribute;

/// Reads `PROC/meminfo`.
pub(super) struct Memory {
    file: Attribute,
    buffer: Vec<u8>,
}

impl Memory {
    pub(super) fn new(proc_root: &Path) -> Self {
        Self { file: Attribute::new(proc_root.join("meminfo"), true), buffer: Vec::new() }
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
        report.push(node, host::MEMORY_TOTAL, field(text, "MemTotal:"));
        report.push(node, host::MEMORY_AVAILABLE, field(text, "MemAvailable:"));
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
