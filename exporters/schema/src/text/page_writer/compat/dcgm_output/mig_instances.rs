//! MIG instances in dcgm-exporter's form: in the series of their GPU, with two more labels.

use super::{DcgmLabels, DcgmNames, ForeignValue};
use crate::{
    DeviceClass, MetricId, Report,
    catalogue::{gpu, gpu_parts as parts},
    text::page_writer::compat::to_foreign_value,
};

/// A metric of an instance, and the metric of a whole GPU whose name it uses.
const OF_INSTANCES: [(MetricId, MetricId); 5] = [
    (parts::MIG_MEMORY_USED, gpu::MEMORY_USED),
    (parts::MIG_MEMORY_TOTAL, gpu::MEMORY_TOTAL),
    (parts::MIG_SM_ACTIVE, gpu::SM_ACTIVE),
    (parts::MIG_TENSOR_ACTIVE, gpu::TENSOR_ACTIVE),
    (parts::MIG_DRAM_ACTIVE, gpu::DRAM_ACTIVE),
];

/// The separator of product name and profile: `NVIDIA H100 80GB HBM3 MIG 3g.40gb`.
const BEFORE_PROFILE: &str = " MIG ";

/// Labels of a GPU that its instances replace or omit: a pod holds an instance, not its GPU.
pub(super) const OWN: [&str; 5] = ["container", "namespace", "pod", "pod_uid", "hpc_job"];

/// Adds the values of instances to those of whole GPUs. As in dcgm-exporter, a value that the instances report is not
/// reported for their GPU too.
pub(super) fn add_instances(report: &Report, names: DcgmNames, values: &mut Vec<ForeignValue>) {
    let mut instance_values = Vec::new();
    for sample in &report.samples {
        let mapping = OF_INSTANCES.iter().find(|(metric, _)| *metric == sample.metric);
        let (Some((_, gpu_metric)), Some(value)) = (mapping, sample.reading.value()) else {
            continue;
        };
        if report
            .devices
            .get(sample.device as usize)
            .is_none_or(|device| device.class != DeviceClass::Mig)
        {
            continue;
        }
        let row = gpu_metric.catalogue_row();
        if let Some((name, scale)) = names.field_of(*gpu_metric) {
            let value = to_foreign_value(value, scale, row.unit);
            instance_values.push(ForeignValue {
                name,
                metric: *gpu_metric,
                device: sample.device,
                value,
            });
        }
    }
    let gpu = |device: u32| report.devices[device as usize].key.first();
    values.retain(|gpu_value| {
        let is_replaced = |part: &&ForeignValue| {
            part.name == gpu_value.name && gpu(part.device) == gpu(gpu_value.device)
        };
        !instance_values.iter().any(|part| is_replaced(&part))
    });
    values.append(&mut instance_values);
    values.sort_by_key(|value| (value.metric, value.name, value.device));
    values.dedup_by_key(|value| (value.name, value.device));
}

/// The labels that identify the instance at position `index`, its profile and its number, and the pod that holds it.
pub(super) fn instance_labels(report: &Report, index: u32) -> DcgmLabels<'_> {
    let mut infos = report.infos.iter();
    let info = infos.find(|info| info.metric == parts::MIG_INFO && info.device == index);
    let info_label = |label_name: &str| {
        let label = info?.labels.iter().find(|(name, _)| *name == label_name)?;
        Some(label.1.as_str())
    };
    let profile = info_label("name").and_then(|name| name.rsplit_once(BEFORE_PROFILE));
    let mut labels = vec![
        ("GPU_I_PROFILE", profile.map_or("", |(_, profile)| profile)),
        ("GPU_I_ID", info_label("gpu_instance").unwrap_or_default()),
    ];
    let pod_labels = ["container", "namespace", "pod"].map(|name| Some((name, info_label(name)?)));
    labels.extend(pod_labels.into_iter().flatten());
    labels
}
