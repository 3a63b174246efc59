//! Energy of the processors, from `powercap`: counters of a short range, made endless.

use std::path::{Path, PathBuf};

use gaunt_schema::{Absent, Device, Reading, Report, catalogue::hardware};

use crate::{
    collector::{CollectError, Collector, Outcome, absence},
    files::{Attribute, names, read_once},
};

/// The kernel counts in microjoules.
const MICROJOULES: f64 = 1e6;

/// The most domains that are read: a processor has its cores, its memory and itself.
const MAX_DOMAINS: usize = 64;

/// Reads `SYS/class/powercap/*/energy_uj`.
pub(in crate::collector) struct Energy {
    folder: PathBuf,
    names: Vec<String>,
    domains: Vec<Domain>,
    buffer: Vec<u8>,
}

/// One counter of energy.
struct Domain {
    name: String,
    device: Device,
    label: String,
    file: Attribute,
    counter: Counter,
}

/// Where the hardware's counter begins anew, what it showed last, and what was counted before it last began anew.
#[derive(Debug, Default)]
struct Counter {
    range: u64,
    last: Option<u64>,
    passed: u64,
}

impl Energy {
    pub(in crate::collector) fn new(sys_root: &Path) -> Self {
        Self {
            folder: sys_root.join("class/powercap"),
            names: Vec::new(),
            domains: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Looks for domains when the folder names others than before; those that stay go on counting.
    fn discover(&mut self) {
        let found = names(&self.folder).unwrap_or_default();
        if found == self.names {
            return;
        }
        self.domains.retain(|domain| found.contains(&domain.name));
        for name in found.iter().take(MAX_DOMAINS) {
            let folder = self.folder.join(name);
            let range = read_once(&folder.join("max_energy_range_uj"));
            let Some(range) = range.and_then(|range| range.parse().ok()) else { continue };
            if self.domains.iter().any(|domain| domain.name == *name) {
                continue;
            }
            self.domains.push(Domain {
                name: name.clone(),
                device: Device::sensor("rapl", name),
                label: read_once(&folder.join("name")).unwrap_or_default(),
                file: Attribute::new(folder.join("energy_uj"), true),
                counter: Counter { range, ..Counter::default() },
            });
        }
        self.names = found;
    }
}

impl Counter {
    /// What was counted since the beginning, when the hardware shows `now`.
    fn total(&mut self, now: u64) -> u64 {
        if self.last.is_some_and(|last| now < last) {
            self.passed += self.range;
        }
        self.last = Some(now);
        self.passed + now
    }
}

impl Collector for Energy {
    fn name(&self) -> &'static str {
        "energy"
    }

    fn collect(&mut self, report: &mut Report) -> Result<Outcome, CollectError> {
        self.discover();
        for domain in &mut self.domains {
            let device = report.device(domain.device.clone());
            report.info(device, hardware::SENSOR_INFO, &[("label", &domain.label)]);
            let reading = match domain.file.read(&mut self.buffer).map(str::parse) {
                Ok(Ok(now)) => Reading::of(domain.counter.total(now) as f64 / MICROJOULES),
                Ok(Err(_)) => Absent::Error.into(),
                // Only root may read it on most hosts: a fine enough clock of power tells secrets.
                Err(error) => absence(&error).into(),
            };
            report.push(device, hardware::SENSOR_ENERGY, reading);
        }
        if self.domains.is_empty() {
            return Ok(Outcome::Nothing("the processors count no energy".to_owned()));
        }
        Ok(Outcome::Found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_begins_anew_goes_on() {
        let mut counter = Counter { range: 1000, ..Counter::default() };
        let shown = [900, 990, 10, 20, 5];
        assert_eq!(shown.map(|now| counter.total(now)), [900, 990, 1010, 1020, 2005]);
    }
}
