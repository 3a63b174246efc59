//! Writes the page of AMD's device-metrics-exporter, in the form of Prometheus's Go library: families and labels by name.

use std::fmt::Write as _;

use super::{
    decimal::Decimal, gpu_board::GpuIdentity, gpu_sampler::GpuCollection, gpu_view::GpuView,
    job_labels::JobLabelValues,
};
use crate::{exporter_plan::GpuMetricSet, random::RandomKey};

/// How a site runs the exporter on one node.
#[derive(Clone, Debug)]
pub(super) struct AmdSettings {
    /// Which metrics it serves.
    pub(super) set: GpuMetricSet,
    /// The node's name.
    pub(super) node: Option<String>,
    /// Whether clocks are named as before version 1.5: `GPU_CLOCK_TYPE_SYSTEM` instead of `system`.
    pub(super) has_long_clock_types: bool,
    /// Whether the labels that are off by default are on.
    pub(super) has_more_labels: bool,
    /// Whether it serves profiling values.
    pub(super) has_profiling: bool,
    /// Share of values that are blank.
    pub(super) blank_share: f64,
    /// Key of the blank values.
    pub(super) key: RandomKey,
}

/// A metric: its lists, name, help text and value.
struct AmdMetric {
    set: GpuMetricSet,
    name: &'static str,
    help: &'static str,
    value: fn(&GpuView<'_>) -> Option<Decimal>,
}

const fn metric(
    set: GpuMetricSet,
    name: &'static str,
    help: &'static str,
    value: fn(&GpuView<'_>) -> Option<Decimal>,
) -> AmdMetric {
    AmdMetric { set, name, help, value }
}

/// The clocks of one GPU: type, and its value in MHz.
const CLOCK_TYPES: [(&str, &str); 3] = [
    ("system", "GPU_CLOCK_TYPE_SYSTEM"),
    ("memory", "GPU_CLOCK_TYPE_MEMORY"),
    ("video", "GPU_CLOCK_TYPE_VIDEO"),
];

/// The family whose series differ by clock.
const CLOCK: &str = "gpu_clock";

/// Milliseconds of residency per second: violation counters tick with the firmware.
const RESIDENCY_TICKS: f64 = 1_000.0;

use GpuMetricSet::{Default as InDefault, Full, Minimal};

/// Metrics by name.
#[rustfmt::skip]
const METRICS: &[AmdMetric] = &[
    metric(Minimal, CLOCK, "List of current GPU clock frequencies in MHz", |_| None),
    metric(InDefault, "gpu_ecc_correct_total", "Total Correctable error count", |v| Some(Decimal::count(v.sample.state.ecc_corrected))),
    metric(InDefault, "gpu_ecc_uncorrect_total", "Total Uncorrectable error count", |v| Some(Decimal::count(v.sample.state.ecc_uncorrected))),
    metric(InDefault, "gpu_energy_consumed", "Accumulated energy consumed by the GPU in uJ", |v| Some(Decimal::count(v.sample.state.energy_j * 1e6))),
    metric(InDefault, "gpu_free_vram", "Free VRAM memory of the GPU (in MB)", |v| { let (total, reserved, used) = v.memory_mib(); Some(Decimal::nearest(total - reserved - used)) }),
    metric(Minimal, "gpu_gfx_activity", "Graphics engine usage in Percentage (0-100)", |v| Some(Decimal::nearest(v.sample.utilization * 100.0))),
    metric(InDefault, "gpu_health", "Health of the GPU (0 = Unhealthy | 1 = Healthy)", |v| Some(Decimal::flag(v.sample.state.ecc_uncorrected < 1.0))),
    metric(Minimal, "gpu_junction_temperature", "Current junction/hotspot temperature in Celsius", |v| Some(Decimal::nearest(v.sample.temperature_c))),
    metric(InDefault, "gpu_memory_temperature", "Current memory temperature in Celsius", |v| Some(Decimal::nearest(v.sample.memory_temperature_c))),
    metric(Minimal, "gpu_package_power", "Current socket power in Watts", |v| Some(Decimal::nearest(v.sample.power_w))),
    metric(InDefault, "gpu_power_usage", "GPU Power usage in Watts", |v| Some(Decimal::nearest(v.sample.power_w))),
    metric(Full, "gpu_prof_gpu_util_percent", "GPU utilization percentage", |v| v.profile().map(|profile| Decimal::rounded(profile.engine_active * 100.0, 6))),
    metric(InDefault, "gpu_total_vram", "Total VRAM memory of the GPU (in MB)", |v| Some(Decimal::nearest(v.memory_mib().0))),
    metric(InDefault, "gpu_umc_activity", "Memory engine usage in Percentage (0-100)", |v| Some(Decimal::nearest(v.sample.memory_utilization * 100.0))),
    metric(Minimal, "gpu_used_vram", "Used VRAM memory of the GPU (in MB)", |v| Some(Decimal::nearest(v.memory_mib().1 + v.memory_mib().2))),
    metric(Full, "gpu_violation_ppt_residency_accumulated", "package power tracking accumulated violation counter", |v| Some(Decimal::count(v.sample.state.power_violation_s * RESIDENCY_TICKS))),
    metric(Full, "gpu_violation_socket_thermal_residency_accumulated", "socket thermal accumulated violation counter", |v| Some(Decimal::count(v.sample.state.thermal_violation_s * RESIDENCY_TICKS))),
    metric(InDefault, "pcie_bandwidth", "Current PCIe bandwidth in Mb/s", |v| v.sample.profile.map(|profile| Decimal::nearest((profile.pcie_receive + profile.pcie_transmit) * 8e-6))),
    metric(InDefault, "pcie_max_speed", "Maximum PCIe speed in GT/s", |v| Some(Decimal::whole(transfers_of_generation(v.identity.board.pcie_generation)))),
    metric(InDefault, "pcie_replay_count", "Total number of PCIe replays", |v| Some(Decimal::count(v.sample.state.pcie_replays))),
    metric(InDefault, "pcie_speed", "Current PCIe speed in GT/s", |v| Some(Decimal::whole(transfers_of_generation(v.sample.state.pcie_generation)))),
];

/// Gigatransfers per second of a PCIe generation.
fn transfers_of_generation(generation: u32) -> i64 {
    match generation {
        0 | 1 => 2,
        2 => 5,
        generation => 8 << (generation - 3).min(4),
    }
}

/// The labels of one GPU, around those that only some families have.
#[derive(Clone, Debug)]
struct SeriesLabels {
    gpu: usize,
    /// Up to `card_vendor`.
    head: String,
    /// From `cluster_name` on.
    tail: String,
}

/// Writes pages of one node's device-metrics-exporter.
#[derive(Clone, Debug)]
pub(super) struct AmdPage {
    settings: AmdSettings,
    series: Vec<SeriesLabels>,
}

impl AmdPage {
    pub(super) fn new(settings: AmdSettings) -> Self {
        Self { settings, series: Vec::new() }
    }

    /// Sets who holds the GPUs, by their position in the plan.
    pub(super) fn set_job_labels(&mut self, gpus: &[GpuIdentity], jobs: &[JobLabelValues]) {
        let settings = &self.settings;
        let label = |(index, gpu): (usize, &GpuIdentity)| {
            let none = JobLabelValues::default();
            let labels = jobs.get(gpu.position).unwrap_or(&none);
            let [pod, namespace, container] = labels.pod.clone().unwrap_or_default();
            let job = &labels.job;
            let mut head = "{card_model=\"102-G30211-0C\"".to_owned();
            let mut tail = format!(",container=\"{container}\",deployment_mode=\"baremetal\"");
            if settings.has_more_labels {
                let _ = write!(head, ",card_series=\"{}\",card_vendor=\"AMD\"", gpu.board.name);
                tail += ",driver_version=\"6.12.12\"";
            }
            let _ = write!(
                tail,
                ",gpu_compute_partition_type=\"spx\",gpu_id=\"{}\",gpu_memory_partition_type=\"nps1\",gpu_partition_id=\"0\"",
                gpu.number
            );
            if settings.has_more_labels {
                let _ = write!(tail, ",gpu_uuid=\"{}\"", gpu.uuid);
            }
            if let Some(node) = &settings.node {
                let _ = write!(tail, ",hostname=\"{node}\"");
            }
            let (user, partition) = if job.is_empty() { ("", "") } else { ("ml", "gpu") };
            let _ = write!(
                tail,
                ",job_id=\"{job}\",job_partition=\"{partition}\",job_user=\"{user}\",namespace=\"{namespace}\",pod=\"{pod}\",serial_number=\"{}\"}} ",
                gpu.serial
            );
            SeriesLabels { gpu: index, head, tail }
        };
        self.series = gpus.iter().enumerate().map(label).collect();
    }

    /// Appends the page of a collection; without one, or where the driver is silent, only the number of GPUs.
    pub(super) fn write_page(
        &self,
        gpus: &[GpuIdentity],
        collection: Option<&GpuCollection>,
        out: &mut String,
    ) {
        let present = collection.map_or(0, |collection| {
            collection.gpus.iter().filter(|gpu| gpu.state.is_present).count()
        });
        for metric in METRICS {
            if metric.name == "gpu_package_power" {
                self.write_gpu_count(present, out);
            }
            let is_listed = match self.settings.set {
                GpuMetricSet::Minimal => metric.set == Minimal,
                GpuMetricSet::Default => metric.set != Full,
                GpuMetricSet::Full => true,
            };
            if let Some(collection) = collection.filter(|_| is_listed && present > 0) {
                self.write_family(metric, gpus, collection, out);
            }
        }
    }

    fn write_gpu_count(&self, count: usize, out: &mut String) {
        write_header("gpu_nodes_total", "Number of GPUs in the node", out);
        out.push_str("gpu_nodes_total");
        if let Some(node) = &self.settings.node {
            let _ = write!(out, "{{hostname=\"{node}\"}}");
        }
        let _ = writeln!(out, " {count}");
    }

    fn write_family(
        &self,
        metric: &AmdMetric,
        gpus: &[GpuIdentity],
        collection: &GpuCollection,
        out: &mut String,
    ) {
        let mut has_header = false;
        for series in &self.series {
            let identity = &gpus[series.gpu];
            let Some(sample) = collection.gpus.get(identity.position) else { continue };
            if !sample.state.is_present
                || self.is_blank(collection.number, metric, identity.position)
            {
                continue;
            }
            let has_profiling = self.settings.has_profiling;
            let view = GpuView { identity, sample, instance: None, sticky_xid: 0, has_profiling };
            let value = (metric.value)(&view);
            if value.is_none() && metric.name != CLOCK {
                continue;
            }
            if !has_header {
                has_header = true;
                write_header(metric.name, metric.help, out);
            }
            match value {
                None => self.write_clocks(series, &view, out),
                Some(value) => {
                    for part in [metric.name, &series.head, &series.tail] {
                        out.push_str(part);
                    }
                    value.write_shortest(out);
                    out.push('\n');
                }
            }
        }
    }

    fn write_clocks(&self, series: &SeriesLabels, view: &GpuView<'_>, out: &mut String) {
        let sample = view.sample;
        let clocks = [sample.sm_clock_mhz, sample.state.memory_clock_mhz, 29.0];
        for (index, ((short, long), clock)) in CLOCK_TYPES.iter().zip(clocks).enumerate() {
            let kind = if self.settings.has_long_clock_types { long } else { short };
            // The compute dies come first, then the memory, then the video engines.
            let number = ["0", "8", "9"][index];
            for part in
                [CLOCK, &series.head, ",clock_index=\"", number, "\",clock_type=\"", kind, "\""]
            {
                out.push_str(part);
            }
            out.push_str(&series.tail);
            Decimal::nearest(clock).write_shortest(out);
            out.push('\n');
        }
    }

    fn is_blank(&self, collection: usize, metric: &AmdMetric, gpu: usize) -> bool {
        let AmdSettings { blank_share, key, .. } = self.settings;
        let key = || key.child_index(collection << 12 | gpu).child(metric.name);
        blank_share > 0.0 && key().chance(blank_share)
    }
}

fn write_header(name: &str, help: &str, out: &mut String) {
    for part in ["# HELP ", name, " ", help, "\n# TYPE ", name, " gauge\n"] {
        out.push_str(part);
    }
}
