//! device-metrics-exporter: AMD's GPUs by their driver's library.

use super::{
    plan::Blank,
    table::{Identity, Table, row, same},
};
use crate::{
    Class, Dialect,
    catalogue::{
        Scale::{Per, Times},
        gpu, gpu_health as health, hardware,
    },
};

/// Its megabytes are the driver's: 1,048,576 bytes.
const MB: f64 = 1_048_576.0;

/// Its words. Of the clocks only the first of each type is taken: the others are those of further engines.
pub(super) const TABLE: Table = Table {
    dialect: Dialect::Amd,
    words: &[
        row("gpu_gfx_activity", gpu::UTILIZATION, Per(100.0)),
        row("gpu_umc_activity", gpu::MEMORY_ACTIVITY, Per(100.0)),
        row("gpu_used_vram", gpu::MEMORY_USED, Times(MB)),
        row("gpu_free_vram", gpu::MEMORY_FREE, Times(MB)),
        row("gpu_total_vram", gpu::MEMORY_TOTAL, Times(MB)),
        same("gpu_package_power", gpu::POWER),
        same("gpu_average_package_power", gpu::POWER),
        same("gpu_power_usage", gpu::POWER),
        row("gpu_energy_consumed", gpu::ENERGY, Per(1e6)),
        same("gpu_junction_temperature", gpu::TEMPERATURE),
        same("gpu_edge_temperature", gpu::TEMPERATURE),
        same("gpu_memory_temperature", health::MEMORY_TEMPERATURE),
        row("gpu_clock", gpu::SM_CLOCK, Times(1e6)).when("clock_type", "GPU_CLOCK_TYPE_SYSTEM"),
        row("gpu_clock", health::MEMORY_CLOCK, Times(1e6))
            .when("clock_type", "GPU_CLOCK_TYPE_MEMORY"),
        row("gpu_max_clock", gpu::SM_CLOCK_MAX, Times(1e6))
            .when("clock_type", "GPU_CLOCK_TYPE_SYSTEM"),
        row("gpu_max_clock", health::MEMORY_CLOCK_MAX, Times(1e6))
            .when("clock_type", "GPU_CLOCK_TYPE_MEMORY"),
        same("pcie_replay_count", health::PCIE_REPLAYS),
        same("gpu_ecc_correct_total", hardware::GPU_RAS_CORRECTED),
        same("gpu_ecc_uncorrect_total", hardware::GPU_RAS_UNCORRECTED),
        row("gpu_prof_gpu_util_percent", gpu::GRAPHICS_ACTIVE, Per(100.0)),
    ],
    keys: &[(Class::Gpu, &["gpu_id"])],
    identity: &[Identity {
        class: Class::Gpu,
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
    blank: Blank::AllOnes,
};
