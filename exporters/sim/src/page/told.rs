//! How a node is told of: with or without profiling counters and jobs, in gaunt's words or in those of others.

use std::{borrow::Cow, fmt::Write as _};

use gaunt_schema::{
    Class, Device, Dialect, Info, MetricId, Reading, Report, Sample,
    catalogue::{Scale, gpu, gpu_parts as parts, host, port},
    text,
    xid::xid,
};

use super::slices::SLICES;

/// What stands on a node's pages, and in whose words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// Profiling counters are there.
    pub(crate) gpm: bool,
    /// The job of each GPU is there.
    pub(crate) labels: bool,
    pub(crate) dialect: Dialect,
}

/// What a GPU tells only by its profiling counters.
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

impl Told {
    pub(crate) const ALL: Self = Self { gpm: true, labels: true, dialect: Dialect::Gaunt };

    /// Whether a page that is told for a while has the mean of this since the page before.
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

    /// Leaves out of a report what is not told. Of boards that are not `profiled` by the driver only DCGM knows more.
    pub(crate) fn cut(self, report: &mut Report, profiled: bool) {
        if !self.gpm || (self.dialect == Dialect::Gaunt && !profiled) {
            report.samples.retain(|sample| !PROFILED.contains(&sample.metric));
        }
        if !self.labels {
            report.infos.retain(|info| info.metric != gpu::JOB_INFO);
        }
    }

    /// The pages of a node: one in gaunt's words, or one of dcgm-exporter and one of node_exporter.
    pub(crate) fn pages(self, report: &Report) -> Vec<(Dialect, String)> {
        if self.dialect == Dialect::Gaunt {
            let mut page = String::new();
            text::write(report, &mut page);
            return vec![(Dialect::Gaunt, page)];
        }
        vec![
            (Dialect::Dcgm, foreign(report, Dialect::Dcgm)),
            (Dialect::NodeExporter, foreign(report, Dialect::NodeExporter)),
        ]
    }
}

/// The page of another exporter: every row that has a name there, in its unit, and what it says besides.
pub(crate) fn foreign(report: &Report, dialect: Dialect) -> String {
    let mut page = String::new();
    let mut samples: Vec<&Sample> = report.samples.iter().collect();
    samples.sort_by_key(|sample| (sample.metric, sample.device));
    for sample in samples {
        let names = sample.metric.row().foreign;
        let Some(name) = names.iter().find(|name| name.dialect == dialect) else { continue };
        let Reading::Value(value) = sample.reading else { continue };
        let value = match name.scale {
            Scale::Same => value,
            Scale::Times(factor) => value / factor,
            Scale::Per(divisor) => value * divisor,
        };
        let device = &report.devices[sample.device as usize];
        line(&mut page, name.name, &labels(report, sample.device, device, dialect), value);
    }
    match dialect {
        Dialect::Dcgm => {
            clock_events(report, &mut page);
            errors(report, &mut page);
            slices(report, &mut page);
        }
        _ => of_the_host(report, &mut page),
    }
    page
}

fn line(page: &mut String, name: &str, labels: &str, value: f64) {
    // Writing to a string cannot fail.
    let _ = match labels {
        "" => writeln!(page, "{name} {value}"),
        labels => writeln!(page, "{name}{{{labels}}} {value}"),
    };
}

fn labels(report: &Report, at: u32, device: &Device, dialect: Dialect) -> String {
    let mut labels: Vec<String> =
        device.labels().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    if dialect == Dialect::Dcgm {
        let of = |metric, name| info(report, at, metric, name);
        labels.push(format!("UUID=\"{}\"", of(gpu::INFO, "uuid")));
        labels.push(format!("pci_bus_id=\"{}\"", of(gpu::INFO, "pci_bus_id")));
        labels.push(format!("modelName=\"{}\"", of(gpu::INFO, "model")));
        labels.push(format!("Hostname=\"{}\"", report.node.as_deref().unwrap_or_default()));
        labels.push(format!("DCGM_FI_DRIVER_VERSION=\"{}\"", of(gpu::INFO, "driver")));
        let job = of(gpu::JOB_INFO, "job");
        if !job.is_empty() {
            labels.push(format!("hpc_job=\"{job}\""));
        }
    }
    labels.join(",")
}

fn info<'a>(report: &'a Report, at: u32, metric: MetricId, name: &str) -> Cow<'a, str> {
    let of = |info: &&Info| info.device == at && info.metric == metric;
    let labels = report.infos.iter().find(of).map(|info| info.labels.as_slice());
    let found = labels.unwrap_or_default().iter().find(|(label, _)| label.as_str() == name);
    found.map_or("".into(), |(_, value)| value.as_str().into())
}

/// dcgm-exporter has one mask where we have a series for each reason.
fn clock_events(report: &Report, page: &mut String) {
    for (at, device) in report.devices.iter().enumerate() {
        if device.class != Class::Gpu {
            continue;
        }
        let held = |metric: MetricId| {
            let mut samples = report.samples.iter();
            samples.any(|sample| {
                sample.device == at as u32
                    && sample.metric == metric
                    && sample.reading == Reading::of(1.0)
            })
        };
        let bits = gpu::CLOCK_EVENTS.iter().filter(|(_, metric)| held(*metric));
        let mask: u64 = bits.map(|(bit, _)| bit).sum();
        if is_there(report, at as u32) {
            let labels = labels(report, at as u32, device, Dialect::Dcgm);
            line(page, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", &labels, mask as f64);
        }
    }
}

/// Whether a GPU answers: of one that does not dcgm-exporter has only blank values, and leaves them out.
fn is_there(report: &Report, at: u32) -> bool {
    let mut samples = report.samples.iter().filter(|sample| sample.device == at);
    samples.any(|sample| sample.metric == gpu::POWER && sample.reading.value().is_some())
}

/// The last XID of each GPU, which stays for ever, and the errors of all its NVLinks together.
fn errors(report: &Report, page: &mut String) {
    for (at, device) in report.devices.iter().enumerate() {
        if device.class != Class::Gpu {
            continue;
        }
        let of = |class: Class, metric: MetricId| {
            report.samples.iter().filter_map(move |sample| {
                let part = &report.devices[sample.device as usize];
                let own = part.class == class && part.key.first() == device.key.first();
                (own && sample.metric == metric).then_some((part, sample.reading.value()?))
            })
        };
        let labels = labels(report, at as u32, device, Dialect::Dcgm);
        let last = of(Class::Xid, parts::XID_ERRORS).next_back();
        let last = last.and_then(|(part, _)| part.key.get(1)?.parse::<u32>().ok());
        if let Some(code) = last {
            let said = format!("{labels},err_code=\"{code}\",err_msg=\"{}\"", xid(code).meaning);
            line(page, "DCGM_FI_DEV_XID_ERRORS", &said, f64::from(code));
        } else if is_there(report, at as u32) {
            line(page, "DCGM_FI_DEV_XID_ERRORS", &labels, 0.0);
        }
        if is_there(report, at as u32) {
            let replays = of(Class::Nvlink, parts::NVLINK_REPLAY).map(|(_, value)| value).sum();
            line(page, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", &labels, replays);
        }
    }
}

/// The series of each slice of a GPU, which stand beside those of the whole.
fn slices(report: &Report, page: &mut String) {
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
        let [of, number] = &*device.key else { continue };
        let whole = report
            .devices
            .iter()
            .position(|device| device.class == Class::Gpu && device.key.first() == Some(of));
        let slice = number.parse::<usize>().ok().and_then(|at| SLICES.get(at));
        let (Some(at), Some(slice), Some(value)) = (whole, slice, sample.reading.value()) else {
            continue;
        };
        let whole = labels(report, at as u32, &report.devices[at], Dialect::Dcgm);
        let labels =
            format!("{whole},GPU_I_PROFILE=\"{}\",GPU_I_ID=\"{}\"", slice.profile, slice.instance);
        line(page, name, &labels, value / unit);
    }
}

/// node_exporter counts each processor apart, and says who everything is in its own way.
fn of_the_host(report: &Report, page: &mut String) {
    let of = |metric| report.reading(&Device::node(), metric).and_then(Reading::value);
    let node = report.node.as_deref().unwrap_or_default();
    let kernel = info(report, 0, host::NODE_INFO, "kernel");
    line(page, "node_uname_info", &format!("nodename=\"{node}\",release=\"{kernel}\""), 1.0);
    if let Some(time) = report.node_time {
        line(page, "node_time_seconds", "", time.seconds());
    }
    if let (Some(cpus), Some(busy), Some(iowait)) =
        (of(host::CPUS), of(host::CPU_BUSY), of(host::CPU_IOWAIT))
    {
        for cpu in 0..cpus as usize {
            for (mode, total) in [("user", busy), ("iowait", iowait)] {
                let labels = format!("cpu=\"{cpu}\",mode=\"{mode}\"");
                line(page, "node_cpu_seconds_total", &labels, total / cpus);
            }
        }
    }
    for at in report.infos.iter().filter(|info| info.metric == port::INFO) {
        let Some(name) = report.devices[at.device as usize].key.first() else { continue };
        let of = |name| info(report, at.device, port::INFO, name);
        let labels = format!(
            "device=\"{name}\",firmware_version=\"{}\",hca_type=\"{}\"",
            of("firmware"),
            of("hca_type")
        );
        line(page, "node_infiniband_info", &labels, 1.0);
    }
}
