//! The names that DCGM 4.6 gave its fields; the old ones live on beside them and stand in the catalogue.

use super::{
    plan::Blank,
    table::{Identity, Table, row, same},
};
use crate::{
    Class, Dialect,
    catalogue::{
        Scale::{Per, Times},
        gpu, gpu_health as health,
    },
};

/// The new names. Utilisation kept its per cent although it is called a ratio; what profiling calls one is one.
pub(super) const TABLE: Table = Table {
    dialect: Dialect::Dcgm,
    words: &[
        row("DCGM_FI_DEV_GPU_UTIL_RATIO", gpu::UTILIZATION, Per(100.0)),
        row("DCGM_FI_DEV_MEM_COPY_UTIL_RATIO", gpu::MEMORY_ACTIVITY, Per(100.0)),
        row("DCGM_FI_DEV_ENC_UTIL_RATIO", health::ENCODER, Per(100.0)),
        row("DCGM_FI_DEV_DEC_UTIL_RATIO", health::DECODER, Per(100.0)),
        same("DCGM_FI_DEV_GPU_TEMP_CELSIUS", gpu::TEMPERATURE),
        same("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", health::MEMORY_TEMPERATURE),
        same("DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS", health::SLOWDOWN_TEMPERATURE),
        same("DCGM_FI_DEV_GPU_TEMP_SHUTDOWN_CELSIUS", health::SHUTDOWN_TEMPERATURE),
        same("DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS", health::TEMPERATURE_MARGIN),
        same("DCGM_FI_DEV_BOARD_POWER_WATTS", gpu::POWER),
        same("DCGM_FI_DEV_BOARD_POWER_RAW_WATTS", health::POWER_INSTANT),
        same("DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", gpu::POWER_LIMIT),
        same("DCGM_FI_DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS", health::POWER_DEFAULT_LIMIT),
        row("DCGM_FI_DEV_SM_CLOCK_MHZ", gpu::SM_CLOCK, Times(1e6)),
        row("DCGM_FI_DEV_MEM_CLOCK_MHZ", health::MEMORY_CLOCK, Times(1e6)),
        same("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", health::PCIE_REPLAYS),
        same("DCGM_FI_DEV_ROW_REMAP_FAILED", health::REMAP_FAILED),
        same("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", gpu::GRAPHICS_ACTIVE),
        same("DCGM_FI_PROF_SM_UTIL_RATIO", gpu::SM_ACTIVE),
        same("DCGM_FI_PROF_SM_OCCUPANCY_RATIO", gpu::SM_OCCUPANCY),
        same("DCGM_FI_PROF_TENSOR_UTIL_RATIO", gpu::TENSOR_ACTIVE),
        same("DCGM_FI_PROF_DRAM_UTIL_RATIO", gpu::DRAM_ACTIVE),
        same("DCGM_FI_PROF_FP64_UTIL_RATIO", gpu::FP64_ACTIVE),
        same("DCGM_FI_PROF_FP32_UTIL_RATIO", gpu::FP32_ACTIVE),
        same("DCGM_FI_PROF_FP16_UTIL_RATIO", gpu::FP16_ACTIVE),
    ],
    keys: &[(Class::Gpu, &["gpu"])],
    identity: &[Identity {
        class: Class::Gpu,
        info: gpu::INFO,
        labels: &[
            ("uuid", "UUID|gpu_uuid"),
            ("model", "modelName|model_name"),
            ("pci_bus_id", "pci_bus_id"),
            ("driver", "DCGM_FI_DRIVER_VERSION"),
        ],
    }],
    node: &["Hostname", "hostname"],
    parts: &["GPU_I_ID"],
    blank: Blank::DcgmGauge,
};
