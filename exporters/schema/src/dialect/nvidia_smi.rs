//! nvidia_gpu_exporter: the output of nvidia-smi, each GPU by its UUID.

#![cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "a table names most rows of a class")
)]

use super::{
    decode_plan::BlankValues,
    dialect_table::{
        DialectTable, IdentityLabels, MappingTarget, NameMapping, same_unit, scaled_unit,
    },
};
use crate::{
    DeviceClass, Dialect,
    catalogue::{
        UnitScale::Same,
        gpu::{self, *},
        gpu_health as health, gpu_parts as parts,
    },
};

/// The info series, which also older pages have: series of the values carry only the UUID.
pub(super) const INFO: &str = "nvidia_smi_gpu_info";

const fn identity_only(name: &'static str) -> NameMapping {
    NameMapping { name, when: None, to: MappingTarget::IdentityOnly(DeviceClass::Gpu) }
}

/// Its table. With an old driver it uses the old field names: both are listed.
pub(super) const TABLE: DialectTable = DialectTable {
    dialect: Dialect::NvidiaSmi,
    mappings: &[
        identity_only(INFO),
        NameMapping {
            name: "nvidia_smi_index",
            when: None,
            to: MappingTarget::Index(DeviceClass::Gpu),
        },
        same_unit("nvidia_smi_utilization_gpu_ratio", UTILIZATION),
        same_unit("nvidia_smi_utilization_memory_ratio", MEMORY_ACTIVITY),
        same_unit("nvidia_smi_utilization_encoder_ratio", health::ENCODER),
        same_unit("nvidia_smi_utilization_decoder_ratio", health::DECODER),
        same_unit("nvidia_smi_utilization_jpeg_ratio", health::JPEG),
        same_unit("nvidia_smi_utilization_ofa_ratio", health::OFA),
        same_unit("nvidia_smi_memory_used_bytes", MEMORY_USED),
        same_unit("nvidia_smi_memory_free_bytes", MEMORY_FREE),
        same_unit("nvidia_smi_memory_total_bytes", MEMORY_TOTAL),
        same_unit("nvidia_smi_memory_reserved_bytes", health::MEMORY_RESERVED),
        same_unit("nvidia_smi_power_draw_watts", POWER),
        same_unit("nvidia_smi_power_draw_average_watts", POWER),
        same_unit("nvidia_smi_power_draw_instant_watts", health::POWER_INSTANT),
        same_unit("nvidia_smi_enforced_power_limit_watts", POWER_LIMIT),
        same_unit("nvidia_smi_power_limit_watts", POWER_LIMIT),
        same_unit("nvidia_smi_power_default_limit_watts", health::POWER_DEFAULT_LIMIT),
        same_unit("nvidia_smi_energy_joules_total", ENERGY),
        same_unit("nvidia_smi_temperature_gpu", TEMPERATURE),
        same_unit("nvidia_smi_temperature_memory", health::MEMORY_TEMPERATURE),
        same_unit("nvidia_smi_temperature_gpu_tlimit", health::TEMPERATURE_MARGIN),
        same_unit("nvidia_smi_clocks_current_sm_clock_hz", SM_CLOCK),
        same_unit("nvidia_smi_clocks_sm_clock_hz", SM_CLOCK),
        same_unit("nvidia_smi_clocks_max_sm_clock_hz", SM_CLOCK_MAX),
        same_unit("nvidia_smi_clocks_current_memory_clock_hz", health::MEMORY_CLOCK),
        same_unit("nvidia_smi_clocks_max_memory_clock_hz", health::MEMORY_CLOCK_MAX),
        same_unit("nvidia_smi_clocks_event_reasons_gpu_idle", CLOCK_EVENT_IDLE),
        same_unit("nvidia_smi_clocks_throttle_reasons_gpu_idle", CLOCK_EVENT_IDLE),
        same_unit(
            "nvidia_smi_clocks_event_reasons_applications_clocks_setting",
            CLOCK_EVENT_APPLICATION_CLOCKS,
        ),
        same_unit(
            "nvidia_smi_clocks_throttle_reasons_applications_clocks_setting",
            CLOCK_EVENT_APPLICATION_CLOCKS,
        ),
        same_unit("nvidia_smi_clocks_event_reasons_sw_power_cap", CLOCK_EVENT_SW_POWER_CAP),
        same_unit("nvidia_smi_clocks_throttle_reasons_sw_power_cap", CLOCK_EVENT_SW_POWER_CAP),
        same_unit("nvidia_smi_clocks_event_reasons_hw_slowdown", CLOCK_EVENT_HW_SLOWDOWN),
        same_unit("nvidia_smi_clocks_throttle_reasons_hw_slowdown", CLOCK_EVENT_HW_SLOWDOWN),
        same_unit("nvidia_smi_clocks_event_reasons_sync_boost", CLOCK_EVENT_SYNC_BOOST),
        same_unit("nvidia_smi_clocks_throttle_reasons_sync_boost", CLOCK_EVENT_SYNC_BOOST),
        same_unit("nvidia_smi_clocks_event_reasons_sw_thermal_slowdown", CLOCK_EVENT_SW_THERMAL),
        same_unit("nvidia_smi_clocks_throttle_reasons_sw_thermal_slowdown", CLOCK_EVENT_SW_THERMAL),
        same_unit("nvidia_smi_clocks_event_reasons_hw_thermal_slowdown", CLOCK_EVENT_HW_THERMAL),
        same_unit("nvidia_smi_clocks_throttle_reasons_hw_thermal_slowdown", CLOCK_EVENT_HW_THERMAL),
        same_unit(
            "nvidia_smi_clocks_event_reasons_hw_power_brake_slowdown",
            CLOCK_EVENT_HW_POWER_BRAKE,
        ),
        same_unit(
            "nvidia_smi_clocks_throttle_reasons_hw_power_brake_slowdown",
            CLOCK_EVENT_HW_POWER_BRAKE,
        ),
        same_unit("nvidia_smi_pstate", health::PERFORMANCE_STATE),
        same_unit("nvidia_smi_pcie_link_gen_current", health::PCIE_GENERATION),
        same_unit("nvidia_smi_pcie_link_gen_gpucurrent", health::PCIE_GENERATION),
        same_unit("nvidia_smi_pcie_link_gen_max", health::PCIE_GENERATION_MAX),
        same_unit("nvidia_smi_pcie_link_width_current", health::PCIE_WIDTH),
        same_unit("nvidia_smi_pcie_link_width_max", health::PCIE_WIDTH_MAX),
        same_unit("nvidia_smi_pcie_throughput_rx_bytes_per_second", PCIE_RECEIVE_RATE),
        same_unit("nvidia_smi_pcie_throughput_tx_bytes_per_second", PCIE_TRANSMIT_RATE),
        same_unit("nvidia_smi_ecc_errors_corrected_volatile_total", health::ECC_CORRECTED_VOLATILE),
        same_unit(
            "nvidia_smi_ecc_errors_uncorrected_volatile_total",
            health::ECC_UNCORRECTED_VOLATILE,
        ),
        same_unit(
            "nvidia_smi_ecc_errors_corrected_aggregate_total",
            health::ECC_CORRECTED_AGGREGATE,
        ),
        same_unit(
            "nvidia_smi_ecc_errors_uncorrected_aggregate_total",
            health::ECC_UNCORRECTED_AGGREGATE,
        ),
        same_unit("nvidia_smi_retired_pages_single_bit_ecc_count", health::RETIRED_CORRECTED),
        same_unit("nvidia_smi_retired_pages_double_bit_count", health::RETIRED_UNCORRECTED),
        same_unit("nvidia_smi_retired_pages_pending", health::RETIRED_PENDING),
        same_unit("nvidia_smi_remapped_rows_correctable", health::REMAPPED_CORRECTED),
        same_unit("nvidia_smi_remapped_rows_uncorrectable", health::REMAPPED_UNCORRECTED),
        same_unit("nvidia_smi_remapped_rows_pending", health::REMAP_PENDING),
        same_unit("nvidia_smi_remapped_rows_failure", health::REMAP_FAILED),
        same_unit("nvidia_smi_gpu_recovery_action", health::RECOVERY_ACTION),
        same_unit("nvidia_smi_fabric_state", health::FABRIC_STATE),
        same_unit("nvidia_smi_mig_mode_current", health::MIG_MODE),
        same_unit("nvidia_smi_compute_apps", PROCESSES),
        same_unit("nvidia_smi_compute_app_used_memory_bytes", parts::PROCESS_MEMORY),
        same_unit("nvidia_smi_xid_errors_total", parts::XID_ERRORS),
        scaled_unit("nvidia_smi_xid_last_timestamp_seconds", parts::XID_LAST_SEEN, Same),
    ],
    keys: &[
        (DeviceClass::Gpu, &["uuid"]),
        (DeviceClass::Xid, &["uuid", "xid"]),
        (DeviceClass::Process, &["uuid", "pid"]),
    ],
    identity: &[
        IdentityLabels {
            class: DeviceClass::Gpu,
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
        IdentityLabels {
            class: DeviceClass::Process,
            info: parts::PROCESS_INFO,
            labels: &[("name", "process_name")],
        },
    ],
    node: &[],
    parts: &["mig_uuid", "gpu_instance_id"],
    blank: BlankValues::Never,
};
