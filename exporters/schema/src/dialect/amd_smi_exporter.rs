//! amd_smi_exporter: AMD GPUs in the driver's own units, each identified by a label with the metric's name.

use super::{
    decode_plan::BlankValues,
    dialect_table::{DialectTable, IdentityLabels, same_unit, scaled_unit},
};
use crate::{
    DeviceClass, Dialect,
    catalogue::{UnitScale::Per, gpu, gpu_health as health},
};

/// Its table. It has no unit in any name; its own recording rules divide by these numbers.
pub(super) const TABLE: DialectTable = DialectTable {
    dialect: Dialect::Amd,
    mappings: &[
        same_unit("amd_gpu_SCLK", gpu::SM_CLOCK),
        same_unit("amd_gpu_MCLK", health::MEMORY_CLOCK),
        scaled_unit("amd_gpu_power", gpu::POWER, Per(1e6)),
        scaled_unit("amd_gpu_power_avg", gpu::POWER, Per(1e6)),
        scaled_unit("amd_gpu_power_cap", gpu::POWER_LIMIT, Per(1e6)),
        scaled_unit("amd_gpu_current_temperature", gpu::TEMPERATURE, Per(1e3)),
        scaled_unit("amd_gpu_use_percent", gpu::UTILIZATION, Per(100.0)),
        scaled_unit("amd_gpu_memory_use_percent", gpu::MEMORY_ACTIVITY, Per(100.0)),
    ],
    keys: &[(
        DeviceClass::Gpu,
        &[
            "gpu_SCLK|gpu_MCLK|gpu_power|gpu_power_avg|gpu_power_cap|gpu_current_temperature|gpu_use_percent|gpu_memory_use_percent",
        ],
    )],
    identity: &[IdentityLabels {
        class: DeviceClass::Gpu,
        info: gpu::INFO,
        labels: &[("model", "productname")],
    }],
    node: &[],
    parts: &[],
    blank: BlankValues::Negative,
};
