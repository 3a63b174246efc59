//! The field names that DCGM 4.6 and 4.7 introduced. The names of 3.x and 4.0 to 4.5 are in the catalogue; they remain
//! valid, with their units, in all later versions.
//!
//! DCGM 4.6 renamed fields and left their values as they were. DCGM 4.7, which dcgm-exporter 4.9 exports by default, adds
//! fields in base units under new numbers, and takes one name for another field: `DCGM_FI_DEV_GPU_UTIL_RATIO` was a
//! percentage in 4.6, and is a ratio in 4.7. Which one a page has is decided once for the page.

use super::dcgm_ratio_unit::RATIO_FIELD;
use crate::{
    MetricId,
    catalogue::{
        NVLINK_RATE_UNIT,
        UnitScale::{self, Same, Times},
        gpu, gpu_health as health,
    },
};

/// The meaning of a field's name.
#[derive(Debug)]
pub(super) struct DcgmField {
    /// The name on the page.
    pub(super) name: &'static str,
    /// Our metric.
    pub(super) metric: MetricId,
    /// From the unit of the field to ours.
    pub(super) unit: FieldUnit,
}

/// The unit of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum FieldUnit {
    /// The same in all versions that have the name.
    Fixed(UnitScale),
    /// A ratio in one version and a percentage in another.
    RatioOrPercent,
}

const fn same_unit(name: &'static str, metric: MetricId) -> DcgmField {
    DcgmField { name, metric, unit: FieldUnit::Fixed(Same) }
}

/// The names of DCGM 4.6: a field under a name of its own unit, and the first fields in base units (4.6.1).
pub(super) static RENAMED: [DcgmField; 36] = [
    DcgmField { name: RATIO_FIELD, metric: gpu::UTILIZATION, unit: FieldUnit::RatioOrPercent },
    same_unit("DCGM_FI_DEV_GPU_TEMP_CELSIUS", gpu::TEMPERATURE),
    same_unit("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", health::MEMORY_TEMPERATURE),
    same_unit("DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS", health::SLOWDOWN_TEMPERATURE),
    same_unit("DCGM_FI_DEV_GPU_TEMP_SHUTDOWN_CELSIUS", health::SHUTDOWN_TEMPERATURE),
    same_unit("DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS", health::TEMPERATURE_MARGIN),
    same_unit("DCGM_FI_DEV_BOARD_POWER_WATTS", gpu::POWER),
    same_unit("DCGM_FI_DEV_BOARD_POWER_RAW_WATTS", health::POWER_INSTANT),
    same_unit("DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", gpu::POWER_LIMIT),
    same_unit("DCGM_FI_DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS", health::POWER_DEFAULT_LIMIT),
    same_unit("DCGM_FI_DEV_GPU_PSTATE", health::PERFORMANCE_STATE),
    same_unit("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", health::PCIE_REPLAYS),
    same_unit("DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL", health::RETIRED_CORRECTED),
    same_unit("DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL", health::RETIRED_UNCORRECTED),
    same_unit("DCGM_FI_DEV_PAGE_RETIRED_PENDING", health::RETIRED_PENDING),
    same_unit("DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL", health::REMAPPED_CORRECTED),
    same_unit("DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", health::REMAPPED_UNCORRECTED),
    same_unit("DCGM_FI_DEV_ROW_REMAP_FAILED", health::REMAP_FAILED),
    same_unit("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL", health::NVLINK_CRC_FLIT),
    same_unit("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL", health::NVLINK_CRC_DATA),
    DcgmField {
        name: "DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL",
        metric: health::NVLINK_RATE,
        unit: FieldUnit::Fixed(Times(NVLINK_RATE_UNIT)),
    },
    same_unit("DCGM_FI_DEV_SM_CLOCK_HERTZ", gpu::SM_CLOCK),
    same_unit("DCGM_FI_DEV_SM_MAX_CLOCK_HERTZ", gpu::SM_CLOCK_MAX),
    same_unit("DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", health::MEMORY_CLOCK),
    same_unit("DCGM_FI_DEV_MEMORY_MAX_CLOCK_HERTZ", health::MEMORY_CLOCK_MAX),
    same_unit("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", gpu::ENERGY),
    same_unit("DCGM_FI_DEV_BAR1_CAPACITY_BYTES", health::BAR1_TOTAL),
    same_unit("DCGM_FI_DEV_BAR1_USED_BYTES", health::BAR1_USED),
    same_unit("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", gpu::GRAPHICS_ACTIVE),
    same_unit("DCGM_FI_PROF_SM_UTIL_RATIO", gpu::SM_ACTIVE),
    same_unit("DCGM_FI_PROF_SM_OCCUPANCY_RATIO", gpu::SM_OCCUPANCY),
    same_unit("DCGM_FI_PROF_TENSOR_UTIL_RATIO", gpu::TENSOR_ACTIVE),
    same_unit("DCGM_FI_PROF_DRAM_UTIL_RATIO", gpu::DRAM_ACTIVE),
    same_unit("DCGM_FI_PROF_FP64_UTIL_RATIO", gpu::FP64_ACTIVE),
    same_unit("DCGM_FI_PROF_FP32_UTIL_RATIO", gpu::FP32_ACTIVE),
    same_unit("DCGM_FI_PROF_FP16_UTIL_RATIO", gpu::FP16_ACTIVE),
];

/// The names that only DCGM 4.7 has: each of them shows that every ratio of the page is one.
pub(super) static BASE_UNITS: [DcgmField; 14] = [
    same_unit("DCGM_FI_DEV_MEMORY_UTIL_RATIO", gpu::MEMORY_ACTIVITY),
    same_unit("DCGM_FI_DEV_ENC_UTIL_RATIO", health::ENCODER),
    same_unit("DCGM_FI_DEV_DEC_UTIL_RATIO", health::DECODER),
    same_unit("DCGM_FI_DEV_FB_CAPACITY_BYTES", gpu::MEMORY_TOTAL),
    same_unit("DCGM_FI_DEV_FB_FREE_BYTES", gpu::MEMORY_FREE),
    same_unit("DCGM_FI_DEV_FB_USED_BYTES", gpu::MEMORY_USED),
    same_unit("DCGM_FI_DEV_FB_RESERVED_BYTES", health::MEMORY_RESERVED),
    same_unit("DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", health::NVLINK_RATE),
    same_unit("DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", health::VIOLATION_POWER),
    same_unit("DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", health::VIOLATION_THERMAL),
    same_unit("DCGM_FI_DEV_GPU_SYNC_BOOST_THROTTLE_SECONDS_TOTAL", health::VIOLATION_SYNC_BOOST),
    same_unit("DCGM_FI_DEV_GPU_LIMIT_THROTTLE_SECONDS_TOTAL", health::VIOLATION_BOARD_LIMIT),
    same_unit("DCGM_FI_DEV_GPU_LOW_UTIL_THROTTLE_SECONDS_TOTAL", health::VIOLATION_LOW_UTILIZATION),
    same_unit("DCGM_FI_DEV_GPU_RELIABILITY_THROTTLE_SECONDS_TOTAL", health::VIOLATION_RELIABILITY),
];

/// The field that dcgm-exporter 4.9 has for this metric under another name than before, in our unit.
pub(crate) fn dcgm_4_9_field(metric: MetricId) -> Option<&'static str> {
    let is_own = |field: &&DcgmField| match field.unit {
        FieldUnit::Fixed(scale) => scale == Same,
        FieldUnit::RatioOrPercent => true,
    };
    let mut fields = BASE_UNITS.iter().chain(&RENAMED).filter(is_own);
    fields.find(|field| field.metric == metric).map(|field| field.name)
}
