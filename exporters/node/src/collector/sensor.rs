//! Sensors of the node: temperatures and power from `hwmon` and `thermal`, energy from RAPL ([`energy`]).

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use gaunt_schema::{
    Absent, Device, MetricId, Reading, Report,
    catalogue::{hardware, host},
};

use super::{CollectError, Collector, Outcome, absence};
use crate::files::{Attribute, names, read_once};

pub(super) mod energy;

/// Sensors are asked once in so many ticks: some answer over slow buses, and heat is slow too.
const TICKS_BETWEEN_READS: u32 = 5;

/// After this many reads the sensors are looked for again.
const READS_BETWEEN_LOOKS: u32 = 12;

/// The most sensors that are read: a host with 8 GPUs, 24 disks and 32 memory modules has about 150.
const MAX_SENSORS: usize = 256;

/// How old the readings may be: boards that ask a slow controller take seconds.
const PATIENCE: Duration = Duration::from_secs(15);

/// What the chip is called whose power is that of the whole node.
const NODE_METER: &str = "power_meter";

/// Reads `SYS/class/{hwmon,thermal}`.
pub(super) struct Sensors {
    class: PathBuf,
    found: Vec<Sensor>,
    ticks_to_read: u32,
    reads_to_look: u32,
    readings: Vec<Reading>,
    buffer: Vec<u8>,
}

/// One sensor and its file.
struct Sensor {
    device: Device,
    label: Option<String>,
    metric: MetricId,
    file: Attribute,
    /// How many of the file's units make one of ours.
    per: f64,
}

impl Sensors {
    pub(super) fn new(sys_root: &Path) -> Self {
        Self {
            class: sys_root.join("class"),
            found: Vec::new(),
            ticks_to_read: 0,
            reads_to_look: 0,
            readings: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Looks for sensors.
    fn discover(&mut self) {
        self.found.clear();
        let monitors = self.class.join("hwmon");
        for name in names(&monitors).unwrap_or_default() {
            self.monitor(&monitors.join(name));
        }
        let zones = self.class.join("thermal");
        for name in names(&zones).unwrap_or_default() {
            let folder = zones.join(&name);
            if let Some(kind) =
                read_once(&folder.join("type")).filter(|_| name.starts_with("thermal_zone"))
            {
                self.add(
                    "thermal",
                    &name,
                    Some(kind),
                    hardware::SENSOR_TEMPERATURE,
                    folder.join("temp"),
                    1e3,
                );
            }
        }
        self.found.truncate(MAX_SENSORS);
    }

    /// Adds the sensors of one chip.
    fn monitor(&mut self, folder: &Path) {
        let Some(kind) = read_once(&folder.join("name")) else { return };
        // Chips of one kind are told apart by the device that they sit on.
        let device = fs::canonicalize(folder.join("device")).ok();
        let device = device.as_ref().and_then(|path| path.file_name()?.to_str());
        let chip = match device {
            Some(device) if device != kind => format!("{kind}@{device}"),
            _ => kind.clone(),
        };
        for file in names(folder).unwrap_or_default() {
            let Some((sensor, what)) = file.split_once('_') else { continue };
            let (metric, per) =
                match (sensor.trim_end_matches(|it: char| it.is_ascii_digit()), what) {
                    ("temp", "input") => (hardware::SENSOR_TEMPERATURE, 1e3),
                    ("power", "input" | "average") => (hardware::SENSOR_POWER, 1e6),
                    _ => continue,
                };
            let twin = folder.join(format!("{sensor}_average"));
            if metric == hardware::SENSOR_POWER && what == "input" && twin.exists() {
                continue;
            }
            let label = read_once(&folder.join(format!("{sensor}_label")));
            self.add(&chip, sensor, label, metric, folder.join(&file), per);
        }
    }

    fn add(
        &mut self,
        chip: &str,
        sensor: &str,
        label: Option<String>,
        metric: MetricId,
        file: PathBuf,
        per: f64,
    ) {
        let (device, file) = (Device::sensor(chip, sensor), Attribute::new(file, false));
        self.found.push(Sensor { device, label, metric, file, per });
    }

    fn read(&mut self) {
        self.readings.clear();
        for sensor in &mut self.found {
            let reading = match sensor.file.read(&mut self.buffer) {
                Ok(text) => sensor.reading(text),
                Err(error) => absence(&error).into(),
            };
            self.readings.push(reading);
        }
    }
}

impl Sensor {
    fn reading(&self, text: &str) -> Reading {
        text.parse().map_or(Absent::Error.into(), |value: i64| Reading::of(value as f64 / self.per))
    }
}

impl Collector for Sensors {
    fn name(&self) -> &'static str {
        "sensors"
    }

    fn collect(&mut self, report: &mut Report) -> Result<Outcome, CollectError> {
        if self.ticks_to_read == 0 {
            if self.reads_to_look == 0 {
                self.discover();
                self.reads_to_look = READS_BETWEEN_LOOKS;
            }
            self.reads_to_look -= 1;
            self.read();
            self.ticks_to_read = TICKS_BETWEEN_READS;
        }
        self.ticks_to_read -= 1;
        for (sensor, reading) in self.found.iter().zip(&self.readings) {
            let device = report.device(sensor.device.clone());
            report.push(device, sensor.metric, *reading);
            if let Some(label) = &sensor.label {
                report.info(device, hardware::SENSOR_INFO, &[("label", label)]);
            }
            let chip = sensor.device.key.first().map(gaunt_schema::Safe::as_str);
            let is_node = chip.is_some_and(|chip| chip.split('@').next() == Some(NODE_METER));
            if is_node && sensor.metric == hardware::SENSOR_POWER {
                let node = report.device(Device::node());
                report.push(node, host::NODE_POWER, *reading);
            }
        }
        if self.found.is_empty() {
            return Ok(Outcome::Nothing("the board shows no sensor".to_owned()));
        }
        Ok(Outcome::Found)
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }
}
