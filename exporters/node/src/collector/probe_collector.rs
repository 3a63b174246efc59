//! Probes of GPU interconnects: starts gaunt-probe periodically and reports its last results.
//!
//! The probe decides by itself whether it may run; the collector only starts it. It is a separate process with its own
//! deadline, so that neither a hanging driver nor a failing probe affects this collector.

use std::{
    fs, io,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use gaunt_schema::{DeviceClass, Report, catalogue::probe_results, text};

use super::{CollectError, CollectOutcome, Collector};
use crate::sampler_options::ProbeSchedule;

/// The longest page that is read: a matrix of 16 GPUs has some 3,000 lines of 150 bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The page's file name in the probe folder.
const PAGE: &str = "probe.prom";

/// Starts probes, and reads their results.
pub(super) struct ProbeCollector {
    options: ProbeSchedule,
    /// The path of the NVML library, if it is not the loader's default.
    nvml_library: Option<PathBuf>,
    next: Instant,
    child: Option<Child>,
    page: Option<(SystemTime, Report)>,
}

impl ProbeCollector {
    /// The first probe starts at an offset derived from `seed`: nodes that boot together must not probe together.
    pub(super) fn new(options: &ProbeSchedule, nvml_library: Option<PathBuf>, seed: &str) -> Self {
        let hash = seed.bytes().fold(17_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(5)
        });
        let millis = options.every.as_millis().max(1) as u64;
        let next = Instant::now() + Duration::from_millis(hash % millis);
        Self { options: options.clone(), nvml_library, next, child: None, page: None }
    }

    /// Starts a probe if one is due and none runs.
    fn start_due_probe(&mut self, now: Instant) -> Result<(), CollectError> {
        if let Some(child) = &mut self.child {
            match child.try_wait() {
                Ok(None) => return Ok(()),
                Ok(Some(status)) => tracing::info!(%status, "probe ended"),
                Err(error) => tracing::warn!(%error, "cannot wait for the probe"),
            }
            self.child = None;
        }
        if now < self.next {
            return Ok(());
        }
        self.next = now + self.options.every;
        let mut command = Command::new(&self.options.program);
        command.arg("auto").arg("--state").arg(&self.options.folder);
        if let Some(library) = &self.nvml_library {
            command.arg("--nvml-library").arg(library);
        }
        command.args(&self.options.arguments);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| {
            CollectError::Devices(format!(
                "cannot start {}: {error}; set `[probe] program`",
                self.options.program.display()
            ))
        })?;
        self.child = Some(child);
        Ok(())
    }

    /// Reads the page again if it changed.
    fn refresh_page(&mut self) -> Result<(), CollectError> {
        let path = self.options.folder.join(PAGE);
        let read_error = |source| CollectError::Read { path: path.clone(), source };
        let metadata = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            metadata => metadata.map_err(read_error)?,
        };
        let modified = metadata.modified().map_err(read_error)?;
        if self.page.as_ref().is_some_and(|(read_at, _)| *read_at == modified) {
            return Ok(());
        }
        if metadata.len() > MAX_BYTES {
            return Err(CollectError::Malformed { path, what: "longer than 1 MiB" });
        }
        let body = fs::read(&path).map_err(read_error)?;
        let decoded = text::decode_page(&body, &text::PageLimits::default());
        let decoded =
            decoded.map_err(|_| CollectError::Malformed { path, what: "not a metrics page" })?;
        self.page = Some((modified, decoded.report));
        Ok(())
    }
}

impl Collector for ProbeCollector {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        let started = self.start_due_probe(Instant::now());
        self.refresh_page()?;
        if let Some((_, page)) = &self.page {
            report_probes(page, report);
        }
        started?;
        if self.page.is_none() {
            return Ok(CollectOutcome::Pending("no probe has ended yet".to_owned()));
        }
        Ok(CollectOutcome::Found)
    }
}

/// Adds the probe results of a page, and nothing else that it may contain.
fn report_probes(page: &Report, report: &mut Report) {
    let is_probe_metric = |metric: gaunt_schema::MetricId| {
        (probe_results::INFO.0..=probe_results::SKIPPED_FAILED.0).contains(&metric.0)
    };
    let devices = page.devices.iter().map(|device| {
        let is_reported = matches!(device.class, DeviceClass::Probe | DeviceClass::Node);
        is_reported.then(|| report.ensure_device(device.clone()))
    });
    let devices: Vec<Option<u32>> = devices.collect();
    let map_device = |device: u32| devices.get(device as usize).copied().flatten();
    for sample in page.samples.iter().filter(|sample| is_probe_metric(sample.metric)) {
        if let Some(device) = map_device(sample.device) {
            report.push(device, sample.metric, sample.reading);
        }
    }
    for info in page.infos.iter().filter(|info| is_probe_metric(info.metric)) {
        if let Some(device) = map_device(info.device) {
            let labels: Vec<_> =
                info.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            report.add_info(device, info.metric, &labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::Device;

    use super::*;

    fn probe_collector(folder: &std::path::Path, program: &str) -> ProbeCollector {
        let options = ProbeSchedule {
            program: program.into(),
            folder: folder.to_path_buf(),
            every: Duration::from_millis(1),
            arguments: Vec::new(),
        };
        ProbeCollector::new(&options, None, "node")
    }

    #[test]
    fn page_metrics_other_than_probe_results_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let page = "gaunt_probe_busbw_bytes_per_second{collective=\"all_reduce\",between=\"gpu0..7\"} 4e11\n\
                    gaunt_probe_skipped_total{reason=\"job\"} 3\n\
                    gaunt_gpu_power_watts{gpu=\"0\"} 1\n";
        fs::write(folder.path().join(PAGE), page).unwrap();
        let mut report = Report::default();
        let outcome = probe_collector(folder.path(), "true").collect_readings(&mut report).unwrap();
        assert!(matches!(outcome, CollectOutcome::Found));
        let device = Device::new_probe("all_reduce", "gpu0..7");
        let value = |device, metric| {
            report.find_reading(device, metric).and_then(gaunt_schema::Reading::value)
        };
        assert_eq!(value(&device, probe_results::BUS_BANDWIDTH), Some(4e11));
        assert_eq!(value(&Device::new_node(), probe_results::SKIPPED_JOB), Some(3.0));
        assert_eq!(report.samples.len(), 2);
    }

    #[test]
    fn missing_probe_program_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let mut probes = probe_collector(folder.path(), "/nowhere/gaunt-probe");
        probes.next = Instant::now();
        let error = probes.collect_readings(&mut Report::default()).unwrap_err().to_string();
        assert!(error.starts_with("cannot start /nowhere/gaunt-probe"), "{error}");
    }
}
