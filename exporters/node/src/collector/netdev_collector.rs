//! Network devices of the kernel, from `class/net`: carrier, speed, traffic, errors; and what TCP sends again, from `net/snmp`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use gaunt_schema::{AbsenceReason, Device, MetricId, Reading, Report, catalogue::host};

use super::{CollectError, CollectOutcome, Collector, absent_reason};
use crate::{
    SamplerOptions,
    device_exclusions::DeviceExclusions,
    kernel_files::{KernelFile, list_names, read_once},
    pci_location::{is_address, to_nvml_address},
};

/// The most devices that are reported: a host with thousands of containers has as many virtual devices.
const MAX_DEVICES: usize = 512;

/// How many devices keep their files open: 16 devices of 13 files are 208 of the default 1,024 descriptors.
const KEPT_DEVICES: usize = 16;

/// The loopback device, whose traffic never leaves the node.
const LOOPBACK: &str = "lo";

/// Parses a file's text to a reading.
type ReadingParser = fn(&str) -> Reading;

/// File, metric and parser.
const FILES: [(&str, MetricId, ReadingParser); 12] = [
    ("carrier", host::NETDEV_CARRIER, parse_count),
    ("speed", host::NETDEV_SPEED, parse_speed),
    ("mtu", host::NETDEV_MTU, parse_count),
    ("carrier_changes", host::NETDEV_CARRIER_CHANGES, parse_count),
    ("statistics/rx_bytes", host::NETDEV_RECEIVE_BYTES, parse_count),
    ("statistics/tx_bytes", host::NETDEV_TRANSMIT_BYTES, parse_count),
    ("statistics/rx_packets", host::NETDEV_RECEIVE_PACKETS, parse_count),
    ("statistics/tx_packets", host::NETDEV_TRANSMIT_PACKETS, parse_count),
    ("statistics/rx_errors", host::NETDEV_RECEIVE_ERRORS, parse_count),
    ("statistics/tx_errors", host::NETDEV_TRANSMIT_ERRORS, parse_count),
    ("statistics/rx_dropped", host::NETDEV_RECEIVE_DROPS, parse_count),
    ("statistics/tx_dropped", host::NETDEV_TRANSMIT_DROPS, parse_count),
];

/// Each column of TCP in `net/snmp` with its metric.
const TCP_COLUMNS: [(&str, MetricId); 2] =
    [("OutSegs", host::TCP_SENT), ("RetransSegs", host::TCP_RESENT)];

/// Reads `SYS/class/net/*` and `PROC/net/snmp`.
pub(super) struct NetdevCollector {
    folder: PathBuf,
    /// Counters of the network protocols.
    protocols: KernelFile,
    exclude: DeviceExclusions,
    names: Vec<String>,
    devices: Vec<NetworkDevice>,
    buffer: Vec<u8>,
}

/// One network device and its files.
struct NetworkDevice {
    device: Device,
    /// Labels of its info series, constant while it exists.
    labels: Vec<(&'static str, String)>,
    operstate: KernelFile,
    files: Vec<(KernelFile, MetricId, ReadingParser)>,
}

impl NetdevCollector {
    pub(super) fn new(options: &SamplerOptions) -> Self {
        Self {
            folder: options.sys_root.join("class/net"),
            protocols: KernelFile::new(options.proc_root.join("net/snmp"), true),
            exclude: DeviceExclusions::new(&options.exclude),
            names: Vec::new(),
            devices: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Discovers devices again when the folder's list changed.
    fn discover_devices(&mut self) -> io::Result<()> {
        let names = list_names(&self.folder)?;
        if names != self.names {
            // The folder also has plain files: `bonding_masters`.
            let is_device = |name: &&String| {
                *name != LOOPBACK
                    && !self.exclude.is_excluded(name)
                    && self.folder.join(name).join("statistics").is_dir()
            };
            let devices = names.iter().filter(is_device).take(MAX_DEVICES).enumerate();
            let folder = &self.folder;
            self.devices = devices
                .map(|(position, name)| NetworkDevice::new(folder, name, position < KEPT_DEVICES))
                .collect();
            self.names = names;
        }
        Ok(())
    }
}

impl NetworkDevice {
    fn new(folder: &Path, name: &str, keep_open: bool) -> Self {
        let folder = folder.join(name);
        let files = FILES.map(|(file, metric, read)| {
            (KernelFile::new(folder.join(file), keep_open), metric, read)
        });
        Self {
            device: Device::new_netdev(name),
            labels: read_labels(&folder),
            operstate: KernelFile::new(folder.join("operstate"), keep_open),
            files: files.into(),
        }
    }
}

impl Collector for NetdevCollector {
    fn name(&self) -> &'static str {
        "netdev"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        if let Err(source) = self.discover_devices() {
            return Err(CollectError::Read { path: self.folder.clone(), source });
        }
        for netdev in &mut self.devices {
            let device = report.ensure_device(netdev.device.clone());
            let operstate = netdev.operstate.read_text(&mut self.buffer).ok();
            let fixed = netdev.labels.iter().map(|(label, value)| (*label, value.as_str()));
            let labels: Vec<_> =
                fixed.chain(operstate.map(|operstate| ("operstate", operstate))).collect();
            report.add_info(device, host::NETDEV_INFO, &labels);
            for (file, metric, read) in &mut netdev.files {
                // A device that is down returns EINVAL for carrier and speed.
                let reading = match file.read_text(&mut self.buffer) {
                    Ok(text) => read(text),
                    Err(error) => absent_reason(&error).into(),
                };
                report.push(device, *metric, reading);
            }
        }
        if self.devices.is_empty() {
            let why = format!("no network device except loopback in {}", self.folder.display());
            return Ok(CollectOutcome::Nothing(why));
        }
        if let Ok(text) = self.protocols.read_text(&mut self.buffer) {
            let node = report.ensure_device(Device::new_node());
            for (column, metric) in TCP_COLUMNS {
                report.push(node, metric, parse_tcp_column(text, column));
            }
        }
        Ok(CollectOutcome::Found)
    }
}

/// A counter of TCP: the first line of a protocol has the names, the second one the numbers.
fn parse_tcp_column(text: &str, column: &str) -> Reading {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, numbers) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut columns = names.split_whitespace().zip(numbers.split_whitespace());
    columns
        .find(|(name, _)| *name == column)
        .map_or(AbsenceReason::Unsupported.into(), |(_, number)| parse_count(number))
}

/// The kind of device: part of a card, an SR-IOV virtual function, a bond, or software.
fn read_labels(folder: &Path) -> Vec<(&'static str, String)> {
    let target = |name: &str| {
        let path = fs::canonicalize(folder.join(name)).ok()?;
        Some(path.file_name()?.to_str()?.to_owned())
    };
    let function = if folder.join("bonding").exists() {
        "bond"
    } else if folder.join("device/physfn").exists() {
        "virtual"
    } else if folder.join("device").exists() {
        "physical"
    } else {
        "software"
    };
    let labels = [
        ("address", read_once(&folder.join("address"))),
        ("function", Some(function.to_owned())),
        ("driver", target("device/driver")),
        (
            "pci_bus_id",
            target("device").filter(|name| is_address(name)).as_deref().map(to_nvml_address),
        ),
        ("master", target("master")),
    ];
    labels.into_iter().filter_map(|(label, value)| Some((label, value?))).collect()
}

/// A plain number.
fn parse_count(text: &str) -> Reading {
    text.parse().map_or(AbsenceReason::Error.into(), |count: u64| Reading::of(count as f64))
}

/// Megabits per second; virtual devices and links that are down report -1.
fn parse_speed(text: &str) -> Reading {
    match text.parse::<i64>() {
        Ok(megabits) if megabits >= 0 => Reading::of(megabits as f64 * 1e6 / 8.0),
        Ok(_) => AbsenceReason::Unsupported.into(),
        Err(_) => AbsenceReason::Error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netdev_speed_is_bytes_per_second_and_unknown_is_not_zero() {
        assert_eq!(parse_speed("400000"), Reading::of(5e10));
        assert_eq!(parse_speed("-1"), AbsenceReason::Unsupported.into());
        assert_eq!(parse_speed("4294967295x"), AbsenceReason::Error.into());
    }

    #[test]
    fn tcp_counter_is_the_number_below_its_name() {
        let text = "Ip: Forwarding DefaultTTL\nIp: 1 64\n\
                    Tcp: MaxConn InSegs OutSegs RetransSegs\nTcp: -1 9 812 7\nUdp: InDatagrams\nUdp: 3\n";
        assert_eq!(parse_tcp_column(text, "OutSegs"), Reading::of(812.0));
        assert_eq!(parse_tcp_column(text, "RetransSegs"), Reading::of(7.0));
        assert_eq!(parse_tcp_column(text, "InErrs"), AbsenceReason::Unsupported.into());
        assert_eq!(parse_tcp_column(text, "MaxConn"), AbsenceReason::Error.into());
        assert_eq!(
            parse_tcp_column("Tcp: OutSegs\n", "OutSegs"),
            AbsenceReason::Unsupported.into()
        );
    }

    #[test]
    fn netdev_count_is_number_or_error() {
        assert_eq!(parse_count("1234"), Reading::of(1234.0));
        assert_eq!(parse_count("-1"), AbsenceReason::Error.into());
        assert_eq!(parse_count(""), AbsenceReason::Error.into());
    }
}
