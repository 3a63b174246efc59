//! Pressure stall information (PSI): how long tasks waited for a CPU, for IO, for memory.

use std::{io, path::Path};

use gaunt_schema::{AbsenceReason, Device, MetricId, Reading, Report, catalogue::host};

use super::{CollectError, CollectOutcome, Collector, absent_reason};
use crate::kernel_files::KernelFile;

/// File, line and metric.
const LINES: [(&str, &str, MetricId); 6] = [
    ("cpu", "some", host::CPU_PRESSURE),
    ("cpu", "full", host::CPU_PRESSURE_FULL),
    ("io", "some", host::IO_PRESSURE),
    ("io", "full", host::IO_PRESSURE_FULL),
    ("memory", "some", host::MEMORY_PRESSURE),
    ("memory", "full", host::MEMORY_PRESSURE_FULL),
];

/// Reads `PROC/pressure/*`.
pub(super) struct PressureCollector {
    files: Vec<(&'static str, KernelFile)>,
    buffer: Vec<u8>,
}

impl PressureCollector {
    pub(super) fn new(proc_root: &Path) -> Self {
        let folder = proc_root.join("pressure");
        let file = |name: &'static str| (name, KernelFile::new(folder.join(name), true));
        Self { files: ["cpu", "io", "memory"].map(file).into(), buffer: Vec::new() }
    }
}

impl Collector for PressureCollector {
    fn name(&self) -> &'static str {
        "pressure"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        let node = report.ensure_device(Device::new_node());
        let mut missing = 0;
        for (name, file) in &mut self.files {
            let text = file.read_text(&mut self.buffer);
            // Without the file the kernel has no such pressure; if compiled in but disabled, it returns "not
            // supported".
            if let Err(error) = &text
                && matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Unsupported)
            {
                missing += 1;
            }
            for (_, line, metric) in LINES.iter().filter(|(resource, ..)| resource == name) {
                let reading = match &text {
                    Ok(text) => parse_total(text, line),
                    Err(error) => absent_reason(error).into(),
                };
                report.push(node, *metric, reading);
            }
        }
        if missing == self.files.len() {
            let why = "the kernel has no pressure stall information (PSI); boot it with psi=1";
            return Ok(CollectOutcome::Nothing(why.to_owned()));
        }
        Ok(CollectOutcome::Found)
    }
}

/// The total of a line such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=11424932`, from microseconds.
fn parse_total(text: &str, line: &str) -> Reading {
    let Some(line) = text.lines().find(|candidate| candidate.starts_with(line)) else {
        // Every kernel with such pressure has a line of some tasks; one of all tasks came later for CPUs.
        let is_known = text.starts_with("some");
        return if is_known { AbsenceReason::Unsupported } else { AbsenceReason::Error }.into();
    };
    let total = line.split_ascii_whitespace().find_map(|field| field.strip_prefix("total="));
    let micros: Option<u64> = total.and_then(|total| total.parse().ok());
    micros.map_or(AbsenceReason::Error.into(), |micros| Reading::of(micros as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_total_is_seconds_or_absent_with_reason() {
        let text = "some avg10=0.74 avg60=0.56 avg300=0.64 total=11424932\nfull total=x";
        assert_eq!(parse_total(text, "some"), Reading::of(11.424_932));
        assert_eq!(parse_total(text, "full"), AbsenceReason::Error.into());
        assert_eq!(parse_total("some total=1", "full"), AbsenceReason::Unsupported.into());
        assert_eq!(parse_total("garbage", "full"), AbsenceReason::Error.into());
    }
}
