//! node_exporter's series that are not one row each by name alone: what cards count by priority, what NFS mounts did,
//! and what textfiles tell of Lustre.

#![cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "a table names most rows of a class")
)]

use super::{
    plan::Blank,
    table::{Identity, Table, To, Word, row, same},
};
use crate::{
    Class, Dialect, MetricId,
    catalogue::{
        Scale::{Per, Same},
        ethernet::*,
        hardware::{self, *},
        host,
    },
};

const fn sum(name: &'static str, metric: MetricId) -> Word {
    Word { name, when: None, to: To::Sum(metric, Same) }
}

/// Words of mlx5 for each priority of a link, as node_exporter spells them, and others after them.
macro_rules! words {
    ($($priority:literal)*; $($more:expr,)*) => { &[
        $(same(concat!("node_ethtool_received_prio", $priority, "_pause"), MetricId(RECEIVE_PAUSE_0.0 + $priority)),)*
        $(same(concat!("node_ethtool_transmitted_prio", $priority, "_pause"), MetricId(TRANSMIT_PAUSE_0.0 + $priority)),)*
        $(row(concat!("node_ethtool_received_prio", $priority, "_pause_duration"),
            MetricId(RECEIVE_PAUSED_0.0 + $priority), Per(1e6)),)*
        $(row(concat!("node_ethtool_transmitted_prio", $priority, "_pause_duration"),
            MetricId(TRANSMIT_PAUSED_0.0 + $priority), Per(1e6)),)*
        $(same(concat!("node_ethtool_received_prio", $priority, "_pause_transition"),
            MetricId(RECEIVE_PAUSE_TRANSITIONS_0.0 + $priority)),)*
        $(same(concat!("node_ethtool_received_prio", $priority, "_discards"),
            MetricId(PRIORITY_DISCARDS_0.0 + $priority)),)*
        $($more,)*
    ] };
}

/// The words.
pub(super) const TABLE: Table = Table {
    dialect: Dialect::NodeExporter,
    words: words![0 1 2 3 4 5 6 7;
        same("node_ethtool_received_pause_ctrl_phy", RECEIVE_GLOBAL_PAUSE),
        same("node_ethtool_transmitted_pause_ctrl_phy", TRANSMIT_GLOBAL_PAUSE),
        row("node_ethtool_received_global_pause_duration", RECEIVE_GLOBAL_PAUSED, Per(1e6)),
        row("node_ethtool_transmitted_global_pause_duration", TRANSMIT_GLOBAL_PAUSED, Per(1e6)),
        same("node_ethtool_received_discards_phy", PHY_RECEIVE_DISCARDS),
        same("node_ethtool_transmitted_discards_phy", PHY_TRANSMIT_DISCARDS),
        same("node_ethtool_received_buffer_passed_thres_phy", BUFFER_THRESHOLDS),
        same("node_ethtool_received_out_of_buffer", OUT_OF_BUFFER),
        same("node_ethtool_received_ecn_mark", ECN_MARKED),
        same("node_ethtool_received_crc_errors_phy", CRC_ERRORS),
        same("node_ethtool_received_symbol_err_phy", PHY_SYMBOL_ERRORS),
        same("node_ethtool_received_pcs_symbol_err_phy", PCS_SYMBOL_ERRORS),
        same("node_ethtool_received_corrected_bits_phy", CORRECTED_BITS),
        same("node_ethtool_received_bits_phy", PHY_BITS),
        same("node_ethtool_link_down_events_phy", LINK_DOWN),
        same("node_ethtool_received_pci_signal_integrity", PCI_RECEIVE_SIGNAL),
        same("node_ethtool_transmitted_pci_signal_integrity", PCI_TRANSMIT_SIGNAL),
        same("node_ethtool_module_high_temp", MODULE_HOT),
        same("node_ethtool_transmitted_pause_storm_warning_events", PAUSE_STORMS_WARNING),
        same("node_ethtool_transmitted_pause_storm_error_events", PAUSE_STORMS_ERROR),
        sum("node_mountstats_nfs_total_read_bytes_total", MOUNT_READ_BYTES),
        sum("node_mountstats_nfs_total_write_bytes_total", MOUNT_WRITE_BYTES),
        sum("node_mountstats_nfs_operations_requests_total", MOUNT_READS).when("operation", "READ"),
        sum("node_mountstats_nfs_operations_requests_total", MOUNT_WRITES).when("operation", "WRITE"),
        sum("node_mountstats_nfs_operations_requests_total", MOUNT_METADATA_OPERATIONS),
        sum("node_mountstats_nfs_operations_response_time_seconds_total", MOUNT_READ_TIME).when("operation", "READ"),
        sum("node_mountstats_nfs_operations_response_time_seconds_total", MOUNT_WRITE_TIME).when("operation", "WRITE"),
        sum("node_mountstats_nfs_operations_response_time_seconds_total", MOUNT_METADATA_TIME),
        sum("node_mountstats_nfs_operations_major_timeouts_total", MOUNT_TIMEOUTS),
        same("node_nfs_rpc_retransmissions_total", host::NFS_RETRANSMITS),
        same("node_nfsd_disk_bytes_read_total", host::NFSD_READ_BYTES),
        same("node_nfsd_disk_bytes_written_total", host::NFSD_WRITE_BYTES),
        sum("lustre_read_bytes_total", MOUNT_READ_BYTES).when("component", "?client"),
        sum("lustre_write_bytes_total", MOUNT_WRITE_BYTES).when("component", "?client"),
        sum("lustre_read_samples_total", MOUNT_READS).when("component", "?client"),
        sum("lustre_write_samples_total", MOUNT_WRITES).when("component", "?client"),
        sum("lustre_stats_total", MOUNT_METADATA_OPERATIONS).when("component", "?client"),
    ],
    keys: &[(Class::Mount, &["export|mount|mountpoint|filesystem|target|fs"]), (Class::Node, &[])],
    identity: &[Identity {
        class: Class::Mount,
        info: hardware::MOUNT_INFO,
        labels: &[("source", "export|target|filesystem"), ("kind", "fstype")],
    }],
    node: &[],
    parts: &[],
    blank: Blank::Never,
};
