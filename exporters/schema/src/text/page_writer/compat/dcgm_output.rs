//! dcgm-exporter's names: the GPU's identity on each series, and one mask of all clock-event reasons.

mod dcgm_counts;
mod gpu_sums;
mod mig_instances;

use super::{DcgmNames, ForeignValue, collect_values, foreign_name, write_families};
use crate::{
    Device, DeviceClass, Dialect, MetricId, Report, SanitizedText,
    catalogue::{UnitScale, gpu},
    dialect,
    text::page_writer::ExpositionFormat,
    unit::{CounterWidth, MetricKind},
};

/// Counters there that are gauges with us, because a replaced GPU starts again at zero.
const COUNTERS: [&str; 9] = [
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_RETIRED_DBE",
    "DCGM_FI_DEV_RETIRED_PENDING",
    "DCGM_FI_DEV_RETIRED_SBE",
    "DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL",
    "DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL",
    "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL",
    "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
];

/// The job source that dcgm-exporter labels as a job: files of its batch system name no containers.
const BATCH_SYSTEM: &str = "slurm";

/// Labels of a series.
type DcgmLabels<'a> = Vec<(&'static str, &'a str)>;

/// Appends every family of dcgm-exporter that the report can fill.
pub(super) fn write_dcgm(
    report: &Report,
    format: ExpositionFormat,
    names: DcgmNames,
    watches_xid: bool,
    out: &mut String,
) {
    let kernel_names: Vec<_> = report.devices.iter().map(KernelName::of).collect();
    let labels: Vec<_> = (0..)
        .zip(&kernel_names)
        .map(|(index, name)| name.device_labels(report, index, names))
        .collect();
    let labels_of = |device: u32| labels[device as usize].iter().copied();
    let mut values = collect_values(report, |metric| names.field_of(metric));
    // Series of a part of a GPU have other labels there.
    values.retain(|value| report.devices[value.device as usize].class == DeviceClass::Gpu);
    mig_instances::add_instances(report, names, &mut values);
    write_families(&values, format, metric_kind, labels_of, out);
    gpu_sums::write_clock_events(report, format, names, labels_of, out);
    gpu_sums::write_links(report, format, (names, &values), labels_of, out);
    gpu_sums::write_xids(report, format, (names, watches_xid), labels_of, out);
    dcgm_counts::write_counts(report, format, watches_xid, labels_of, out);
}

fn metric_kind(value: &ForeignValue) -> MetricKind {
    if COUNTERS.contains(&value.name) {
        return MetricKind::Counter(CounterWidth::Bits64);
    }
    value.metric.catalogue_row().kind
}

impl DcgmNames {
    /// The field that stands for a metric of a GPU, and its unit.
    fn field_of(self, metric: MetricId) -> Option<(&'static str, UnitScale)> {
        let renamed = match self {
            Self::Before4_9 => None,
            Self::Since4_9 => dialect::dcgm_4_9_field(metric),
        };
        match renamed {
            Some(name) => Some((name, UnitScale::Same)),
            None => foreign_name(metric, Dialect::Dcgm),
        }
    }

    /// The label with the driver's version.
    const fn driver_label(self) -> &'static str {
        match self {
            Self::Before4_9 => "DCGM_FI_DRIVER_VERSION",
            Self::Since4_9 => "DCGM_FI_SYSTEM_DRIVER_VERSION",
        }
    }
}

/// The kernel's name of a GPU.
struct KernelName(String);

impl KernelName {
    fn of(device: &Device) -> Self {
        let index = device.key.first().map(SanitizedText::as_str).unwrap_or_default();
        Self(format!("nvidia{index}"))
    }

    /// All labels of the GPU at position `index`, in dcgm-exporter's order. An unknown one is empty, as there.
    fn device_labels<'a>(
        &'a self,
        report: &'a Report,
        index: u32,
        names: DcgmNames,
    ) -> DcgmLabels<'a> {
        let device = &report.devices[index as usize];
        match device.class {
            DeviceClass::Gpu => self.gpu_labels(report, index, names),
            DeviceClass::Mig => {
                let gpu = report.devices.iter().position(|other| {
                    other.class == DeviceClass::Gpu && other.key.first() == device.key.first()
                });
                let mut labels = gpu
                    .map_or_else(DcgmLabels::new, |gpu| self.gpu_labels(report, gpu as u32, names));
                labels.retain(|(name, _)| !mig_instances::OWN.contains(name));
                labels.extend(mig_instances::instance_labels(report, index));
                labels
            }
            _ => DcgmLabels::new(),
        }
    }

    fn gpu_labels<'a>(
        &'a self,
        report: &'a Report,
        index: u32,
        names: DcgmNames,
    ) -> DcgmLabels<'a> {
        let device = &report.devices[index as usize];
        let info_label = |metric: MetricId, label_name: &str| {
            let mut infos = report.infos.iter();
            let info = infos.find(|info| info.metric == metric && info.device == index)?;
            let label = info.labels.iter().find(|(name, _)| *name == label_name)?;
            Some(label.1.as_str())
        };
        let gpu_label = |label_name| info_label(gpu::INFO, label_name).unwrap_or_default();
        let mut labels = vec![
            ("gpu", device.key[0].as_str()),
            ("UUID", gpu_label("uuid")),
            ("pci_bus_id", gpu_label("pci_bus_id")),
            ("device", self.0.as_str()),
            ("modelName", gpu_label("model")),
            // The second spelling is that of 4.8.3 and later.
            ("Hostname", report.node.as_deref().unwrap_or_default()),
            ("hostname", report.node.as_deref().unwrap_or_default()),
            (names.driver_label(), gpu_label("driver")),
        ];
        let job_label = |label_name| info_label(gpu::JOB_INFO, label_name);
        match (job_label("namespace"), job_label("pod")) {
            (Some(namespace), Some(pod)) => {
                let container = job_label("container").unwrap_or_default();
                labels.extend([("container", container), ("namespace", namespace), ("pod", pod)]);
            }
            // Without the kubelet's data a pod has a UID and no name.
            (None, Some(pod)) => labels.push(("pod_uid", pod)),
            _ if job_label("source").is_none_or(|source| source == BATCH_SYSTEM) => {
                labels.extend(job_label("job").map(|job| ("hpc_job", job)));
            }
            _ => {}
        }
        labels
    }
}

#[cfg(test)]
mod tests;
