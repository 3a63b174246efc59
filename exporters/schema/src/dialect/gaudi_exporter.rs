//! Habana's metric exporter: Gaudi accelerators through the HLML library.

use super::{
    decode_plan::BlankValues,
    dialect_table::{
        DialectTable, IdentityLabels, MappingTarget, NameMapping, declined, same_unit, scaled_unit,
    },
};
use crate::{
    DeviceClass, Dialect,
    catalogue::{
        UnitScale::{Per, Times},
        gpu, gpu_health as health,
    },
};

/// Why a value is not read.
const NO_UNIT: &str = "no public source states its unit";

/// Its table.
pub(super) const TABLE: DialectTable = DialectTable {
    dialect: Dialect::Gaudi,
    mappings: &[
        NameMapping {
            name: "habanalabs_device_config",
            when: None,
            to: MappingTarget::IdentityOnly(DeviceClass::Gpu),
        },
        scaled_unit("habanalabs_utilization", gpu::UTILIZATION, Per(100.0)),
        same_unit("habanalabs_memory_used_bytes", gpu::MEMORY_USED),
        same_unit("habanalabs_memory_free_bytes", gpu::MEMORY_FREE),
        same_unit("habanalabs_memory_total_bytes", gpu::MEMORY_TOTAL),
        scaled_unit("habanalabs_power_mW", gpu::POWER, Per(1e3)),
        scaled_unit("habanalabs_power_default_limit_mW", health::POWER_DEFAULT_LIMIT, Per(1e3)),
        same_unit("habanalabs_temperature_onchip", gpu::TEMPERATURE),
        same_unit("habanalabs_temperature_threshold_slowdown", health::SLOWDOWN_TEMPERATURE),
        same_unit("habanalabs_temperature_threshold_shutdown", health::SHUTDOWN_TEMPERATURE),
        scaled_unit("habanalabs_clock_soc_mhz", gpu::SM_CLOCK, Times(1e6)),
        scaled_unit("habanalabs_clock_soc_max_mhz", gpu::SM_CLOCK_MAX, Times(1e6)),
        same_unit("habanalabs_pci_link_width", health::PCIE_WIDTH),
        same_unit("habanalabs_pcie_replay_count", health::PCIE_REPLAYS),
        same_unit("habanalabs_pending_rows_state", health::REMAP_PENDING),
        declined("habanalabs_energy", NO_UNIT),
        declined("habanalabs_pci_link_speed", NO_UNIT),
        declined("habanalabs_pcie_receive_throughput", NO_UNIT),
        declined("habanalabs_pcie_transmit_throughput", NO_UNIT),
        declined("habanalabs_pcie_rx", NO_UNIT),
        declined("habanalabs_pcie_tx", NO_UNIT),
    ],
    keys: &[(DeviceClass::Gpu, &["id|device"])],
    identity: &[IdentityLabels {
        class: DeviceClass::Gpu,
        info: gpu::INFO,
        labels: &[
            ("uuid", "UUID"),
            ("model", "=Gaudi"),
            ("serial", "Serial"),
            ("driver", "driver"),
        ],
    }],
    node: &[],
    parts: &[],
    blank: BlankValues::AllOnes,
};
