//! Counters of ports in their real widths, with node_exporter's names.

use super::decimal::Decimal;
use crate::{cluster_plan::LinkLayer, node_state::PortState};

/// What a port's values are computed from.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortView<'a> {
    /// Its state.
    pub(super) state: &'a PortState,
    /// Whether its `port_xmit_wait` stands at its maximum.
    pub(super) is_wait_saturated: bool,
    /// Kind of link.
    pub(super) link_layer: LinkLayer,
}

/// A value of a port.
pub(super) type PortValue = fn(&PortView<'_>) -> Decimal;

/// A family of node_exporter: suffix of its name, help text, value.
pub(super) struct PortFamily {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) value: PortValue,
}

const fn family(name: &'static str, help: &'static str, value: PortValue) -> PortFamily {
    PortFamily { name, help, value }
}

/// The share of packets that several ports receive.
const MULTICAST_SHARE: f64 = 1e-6;

fn zero(_: &PortView<'_>) -> Decimal {
    Decimal::whole(0)
}

/// Line rate in bytes per second; a port that is down shows the lowest rate of its kind.
pub(super) fn rate_bytes(view: &PortView<'_>) -> Decimal {
    let gbps = match view.link_layer {
        _ if view.state.rate_gbps > 0.0 => view.state.rate_gbps,
        LinkLayer::InfiniBand => 2.5,
        LinkLayer::Ethernet => 40.0,
    };
    Decimal::nearest(gbps * 1.25e8)
}

/// Ticks in which data waited: 64 bits, or 32 and at the end of them.
pub(super) fn wait_ticks(view: &PortView<'_>) -> Decimal {
    if view.is_wait_saturated {
        return Decimal::whole(i64::from(u32::MAX));
    }
    Decimal::count(view.state.transmit_wait_ticks)
}

/// Data in bytes: the card counts words of four bytes.
fn words_as_bytes(bytes: f64) -> Decimal {
    Decimal::count(bytes / 4.0).times(4)
}

/// Gauges of every port.
#[rustfmt::skip]
pub(super) const PORT_GAUGES: &[PortFamily] = &[
    family("physical_state_id", "Physical state of the InfiniBand port (0: no change, 1: sleep, 2: polling, 3: disable, 4: shift, 5: link up, 6: link error recover, 7: phytest)", |v| Decimal::whole(i64::from(v.state.physical_state))),
    family("rate_bytes_per_second", "Maximum signal transfer rate", rate_bytes),
    family("state_id", "State of the InfiniBand port (0: no change, 1: down, 2: init, 3: armed, 4: active, 5: act defer)", |v| Decimal::whole(i64::from(v.state.state))),
];

/// Counters of the folder `counters`.
#[rustfmt::skip]
pub(super) const PORT_COUNTERS: &[PortFamily] = &[
    family("excessive_buffer_overrun_errors_total", "Number of times that OverrunErrors consecutive flow control update periods occurred, each having at least one overrun error.", zero),
    family("link_downed_total", "Number of times the link failed to recover from an error state and went down", |v| Decimal::saturated(v.state.link_downed, 8)),
    family("link_error_recovery_total", "Number of times the link successfully recovered from an error state", |v| Decimal::saturated(v.state.link_error_recoveries, 8)),
    family("local_link_integrity_errors_total", "Number of times that the count of local physical errors exceeded the threshold specified by LocalPhyErrors.", zero),
    family("multicast_packets_received_total", "Number of multicast packets received (including errors)", |v| Decimal::count(v.state.receive_packets * MULTICAST_SHARE)),
    family("multicast_packets_transmitted_total", "Number of multicast packets transmitted (including errors)", |v| Decimal::count(v.state.transmit_packets * MULTICAST_SHARE)),
    family("port_constraint_errors_received_total", "Number of packets received on the switch physical port that are discarded", zero),
    family("port_constraint_errors_transmitted_total", "Number of packets not transmitted from the switch physical port", zero),
    family("port_data_received_bytes_total", "Number of data octets received on all links", |v| words_as_bytes(v.state.receive_bytes)),
    family("port_data_transmitted_bytes_total", "Number of data octets transmitted on all links", |v| words_as_bytes(v.state.transmit_bytes)),
    family("port_discards_transmitted_total", "Number of outbound packets discarded by the port because the port is down or congested", |v| Decimal::saturated(v.state.transmit_discards, 16)),
    family("port_errors_received_total", "Number of packets containing an error that were received on this port", |v| Decimal::saturated(v.state.receive_errors, 16)),
    family("port_packets_received_total", "Number of packets received on all VLs by this port (including errors)", |v| Decimal::count(v.state.receive_packets)),
    family("port_packets_transmitted_total", "Number of packets transmitted on all VLs from this port (including errors)", |v| Decimal::count(v.state.transmit_packets)),
    family("port_receive_remote_physical_errors_total", "Number of packets marked with the EBP (End of Bad Packet) delimiter received on the port.", zero),
    family("port_receive_switch_relay_errors_total", "Number of packets that could not be forwarded by the switch.", zero),
    family("port_transmit_wait_total", "Number of ticks during which the port had data to transmit but no data was sent during the entire tick", wait_ticks),
    family("symbol_error_total", "Number of minor link errors detected on one or more physical lanes.", |v| Decimal::saturated(v.state.symbol_errors, 16)),
    family("unicast_packets_received_total", "Number of unicast packets received (including errors)", |v| Decimal::count(v.state.receive_packets * (1.0 - MULTICAST_SHARE))),
    family("unicast_packets_transmitted_total", "Number of unicast packets transmitted (including errors)", |v| Decimal::count(v.state.transmit_packets * (1.0 - MULTICAST_SHARE))),
    family("vl15_dropped_total", "Number of incoming VL15 packets dropped due to resource limitations.", zero),
];

/// Counters of the folder `hw_counters`, for either kind of link.
#[rustfmt::skip]
pub(super) const RDMA_COUNTERS: &[PortFamily] = &[
    family("duplicate_requests_packets_total", "The number of received packets. A duplicate request is a request that had been previously executed.", |v| Decimal::wrapped32(v.state.ack_timeouts * 0.4)),
    family("implied_nak_seq_errors_total", "The number of time the requested decided an ACK. with a PSN larger than the expected PSN for an RDMA read or response.", zero),
    family("local_ack_timeout_errors_total", "The number of times QP's ack timer expired for RC, XRC, DCT QPs at the sender side. The QP retry limit was not exceed, therefore it is still recoverable error.", |v| Decimal::wrapped32(v.state.ack_timeouts)),
    family("out_of_buffer_drops_total", "The number of drops occurred due to lack of WQE for the associated QPs.", |v| Decimal::wrapped32(v.state.out_of_buffer)),
    family("out_of_sequence_packets_received_total", "The number of out of sequence packets received.", |v| Decimal::wrapped32(v.state.out_of_sequence)),
    family("packet_sequence_errors_total", "The number of received NAK sequence error packets. The QP retry limit was not exceeded.", |v| Decimal::wrapped32(v.state.packet_sequence_errors)),
    family("req_cqes_errors_total", "The number of times requester detected CQEs completed with errors. The counters was added in MLNX_OFED 4.1", zero),
    family("req_cqes_flush_errors_total", "The number of times requester detected CQEs completed with flushed errors. The counters was added in MLNX_OFED 4.1", zero),
    family("req_remote_access_errors_total", "The number of times requester detected remote access errors. The counters was added in MLNX_OFED 4.1", zero),
    family("req_remote_invalid_request_errors_total", "The number of times requester detected remote invalid request errors. The counters was added in MLNX_OFED 4.1", zero),
    family("resp_cqes_errors_total", "The number of times responder detected CQEs completed with errors. The counters was added in MLNX_OFED 4.1", zero),
    family("resp_cqes_flush_errors_total", "The number of times responder detected CQEs completed with flushed errors. The counters was added in MLNX_OFED 4.1", zero),
    family("resp_local_length_errors_total", "The number of times responder detected local length errors. The counters was added in MLNX_OFED 4.1", zero),
    family("resp_remote_access_errors_total", "The number of times responder detected remote access errors. The counters was added in MLNX_OFED 4.1", zero),
    family("rnr_nak_retry_packets_received_total", "The number of received RNR NAK packets. The QP retry limit was not exceeded.", |v| Decimal::wrapped32(v.state.rnr_naks)),
    family("rx_atomic_requests_total", "The number of received ATOMIC request for the associated QPs.", zero),
    family("rx_dct_connect_requests_total", "The number of received connection requests for the associated DCTs.", zero),
    family("rx_read_requests_total", "The number of received READ requests for the associated QPs.", |v| Decimal::wrapped32(v.state.receive_packets * 1e-3)),
    family("rx_write_requests_total", "The number of received WRITE requests for the associated QPs.", |v| Decimal::wrapped32(v.state.receive_packets * 8e-3)),
];

/// Counters of the folder `hw_counters` that only RoCE ports have.
#[rustfmt::skip]
pub(super) const ROCE_COUNTERS: &[PortFamily] = &[
    family("np_cnp_packets_sent_total", "The number of CNP packets sent by the Notification Point when it noticed congestion experienced in the RoCEv2 IP header (ECN bits). The counters was added in MLNX_OFED 4.1", |v| Decimal::count(v.state.cnp_sent)),
    family("np_ecn_marked_roce_packets_received_total", "The number of RoCEv2 packets received by the notification point which were marked for experiencing the congestion (ECN bits where '11' on the ingress RoCE traffic) . The counters was added in MLNX_OFED 4.1", |v| Decimal::count(v.state.ecn_marked_packets)),
    family("roce_adp_retransmits_timeout_total", "The number of times RoCE traffic reached timeout due to adaptive retransmission. The counter was added in MLNX_OFED rev 5.0-1.0.0.0 and kernel v5.6.0", |v| Decimal::wrapped32(v.state.adaptive_retransmits * 0.05)),
    family("roce_adp_retransmits_total", "The number of adaptive retransmissions for RoCE traffic. The counter was added in MLNX_OFED rev 5.0-1.0.0.0 and kernel v5.6.0", |v| Decimal::wrapped32(v.state.adaptive_retransmits)),
    family("roce_slow_restart_cnps_total", "The number of times RoCE slow restart generated CNP packets. The counter was added in MLNX_OFED rev 5.0-1.0.0.0 and kernel v5.6.0", zero),
    family("roce_slow_restart_total", "The number of times RoCE slow restart changed state to slow restart. The counter was added in MLNX_OFED rev 5.0-1.0.0.0 and kernel v5.6.0", zero),
    family("roce_slow_restart_used_total", "The number of times RoCE slow restart was used. The counter was added in MLNX_OFED rev 5.0-1.0.0.0 and kernel v5.6.0", zero),
    family("rp_cnp_ignored_packets_received_total", "The number of CNP packets received and ignored by the Reaction Point HCA. This counter should not raise if RoCE Congestion Control was enabled in the network. If this counter raise, verify that ECN was enabled on the adapter.", zero),
    family("rp_cnp_packets_handled_total", "The number of CNP packets handled by the Reaction Point HCA to throttle the transmission rate. The counters was added in MLNX_OFED 4.1", |v| Decimal::count(v.state.cnp_handled)),
    family("rx_icrc_encapsulated_errors_total", "The number of RoCE packets with ICRC errors. This counter was added in MLNX_OFED 4.4 and kernel 4.19", zero),
];

/// Statistics of an Ethernet card's driver that change, in node_exporter's spelling.
#[rustfmt::skip]
pub(super) const ETHTOOL_COUNTERS: &[(&str, PortValue)] = &[
    ("link_down_events_phy", |v| Decimal::count(v.state.link_downed)),
    ("received_bits_phy", |v| Decimal::count(v.state.receive_bytes * 8.3)),
    ("received_bytes_phy", |v| Decimal::count(v.state.receive_bytes * 1.03)),
    ("received_corrected_bits_phy", |v| Decimal::count(v.state.corrected_bits)),
    ("received_crc_errors_phy", |v| Decimal::count(v.state.receive_errors)),
    ("received_discards_phy", |v| Decimal::count(v.state.out_of_buffer)),
    ("received_ecn_mark", zero),
    ("received_out_of_buffer", zero),
    ("received_packets_phy", |v| Decimal::count(v.state.receive_packets)),
    ("received_pause_ctrl_phy", |v| Decimal::count(v.state.pause_received)),
    ("received_pcs_symbol_err_phy", |v| Decimal::count(v.state.symbol_errors)),
    ("received_symbol_err_phy", zero),
    ("transmitted_bytes_phy", |v| Decimal::count(v.state.transmit_bytes * 1.03)),
    ("transmitted_discards_phy", |v| Decimal::count(v.state.transmit_discards)),
    ("transmitted_packets_phy", |v| Decimal::count(v.state.transmit_packets)),
    ("transmitted_pause_ctrl_phy", |v| Decimal::count(v.state.pause_sent)),
    ("received_prio3_pause", |v| Decimal::count(v.state.pause_received)),
    ("received_prio3_pause_duration", |v| Decimal::count(v.state.pause_received_s * 1e6)),
    ("received_prio3_pause_transition", |v| Decimal::count(v.state.pause_received * 0.5)),
    ("transmitted_prio3_pause", |v| Decimal::count(v.state.pause_sent)),
    ("transmitted_prio3_pause_duration", |v| Decimal::count(v.state.pause_sent_s * 1e6)),
    ("received_prio3_bytes", |v| Decimal::count(v.state.receive_bytes * 1.03)),
    ("transmitted_prio3_bytes", |v| Decimal::count(v.state.transmit_bytes * 1.03)),
];

/// Statistics of an Ethernet card's driver that stay zero.
pub(super) const ETHTOOL_ZEROS: &[&str] = &[
    "module_bus_stuck",
    "module_high_temp",
    "received_buffer_passed_thres_phy",
    "received_pci_signal_integrity",
    "received_prio0_discards",
    "received_prio0_pause",
    "received_prio0_pause_duration",
    "received_prio3_discards",
    "transmitted_errors_phy",
    "transmitted_pause_storm_error_events",
    "transmitted_pause_storm_warning_events",
    "transmitted_pci_signal_integrity",
    "transmitted_prio0_pause",
    "transmitted_prio0_pause_duration",
];
