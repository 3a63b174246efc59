//! Energy of the CPUs, from `powercap`: counters of a short range, extended to 64 bits.

use std::path::{Path, PathBuf};

use gaunt_schema::{AbsenceReason, Device, Reading, Report, catalogue::hardware};

use crate::{
    collector::{CollectError, CollectOutcome, Collector, absent_reason},
    kernel_files::{KernelFile, list_names, read_once},
};

/// The kernel counts in microjoules.
const MICROJOULES: f64 = 1e6;

/// The most domains that are read: a CPU package has its cores, its memory and itself.
const MAX_DOMAINS: usize = 64;

/// Reads `SYS/class/powercap/*/energy_uj`.
pub(in crate::collector) struct EnergyCollector {
    folder: PathBuf,
    names: Vec<String>,
    domains: Vec<EnergyDomain>,
    buffer: Vec<u8>,
}

/// One energy counter.
struct EnergyDomain {
    name: String,
    device: Device,
    label: String,
    file: KernelFile,
    counter: EnergyCounter,
}

/// The maximum of the hardware counter, its last value, and the sum before its last wrap.
#[derive(Debug, Default)]
struct EnergyCounter {
    range: u64,
    last: Option<u64>,
    passed: u64,
}

impl EnergyCollector {
    pub(in crate::collector) fn new(sys_root: &Path) -> Self {
        Self {
            folder: sys_root.join("class/powercap"),
            names: Vec::new(),
            domains: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Discovers domains when the folder's list changed; existing ones keep their sums.
    fn discover_domains(&mut self) {
        let names = list_names(&self.folder).unwrap_or_default();
        if names == self.names {
            return;
        }
        self.domains.retain(|domain| names.contains(&domain.name));
        for name in names.iter().take(MAX_DOMAINS) {
            let folder = self.folder.join(name);
            let range = read_once(&folder.join("max_energy_range_uj"));
            let Some(range) = range.and_then(|range| range.parse().ok()) else { continue };
            if self.domains.iter().any(|domain| domain.name == *name) {
                continue;
            }
            self.domains.push(EnergyDomain {
                name: name.clone(),
                device: Device::new_sensor("rapl", name),
                label: read_once(&folder.join("name")).unwrap_or_default(),
                file: KernelFile::new(folder.join("energy_uj"), true),
                counter: EnergyCounter { range, ..EnergyCounter::default() },
            });
        }
        self.names = names;
    }
}

impl EnergyCounter {
    /// The total since the start when the hardware shows `now`.
    fn update_total(&mut self, now: u64) -> u64 {
        if self.last.is_some_and(|last| now < last) {
            self.passed += self.range;
        }
        self.last = Some(now);
        self.passed + now
    }
}

impl Collector for EnergyCollector {
    fn name(&self) -> &'static str {
        "energy"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        self.discover_domains();
        for domain in &mut self.domains {
            let device = report.ensure_device(domain.device.clone());
            report.add_info(device, hardware::SENSOR_INFO, &[("label", &domain.label)]);
            let reading = match domain.file.read_text(&mut self.buffer).map(str::parse) {
                Ok(Ok(now)) => Reading::of(domain.counter.update_total(now) as f64 / MICROJOULES),
                Ok(Err(_)) => AbsenceReason::Error.into(),
                // Only root may read it on most hosts, because fine-grained power is a side channel.
                Err(error) => absent_reason(&error).into(),
            };
            report.push(device, hardware::SENSOR_ENERGY, reading);
        }
        if self.domains.is_empty() {
            return Ok(CollectOutcome::Nothing("no CPU energy counter (RAPL)".to_owned()));
        }
        Ok(CollectOutcome::Found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_counter_wrap_continues_the_sum() {
        let mut counter = EnergyCounter { range: 1000, ..EnergyCounter::default() };
        let shown = [900, 990, 10, 20, 5];
        assert_eq!(shown.map(|now| counter.update_total(now)), [900, 990, 1010, 1020, 2005]);
    }
}
