//! The field names that DCGM 4.6 and 4.7 introduced; the old names remain valid and are in the catalogue.

use super::{
    decode_plan::BlankValues,
    dialect_table::{DialectTable, IdentityLabels, ratio_or_percent, same_unit, scaled_unit},
};
use crate::{
    DeviceClass, Dialect,
    catalogue::{
        UnitScale::{Per, Times},
        gpu, gpu_health as health,
    },
};

/// The new names. In 4.7 values are in base units. Before, utilization stays a percentage although its name ends in
/// ratio; profiling ratios are always ratios.
pub(super) const TABLE: DialectTable = DialectTable {
    dialect: Dialect::Dcgm,
    mappings: &[
        ratio_or_percent("DCGM_FI_DEV_GPU_UTIL_RATIO", gpu::UTILIZATION),
        scaled_unit("DCGM_FI_DEV_MEM_COPY_UTIL_RATIO", gpu::MEMORY_ACTIVITY, Per(100.0)),
        ratio_or_percent("DCGM_FI_DEV_MEMORY_UTIL_RATIO", gpu::MEMORY_ACTIVITY),
        ratio_or_percent("DCGM_FI_DEV_ENC_UTIL_RATIO", health::ENCODER),
        ratio_or_percent("DCGM_FI_DEV_DEC_UTIL_RATIO", health::DECODER),
        same_unit("DCGM_FI_DEV_GPU_TEMP_CELSIUS", gpu::TEMPERATURE),
        same_unit("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", health::MEMORY_TEMPERATURE),
        same_unit("DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS", health::SLOWDOWN_TEMPERATURE),
        same_unit("DCGM_FI_DEV_GPU_TEMP_SHUTDOWN_CELSIUS", health::SHUTDOWN_TEMPERATURE),
        same_unit("DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS", health::TEMPERATURE_MARGIN),
        same_unit("DCGM_FI_DEV_BOARD_POWER_WATTS", gpu::POWER),
        same_unit("DCGM_FI_DEV_BOARD_POWER_RAW_WATTS", health::POWER_INSTANT),
        same_unit("DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", gpu::POWER_LIMIT),
        same_unit("DCGM_FI_DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS", health::POWER_DEFAULT_LIMIT),
        scaled_unit("DCGM_FI_DEV_SM_CLOCK_MHZ", gpu::SM_CLOCK, Times(1e6)),
        scaled_unit("DCGM_FI_DEV_MEM_CLOCK_MHZ", health::MEMORY_CLOCK, Times(1e6)),
        same_unit("DCGM_FI_DEV_SM_CLOCK_HERTZ", gpu::SM_CLOCK),
        same_unit("DCGM_FI_DEV_SM_MAX_CLOCK_HERTZ", gpu::SM_CLOCK_MAX),
        same_unit("DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", health::MEMORY_CLOCK),
        same_unit("DCGM_FI_DEV_MEMORY_MAX_CLOCK_HERTZ", health::MEMORY_CLOCK_MAX),
        same_unit("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", gpu::ENERGY),
        same_unit("DCGM_FI_DEV_FB_CAPACITY_BYTES", gpu::MEMORY_TOTAL),
        same_unit("DCGM_FI_DEV_FB_FREE_BYTES", gpu::MEMORY_FREE),
        same_unit("DCGM_FI_DEV_FB_USED_BYTES", gpu::MEMORY_USED),
        same_unit("DCGM_FI_DEV_FB_RESERVED_BYTES", health::MEMORY_RESERVED),
        same_unit("DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", health::VIOLATION_POWER),
        same_unit("DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", health::VIOLATION_THERMAL),
        same_unit(
            "DCGM_FI_DEV_GPU_SYNC_BOOST_THROTTLE_SECONDS_TOTAL",
            health::VIOLATION_SYNC_BOOST,
        ),
        same_unit("DCGM_FI_DEV_GPU_LIMIT_THROTTLE_SECONDS_TOTAL", health::VIOLATION_BOARD_LIMIT),
        same_unit(
            "DCGM_FI_DEV_GPU_LOW_UTIL_THROTTLE_SECONDS_TOTAL",
            health::VIOLATION_LOW_UTILIZATION,
        ),
        same_unit(
            "DCGM_FI_DEV_GPU_RELIABILITY_THROTTLE_SECONDS_TOTAL",
            health::VIOLATION_RELIABILITY,
        ),
        same_unit("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", health::PCIE_REPLAYS),
        same_unit("DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL", health::REMAPPED_CORRECTED),
        same_unit("DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", health::REMAPPED_UNCORRECTED),
        same_unit("DCGM_FI_DEV_ROW_REMAP_FAILED", health::REMAP_FAILED),
        same_unit("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", gpu::GRAPHICS_ACTIVE),
        same_unit("DCGM_FI_PROF_SM_UTIL_RATIO", gpu::SM_ACTIVE),
        same_unit("DCGM_FI_PROF_SM_OCCUPANCY_RATIO", gpu::SM_OCCUPANCY),
        same_unit("DCGM_FI_PROF_TENSOR_UTIL_RATIO", gpu::TENSOR_ACTIVE),
        same_unit("DCGM_FI_PROF_DRAM_UTIL_RATIO", gpu::DRAM_ACTIVE),
        same_unit("DCGM_FI_PROF_FP64_UTIL_RATIO", gpu::FP64_ACTIVE),
        same_unit("DCGM_FI_PROF_FP32_UTIL_RATIO", gpu::FP32_ACTIVE),
        same_unit("DCGM_FI_PROF_FP16_UTIL_RATIO", gpu::FP16_ACTIVE),
    ],
    keys: &[(DeviceClass::Gpu, &["gpu"])],
    identity: &[IdentityLabels {
        class: DeviceClass::Gpu,
        info: gpu::INFO,
        labels: &[
            ("uuid", "UUID|gpu_uuid"),
            ("model", "modelName|model_name"),
            ("pci_bus_id", "pci_bus_id"),
            ("driver", "DCGM_FI_DRIVER_VERSION|DCGM_FI_SYSTEM_DRIVER_VERSION"),
        ],
    }],
    node: &["Hostname", "hostname"],
    parts: &["GPU_I_ID"],
    blank: BlankValues::DcgmGauge,
};
