//! What a node reports: with or without profiling counters and jobs, in gaunt's or a foreign exporter's format.

use std::{borrow::Cow, fmt::Write as _};

use gaunt_schema::{
    Device, DeviceClass, Dialect, InfoSeries, MetricId, MetricSample, Reading, Report, UnixMs,
    catalogue::{UnitScale, gpu, gpu_parts as parts, host, port},
    text,
    xid::describe_xid,
};

use super::mig_samples::SLICES;

/// Content and exporter format of a node's pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportedContent {
    /// Whether profiling counters are present.
    pub(crate) has_profiling: bool,
    /// Whether the job of each GPU is present.
    pub(crate) has_jobs: bool,
    pub(crate) dialect: Dialect,
}

/// Metrics that only profiling counters provide.
const PROFILED: [MetricId; 17] = [
    parts::MIG_SM_ACTIVE,
    parts::MIG_TENSOR_ACTIVE,
    parts::MIG_DRAM_ACTIVE,
    gpu::PCIE_RECEIVE_RATE,
    gpu::PCIE_TRANSMIT_RATE,
    gpu::NVLINK_RECEIVE_RATE,
    gpu::NVLINK_TRANSMIT_RATE,
    gpu::SM_ACTIVE,
    gpu::SM_ACTIVE_SECONDS,
    gpu::TENSOR_ACTIVE,
    gpu::TENSOR_ACTIVE_SECONDS,
    gpu::DRAM_ACTIVE,
    gpu::DRAM_ACTIVE_SECONDS,
    gpu::PCIE_RECEIVE,
    gpu::PCIE_TRANSMIT,
    gpu::NVLINK_RECEIVE,
    gpu::NVLINK_TRANSMIT,
];

impl ReportedContent {
    pub(crate) const ALL: Self =
        Self { has_profiling: true, has_jobs: true, dialect: Dialect::Gaunt };

    /// Whether a page that is served repeatedly has the mean of this metric since the page before.
    pub(crate) fn is_collected_mean(metric: MetricId) -> bool {
        matches!(
            metric,
            gpu::SM_ACTIVE
                | gpu::TENSOR_ACTIVE
                | gpu::DRAM_ACTIVE
                | gpu::PCIE_RECEIVE_RATE
                | gpu::PCIE_TRANSMIT_RATE
                | gpu::NVLINK_RECEIVE_RATE
                | gpu::NVLINK_TRANSMIT_RATE
        )
    }

    /// Removes what is not reported. For GPU models that are not `profiled` by the driver only DCGM has more.
    pub(crate) fn remove_unreported(self, report: &mut Report, profiled: bool) {
        if !self.has_profiling || (self.dialect == Dialect::Gaunt && !profiled) {
            report.samples.retain(|sample| !PROFILED.contains(&sample.metric));
        }
        if !self.has_jobs {
            report.infos.retain(|info| info.metric != gpu::JOB_INFO);
        }
    }

    /// The pages of a node: one in gaunt's format, or one of dcgm-exporter and one of node_exporter.
    pub(crate) fn render_pages(self, report: &Report) -> Vec<(Dialect, String)> {
        if self.dialect == Dialect::Gaunt {
            let mut page = String::new();
            text::write_text(report, &mut page);
            return vec![(Dialect::Gaunt, page)];
        }
        vec![
            (Dialect::Dcgm, render_foreign_page(report, Dialect::Dcgm)),
            (Dialect::NodeExporter, render_foreign_page(report, Dialect::NodeExporter)),
        ]
    }
}

/// The page of a foreign exporter: every metric that has a name there, in its unit, and its additional series.
pub(crate) fn render_foreign_page(report: &Report, dialect: Dialect) -> String {
    let mut page = String::new();
    let mut samples: Vec<&MetricSample> = report.samples.iter().collect();
    samples.sort_by_key(|sample| (sample.metric, sample.device));
    for sample in samples {
        let names = sample.metric.catalogue_row().foreign;
        let Some(name) = names.iter().find(|name| name.dialect == dialect) else { continue };
        let Reading::Value(value) = sample.reading else { continue };
        let value = match name.scale {
            UnitScale::Same => value,
            UnitScale::Times(factor) => value / factor,
            UnitScale::Per(divisor) => value * divisor,
        };
        let device = &report.devices[sample.device as usize];
        write_line(
            &mut page,
            name.name,
            &render_labels(report, sample.device, device, dialect),
            value,
        );
    }
    match dialect {
        Dialect::Dcgm => {
            write_clock_events(report, &mut page);
            write_gpu_errors(report, &mut page);
            write_slices(report, &mut page);
        }
        _ => write_host_series(report, &mut page),
    }
    page
}

fn write_line(page: &mut String, name: &str, labels: &str, value: f64) {
    // Writing to a `String` cannot fail.
    let _ = match labels {
        "" => writeln!(page, "{name} {value}"),
        labels => writeln!(page, "{name}{{{labels}}} {value}"),
    };
}

fn render_labels(report: &Report, index: u32, device: &Device, dialect: Dialect) -> String {
    let mut labels: Vec<String> =
        device.key_labels().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    if dialect == Dialect::Dcgm {
        let label = |metric, name| info_label(report, index, metric, name);
        labels.push(format!("UUID=\"{}\"", label(gpu::INFO, "uuid")));
        labels.push(format!("pci_bus_id=\"{}\"", label(gpu::INFO, "pci_bus_id")));
        labels.push(format!("modelName=\"{}\"", label(gpu::INFO, "model")));
        labels.push(format!("Hostname=\"{}\"", report.node.as_deref().unwrap_or_default()));
        labels.push(format!("DCGM_FI_DRIVER_VERSION=\"{}\"", label(gpu::INFO, "driver")));
        let job = label(gpu::JOB_INFO, "job");
        if !job.is_empty() {
            labels.push(format!("hpc_job=\"{job}\""));
        }
    }
    labels.join(",")
}

fn info_label<'a>(report: &'a Report, device: u32, metric: MetricId, name: &str) -> Cow<'a, str> {
    let is_wanted = |info: &&InfoSeries| info.device == device && info.metric == metric;
    let labels = report.infos.iter().find(is_wanted).map(|info| info.labels.as_slice());
    let label = labels.unwrap_or_default().iter().find(|(label, _)| label.as_str() == name);
    label.map_or("".into(), |(_, value)| value.as_str().into())
}

/// dcgm-exporter has one bit mask where gaunt has a series for each reason.
fn write_clock_events(report: &Report, page: &mut String) {
    for (index, device) in report.devices.iter().enumerate() {
        if device.class != DeviceClass::Gpu {
            continue;
        }
        let is_active = |metric: MetricId| {
            let mut samples = report.samples.iter();
            samples.any(|sample| {
                sample.device == index as u32
                    && sample.metric == metric
                    && sample.reading == Reading::of(1.0)
            })
        };
        let bits = gpu::CLOCK_EVENTS.iter().filter(|(_, metric)| is_active(*metric));
        let mask: u64 = bits.map(|(bit, _)| bit).sum();
        if is_gpu_present(report, index as u32) {
            let labels = render_labels(report, index as u32, device, Dialect::Dcgm);
            write_line(page, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", &labels, mask as f64);
        }
    }
}

/// Whether a GPU is present: dcgm-exporter has only blank values for a lost GPU, and omits them.
fn is_gpu_present(report: &Report, device: u32) -> bool {
    let mut samples = report.samples.iter().filter(|sample| sample.device == device);
    samples.any(|sample| sample.metric == gpu::POWER && sample.reading.value().is_some())
}

/// The last XID of each GPU, which is never cleared, and the errors of all its NVLinks together.
fn write_gpu_errors(report: &Report, page: &mut String) {
    for (index, device) in report.devices.iter().enumerate() {
        if device.class != DeviceClass::Gpu {
            continue;
        }
        let part_values = |class: DeviceClass, metric: MetricId| {
            report.samples.iter().filter_map(move |sample| {
                let part = &report.devices[sample.device as usize];
                let is_of_gpu = part.class == class && part.key.first() == device.key.first();
                (is_of_gpu && sample.metric == metric).then_some((part, sample.reading.value()?))
            })
        };
        let labels = render_labels(report, index as u32, device, Dialect::Dcgm);
        let last = part_values(DeviceClass::Xid, parts::XID_ERRORS).next_back();
        let last = last.and_then(|(part, _)| part.key.get(1)?.parse::<u32>().ok());
        if let Some(code) = last {
            let labels =
                format!("{labels},err_code=\"{code}\",err_msg=\"{}\"", describe_xid(code).meaning);
            write_line(page, "DCGM_FI_DEV_XID_ERRORS", &labels, f64::from(code));
        } else if is_gpu_present(report, index as u32) {
            write_line(page, "DCGM_FI_DEV_XID_ERRORS", &labels, 0.0);
        }
        if is_gpu_present(report, index as u32) {
            let replays = part_values(DeviceClass::Nvlink, parts::NVLINK_REPLAY)
                .map(|(_, value)| value)
                .sum();
            write_line(page, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", &labels, replays);
        }
    }
}

/// The series of each MIG instance, in addition to those of the whole GPU.
fn write_slices(report: &Report, page: &mut String) {
    const MIB: f64 = 1_048_576.0;
    for sample in &report.samples {
        let device = &report.devices[sample.device as usize];
        let (name, unit) = match sample.metric {
            parts::MIG_MEMORY_USED => ("DCGM_FI_DEV_FB_USED", MIB),
            parts::MIG_SM_ACTIVE => ("DCGM_FI_PROF_SM_ACTIVE", 1.0),
            parts::MIG_TENSOR_ACTIVE => ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 1.0),
            parts::MIG_DRAM_ACTIVE => ("DCGM_FI_PROF_DRAM_ACTIVE", 1.0),
            _ => continue,
        };
        let [gpu_key, number] = &*device.key else { continue };
        let gpu_index = report.devices.iter().position(|device| {
            device.class == DeviceClass::Gpu && device.key.first() == Some(gpu_key)
        });
        let slice = number.parse::<usize>().ok().and_then(|index| SLICES.get(index));
        let (Some(gpu_index), Some(slice), Some(value)) =
            (gpu_index, slice, sample.reading.value())
        else {
            continue;
        };
        let gpu_labels =
            render_labels(report, gpu_index as u32, &report.devices[gpu_index], Dialect::Dcgm);
        let labels = format!(
            "{gpu_labels},GPU_I_PROFILE=\"{}\",GPU_I_ID=\"{}\"",
            slice.profile, slice.instance
        );
        write_line(page, name, &labels, value / unit);
    }
}

/// Writes the times of each CPU, which add up to the time that has passed; all are as busy.
fn write_cpu_times(page: &mut String, time: f64, node_value: impl Fn(MetricId) -> Option<f64>) {
    let [Some(cpus), Some(busy), Some(kernel), Some(iowait)] =
        [host::CPUS, host::CPU_BUSY, host::CPU_KERNEL, host::CPU_IOWAIT].map(node_value)
    else {
        return;
    };
    let [busy, kernel, iowait] = [busy, kernel, iowait].map(|seconds| seconds / cpus);
    for cpu in 0..cpus as usize {
        for (mode, seconds) in [
            ("idle", time - busy - iowait),
            ("user", busy - kernel),
            ("system", kernel),
            ("iowait", iowait),
        ] {
            let labels = format!("cpu=\"{cpu}\",mode=\"{mode}\"");
            write_line(page, "node_cpu_seconds_total", &labels, seconds);
        }
    }
}

/// node_exporter counts each CPU separately and has its own identity labels.
fn write_host_series(report: &Report, page: &mut String) {
    let node_value =
        |metric| report.find_reading(&Device::new_node(), metric).and_then(Reading::value);
    let node = report.node.as_deref().unwrap_or_default();
    let kernel = info_label(report, 0, host::NODE_INFO, "kernel");
    write_line(page, "node_uname_info", &format!("nodename=\"{node}\",release=\"{kernel}\""), 1.0);
    if let Some(time) = report.node_time.map(UnixMs::to_seconds) {
        write_line(page, "node_time_seconds", "", time);
        write_cpu_times(page, time, node_value);
    }
    for info in report.infos.iter().filter(|info| info.metric == port::INFO) {
        let Some(name) = report.devices[info.device as usize].key.first() else { continue };
        let port_label = |name| info_label(report, info.device, port::INFO, name);
        let labels = format!(
            "device=\"{name}\",firmware_version=\"{}\",hca_type=\"{}\"",
            port_label("firmware"),
            port_label("hca_type")
        );
        write_line(page, "node_infiniband_info", &labels, 1.0);
    }
}
