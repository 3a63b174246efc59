//! nvidia_gpu_exporter: what nvidia-smi answers, each GPU by its UUID.

#![cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "a table names most rows of a class")
)]

use super::{
    plan::Blank,
    table::{Identity, Table, To, Word, row, same},
};
use crate::{
    Class, Dialect,
    catalogue::{
        Scale::Same,
        gpu::{self, *},
        gpu_health as health, gpu_parts as parts,
    },
};

/// What `nvidia_smi_gpu_info` and older pages say of the GPU: series of the values have the UUID only.
pub(super) const INFO: &str = "nvidia_smi_gpu_info";

const fn who(name: &'static str) -> Word {
    Word { name, when: None, to: To::Who(Class::Gpu) }
}

/// Its words. It asked for a name by its old one where the driver is old: both stand here.
pub(super) const TABLE: Table = Table {
    dialect: Dialect::NvidiaSmi,
    words: &[
        who(INFO),
        Word { name: "nvidia_smi_index", when: None, to: To::Index(Class::Gpu) },
        same("nvidia_smi_utilization_gpu_ratio", UTILIZATION),
        same("nvidia_smi_utilization_memory_ratio", MEMORY_ACTIVITY),
        same("nvidia_smi_utilization_encoder_ratio", health::ENCODER),
        same("nvidia_smi_utilization_decoder_ratio", health::DECODER),
        same("nvidia_smi_utilization_jpeg_ratio", health::JPEG),
        same("nvidia_smi_utilization_ofa_ratio", health::OFA),
        same("nvidia_smi_memory_used_bytes", MEMORY_USED),
        same("nvidia_smi_memory_free_bytes", MEMORY_FREE),
        same("nvidia_smi_memory_total_bytes", MEMORY_TOTAL),
        same("nvidia_smi_memory_reserved_bytes", health::MEMORY_RESERVED),
        same("nvidia_smi_power_draw_watts", POWER),
        same("nvidia_smi_power_draw_average_watts", POWER),
        same("nvidia_smi_power_draw_instant_watts", health::POWER_INSTANT),
        same("nvidia_smi_enforced_power_limit_watts", POWER_LIMIT),
        same("nvidia_smi_power_limit_watts", POWER_LIMIT),
        same("nvidia_smi_power_default_limit_watts", health::POWER_DEFAULT_LIMIT),
        same("nvidia_smi_energy_joules_total", ENERGY),
        same("nvidia_smi_temperature_gpu", TEMPERATURE),
        same("nvidia_smi_temperature_memory", health::MEMORY_TEMPERATURE),
        same("nvidia_smi_temperature_gpu_tlimit", health::TEMPERATURE_MARGIN),
        same("nvidia_smi_clocks_current_sm_clock_hz", SM_CLOCK),
        same("nvidia_smi_clocks_sm_clock_hz", SM_CLOCK),
        same("nvidia_smi_clocks_max_sm_clock_hz", SM_CLOCK_MAX),
        same("nvidia_smi_clocks_current_memory_clock_hz", health::MEMORY_CLOCK),
        same("nvidia_smi_clocks_max_memory_clock_hz", health::MEMORY_CLOCK_MAX),
        same("nvidia_smi_clocks_event_reasons_gpu_idle", CLOCK_EVENT_IDLE),
        same("nvidia_smi_clocks_throttle_reasons_gpu_idle", CLOCK_EVENT_IDLE),
        same(
            "nvidia_smi_clocks_event_reasons_applications_clocks_setting",
            CLOCK_EVENT_APPLICATION_CLOCKS,
        ),
        same(
            "nvidia_smi_clocks_throttle_reasons_applications_clocks_setting",
            CLOCK_EVENT_APPLICATION_CLOCKS,
        ),
        same("nvidia_smi_clocks_event_reasons_sw_power_cap", CLOCK_EVENT_SW_POWER_CAP),
        same("nvidia_smi_clocks_throttle_reasons_sw_power_cap", CLOCK_EVENT_SW_POWER_CAP),
        same("nvidia_smi_clocks_event_reasons_hw_slowdown", CLOCK_EVENT_HW_SLOWDOWN),
        same("nvidia_smi_clocks_throttle_reasons_hw_slowdown", CLOCK_EVENT_HW_SLOWDOWN),
        same("nvidia_smi_clocks_event_reasons_sync_boost", CLOCK_EVENT_SYNC_BOOST),
        same("nvidia_smi_clocks_throttle_reasons_sync_boost", CLOCK_EVENT_SYNC_BOOST),
        same("nvidia_smi_clocks_event_reasons_sw_thermal_slowdown", CLOCK_EVENT_SW_THERMAL),
        same("nvidia_smi_clocks_throttle_reasons_sw_thermal_slowdown", CLOCK_EVENT_SW_THERMAL),
        same("nvidia_smi_clocks_event_reasons_hw_thermal_slowdown", CLOCK_EVENT_HW_THERMAL),
        same("nvidia_smi_clocks_throttle_reasons_hw_thermal_slowdown", CLOCK_EVENT_HW_THERMAL),
        same("nvidia_smi_clocks_event_reasons_hw_power_brake_slowdown", CLOCK_EVENT_HW_POWER_BRAKE),
        same(
            "nvidia_smi_clocks_throttle_reasons_hw_power_brake_slowdown",
            CLOCK_EVENT_HW_POWER_BRAKE,
        ),
        same("nvidia_smi_pstate", health::PERFORMANCE_STATE),
        same("nvidia_smi_pcie_link_gen_current", health::PCIE_GENERATION),
        same("nvidia_smi_pcie_link_gen_gpucurrent", health::PCIE_GENERATION),
        same("nvidia_smi_pcie_link_gen_max", health::PCIE_GENERATION_MAX),
        same("nvidia_smi_pcie_link_width_current", health::PCIE_WIDTH),
        same("nvidia_smi_pcie_link_width_max", health::PCIE_WIDTH_MAX),
        same("nvidia_smi_pcie_throughput_rx_bytes_per_second", PCIE_RECEIVE_RATE),
        same("nvidia_smi_pcie_throughput_tx_bytes_per_second", PCIE_TRANSMIT_RATE),
        same("nvidia_smi_ecc_errors_corrected_volatile_total", health::ECC_CORRECTED_VOLATILE),
        same("nvidia_smi_ecc_errors_uncorrected_volatile_total", health::ECC_UNCORRECTED_VOLATILE),
        same("nvidia_smi_ecc_errors_corrected_aggregate_total", health::ECC_CORRECTED_AGGREGATE),
        same(
            "nvidia_smi_ecc_errors_uncorrected_aggregate_total",
            health::ECC_UNCORRECTED_AGGREGATE,
        ),
        same("nvidia_smi_retired_pages_single_bit_ecc_count", health::RETIRED_CORRECTED),
        same("nvidia_smi_retired_pages_double_bit_count", health::RETIRED_UNCORRECTED),
        same("nvidia_smi_retired_pages_pending", health::RETIRED_PENDING),
        same("nvidia_smi_remapped_rows_correctable", health::REMAPPED_CORRECTED),
        same("nvidia_smi_remapped_rows_uncorrectable", health::REMAPPED_UNCORRECTED),
        same("nvidia_smi_remapped_rows_pending", health::REMAP_PENDING),
        same("nvidia_smi_remapped_rows_failure", health::REMAP_FAILED),
        same("nvidia_smi_gpu_recovery_action", health::RECOVERY_ACTION),
        same("nvidia_smi_fabric_state", health::FABRIC_STATE),
        same("nvidia_smi_mig_mode_current", health::MIG_MODE),
        same("nvidia_smi_compute_apps", PROCESSES),
        same("nvidia_smi_compute_app_used_memory_bytes", parts::PROCESS_MEMORY),
        same("nvidia_smi_xid_errors_total", parts::XID_ERRORS),
        row("nvidia_smi_xid_last_timestamp_seconds", parts::XID_LAST_SEEN, Same),
    ],
    keys: &[
        (Class::Gpu, &["uuid"]),
        (Class::Xid, &["uuid", "xid"]),
        (Class::Process, &["uuid", "pid"]),
    ],
    identity: &[
        Identity {
            class: Class::Gpu,
            info: gpu::INFO,
            labels: &[
                ("uuid", "uuid"),
                ("model", "name"),
                ("pci_bus_id", "pci_bus_id"),
                ("serial", "serial"),
                ("driver", "driver_version"),
                ("vbios", "vbios_version"),
            ],
        },
        Identity {
            class: Class::Process,
            info: parts::PROCESS_INFO,
            labels: &[("name", "process_name")],
        },
    ],
    node: &[],
    parts: &["mig_uuid", "gpu_instance_id"],
    blank: Blank::Never,
};
