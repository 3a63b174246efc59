//! Ports of RDMA devices, from `class/infiniband`: state, rate, traffic, errors, congestion.

use std::{
    io,
    path::{Path, PathBuf},
};

use gaunt_schema::{Absent, Device, MetricId, Reading, Report, catalogue::port};

use super::{CollectError, Collector, Outcome, absence};
use crate::files::{Attribute, names, read_once};

mod counters;

use counters::{COUNTERS, Counter};

/// The most ports that are reported: twice the largest host with one port per GPU and both ports of each card in use.
const MAX_PORTS: usize = 64;

/// How many ports keep their files open: 16 ports of at most 34 files are 544 of the usual 1,024 descriptors.
const KEPT_PORTS: usize = 16;

/// After this many ticks the devices are looked at again: firmware and network device may have changed.
const TICKS_BETWEEN_LOOKS: u32 = 60;

/// Reads `SYS/class/infiniband/*/ports/*`.
pub(super) struct Ports {
    folder: PathBuf,
    names: Vec<String>,
    found: Vec<Port>,
    ticks_to_look: u32,
    buffer: Vec<u8>,
}

/// One port and its files.
struct Port {
    device: Device,
    /// Labels of its info series.
    labels: Vec<(&'static str, String)>,
    state: Attribute,
    physical_state: Attribute,
    rate: Attribute,
    counters: Vec<(Attribute, &'static Counter)>,
}

impl Ports {
    pub(super) fn new(sys_root: &Path) -> Self {
        Self {
            folder: sys_root.join("class/infiniband"),
            names: Vec::new(),
            found: Vec::new(),
            ticks_to_look: 0,
            buffer: Vec::new(),
        }
    }

    /// Looks for ports when the folder names other devices than before, and now and then.
    fn discover(&mut self) -> io::Result<()> {
        let devices = match names(&self.folder) {
            Ok(devices) => devices,
            // Without an RDMA driver the folder is not there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        if devices == self.names && self.ticks_to_look > 0 {
            self.ticks_to_look -= 1;
            return Ok(());
        }
        self.found.clear();
        for name in &devices {
            let folder = self.folder.join(name);
            let numbers = names(&folder.join("ports")).unwrap_or_default();
            for number in numbers.iter().take(MAX_PORTS - self.found.len()) {
                let keep = self.found.len() < KEPT_PORTS;
                self.found.push(Port::new(&folder, name, number, keep));
            }
        }
        self.names = devices;
        self.ticks_to_look = TICKS_BETWEEN_LOOKS;
        Ok(())
    }
}

impl Port {
    fn new(device_folder: &Path, name: &str, number: &str, keep: bool) -> Self {
        let folder = device_folder.join("ports").join(number);
        let labels = [
            ("netdev", netdev(device_folder, number)),
            ("link_layer", read_once(&folder.join("link_layer"))),
            ("firmware", read_once(&device_folder.join("fw_ver"))),
            ("hca_type", read_once(&device_folder.join("hca_type"))),
        ];
        let mut counters: Vec<(Attribute, &'static Counter)> = Vec::new();
        for counter in COUNTERS {
            let path = folder.join(counter.file);
            // A counter that this driver does not have is no series; of two sources the first one stands.
            let known = counters.iter().any(|(_, known)| known.metric == counter.metric);
            if !known && path.exists() {
                counters.push((Attribute::new(path, keep), counter));
            }
        }
        let file = |name| Attribute::new(folder.join(name), keep);
        Self {
            device: Device::port(name, number),
            labels: labels.into_iter().filter_map(|(label, text)| Some((label, text?))).collect(),
            state: file("state"),
            physical_state: file("phys_state"),
            rate: file("rate"),
            counters,
        }
    }

    /// Adds what the port says now to the report.
    fn collect(&mut self, buffer: &mut Vec<u8>, report: &mut Report) {
        let device = report.device(self.device.clone());
        let labels: Vec<_> = self.labels.iter().map(|(name, text)| (*name, &**text)).collect();
        report.info(device, port::INFO, &labels);
        let mut push = |file: &mut Attribute, metric: MetricId, read: &dyn Fn(&str) -> Reading| {
            let reading = match file.read(buffer) {
                Ok(text) => read(text),
                Err(error) => absence(&error).into(),
            };
            report.push(device, metric, reading);
        };
        push(&mut self.state, port::STATE, &state);
        push(&mut self.physical_state, port::PHYSICAL_STATE, &state);
        push(&mut self.rate, port::RATE, &rate);
        for (file, counter) in &mut self.counters {
            push(file, counter.metric, &|text| counter.reading(text));
        }
    }
}

impl Collector for Ports {
    fn name(&self) -> &'static str {
        "ports"
    }

    fn collect(&mut self, report: &mut Report) -> Result<Outcome, CollectError> {
        if let Err(source) = self.discover() {
            return Err(CollectError::Read { path: self.folder.clone(), source });
        }
        for port in &mut self.found {
            port.collect(&mut self.buffer, report);
        }
        if self.found.is_empty() {
            let why = format!("no RDMA device in {}", self.folder.display());
            return Ok(Outcome::Nothing(why));
        }
        Ok(Outcome::Found)
    }
}

/// The network device of a port: the one that says it is this port's, or the only one there is.
fn netdev(device_folder: &Path, number: &str) -> Option<String> {
    let folder = device_folder.join("device/net");
    let mut found = names(&folder).ok()?;
    let wanted = number.parse::<u32>().ok()?.checked_sub(1)?.to_string();
    let own = |name: &&String| {
        read_once(&folder.join(name).join("dev_port")).is_some_and(|port| port == wanted)
    };
    match found.iter().find(own) {
        Some(name) => Some(name.clone()),
        None if found.len() == 1 => found.pop(),
        None => None,
    }
}

/// The number of a state such as `4: ACTIVE`.
fn state(text: &str) -> Reading {
    let number = text.split(':').next().unwrap_or(text).trim();
    number.parse().map_or(Absent::Error.into(), |id: u32| Reading::of(f64::from(id)))
}

/// Bytes per second of a rate such as `400 Gb/sec (4X NDR)`.
fn rate(text: &str) -> Reading {
    let number = text.split_once(" Gb/sec").and_then(|(number, _)| number.parse::<f64>().ok());
    match number {
        Some(gigabits) if gigabits.is_finite() && gigabits >= 0.0 => {
            Reading::of(gigabits * 1e9 / 8.0)
        }
        _ => Absent::Error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bytes_per_second() {
        assert_eq!(rate("400 Gb/sec (4X NDR)"), Reading::of(5e10));
        assert_eq!(rate("2.5 Gb/sec (1X SDR)"), Reading::of(312_500_000.0));
        for garbage in ["", "fast", "400 Mb/sec", "-1 Gb/sec", "nan Gb/sec"] {
            assert_eq!(rate(garbage), Absent::Error.into(), "{garbage}");
        }
    }

    #[test]
    fn states_are_their_numbers() {
        assert_eq!(state("4: ACTIVE"), Reading::of(4.0));
        assert_eq!(state("5: LinkUp"), Reading::of(5.0));
        assert_eq!(state("ACTIVE"), Absent::Error.into());
    }
}
