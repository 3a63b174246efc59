//! One RDMA device: its ports and their files.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use gaunt_schema::{AbsenceReason, Device, MetricId, Reading, Report, catalogue::port};

use super::port_counters::{COUNTERS, PortCounterFile};
use crate::{
    collector::{CollectError, CollectOutcome, Collector, absent_reason},
    kernel_files::{KernelFile, list_names, read_once},
    pci_location::{self, PciLocation, to_nvml_address},
};

/// After this many ticks the ports are discovered again: firmware and network device may have changed.
const TICKS_BETWEEN_LOOKS: u32 = 60;

/// How much of a card's VPD is read, in bytes: names and marks are at its beginning.
const MAX_PRODUCT_DATA: u64 = 4096;

/// VPD marks of cards that only NVIDIA's Fabric Manager may access: the cards between the NVSwitches of HGX B200 and
/// GB200. They refuse every counter read, with a line in the kernel log.
const MANAGED: [&[u8]; 2] = [b"SW_MNG", b"Umbriel"];

/// The file with the card's cache lifetime of its own counters, in milliseconds.
const LIFESPAN: &str = "hw_counters/lifespan";

/// The counters without which a port's traffic is unknown. Where a driver has no file of one, that is stated.
const TRAFFIC: [MetricId; 2] = [port::RECEIVE_BYTES, port::TRANSMIT_BYTES];

/// Reads `SYS/class/infiniband/DEVICE`.
pub(super) struct RdmaDeviceCollector {
    name: String,
    sys_root: PathBuf,
    folder: PathBuf,
    keep_open: bool,
    /// Whether the card is managed by the Fabric Manager, once checked.
    managed: Option<bool>,
    ports: Vec<RdmaPort>,
    ticks_to_look: u32,
    /// Counters that the card refused: another read would be refused again, and logged by the kernel.
    refused: BTreeSet<PathBuf>,
    buffer: Vec<u8>,
}

/// One port and its files.
struct RdmaPort {
    device: Device,
    /// Labels of its info series.
    labels: Vec<(&'static str, String)>,
    state: KernelFile,
    physical_state: KernelFile,
    rate: KernelFile,
    /// Present only for cards that cache their counters.
    lifespan: Option<KernelFile>,
    counters: Vec<(KernelFile, &'static PortCounterFile)>,
}

impl RdmaDeviceCollector {
    pub(super) fn new(sys_root: &Path, name: &str, keep_open: bool) -> Self {
        Self {
            name: name.to_owned(),
            sys_root: sys_root.to_path_buf(),
            folder: sys_root.join("class/infiniband").join(name),
            keep_open,
            managed: None,
            ports: Vec::new(),
            ticks_to_look: 0,
            refused: BTreeSet::new(),
            buffer: Vec::new(),
        }
    }

    /// Discovers ports periodically.
    fn discover_ports(&mut self) -> io::Result<()> {
        if self.ticks_to_look > 0 {
            self.ticks_to_look -= 1;
            return Ok(());
        }
        let numbers = list_names(&self.folder.join("ports"))?;
        let location = PciLocation::of(&self.folder.join("device"));
        let gpus = pci_location::list_gpus(&self.sys_root);
        let nearest = location.find_nearest(
            gpus.iter().map(|(address, location)| (to_nvml_address(address), location)),
        );
        let (gpu_addresses, proximity) = nearest.unzip();
        let function = if location.is_virtual { "virtual" } else { "physical" };
        let card_labels = [
            ("firmware", read_once(&self.folder.join("fw_ver"))),
            ("guid", read_once(&self.folder.join("node_guid")).and_then(|text| parse_guid(&text))),
            ("hca_type", read_once(&self.folder.join("hca_type"))),
            ("board", read_once(&self.folder.join("board_id"))),
            ("function", location.address.is_some().then(|| function.to_owned())),
            ("pci_bus_id", location.address.as_deref().map(to_nvml_address)),
            ("numa_node", location.numa),
            ("gpu_pci_bus_ids", gpu_addresses.map(|gpus| gpus.join(","))),
            ("gpus_by", proximity.map(|proximity| proximity.as_str().to_owned())),
        ];
        self.ports.clear();
        for (index, number) in numbers.iter().enumerate() {
            let mut port =
                RdmaPort::new(&self.folder, &self.name, number, index == 0, self.keep_open);
            port.labels
                .extend(card_labels.iter().filter_map(|(name, text)| Some((*name, text.clone()?))));
            self.ports.push(port);
        }
        self.ticks_to_look = TICKS_BETWEEN_LOOKS;
        Ok(())
    }

    /// Whether only the Fabric Manager may access this card. Without permission to read the VPD this is found out by
    /// refused reads.
    fn is_managed(&self) -> bool {
        let mut data = Vec::new();
        let file = File::open(self.folder.join("device/vpd"));
        let read = file.and_then(|file| file.take(MAX_PRODUCT_DATA).read_to_end(&mut data));
        let has_mark = |mark: &&[u8]| data.windows(mark.len()).any(|window| window == *mark);
        read.is_ok() && MANAGED.iter().any(has_mark)
    }
}

/// The digits of a GUID such as `b8ce:f603:007a:d1f0`; none if it is not set.
fn parse_guid(text: &str) -> Option<String> {
    let digits: String = text.trim().chars().filter(|letter| *letter != ':').collect();
    let is_guid = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    (is_guid && digits.bytes().any(|digit| digit != b'0')).then(|| digits.to_ascii_lowercase())
}

impl RdmaPort {
    fn new(card: &Path, name: &str, number: &str, is_first: bool, keep_open: bool) -> Self {
        let folder = card.join("ports").join(number);
        let labels = [
            ("netdev", find_netdev(card, number)),
            ("link_layer", read_once(&folder.join("link_layer"))),
        ];
        let mut counters: Vec<(KernelFile, &'static PortCounterFile)> = Vec::new();
        for counter in COUNTERS {
            // Counters of the whole card are reported for its first port.
            let card_file = is_first.then(|| card.join(counter.file));
            let path = [Some(folder.join(counter.file)), card_file].into_iter().flatten();
            let path = path.into_iter().find(|path| path.exists());
            // Most counters that this driver lacks yield no series; of two sources the first is used.
            let has_metric =
                counters.iter().any(|(_, has_metric)| has_metric.metric == counter.metric);
            if let (false, Some(path)) = (has_metric, path) {
                counters.push((KernelFile::new(path, keep_open), counter));
            }
        }
        let file = |name| KernelFile::new(folder.join(name), keep_open);
        Self {
            device: Device::new_port(name, number),
            labels: labels.into_iter().filter_map(|(label, text)| Some((label, text?))).collect(),
            state: file("state"),
            physical_state: file("phys_state"),
            rate: file("rate"),
            lifespan: Some(file(LIFESPAN)).filter(|file| file.path().exists()),
            counters,
        }
    }

    /// Adds the port's current readings to the report.
    fn collect_readings(
        &mut self,
        refused: &mut BTreeSet<PathBuf>,
        buffer: &mut Vec<u8>,
        report: &mut Report,
    ) {
        let device = report.ensure_device(self.device.clone());
        let labels: Vec<_> = self.labels.iter().map(|(name, text)| (*name, &**text)).collect();
        report.add_info(device, port::INFO, &labels);
        let mut push = |metric: MetricId, read: io::Result<Reading>| {
            report.push(device, metric, read.unwrap_or_else(|error| absent_reason(&error).into()));
        };
        push(port::STATE, self.state.read_text(buffer).map(parse_state));
        push(port::PHYSICAL_STATE, self.physical_state.read_text(buffer).map(parse_state));
        match self.rate.read_text(buffer) {
            Ok(text) => {
                push(port::RATE, Ok(parse_rate(text)));
                push(port::LANES, Ok(parse_link_width(text)));
            }
            Err(error) => push(port::RATE, Err(error)),
        }
        if let Some(file) = &mut self.lifespan {
            push(port::COUNTER_LIFESPAN, file.read_text(buffer).map(parse_lifespan));
        }
        for (file, counter) in &mut self.counters {
            if refused.contains(file.path()) {
                push(counter.metric, Ok(AbsenceReason::Unsupported.into()));
                continue;
            }
            let read = file.read_text(buffer).map(|text| counter.parse_reading(text));
            if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput) {
                refused.insert(file.path().to_path_buf());
            }
            push(counter.metric, read);
        }
        for metric in TRAFFIC {
            if self.counters.iter().all(|(_, counter)| counter.metric != metric) {
                push(metric, Ok(AbsenceReason::Unsupported.into()));
            }
        }
    }
}

impl Collector for RdmaDeviceCollector {
    fn name(&self) -> &str {
        &self.name
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        let managed = self.managed.unwrap_or_else(|| self.is_managed());
        self.managed = Some(managed);
        if managed {
            let why = "not read: only NVIDIA's Fabric Manager may access this card";
            return Ok(CollectOutcome::Nothing(why.to_owned()));
        }
        if let Err(source) = self.discover_ports() {
            return Err(CollectError::Read { path: self.folder.join("ports"), source });
        }
        for port in &mut self.ports {
            port.collect_readings(&mut self.refused, &mut self.buffer, report);
        }
        Ok(CollectOutcome::Found)
    }
}

/// The network device of a port: the one that names this port, or the only one there is.
fn find_netdev(card: &Path, number: &str) -> Option<String> {
    let folder = card.join("device/net");
    let mut names = list_names(&folder).ok()?;
    let port_index = number.parse::<u32>().ok()?.checked_sub(1)?.to_string();
    let is_of_port = |name: &&String| {
        read_once(&folder.join(name).join("dev_port")).is_some_and(|port| port == port_index)
    };
    match names.iter().find(is_of_port) {
        Some(name) => Some(name.clone()),
        None if names.len() == 1 => names.pop(),
        None => None,
    }
}

/// The number of a state such as `4: ACTIVE`.
fn parse_state(text: &str) -> Reading {
    let number = text.split(':').next().unwrap_or(text).trim();
    number.parse().map_or(AbsenceReason::Error.into(), |id: u32| Reading::of(f64::from(id)))
}

/// Bytes per second of a rate such as `400 Gb/sec (4X NDR)`.
fn parse_rate(text: &str) -> Reading {
    let number = text.split_once(" Gb/sec").and_then(|(number, _)| number.parse::<f64>().ok());
    match number {
        Some(gigabits) if gigabits.is_finite() && gigabits >= 0.0 => {
            Reading::of(gigabits * 1e9 / 8.0)
        }
        _ => AbsenceReason::Error.into(),
    }
}

/// Seconds of a number of milliseconds.
fn parse_lifespan(text: &str) -> Reading {
    text.parse()
        .map_or(AbsenceReason::Error.into(), |millis: u32| Reading::of(f64::from(millis) / 1e3))
}

/// The link width of a rate such as `400 Gb/sec (4X NDR)`.
fn parse_link_width(text: &str) -> Reading {
    let rest = text.split_once('(').and_then(|(_, rest)| rest.split_once('X'));
    let lanes: Option<u32> = rest.and_then(|(lanes, _)| lanes.parse().ok());
    lanes.map_or(AbsenceReason::Error.into(), |lanes| Reading::of(f64::from(lanes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_rates_are_bytes_per_second() {
        assert_eq!(parse_rate("400 Gb/sec (4X NDR)"), Reading::of(5e10));
        assert_eq!(parse_rate("2.5 Gb/sec (1X SDR)"), Reading::of(312_500_000.0));
        for garbage in ["", "fast", "400 Mb/sec", "-1 Gb/sec", "nan Gb/sec"] {
            assert_eq!(parse_rate(garbage), AbsenceReason::Error.into(), "{garbage}");
        }
    }

    #[test]
    fn link_width_is_number_of_lanes() {
        assert_eq!(parse_link_width("400 Gb/sec (4X NDR)"), Reading::of(4.0));
        assert_eq!(parse_link_width("100 Gb/sec (2X HDR)"), Reading::of(2.0));
        for garbage in ["", "400 Gb/sec", "(X)", "(-4X)"] {
            assert_eq!(parse_link_width(garbage), AbsenceReason::Error.into(), "{garbage}");
        }
    }

    #[test]
    fn port_states_are_numbers() {
        assert_eq!(parse_state("4: ACTIVE"), Reading::of(4.0));
        assert_eq!(parse_state("5: LinkUp"), Reading::of(5.0));
        assert_eq!(parse_state("ACTIVE"), AbsenceReason::Error.into());
    }
    #[test]
    fn port_without_counter_files_states_their_absence() {
        let root = tempfile::tempdir().unwrap();
        let port_folder = root.path().join("class/infiniband/rxe0/ports/1");
        std::fs::create_dir_all(port_folder.join("hw_counters")).unwrap();
        std::fs::write(port_folder.join("state"), "4: ACTIVE\n").unwrap();
        let mut collector = RdmaDeviceCollector::new(root.path(), "rxe0", false);
        let mut report = Report::default();
        collector.collect_readings(&mut report).unwrap();
        let reading =
            |report: &Report, metric| report.find_reading(&Device::new_port("rxe0", "1"), metric);
        for metric in TRAFFIC {
            assert_eq!(reading(&report, metric), Some(AbsenceReason::Unsupported.into()));
        }
        assert_eq!(reading(&report, port::STATE), Some(Reading::of(4.0)));
        assert_eq!(reading(&report, port::SYMBOL_ERRORS), None);
        std::fs::create_dir(port_folder.join("counters")).unwrap();
        std::fs::write(port_folder.join("counters/port_rcv_data"), "5\n").unwrap();
        let mut collector = RdmaDeviceCollector::new(root.path(), "rxe0", false);
        let mut report = Report::default();
        collector.collect_readings(&mut report).unwrap();
        assert_eq!(reading(&report, port::RECEIVE_BYTES), Some(Reading::of(20.0)));
        assert_eq!(reading(&report, port::TRANSMIT_BYTES), Some(AbsenceReason::Unsupported.into()));
    }

    #[test]
    fn guid_is_sixteen_digits_that_are_not_all_zero() {
        assert_eq!(parse_guid("B8CE:f603:007a:d1f0\n").as_deref(), Some("b8cef603007ad1f0"));
        for none in ["", "0000:0000:0000:0000", "b8ce:f603", "b8ce:f603:007a:d1fx"] {
            assert_eq!(parse_guid(none), None, "{none:?}");
        }
    }
}
