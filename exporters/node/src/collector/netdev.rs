//! Network devices of the kernel, from `class/net`: carrier, speed, traffic, errors.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use gaunt_schema::{Absent, Device, MetricId, Reading, Report, catalogue::host};

use super::{CollectError, Collector, Outcome, absence};
use crate::{
    Options,
    exclude::Exclude,
    files::{Attribute, names, read_once},
    pci::{as_nvml_writes, is_address},
};

/// The most devices that are reported: a host with thousands of containers has as many virtual devices.
const MAX_DEVICES: usize = 512;

/// How many devices keep their files open: 16 devices of 13 files are 208 of the usual 1,024 descriptors.
const KEPT_DEVICES: usize = 16;

/// The loopback device, whose traffic never leaves the node.
const LOOPBACK: &str = "lo";

/// From a file's text to its reading.
type Parse = fn(&str) -> Reading;

/// Which file of a device is which metric, and how its number is read.
const FILES: [(&str, MetricId, Parse); 11] = [
    ("carrier", host::NETDEV_CARRIER, count),
    ("speed", host::NETDEV_SPEED, speed),
    ("carrier_changes", host::NETDEV_CARRIER_CHANGES, count),
    ("statistics/rx_bytes", host::NETDEV_RECEIVE_BYTES, count),
    ("statistics/tx_bytes", host::NETDEV_TRANSMIT_BYTES, count),
    ("statistics/rx_packets", host::NETDEV_RECEIVE_PACKETS, count),
    ("statistics/tx_packets", host::NETDEV_TRANSMIT_PACKETS, count),
    ("statistics/rx_errors", host::NETDEV_RECEIVE_ERRORS, count),
    ("statistics/tx_errors", host::NETDEV_TRANSMIT_ERRORS, count),
    ("statistics/rx_dropped", host::NETDEV_RECEIVE_DROPS, count),
    ("statistics/tx_dropped", host::NETDEV_TRANSMIT_DROPS, count),
];

/// Reads `SYS/class/net/*`.
pub(super) struct Netdevs {
    folder: PathBuf,
    exclude: Exclude,
    names: Vec<String>,
    devices: Vec<Netdev>,
    buffer: Vec<u8>,
}

/// One network device and its files.
struct Netdev {
    device: Device,
    /// Labels of its info series that do not change while it is there.
    labels: Vec<(&'static str, String)>,
    operstate: Attribute,
    files: Vec<(Attribute, MetricId, Parse)>,
}

impl Netdevs {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            folder: options.sys_root.join("class/net"),
            exclude: Exclude::new(&options.exclude),
            names: Vec::new(),
            devices: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Looks for devices again when the folder names others than before.
    fn discover(&mut self) -> io::Result<()> {
        let found = names(&self.folder)?;
        if found != self.names {
            // Beside the devices the folder has files: `bonding_masters`.
            let is_device = |name: &&String| {
                *name != LOOPBACK
                    && !self.exclude.leaves_alone(name)
                    && self.folder.join(name).join("statistics").is_dir()
            };
            let devices = found.iter().filter(is_device).take(MAX_DEVICES).enumerate();
            let folder = &self.folder;
            self.devices =
                devices.map(|(at, name)| Netdev::new(folder, name, at < KEPT_DEVICES)).collect();
            self.names = found;
        }
        Ok(())
    }
}

impl Netdev {
    fn new(folder: &Path, name: &str, keep: bool) -> Self {
        let folder = folder.join(name);
        let files = FILES
            .map(|(file, metric, read)| (Attribute::new(folder.join(file), keep), metric, read));
        Self {
            device: Device::netdev(name),
            labels: labels(&folder),
            operstate: Attribute::new(folder.join("operstate"), keep),
            files: files.into(),
        }
    }
}

impl Collector for Netdevs {
    fn name(&self) -> &'static str {
        "netdev"
    }

    fn collect(&mut self, report: &mut Report) -> Result<Outcome, CollectError> {
        if let Err(source) = self.discover() {
            return Err(CollectError::Read { path: self.folder.clone(), source });
        }
        for netdev in &mut self.devices {
            let device = report.device(netdev.device.clone());
            let operstate = netdev.operstate.read(&mut self.buffer).ok();
            let fixed = netdev.labels.iter().map(|(label, value)| (*label, value.as_str()));
            let labels: Vec<_> =
                fixed.chain(operstate.map(|operstate| ("operstate", operstate))).collect();
            report.info(device, host::NETDEV_INFO, &labels);
            for (file, metric, read) in &mut netdev.files {
                // A device that is switched off answers "invalid argument" for carrier and speed.
                let reading = match file.read(&mut self.buffer) {
                    Ok(text) => read(text),
                    Err(error) => absence(&error).into(),
                };
                report.push(device, *metric, reading);
            }
        }
        if self.devices.is_empty() {
            let why = format!("no network device but loopback in {}", self.folder.display());
            return Ok(Outcome::Nothing(why));
        }
        Ok(Outcome::Found)
    }
}

/// What a device is: part of a card, a share of one made for a guest, several devices bound into one, or software.
fn labels(folder: &Path) -> Vec<(&'static str, String)> {
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
            target("device").filter(|name| is_address(name)).as_deref().map(as_nvml_writes),
        ),
        ("master", target("master")),
    ];
    labels.into_iter().filter_map(|(label, value)| Some((label, value?))).collect()
}

/// A plain number.
fn count(text: &str) -> Reading {
    text.parse().map_or(Absent::Error.into(), |count: u64| Reading::of(count as f64))
}

/// Megabits per second; virtual devices and links that are down say -1.
fn speed(text: &str) -> Reading {
    match text.parse::<i64>() {
        Ok(megabits) if megabits >= 0 => Reading::of(megabits as f64 * 1e6 / 8.0),
        Ok(_) => Absent::Unsupported.into(),
        Err(_) => Absent::Error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_bytes_per_second_and_unknown_is_not_zero() {
        assert_eq!(speed("400000"), Reading::of(5e10));
        assert_eq!(speed("-1"), Absent::Unsupported.into());
        assert_eq!(speed("4294967295x"), Absent::Error.into());
    }

    #[test]
    fn a_count_is_a_number_or_an_error() {
        assert_eq!(count("1234"), Reading::of(1234.0));
        assert_eq!(count("-1"), Absent::Error.into());
        assert_eq!(count(""), Absent::Error.into());
    }
}
