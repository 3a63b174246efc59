//! What is measured on a port of an RDMA device.
//!
//! Widths are those of the kernel's performance-management table and of the mlx5 driver: classic error counters have
//! 4, 8 or 16 bits and stand still at their maximum; queue counters have 32 bits and wrap.

use super::{Metric, gpu_parts, node_exporter, rows};
use crate::{
    Class::Port,
    unit::{
        Unit,
        Width::{Bits64, Saturating, Wrapping32},
    },
};

rows! {
    from gpu_parts::END;
    INFO, "Who the port is, and where it is plugged in.",
        Metric::info_series("gaunt_port_info", Port,
            &["netdev", "link_layer", "firmware", "hca_type", "rail", "leaf"]);
    STATE, "Logical state of the port: 1 down, 2 initialising, 3 armed, 4 active.",
        Metric::gauge("gaunt_port_state_id", Port, Unit::Count, 1.0)
            .history().foreign(&[node_exporter("node_infiniband_state_id")]);
    PHYSICAL_STATE, "Physical state of the port: 2 polling, 3 disabled, 5 link up.",
        Metric::gauge("gaunt_port_physical_state_id", Port, Unit::Count, 1.0)
            .foreign(&[node_exporter("node_infiniband_physical_state_id")]);
    RATE, "Line rate of the port.",
        Metric::gauge("gaunt_port_rate_bytes_per_second", Port, Unit::BytesPerSecond, 1.0)
            .history().foreign(&[node_exporter("node_infiniband_rate_bytes_per_second")]);
    RECEIVE_BYTES, "Data received on all virtual lanes.",
        Metric::counter("gaunt_port_receive_bytes_total", Port, Unit::Bytes, Bits64)
            .history().foreign(&[node_exporter("node_infiniband_port_data_received_bytes_total")]);
    TRANSMIT_BYTES, "Data transmitted on all virtual lanes.",
        Metric::counter("gaunt_port_transmit_bytes_total", Port, Unit::Bytes, Bits64)
            .history().foreign(&[node_exporter("node_infiniband_port_data_transmitted_bytes_total")]);
    RECEIVE_PACKETS, "Packets received on all virtual lanes.",
        Metric::counter("gaunt_port_receive_packets_total", Port, Unit::Count, Bits64)
            .foreign(&[node_exporter("node_infiniband_port_packets_received_total")]);
    TRANSMIT_PACKETS, "Packets transmitted on all virtual lanes.",
        Metric::counter("gaunt_port_transmit_packets_total", Port, Unit::Count, Bits64)
            .foreign(&[node_exporter("node_infiniband_port_packets_transmitted_total")]);
    TRANSMIT_WAIT, "Ticks in which data was ready and could not be transmitted.",
        Metric::counter("gaunt_port_transmit_wait_total", Port, Unit::Count, Saturating(32))
            .history().foreign(&[node_exporter("node_infiniband_port_transmit_wait_total")]);
    SYMBOL_ERRORS, "Minor link errors on at least one lane.",
        Metric::counter("gaunt_port_symbol_errors_total", Port, Unit::Count, Saturating(16))
            .history().foreign(&[node_exporter("node_infiniband_symbol_error_total")]);
    LINK_DOWNED, "Times that the link failed to recover and went down.",
        Metric::counter("gaunt_port_link_downed_total", Port, Unit::Count, Saturating(8))
            .history().foreign(&[node_exporter("node_infiniband_link_downed_total")]);
    LINK_ERROR_RECOVERY, "Times that the link recovered from an error by itself.",
        Metric::counter("gaunt_port_link_error_recovery_total", Port, Unit::Count, Saturating(8))
            .foreign(&[node_exporter("node_infiniband_link_error_recovery_total")]);
    RECEIVE_ERRORS, "Packets received with an error.",
        Metric::counter("gaunt_port_receive_errors_total", Port, Unit::Count, Saturating(16))
            .history().foreign(&[node_exporter("node_infiniband_port_errors_received_total")]);
    REMOTE_PHYSICAL_ERRORS, "Packets received that the other end had marked as bad.",
        Metric::counter("gaunt_port_receive_remote_physical_errors_total", Port, Unit::Count, Saturating(16))
            .foreign(&[node_exporter("node_infiniband_port_receive_remote_physical_errors_total")]);
    TRANSMIT_DISCARDS, "Packets discarded because the port was down or congested.",
        Metric::counter("gaunt_port_transmit_discards_total", Port, Unit::Count, Saturating(16))
            .history().foreign(&[node_exporter("node_infiniband_port_discards_transmitted_total")]);
    LOCAL_LINK_INTEGRITY_ERRORS, "Times that local physical errors passed their threshold.",
        Metric::counter("gaunt_port_local_link_integrity_errors_total", Port, Unit::Count, Saturating(4))
            .foreign(&[node_exporter("node_infiniband_local_link_integrity_errors_total")]);
    BUFFER_OVERRUN_ERRORS, "Times that buffer overruns passed their threshold.",
        Metric::counter("gaunt_port_excessive_buffer_overrun_errors_total", Port, Unit::Count, Saturating(4))
            .foreign(&[node_exporter("node_infiniband_excessive_buffer_overrun_errors_total")]);
    VL15_DROPPED, "Management packets dropped for lack of a buffer.",
        Metric::counter("gaunt_port_vl15_dropped_total", Port, Unit::Count, Saturating(16))
            .foreign(&[node_exporter("node_infiniband_vl15_dropped_total")]);
    ECN_MARKED, "RoCE packets received with a congestion mark: a queue on the path fills.",
        Metric::counter("gaunt_port_ecn_marked_packets_total", Port, Unit::Count, Bits64)
            .history().foreign(&[node_exporter("node_infiniband_np_ecn_marked_roce_packets_received_total")]);
    CNP_SENT, "Congestion notifications sent: senders to this port were told to slow down.",
        Metric::counter("gaunt_port_cnp_sent_packets_total", Port, Unit::Count, Bits64)
            .history().foreign(&[node_exporter("node_infiniband_np_cnp_packets_sent_total")]);
    CNP_HANDLED, "Congestion notifications obeyed: this port was told to slow down.",
        Metric::counter("gaunt_port_cnp_handled_packets_total", Port, Unit::Count, Bits64)
            .history().foreign(&[node_exporter("node_infiniband_rp_cnp_packets_handled_total")]);
    OUT_OF_SEQUENCE, "Packets received out of order.",
        Metric::counter("gaunt_port_out_of_sequence_packets_total", Port, Unit::Count, Wrapping32)
            .foreign(&[node_exporter("node_infiniband_out_of_sequence_packets_received_total")]);
    PACKET_SEQUENCE_ERRORS, "Negative acknowledgements received: packets were lost on the way out.",
        Metric::counter("gaunt_port_packet_sequence_errors_total", Port, Unit::Count, Wrapping32)
            .history().foreign(&[node_exporter("node_infiniband_packet_sequence_errors_total")]);
    LOCAL_ACK_TIMEOUTS, "Packets that nobody acknowledged in time.",
        Metric::counter("gaunt_port_local_ack_timeouts_total", Port, Unit::Count, Wrapping32)
            .history().foreign(&[node_exporter("node_infiniband_local_ack_timeout_errors_total")]);
    RNR_NAK_RETRIES, "Times that the receiver was not ready: a slow host or application.",
        Metric::counter("gaunt_port_rnr_nak_retries_total", Port, Unit::Count, Wrapping32)
            .foreign(&[node_exporter("node_infiniband_rnr_nak_retry_packets_received_total")]);
    OUT_OF_BUFFER, "Packets dropped because software had no receive buffer ready.",
        Metric::counter("gaunt_port_out_of_buffer_drops_total", Port, Unit::Count, Wrapping32)
            .foreign(&[node_exporter("node_infiniband_out_of_buffer_drops_total")]);
    ADAPTIVE_RETRANSMITS, "Adaptive retransmissions.",
        Metric::counter("gaunt_port_adaptive_retransmits_total", Port, Unit::Count, Wrapping32)
            .foreign(&[node_exporter("node_infiniband_roce_adp_retransmits_total")]);
    SLOW_RESTARTS, "Flows restarted slowly after idleness or loss.",
        Metric::counter("gaunt_port_slow_restarts_total", Port, Unit::Count, Wrapping32)
            .foreign(&[node_exporter("node_infiniband_roce_slow_restart_total")]);
}
