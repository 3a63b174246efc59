//! neuron-monitor's Prometheus script: the NeuronCores of AWS Trainium and Inferentia, each of them one GPU of gaunt.

use super::{
    decode_plan::BlankValues,
    dialect_table::{DialectTable, IdentityLabels, declined, same_unit, sum_series},
};
use crate::{
    DeviceClass, Dialect,
    catalogue::{gpu, host},
};

/// Its table. Several runtimes may share a core: their shares and their memory are added up.
pub(super) const TABLE: DialectTable = DialectTable {
    dialect: Dialect::Neuron,
    mappings: &[
        sum_series("neuroncore_utilization_ratio", gpu::UTILIZATION),
        sum_series("neuroncore_memory_usage_constants", gpu::MEMORY_USED),
        sum_series("neuroncore_memory_usage_model_code", gpu::MEMORY_USED),
        sum_series("neuroncore_memory_usage_model_shared_scratchpad", gpu::MEMORY_USED),
        sum_series("neuroncore_memory_usage_runtime_memory", gpu::MEMORY_USED),
        sum_series("neuroncore_memory_usage_tensors", gpu::MEMORY_USED),
        declined("hardware_ecc_events_total", "counts by chip, and gaunt's GPUs are cores"),
        same_unit("system_memory_total_bytes", host::MEMORY_TOTAL).when_label("instance_type", ""),
    ],
    keys: &[(DeviceClass::Gpu, &["neuroncore"]), (DeviceClass::Node, &[])],
    identity: &[IdentityLabels {
        class: DeviceClass::Gpu,
        info: gpu::INFO,
        labels: &[("model", "instance_type")],
    }],
    node: &["instance_name", "instance_id"],
    parts: &[],
    blank: BlankValues::Negative,
};
