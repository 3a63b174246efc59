//! node_exporter's series that do not map to a row by name alone: card counters by priority, EFA ports, NFS mount
//! statistics, and the Lustre metrics of textfiles.

#![cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "a table names most rows of a class")
)]

use super::{
    decode_plan::BlankValues,
    dialect_table::{
        DialectTable, IdentityLabels, MappingTarget, NameMapping, declined, same_unit, scaled_unit,
    },
};
use crate::{
    DeviceClass, Dialect, MetricId,
    catalogue::{
        UnitScale::{Per, Same},
        ethernet::*,
        hardware::{self, *},
        host, port,
    },
};

const fn sum_series(name: &'static str, metric: MetricId) -> NameMapping {
    NameMapping { name, when: None, to: MappingTarget::Sum(metric, Same) }
}

/// The counters of network cards, with these words for received and transmitted, by priority where they are counted so.
macro_rules! card_mappings {
    ($received:literal $transmitted:literal; $($priority:literal)*) => { &[
        $(same_unit(concat!("node_ethtool_", $received, "_prio", $priority, "_pause"), MetricId(RECEIVE_PAUSE_0.0 + $priority)),)*
        $(same_unit(concat!("node_ethtool_", $transmitted, "_prio", $priority, "_pause"), MetricId(TRANSMIT_PAUSE_0.0 + $priority)),)*
        $(scaled_unit(concat!("node_ethtool_", $received, "_prio", $priority, "_pause_duration"),
            MetricId(RECEIVE_PAUSED_0.0 + $priority), Per(1e6)),)*
        $(scaled_unit(concat!("node_ethtool_", $transmitted, "_prio", $priority, "_pause_duration"),
            MetricId(TRANSMIT_PAUSED_0.0 + $priority), Per(1e6)),)*
        $(same_unit(concat!("node_ethtool_", $received, "_prio", $priority, "_pause_transition"),
            MetricId(RECEIVE_PAUSE_TRANSITIONS_0.0 + $priority)),)*
        $(same_unit(concat!("node_ethtool_", $received, "_prio", $priority, "_discards"),
            MetricId(PRIORITY_DISCARDS_0.0 + $priority)),)*
        same_unit(concat!("node_ethtool_", $received, "_pause_ctrl_phy"), RECEIVE_GLOBAL_PAUSE),
        same_unit(concat!("node_ethtool_", $transmitted, "_pause_ctrl_phy"), TRANSMIT_GLOBAL_PAUSE),
        scaled_unit(concat!("node_ethtool_", $received, "_global_pause_duration"), RECEIVE_GLOBAL_PAUSED, Per(1e6)),
        scaled_unit(concat!("node_ethtool_", $transmitted, "_global_pause_duration"), TRANSMIT_GLOBAL_PAUSED, Per(1e6)),
        same_unit(concat!("node_ethtool_", $received, "_discards_phy"), PHY_RECEIVE_DISCARDS),
        same_unit(concat!("node_ethtool_", $transmitted, "_discards_phy"), PHY_TRANSMIT_DISCARDS),
        same_unit(concat!("node_ethtool_", $received, "_buffer_passed_thres_phy"), BUFFER_THRESHOLDS),
        same_unit(concat!("node_ethtool_", $received, "_out_of_buffer"), OUT_OF_BUFFER),
        same_unit(concat!("node_ethtool_", $received, "_ecn_mark"), ECN_MARKED),
        same_unit(concat!("node_ethtool_", $received, "_crc_errors_phy"), CRC_ERRORS),
        same_unit(concat!("node_ethtool_", $received, "_symbol_err_phy"), PHY_SYMBOL_ERRORS),
        same_unit(concat!("node_ethtool_", $received, "_pcs_symbol_err_phy"), PCS_SYMBOL_ERRORS),
        same_unit(concat!("node_ethtool_", $received, "_corrected_bits_phy"), CORRECTED_BITS),
        same_unit(concat!("node_ethtool_", $received, "_bits_phy"), PHY_BITS),
        same_unit(concat!("node_ethtool_", $received, "_pci_signal_integrity"), PCI_RECEIVE_SIGNAL),
        same_unit(concat!("node_ethtool_", $transmitted, "_pci_signal_integrity"), PCI_TRANSMIT_SIGNAL),
        same_unit(concat!("node_ethtool_", $transmitted, "_pause_storm_warning_events"), PAUSE_STORMS_WARNING),
        same_unit(concat!("node_ethtool_", $transmitted, "_pause_storm_error_events"), PAUSE_STORMS_ERROR),
    ] };
}

/// Counters of old kernels, whose place is taken by those without `legacy`: both count the same.
const REPEATED: &str = "repeats the port's counter without legacy in its name";

/// The table.
pub(super) const TABLE: DialectTable = table_of(&[
    same_unit("node_ethtool_link_down_events_phy", LINK_DOWN),
    same_unit("node_ethtool_module_high_temp", MODULE_HOT),
    declined("node_infiniband_legacy_data_received_bytes_total", REPEATED),
    declined("node_infiniband_legacy_data_transmitted_bytes_total", REPEATED),
    declined("node_infiniband_legacy_multicast_packets_received_total", REPEATED),
    declined("node_infiniband_legacy_multicast_packets_transmitted_total", REPEATED),
    declined("node_infiniband_legacy_packets_received_total", REPEATED),
    declined("node_infiniband_legacy_packets_transmitted_total", REPEATED),
    declined("node_infiniband_legacy_unicast_packets_received_total", REPEATED),
    declined("node_infiniband_legacy_unicast_packets_transmitted_total", REPEATED),
    // AWS's build of node_exporter has the counters of EFA ports under the names of their files.
    same_unit("node_amazonefa_rx_bytes", port::RECEIVE_BYTES),
    same_unit("node_amazonefa_tx_bytes", port::TRANSMIT_BYTES),
    same_unit("node_amazonefa_rx_pkts", port::RECEIVE_PACKETS),
    same_unit("node_amazonefa_tx_pkts", port::TRANSMIT_PACKETS),
    same_unit("node_amazonefa_rx_drops", port::RECEIVE_DROPS),
    same_unit("node_amazonefa_retrans_pkts", port::RETRANSMIT_PACKETS),
    same_unit("node_amazonefa_retrans_bytes", port::RETRANSMIT_BYTES),
    same_unit("node_amazonefa_retrans_timeout_events", port::LOCAL_ACK_TIMEOUTS),
    same_unit("node_amazonefa_unresponsive_remote_events", port::UNRESPONSIVE_REMOTES),
    same_unit("node_amazonefa_impaired_remote_conn_events", port::IMPAIRED_REMOTES),
    same_unit("node_amazonefa_rdma_read_bytes", port::READ_BYTES),
    same_unit("node_amazonefa_rdma_read_resp_bytes", port::READ_RESPONSE_BYTES),
    same_unit("node_amazonefa_rdma_write_bytes", port::WRITE_BYTES),
    same_unit("node_amazonefa_rdma_write_recv_bytes", port::WRITE_RECEIVE_BYTES),
    same_unit("node_amazonefa_send_bytes", port::SEND_BYTES),
    same_unit("node_amazonefa_recv_bytes", port::SEND_RECEIVE_BYTES),
    same_unit("node_amazonefa_rdma_read_wrs", port::READ_OPERATIONS),
    same_unit("node_amazonefa_rdma_write_wrs", port::WRITE_OPERATIONS),
    same_unit("node_amazonefa_send_wrs", port::SEND_OPERATIONS),
    same_unit("node_amazonefa_recv_wrs", port::RECEIVE_OPERATIONS),
    same_unit("node_amazonefa_rdma_read_wr_err", port::READ_ERRORS),
    same_unit("node_amazonefa_rdma_write_wr_err", port::WRITE_ERRORS),
    same_unit("node_amazonefa_submitted_cmds", port::COMMANDS),
    same_unit("node_amazonefa_cmds_err", port::COMMAND_ERRORS),
    same_unit("node_amazonefa_no_completion_cmds", port::COMMAND_TIMEOUTS),
    same_unit("node_amazonefa_keep_alive_rcvd", port::KEEP_ALIVES),
    sum_series("node_mountstats_nfs_total_read_bytes_total", MOUNT_READ_BYTES),
    sum_series("node_mountstats_nfs_total_write_bytes_total", MOUNT_WRITE_BYTES),
    sum_series("node_mountstats_nfs_operations_requests_total", MOUNT_READS)
        .when_label("operation", "READ"),
    sum_series("node_mountstats_nfs_operations_requests_total", MOUNT_WRITES)
        .when_label("operation", "WRITE"),
    sum_series("node_mountstats_nfs_operations_requests_total", MOUNT_METADATA_OPERATIONS),
    sum_series("node_mountstats_nfs_operations_response_time_seconds_total", MOUNT_READ_TIME)
        .when_label("operation", "READ"),
    sum_series("node_mountstats_nfs_operations_response_time_seconds_total", MOUNT_WRITE_TIME)
        .when_label("operation", "WRITE"),
    sum_series("node_mountstats_nfs_operations_response_time_seconds_total", MOUNT_METADATA_TIME),
    sum_series("node_mountstats_nfs_operations_major_timeouts_total", MOUNT_TIMEOUTS),
    same_unit("node_nfs_rpc_retransmissions_total", host::NFS_RETRANSMITS),
    same_unit("node_nfsd_disk_bytes_read_total", host::NFSD_READ_BYTES),
    same_unit("node_nfsd_disk_bytes_written_total", host::NFSD_WRITE_BYTES),
    sum_series("lustre_read_bytes_total", MOUNT_READ_BYTES).when_label("component", "?client"),
    sum_series("lustre_write_bytes_total", MOUNT_WRITE_BYTES).when_label("component", "?client"),
    sum_series("lustre_read_samples_total", MOUNT_READS).when_label("component", "?client"),
    sum_series("lustre_write_samples_total", MOUNT_WRITES).when_label("component", "?client"),
    sum_series("lustre_stats_total", MOUNT_METADATA_OPERATIONS).when_label("component", "?client"),
]);

/// The counters of network cards.
pub(super) const CARDS: DialectTable =
    table_of(card_mappings!("received" "transmitted"; 0 1 2 3 4 5 6 7));

/// The same in the drivers' spelling, which pages have that other programs write.
pub(super) const DRIVER_CARDS: DialectTable = table_of(card_mappings!("rx" "tx"; 0 1 2 3 4 5 6 7));

const fn table_of(mappings: &'static [NameMapping]) -> DialectTable {
    DialectTable {
        dialect: Dialect::NodeExporter,
        mappings,
        keys: &[
            (DeviceClass::Mount, &["export|mount|mountpoint|filesystem|target|fs"]),
            (DeviceClass::Node, &[]),
        ],
        identity: &[IdentityLabels {
            class: DeviceClass::Mount,
            info: hardware::MOUNT_INFO,
            labels: &[("source", "export|target|filesystem"), ("kind", "fstype")],
        }],
        node: &[],
        parts: &[],
        blank: BlankValues::Never,
    }
}
