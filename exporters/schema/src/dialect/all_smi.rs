//! all-smi: GPUs of many vendors under one set of metric names.

use super::{
    decode_plan::BlankValues,
    dialect_table::{
        DialectTable, IdentityLabels, MappingTarget, NameMapping, same_unit, scaled_unit,
    },
};
use crate::{
    DeviceClass, Dialect,
    catalogue::{
        UnitScale::{Per, Times},
        gpu, gpu_health as health, gpu_parts as parts, host,
    },
};

const fn identity_only(name: &'static str) -> NameMapping {
    NameMapping { name, when: None, to: MappingTarget::IdentityOnly(DeviceClass::Gpu) }
}

/// Its table. On some of its series `index` became `gpu_index` or `npu_index`, and `uuid` `gpu_uuid` or `npu_uuid`.
/// Gaudi and TPU chips have the names of GPUs, and some of their own beside them. Of all its shares only those of GPM are
/// fractions.
pub(super) const TABLE: DialectTable = DialectTable {
    dialect: Dialect::AllSmi,
    mappings: &[
        identity_only("all_smi_gpu_info"),
        scaled_unit("all_smi_gpu_utilization", gpu::UTILIZATION, Per(100.0)),
        same_unit("all_smi_gpu_memory_bandwidth_utilization", gpu::DRAM_ACTIVE),
        same_unit("all_smi_gpu_sm_occupancy", gpu::SM_OCCUPANCY),
        same_unit("all_smi_gpu_memory_used_bytes", gpu::MEMORY_USED),
        same_unit("all_smi_gpu_memory_total_bytes", gpu::MEMORY_TOTAL),
        same_unit("all_smi_gpu_temperature_celsius", gpu::TEMPERATURE),
        same_unit(
            "all_smi_gpu_temperature_threshold_slowdown_celsius",
            health::SLOWDOWN_TEMPERATURE,
        ),
        same_unit(
            "all_smi_gpu_temperature_threshold_shutdown_celsius",
            health::SHUTDOWN_TEMPERATURE,
        ),
        same_unit("all_smi_gpu_power_consumption_watts", gpu::POWER),
        same_unit("all_smi_gpu_power_limit_current_watts", gpu::POWER_LIMIT),
        scaled_unit("all_smi_gpu_frequency_mhz", gpu::SM_CLOCK, Times(1e6)),
        scaled_unit("all_smi_gpu_clock_graphics_max_mhz", gpu::SM_CLOCK_MAX, Times(1e6)),
        scaled_unit("all_smi_gpu_clock_memory_max_mhz", health::MEMORY_CLOCK_MAX, Times(1e6)),
        same_unit("all_smi_gpu_performance_state", health::PERFORMANCE_STATE),
        same_unit("all_smi_gpu_pcie_gen_current", health::PCIE_GENERATION),
        same_unit("all_smi_gpu_pcie_width_current", health::PCIE_WIDTH),
        same_unit("all_smi_gpu_mig_mode", health::MIG_MODE),
        same_unit("all_smi_energy_consumed_joules_total", gpu::ENERGY),
        same_unit("all_smi_gpu_process_memory_bytes", parts::PROCESS_MEMORY),
        scaled_unit("all_smi_gpu_process_sm_util", parts::PROCESS_SM, Per(100.0)),
        identity_only("all_smi_gaudi_device_info"),
        scaled_unit("all_smi_gaudi_aip_utilization_percent", gpu::UTILIZATION, Per(100.0)),
        same_unit("all_smi_gaudi_memory_used_bytes", gpu::MEMORY_USED),
        same_unit("all_smi_gaudi_memory_total_bytes", gpu::MEMORY_TOTAL),
        same_unit("all_smi_gaudi_power_draw_watts", gpu::POWER),
        same_unit("all_smi_gaudi_power_max_watts", gpu::POWER_LIMIT),
        same_unit("all_smi_gaudi_temperature_celsius", gpu::TEMPERATURE),
        identity_only("all_smi_tpu_accelerator_type_info"),
        scaled_unit("all_smi_tpu_utilization_percent", gpu::UTILIZATION, Per(100.0)),
        same_unit("all_smi_tpu_memory_used_bytes", gpu::MEMORY_USED),
        same_unit("all_smi_tpu_memory_total_bytes", gpu::MEMORY_TOTAL),
        same_unit("all_smi_tpu_power_max_watts", gpu::POWER_LIMIT),
        same_unit("all_smi_memory_total_bytes", host::MEMORY_TOTAL),
        same_unit("all_smi_memory_available_bytes", host::MEMORY_AVAILABLE),
    ],
    keys: &[
        (DeviceClass::Gpu, &["gpu_index|npu_index|index"]),
        (DeviceClass::Process, &["gpu_index|npu_index|index", "pid"]),
        (DeviceClass::Node, &[]),
    ],
    identity: &[
        IdentityLabels {
            class: DeviceClass::Gpu,
            info: gpu::INFO,
            labels: &[
                ("uuid", "gpu_uuid|npu_uuid|uuid"),
                ("model", "gpu|gpu_name|npu"),
                ("pci_bus_id", "pci_bus_id"),
                ("driver", "driver_version"),
            ],
        },
        IdentityLabels {
            class: DeviceClass::Process,
            info: parts::PROCESS_INFO,
            labels: &[("name", "process_name|name"), ("user", "user")],
        },
    ],
    node: &["hostname", "host", "instance"],
    parts: &["vgpu_id", "mig_instance_id", "mig_uuid"],
    blank: BlankValues::Never,
};
