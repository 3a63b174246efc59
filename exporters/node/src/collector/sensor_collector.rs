//! Sensors of the node: temperatures and power from `hwmon` and `thermal`, energy from RAPL ([`energy_collector`]).

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use gaunt_schema::{
    AbsenceReason, Device, MetricId, Reading, Report,
    catalogue::{hardware, host},
};

use super::{CollectError, CollectOutcome, Collector, absent_reason};
use crate::kernel_files::{KernelFile, list_names, read_once};

pub(super) mod energy_collector;

/// Sensors are read once in this many ticks: some are on slow buses, and temperatures change slowly.
const TICKS_BETWEEN_READS: u32 = 5;

/// After this many reads the sensors are discovered again.
const READS_BETWEEN_LOOKS: u32 = 12;

/// The most sensors that are read: a host with 8 GPUs, 24 disks and 32 memory modules has about 150.
const MAX_SENSORS: usize = 256;

/// The maximum age of the readings: sensors behind a slow controller take seconds.
const PATIENCE: Duration = Duration::from_secs(15);

/// The name of the chip that measures the power of the whole node.
const NODE_METER: &str = "power_meter";

/// Reads `SYS/class/{hwmon,thermal}`.
pub(super) struct SensorCollector {
    class: PathBuf,
    found: Vec<SensorFile>,
    ticks_to_read: u32,
    reads_to_look: u32,
    readings: Vec<Reading>,
    buffer: Vec<u8>,
}

/// One sensor and its file.
struct SensorFile {
    device: Device,
    label: Option<String>,
    metric: MetricId,
    file: KernelFile,
    /// How many of the file's units make one of ours.
    per: f64,
}

impl SensorCollector {
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

    /// Discovers sensors.
    fn discover_sensors(&mut self) {
        self.found.clear();
        let monitors = self.class.join("hwmon");
        for name in list_names(&monitors).unwrap_or_default() {
            self.add_chip(&monitors.join(name));
        }
        let zones = self.class.join("thermal");
        for name in list_names(&zones).unwrap_or_default() {
            let folder = zones.join(&name);
            if let Some(kind) =
                read_once(&folder.join("type")).filter(|_| name.starts_with("thermal_zone"))
            {
                self.add_sensor(
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
    fn add_chip(&mut self, folder: &Path) {
        let Some(kind) = read_once(&folder.join("name")) else { return };
        // Chips of one kind are distinguished by their parent device.
        let device = fs::canonicalize(folder.join("device")).ok();
        let device = device.as_ref().and_then(|path| path.file_name()?.to_str());
        let chip = match device {
            Some(device) if device != kind => format!("{kind}@{device}"),
            _ => kind.clone(),
        };
        for file in list_names(folder).unwrap_or_default() {
            let Some((sensor, quantity)) = file.split_once('_') else { continue };
            let (metric, divisor) = match (
                sensor.trim_end_matches(|character: char| character.is_ascii_digit()),
                quantity,
            ) {
                ("temp", "input") => (hardware::SENSOR_TEMPERATURE, 1e3),
                ("power", "input" | "average") => (hardware::SENSOR_POWER, 1e6),
                _ => continue,
            };
            let average_file = folder.join(format!("{sensor}_average"));
            if metric == hardware::SENSOR_POWER && quantity == "input" && average_file.exists() {
                continue;
            }
            let label = read_once(&folder.join(format!("{sensor}_label")));
            self.add_sensor(&chip, sensor, label, metric, folder.join(&file), divisor);
        }
    }

    fn add_sensor(
        &mut self,
        chip: &str,
        sensor: &str,
        label: Option<String>,
        metric: MetricId,
        file: PathBuf,
        divisor: f64,
    ) {
        let (device, file) = (Device::new_sensor(chip, sensor), KernelFile::new(file, false));
        self.found.push(SensorFile { device, label, metric, file, per: divisor });
    }

    fn read_sensors(&mut self) {
        self.readings.clear();
        for sensor in &mut self.found {
            let reading = match sensor.file.read_text(&mut self.buffer) {
                Ok(text) => sensor.parse_reading(text),
                Err(error) => absent_reason(&error).into(),
            };
            self.readings.push(reading);
        }
    }
}

impl SensorFile {
    fn parse_reading(&self, text: &str) -> Reading {
        text.parse()
            .map_or(AbsenceReason::Error.into(), |value: i64| Reading::of(value as f64 / self.per))
    }
}

impl Collector for SensorCollector {
    fn name(&self) -> &'static str {
        "sensors"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        if self.ticks_to_read == 0 {
            if self.reads_to_look == 0 {
                self.discover_sensors();
                self.reads_to_look = READS_BETWEEN_LOOKS;
            }
            self.reads_to_look -= 1;
            self.read_sensors();
            self.ticks_to_read = TICKS_BETWEEN_READS;
        }
        self.ticks_to_read -= 1;
        for (sensor, reading) in self.found.iter().zip(&self.readings) {
            let device = report.ensure_device(sensor.device.clone());
            report.push(device, sensor.metric, *reading);
            if let Some(label) = &sensor.label {
                report.add_info(device, hardware::SENSOR_INFO, &[("label", label)]);
            }
            let chip = sensor.device.key.first().map(gaunt_schema::SanitizedText::as_str);
            let is_node = chip.is_some_and(|chip| chip.split('@').next() == Some(NODE_METER));
            if is_node && sensor.metric == hardware::SENSOR_POWER {
                let node = report.ensure_device(Device::new_node());
                report.push(node, host::NODE_POWER, *reading);
            }
        }
        if self.found.is_empty() {
            return Ok(CollectOutcome::Nothing("no hwmon or thermal sensor".to_owned()));
        }
        Ok(CollectOutcome::Found)
    }

    fn max_age(&self) -> Duration {
        PATIENCE
    }
}
