//! AMD GPUs, from the files of the kernel driver: no library, no worker.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Instant,
};

use gaunt_schema::{
    AbsenceReason, Device, MetricId, Reading, Report,
    catalogue::{gpu, hardware},
};

use super::{CollectError, CollectOutcome, Collector, absent_reason};
use crate::{
    ReadingSource, SamplerOptions,
    device_exclusions::DeviceExclusions,
    kernel_files::{KernelFile, list_names, read_once},
    pci_location::{self, PciLocation, to_nvml_address},
};

mod amd_processes;

use amd_processes::AmdProcesses;

/// AMD's and NVIDIA's PCI vendor ids.
const AMD: &str = "0x1002";
const NVIDIA: &str = "0x10de";

/// The most GPUs that are reported: a host with 8 GPUs in 8 partitions each.
const MAX_GPUS: usize = 64;

/// After this many ticks the GPUs are discovered again.
const TICKS_BETWEEN_LOOKS: u32 = 60;

/// The longest step over which a ratio is integrated, in seconds: over a longer one it is not representative.
const LONGEST_STEP: f64 = 5.0;

/// File, metric, and how many of the file's units make one of ours. Of two files of a metric the first that exists is
/// used: some GPUs report their average power, others only the instantaneous one.
const FILES: [(&str, MetricId, f64); 8] = [
    ("gpu_busy_percent", gpu::UTILIZATION, 100.0),
    ("mem_busy_percent", gpu::MEMORY_ACTIVITY, 100.0),
    ("mem_info_vram_used", gpu::MEMORY_USED, 1.0),
    ("mem_info_vram_total", gpu::MEMORY_TOTAL, 1.0),
    ("hwmon/power1_average", gpu::POWER, 1e6),
    ("hwmon/power1_input", gpu::POWER, 1e6),
    ("hwmon/power1_cap", gpu::POWER_LIMIT, 1e6),
    ("hwmon/freq1_input", gpu::SM_CLOCK, 1.0),
];

/// The names of the die's temperature sensors, the hottest first.
const DIE: [&str; 2] = ["junction", "edge"];

/// Each ratio with its integral.
const INTEGRALS: [(MetricId, MetricId); 2] = [
    (gpu::UTILIZATION, gpu::UTILIZATION_SECONDS),
    (gpu::MEMORY_ACTIVITY, gpu::MEMORY_ACTIVITY_SECONDS),
];

/// Reads `SYS/class/drm/card*/device`.
pub(super) struct AmdCollector {
    sys_root: PathBuf,
    exclude: DeviceExclusions,
    gpus: BTreeMap<String, AmdGpu>,
    /// None if processes are disabled.
    processes: Option<AmdProcesses>,
    ticks_to_look: u32,
    last: Option<Instant>,
    buffer: Vec<u8>,
}

/// One GPU, identified by its PCI address.
struct AmdGpu {
    device: Device,
    labels: Vec<(&'static str, String)>,
    files: Vec<(KernelFile, MetricId, f64)>,
    errors: Vec<KernelFile>,
    integrals: [f64; INTEGRALS.len()],
    is_here: bool,
}

impl AmdCollector {
    pub(super) fn new(options: &SamplerOptions) -> Self {
        Self {
            sys_root: options.sys_root.clone(),
            exclude: DeviceExclusions::new(&options.exclude),
            gpus: BTreeMap::new(),
            processes: options
                .is_enabled(ReadingSource::Processes)
                .then(|| AmdProcesses::new(&options.sys_root)),
            ticks_to_look: 0,
            last: None,
            buffer: Vec::new(),
        }
    }

    /// Discovers GPUs; known ones are kept.
    fn discover_gpus(&mut self) -> io::Result<()> {
        let cards = match list_names(&self.sys_root.join("class/drm")) {
            Ok(cards) => cards,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut folders = BTreeMap::new();
        for card in cards {
            // The folder also has the connectors of the cards: `card0-DP-1`.
            let number = card.strip_prefix("card").map(str::parse::<u32>);
            let folder = self.sys_root.join("class/drm").join(&card).join("device");
            if !matches!(number, Some(Ok(_)))
                || read_once(&folder.join("vendor")).as_deref() != Some(AMD)
            {
                continue;
            }
            let path = fs::canonicalize(&folder)?;
            if let Some(address) = path.file_name().and_then(|name| name.to_str()) {
                folders.insert(address.to_owned(), folder);
            }
        }
        for (address, board) in &mut self.gpus {
            board.is_here = folders.contains_key(address);
        }
        // NVIDIA's GPUs come first where both exist, so that no number is used twice.
        let known_count = self.gpus.len();
        let first = if known_count == 0 { self.count_nvidia_gpus() } else { self.next() };
        let new = folders.into_iter().filter(|(address, _)| !self.gpus.contains_key(address));
        let new: Vec<_> = new.take(MAX_GPUS - known_count).collect();
        let cards =
            pci_location::list_rdma_devices(&self.sys_root, |name| self.exclude.is_excluded(name));
        for (offset, (address, folder)) in new.into_iter().enumerate() {
            let mut board = AmdGpu::new(first + offset as u32, &address, &folder);
            board.labels.extend(pci_location::nic_labels(&PciLocation::of(&folder), &cards));
            self.gpus.insert(address, board);
        }
        if let Some(processes) = &mut self.processes {
            let gpus = &self.gpus;
            processes.discover_gpus(|address| gpus.get(address)?.device.key.first()?.parse().ok());
        }
        Ok(())
    }

    /// The number of NVIDIA GPUs on the bus.
    fn count_nvidia_gpus(&self) -> u32 {
        let folder = self.sys_root.join("bus/pci/devices");
        let read_file = |name: &str, file: &str| read_once(&folder.join(name).join(file));
        let is_one = |name: &&String| {
            read_file(name, "vendor").as_deref() == Some(NVIDIA)
                && read_file(name, "class").is_some_and(|class| class.starts_with("0x03"))
        };
        list_names(&folder).unwrap_or_default().iter().filter(is_one).count() as u32
    }

    /// The number of the next GPU.
    fn next(&self) -> u32 {
        let numbers = self.gpus.values().filter_map(|board| board.device.key.first()?.parse().ok());
        numbers.max().map_or(0, |last: u32| last + 1)
    }
}

impl AmdGpu {
    fn new(index: u32, address: &str, folder: &Path) -> Self {
        let monitors = folder.join("hwmon");
        let monitor =
            list_names(&monitors).unwrap_or_default().first().map(|name| monitors.join(name));
        let file_path = |file: &str| match file.strip_prefix("hwmon/") {
            Some(file) => monitor.as_ref().map(|monitor| monitor.join(file)),
            None => Some(folder.join(file)),
        };
        let mut files: Vec<(KernelFile, MetricId, f64)> = Vec::new();
        for (file, metric, divisor) in FILES {
            let path = file_path(file).filter(|path| path.exists());
            if let (Some(path), false) = (path, files.iter().any(|(_, other, _)| *other == metric))
            {
                files.push((KernelFile::new(path, true), metric, divisor));
            }
        }
        if let Some(path) = monitor.as_deref().and_then(find_temperature_file) {
            files.push((KernelFile::new(path, true), gpu::TEMPERATURE, 1e3));
        }
        let counts = list_names(&folder.join("ras")).unwrap_or_default();
        let counts = counts.into_iter().filter(|name| name.ends_with("_err_count"));
        let labels = [
            ("uuid", read_once(&folder.join("unique_id"))),
            ("model", read_once(&folder.join("product_name"))),
            ("pci_bus_id", Some(to_nvml_address(address))),
            ("serial", read_once(&folder.join("serial_number"))),
            ("driver", Some("amdgpu".to_owned())),
        ];
        Self {
            device: Device::new_gpu(index),
            labels: labels.into_iter().filter_map(|(label, text)| Some((label, text?))).collect(),
            files,
            errors: counts
                .map(|name| KernelFile::new(folder.join("ras").join(name), true))
                .collect(),
            integrals: [0.0; INTEGRALS.len()],
            is_here: true,
        }
    }

    /// Adds the GPU's current readings to the report; `step` is the time since the last ones, in seconds.
    fn collect_readings(&mut self, step: f64, buffer: &mut Vec<u8>, report: &mut Report) {
        let device = report.ensure_device(self.device.clone());
        let labels: Vec<_> = self.labels.iter().map(|(name, text)| (*name, &**text)).collect();
        report.add_info(device, gpu::INFO, &labels);
        report.push(device, gpu::PRESENT, f64::from(u8::from(self.is_here)));
        let (mut used, mut total) = (None, None);
        for (file, metric, divisor) in &mut self.files {
            let mut reading = match file.read_text(buffer).map(str::parse::<u64>) {
                Ok(Ok(value)) => Reading::of(value as f64 / *divisor),
                Ok(Err(_)) => AbsenceReason::Error.into(),
                Err(error) => absent_reason(&error).into(),
            };
            if !self.is_here {
                reading = AbsenceReason::Lost.into();
            }
            report.push(device, *metric, reading);
            match *metric {
                gpu::MEMORY_USED => used = reading.value(),
                gpu::MEMORY_TOTAL => total = reading.value(),
                _ => {}
            }
            for ((share, counter), sum) in INTEGRALS.iter().zip(&mut self.integrals) {
                if share == metric {
                    *sum += reading.value().unwrap_or(0.0) * step;
                    report.push(
                        device,
                        *counter,
                        reading.absence_reason().map_or(Reading::of(*sum), Reading::new_absent),
                    );
                }
            }
        }
        if let (Some(used), Some(total)) = (used, total) {
            report.push(device, gpu::MEMORY_FREE, total - used);
        }
        if !self.errors.is_empty() {
            let [corrected, uncorrected] = self.sum_ras_errors(buffer);
            report.push(device, hardware::GPU_RAS_CORRECTED, corrected);
            report.push(device, hardware::GPU_RAS_UNCORRECTED, uncorrected);
        }
    }

    /// Corrected and uncorrected errors, over all blocks. If one block is unreadable, the sum is absent.
    fn sum_ras_errors(&mut self, buffer: &mut Vec<u8>) -> [Reading; 2] {
        let mut sums = [0, 0];
        for file in &mut self.errors {
            let counts = match file.read_text(buffer) {
                Ok(text) => ["ce:", "ue:"].map(|kind| parse_error_count(text, kind)),
                Err(error) => return [absent_reason(&error).into(); 2],
            };
            let [Some(corrected), Some(uncorrected)] = counts else {
                return [AbsenceReason::Error.into(); 2];
            };
            sums = [sums[0] + corrected, sums[1] + uncorrected];
        }
        sums.map(|sum| Reading::of(sum as f64))
    }
}

/// The count of a kind in a text of two lines such as `ue: 0` and `ce: 3`.
fn parse_error_count(text: &str, kind: &str) -> Option<u64> {
    text.lines().find_map(|line| line.trim().strip_prefix(kind))?.trim().parse().ok()
}

/// The file of the die's temperature.
fn find_temperature_file(monitor: &Path) -> Option<PathBuf> {
    let label_number = |name: &str| {
        (1..=8).find(|number| {
            read_once(&monitor.join(format!("temp{number}_label"))).as_deref() == Some(name)
        })
    };
    let number = DIE.into_iter().find_map(label_number)?;
    Some(monitor.join(format!("temp{number}_input")))
}

impl Collector for AmdCollector {
    fn name(&self) -> &'static str {
        "amd"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        if self.ticks_to_look == 0 {
            self.discover_gpus().map_err(|source| {
                let path = self.sys_root.join("class/drm");
                CollectError::Read { path, source }
            })?;
            self.ticks_to_look = TICKS_BETWEEN_LOOKS;
        }
        self.ticks_to_look -= 1;
        let now = Instant::now();
        let step = self.last.replace(now).map_or(0.0, |last| (now - last).as_secs_f64());
        let step = if step > LONGEST_STEP { 0.0 } else { step };
        for board in self.gpus.values_mut() {
            board.collect_readings(step, &mut self.buffer, report);
        }
        if let Some(processes) = &self.processes {
            processes.collect_readings(report);
        }
        if self.gpus.is_empty() {
            return Ok(CollectOutcome::Nothing("no AMD GPU".to_owned()));
        }
        let missing: Vec<_> = self.gpus.values().filter(|board| !board.is_here).collect();
        if missing.is_empty() {
            return Ok(CollectOutcome::Found);
        }
        let names: Vec<_> = missing.iter().map(|board| board.device.to_string()).collect();
        Ok(CollectOutcome::FoundThat { message: format!("lost: {}", names.join(", ")), at: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_kind() {
        assert_eq!(parse_error_count("ue: 2\nce: 3\n", "ce:"), Some(3));
        assert_eq!(parse_error_count("ue: 2\nce: 3\n", "ue:"), Some(2));
        assert_eq!(parse_error_count("ue 2", "ue:"), None);
        assert_eq!(parse_error_count("ue: many", "ue:"), None);
    }
}
