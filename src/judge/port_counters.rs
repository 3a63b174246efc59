//! Port counters that are added up as one signal.

use gaunt_cluster::Cluster;
use gaunt_schema::{
    MetricId,
    catalogue::{ethernet, host, port},
};

/// Error counters of the link itself; those that an application causes are not included.
pub(super) const LINK_ERRORS: [MetricId; 4] = [
    port::SYMBOL_ERRORS,
    port::RECEIVE_ERRORS,
    port::LOCAL_LINK_INTEGRITY_ERRORS,
    port::ICRC_ERRORS,
];

/// Counters of retransmitted packets.
pub(super) const RETRANSMITS: [MetricId; 3] =
    [port::PACKET_SEQUENCE_ERRORS, port::ADAPTIVE_RETRANSMITS, port::RETRANSMIT_PACKETS];

/// Error counters of an Ethernet link, by network device: RDMA ports over Ethernet count none of their own. One broken packet
/// may be in all of them.
pub(super) const NETDEV_ERRORS: [MetricId; 3] =
    [host::NETDEV_RECEIVE_ERRORS, ethernet::CRC_ERRORS, ethernet::PCS_SYMBOL_ERRORS];

/// Returns the errors per second of a network device's link.
pub(super) fn netdev_errors(cluster: &Cluster, row: u32) -> Option<f64> {
    let rates = NETDEV_ERRORS.iter().filter_map(|metric| cluster.current_rate(*metric, row));
    rates.reduce(f64::max)
}
