//! device-metrics-exporter: AMD GPUs through the AMD SMI library.

use super::{
    decode_plan::BlankValues,
    dialect_table::{
        DialectTable, IdentityLabels, MappingTarget, NameMapping, declined, same_unit, scaled_unit,
    },
};
use crate::{
    DeviceClass, Dialect, MetricId,
    catalogue::{
        UnitScale::{Per, Times},
        gpu, gpu_health as health, hardware,
    },
};

/// Its megabytes are the driver's: 1,048,576 bytes.
const MB: f64 = 1_048_576.0;

/// Why a value is not read.
const KILOBYTES: &str = "no public source states whether a KB has 1,000 or 1,024 bytes";

/// Power of a partition other than the first is a zero that stands for no sensor. `NA` is the number of a GPU that has none.
const fn of_partition(name: &'static str, number: &'static str) -> NameMapping {
    same_unit(name, gpu::POWER).when_label("gpu_partition_id", number)
}

const fn pcie_speed(name: &'static str, metric: MetricId) -> NameMapping {
    NameMapping { name, when: None, to: MappingTarget::PcieSpeed(metric) }
}

const fn percent(name: &'static str, metric: MetricId) -> NameMapping {
    scaled_unit(name, metric, Per(100.0))
}

/// The mappings of its names with a prefix. Only the first clock of each type is read: the others belong to further engines.
/// Since version 1.5 clock types are `system` and `memory`. A violation is the share of its last interval in which this reason
/// held the clock.
macro_rules! amd_mappings {
    ($prefix:literal) => {
        &[
            scaled_unit(concat!($prefix, "gpu_gfx_activity"), gpu::UTILIZATION, Per(100.0)),
            scaled_unit(concat!($prefix, "gpu_umc_activity"), gpu::MEMORY_ACTIVITY, Per(100.0)),
            scaled_unit(concat!($prefix, "gpu_used_vram"), gpu::MEMORY_USED, Times(MB)),
            scaled_unit(concat!($prefix, "gpu_free_vram"), gpu::MEMORY_FREE, Times(MB)),
            scaled_unit(concat!($prefix, "gpu_total_vram"), gpu::MEMORY_TOTAL, Times(MB)),
            of_partition(concat!($prefix, "gpu_package_power"), "?0"),
            of_partition(concat!($prefix, "gpu_package_power"), "NA"),
            of_partition(concat!($prefix, "gpu_average_package_power"), "?0"),
            of_partition(concat!($prefix, "gpu_average_package_power"), "NA"),
            of_partition(concat!($prefix, "gpu_power_usage"), "?0"),
            of_partition(concat!($prefix, "gpu_power_usage"), "NA"),
            scaled_unit(concat!($prefix, "gpu_energy_consumed"), gpu::ENERGY, Per(1e6)),
            same_unit(concat!($prefix, "gpu_junction_temperature"), gpu::TEMPERATURE),
            same_unit(concat!($prefix, "gpu_edge_temperature"), gpu::TEMPERATURE),
            same_unit(concat!($prefix, "gpu_memory_temperature"), health::MEMORY_TEMPERATURE),
            scaled_unit(concat!($prefix, "gpu_clock"), gpu::SM_CLOCK, Times(1e6))
                .when_label("clock_type", "system"),
            scaled_unit(concat!($prefix, "gpu_clock"), health::MEMORY_CLOCK, Times(1e6))
                .when_label("clock_type", "memory"),
            scaled_unit(concat!($prefix, "gpu_clock"), gpu::SM_CLOCK, Times(1e6))
                .when_label("clock_type", "GPU_CLOCK_TYPE_SYSTEM"),
            scaled_unit(concat!($prefix, "gpu_clock"), health::MEMORY_CLOCK, Times(1e6))
                .when_label("clock_type", "GPU_CLOCK_TYPE_MEMORY"),
            scaled_unit(concat!($prefix, "gpu_max_clock"), gpu::SM_CLOCK_MAX, Times(1e6))
                .when_label("clock_type", "system"),
            scaled_unit(concat!($prefix, "gpu_max_clock"), health::MEMORY_CLOCK_MAX, Times(1e6))
                .when_label("clock_type", "memory"),
            scaled_unit(concat!($prefix, "gpu_max_clock"), gpu::SM_CLOCK_MAX, Times(1e6))
                .when_label("clock_type", "GPU_CLOCK_TYPE_SYSTEM"),
            scaled_unit(concat!($prefix, "gpu_max_clock"), health::MEMORY_CLOCK_MAX, Times(1e6))
                .when_label("clock_type", "GPU_CLOCK_TYPE_MEMORY"),
            declined(concat!($prefix, "gpu_xgmi_link_rx"), KILOBYTES),
            declined(concat!($prefix, "gpu_xgmi_link_tx"), KILOBYTES),
            pcie_speed(concat!($prefix, "pcie_speed"), health::PCIE_GENERATION),
            pcie_speed(concat!($prefix, "pcie_max_speed"), health::PCIE_GENERATION_MAX),
            same_unit(concat!($prefix, "pcie_replay_count"), health::PCIE_REPLAYS),
            same_unit(concat!($prefix, "gpu_ecc_correct_total"), hardware::GPU_RAS_CORRECTED),
            same_unit(concat!($prefix, "gpu_ecc_uncorrect_total"), hardware::GPU_RAS_UNCORRECTED),
            percent(concat!($prefix, "gpu_prof_gpu_util_percent"), gpu::GRAPHICS_ACTIVE),
            percent(concat!($prefix, "gpu_prof_gui_util_percent"), gpu::GRAPHICS_ACTIVE),
            percent(concat!($prefix, "gpu_prof_sm_active"), gpu::SM_ACTIVE),
            percent(concat!($prefix, "gpu_prof_occupancy_percent"), gpu::SM_OCCUPANCY),
            percent(concat!($prefix, "gpu_prof_tensor_active_percent"), gpu::TENSOR_ACTIVE),
            percent(
                concat!($prefix, "gpu_violation_ppt_residency_percentage"),
                gpu::CLOCK_EVENT_SW_POWER_CAP,
            ),
            percent(
                concat!($prefix, "gpu_violation_processor_hot_residency_percentage"),
                gpu::CLOCK_EVENT_HW_SLOWDOWN,
            ),
            percent(
                concat!($prefix, "gpu_violation_socket_thermal_residency_percentage"),
                gpu::CLOCK_EVENT_HW_THERMAL,
            ),
            percent(
                concat!($prefix, "gpu_violation_hbm_thermal_residency_percentage"),
                gpu::CLOCK_EVENT_SW_THERMAL,
            ),
        ]
    };
}

/// Its table.
pub(super) const TABLE: DialectTable = table_of(amd_mappings!(""));

/// The same with the prefix that its sample configuration gives all names.
pub(super) const PREFIXED_TABLE: DialectTable = table_of(amd_mappings!("amd_"));

const fn table_of(mappings: &'static [NameMapping]) -> DialectTable {
    DialectTable {
        dialect: Dialect::Amd,
        mappings,
        keys: &[(DeviceClass::Gpu, &["gpu_id"])],
        identity: &[IdentityLabels {
            class: DeviceClass::Gpu,
            info: gpu::INFO,
            labels: &[
                ("uuid", "gpu_uuid"),
                ("model", "card_series|card_model"),
                ("pci_bus_id", "pci_bus_id|gpu_bdf"),
                ("serial", "serial_number"),
                ("driver", "driver_version"),
                ("vbios", "vbios_version"),
            ],
        }],
        node: &["hostname"],
        parts: &[],
        blank: BlankValues::AllOnes,
    }
}
