//! GKE's TPU device plugin: the chips of a node.

use super::{
    decode_plan::BlankValues,
    dialect_table::{DialectTable, IdentityLabels, NameMapping, same_unit, scaled_unit},
};
use crate::{
    DeviceClass, Dialect, MetricId,
    catalogue::{UnitScale::Per, gpu},
};

/// Only series of TPUs: the names are generic, and GKE's plugin for GPUs uses some of them.
const fn of_tpu(mapping: NameMapping) -> NameMapping {
    mapping.when_label("make", "cloud-tpu")
}

const fn percent(name: &'static str, metric: MetricId) -> NameMapping {
    scaled_unit(name, metric, Per(100.0))
}

/// Its table. Chips in use have series with their pod and series of the node, of which the first counts. On hosts after
/// the first of a slice, series of the host (TensorCore, memory bandwidth) count chips from 0, and those of the runtime
/// go on counting: nothing on the page joins them, so that such a chip is two devices.
pub(super) const TABLE: DialectTable = DialectTable {
    dialect: Dialect::Tpu,
    mappings: &[
        of_tpu(percent("duty_cycle", gpu::UTILIZATION)),
        of_tpu(same_unit("memory_used", gpu::MEMORY_USED)),
        of_tpu(same_unit("memory_total", gpu::MEMORY_TOTAL)),
        of_tpu(percent("duty_cycle_node", gpu::UTILIZATION)),
        of_tpu(same_unit("memory_used_node", gpu::MEMORY_USED)),
        of_tpu(same_unit("memory_total_node", gpu::MEMORY_TOTAL)),
        of_tpu(percent("tensorcore_utilization_node", gpu::TENSOR_ACTIVE)),
        of_tpu(percent("memory_bandwidth_utilization_node", gpu::DRAM_ACTIVE)),
    ],
    keys: &[(DeviceClass::Gpu, &["accelerator_id"])],
    identity: &[IdentityLabels {
        class: DeviceClass::Gpu,
        info: gpu::INFO,
        labels: &[("uuid", "accelerator_id"), ("model", "model")],
    }],
    node: &[],
    parts: &[],
    blank: BlankValues::Negative,
};
