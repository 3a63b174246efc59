//! Metrics of a port of an RDMA device.
//!
//! Widths are those of the kernel's performance-management table and of the mlx5 driver: classic error counters have
//! 4, 8 or 16 bits and saturate at their maximum; queue counters have 32 bits and wrap.

use super::{Metric, gpu_parts, node_exporter_name, rows};
use crate::{
    DeviceClass::Port,
    unit::{
        CounterWidth::{Bits64, Saturating, Wrapping32},
        Unit,
    },
};

rows! {
    from gpu_parts::END;
    INFO, "Who the port is, and where it is plugged in.",
        Metric::new_info_series("gaunt_port_info", Port,
            &["netdev", "link_layer", "firmware", "hca_type", "board", "pci_bus_id", "numa_node", "function",
                "gpu_pci_bus_ids", "gpus_by", "rail", "rail_by", "leaf", "guid"]).with_rare_changes();
    STATE, "Logical state of the port: 1 down, 2 initialising, 3 armed, 4 active.",
        Metric::new_gauge("gaunt_port_state_id", Port, Unit::Count, 1.0)
            .with_history().with_foreign(&[node_exporter_name("node_infiniband_state_id")]);
    PHYSICAL_STATE, "Physical state of the port: 2 polling, 3 disabled, 5 link up.",
        Metric::new_gauge("gaunt_port_physical_state_id", Port, Unit::Count, 1.0)
            .with_foreign(&[node_exporter_name("node_infiniband_physical_state_id")]);
    RATE, "Line rate of the port.",
        Metric::new_gauge("gaunt_port_rate_bytes_per_second", Port, Unit::BytesPerSecond, 1.0)
            .with_history().with_foreign(&[node_exporter_name("node_infiniband_rate_bytes_per_second")]);
    COUNTER_LIFESPAN, "Longest age of the card's own counters: reads that follow sooner may bring the same numbers.",
        Metric::new_gauge("gaunt_port_reading_lifespan_seconds", Port, Unit::Seconds, 1e-3)
            .with_foreign(&[node_exporter_name("node_infiniband_lifespan_seconds")]).with_rare_changes();
    LANES, "Lanes of the link, 4 on a healthy cable: 1 or 2 where some of them failed.",
        Metric::new_gauge("gaunt_port_lanes", Port, Unit::Count, 1.0);
    RECEIVE_BYTES, "Data received on all virtual lanes.",
        Metric::new_counter("gaunt_port_receive_bytes_total", Port, Unit::Bytes, Bits64)
            .with_history().with_foreign(&[node_exporter_name("node_infiniband_port_data_received_bytes_total")]);
    TRANSMIT_BYTES, "Data transmitted on all virtual lanes.",
        Metric::new_counter("gaunt_port_transmit_bytes_total", Port, Unit::Bytes, Bits64)
            .with_history().with_foreign(&[node_exporter_name("node_infiniband_port_data_transmitted_bytes_total")]);
    RECEIVE_PACKETS, "Packets received on all virtual lanes.",
        Metric::new_counter("gaunt_port_receive_packets_total", Port, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_infiniband_port_packets_received_total")]);
    TRANSMIT_PACKETS, "Packets transmitted on all virtual lanes.",
        Metric::new_counter("gaunt_port_transmit_packets_total", Port, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_infiniband_port_packets_transmitted_total")]);
    TRANSMIT_WAIT, "Ticks in which data was ready and could not be transmitted.",
        Metric::new_counter("gaunt_port_transmit_wait_total", Port, Unit::Count, Saturating(32))
            .with_history().with_foreign(&[node_exporter_name("node_infiniband_port_transmit_wait_total")]);
    SYMBOL_ERRORS, "Minor link errors on at least one lane.",
        Metric::new_counter("gaunt_port_symbol_errors_total", Port, Unit::Count, Saturating(16))
            .with_history().with_foreign(&[node_exporter_name("node_infiniband_symbol_error_total")]);
    LINK_DOWNED, "Times that the link failed to recover and went down.",
        Metric::new_counter("gaunt_port_link_downed_total", Port, Unit::Count, Saturating(8))
            .with_history().with_foreign(&[node_exporter_name("node_infiniband_link_downed_total")]);
    LINK_ERROR_RECOVERY, "Times that the link recovered from an error by itself.",
        Metric::new_counter("gaunt_port_link_error_recovery_total", Port, Unit::Count, Saturating(8))
            .with_foreign(&[node_exporter_name("node_infiniband_link_error_recovery_total")]);
    RECEIVE_ERRORS, "Packets received with an error.",
        Metric::new_counter("gaunt_port_receive_errors_total", Port, Unit::Count, Saturating(16))
            .with_history().with_foreign(&[node_exporter_name("node_infiniband_port_errors_received_total")]);
    REMOTE_PHYSICAL_ERRORS, "Packets received that the other end had marked as bad.",
        Metric::new_counter("gaunt_port_receive_remote_physical_errors_total", Port, Unit::Count, Saturating(16))
            .with_foreign(&[node_exporter_name("node_infiniband_port_receive_remote_physical_errors_total")]);
    TRANSMIT_DISCARDS, "Packets discarded because the port was down or congested.",
        Metric::new_counter("gaunt_port_transmit_discards_total", Port, Unit::Count, Saturating(16))
            .with_history().with_foreign(&[node_exporter_name("node_infiniband_port_discards_transmitted_total")]);
    LOCAL_LINK_INTEGRITY_ERRORS, "Times that local physical errors passed their threshold.",
        Metric::new_counter("gaunt_port_local_link_integrity_errors_total", Port, Unit::Count, Saturating(4))
            .with_foreign(&[node_exporter_name("node_infiniband_local_link_integrity_errors_total")]);
    BUFFER_OVERRUN_ERRORS, "Times that buffer overruns passed their threshold.",
        Metric::new_counter("gaunt_port_excessive_buffer_overrun_errors_total", Port, Unit::Count, Saturating(4))
            .with_foreign(&[node_exporter_name("node_infiniband_excessive_buffer_overrun_errors_total")]);
    VL15_DROPPED, "Management packets dropped for lack of a buffer.",
        Metric::new_counter("gaunt_port_vl15_dropped_total", Port, Unit::Count, Saturating(16))
            .with_foreign(&[node_exporter_name("node_infiniband_vl15_dropped_total")]);
    ECN_MARKED, "RoCE packets received with a congestion mark: a queue on the path fills.",
        Metric::new_counter("gaunt_port_ecn_marked_packets_total", Port, Unit::Count, Bits64)
            .with_history().with_foreign(&[node_exporter_name("node_infiniband_np_ecn_marked_roce_packets_received_total")]);
    CNP_SENT, "Congestion notifications sent: senders to this port were told to slow down.",
        Metric::new_counter("gaunt_port_cnp_sent_packets_total", Port, Unit::Count, Bits64)
            .with_history().with_foreign(&[node_exporter_name("node_infiniband_np_cnp_packets_sent_total")]);
    CNP_HANDLED, "Congestion notifications obeyed: this port was told to slow down.",
        Metric::new_counter("gaunt_port_cnp_handled_packets_total", Port, Unit::Count, Bits64)
            .with_history().with_foreign(&[node_exporter_name("node_infiniband_rp_cnp_packets_handled_total")]);
    OUT_OF_SEQUENCE, "Packets received out of order.",
        Metric::new_counter("gaunt_port_out_of_sequence_packets_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_out_of_sequence_packets_received_total")]);
    PACKET_SEQUENCE_ERRORS, "Negative acknowledgements received: packets were lost on the way out.",
        Metric::new_counter("gaunt_port_packet_sequence_errors_total", Port, Unit::Count, Wrapping32)
            .with_history().with_foreign(&[node_exporter_name("node_infiniband_packet_sequence_errors_total")]);
    LOCAL_ACK_TIMEOUTS, "Packets that nobody acknowledged in time.",
        Metric::new_counter("gaunt_port_local_ack_timeouts_total", Port, Unit::Count, Wrapping32)
            .with_history().with_foreign(&[node_exporter_name("node_infiniband_local_ack_timeout_errors_total")]);
    RNR_NAK_RETRIES, "Times that the receiver was not ready: a slow host or application.",
        Metric::new_counter("gaunt_port_rnr_nak_retries_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_rnr_nak_retry_packets_received_total")]);
    OUT_OF_BUFFER, "Packets dropped because software had no receive buffer ready.",
        Metric::new_counter("gaunt_port_out_of_buffer_drops_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_out_of_buffer_drops_total")]);
    ADAPTIVE_RETRANSMITS, "Adaptive retransmissions.",
        Metric::new_counter("gaunt_port_adaptive_retransmits_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_roce_adp_retransmits_total")]);
    SLOW_RESTARTS, "Flows restarted slowly after idleness or loss.",
        Metric::new_counter("gaunt_port_slow_restarts_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_roce_slow_restart_used_total")]);
    UNICAST_RECEIVE_PACKETS, "Packets received that were sent to one port.",
        Metric::new_counter("gaunt_port_unicast_receive_packets_total", Port, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_infiniband_unicast_packets_received_total")]);
    UNICAST_TRANSMIT_PACKETS, "Packets transmitted to one port.",
        Metric::new_counter("gaunt_port_unicast_transmit_packets_total", Port, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_infiniband_unicast_packets_transmitted_total")]);
    MULTICAST_RECEIVE_PACKETS, "Packets received that were sent to many ports.",
        Metric::new_counter("gaunt_port_multicast_receive_packets_total", Port, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_infiniband_multicast_packets_received_total")]);
    MULTICAST_TRANSMIT_PACKETS, "Packets transmitted to many ports.",
        Metric::new_counter("gaunt_port_multicast_transmit_packets_total", Port, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_infiniband_multicast_packets_transmitted_total")]);
    RECEIVE_CONSTRAINT_ERRORS, "Packets received and refused for their partition key or lane.",
        Metric::new_counter("gaunt_port_receive_constraint_errors_total", Port, Unit::Count, Saturating(8))
            .with_foreign(&[node_exporter_name("node_infiniband_port_constraint_errors_received_total")]);
    TRANSMIT_CONSTRAINT_ERRORS, "Packets not transmitted for their partition key or lane.",
        Metric::new_counter("gaunt_port_transmit_constraint_errors_total", Port, Unit::Count, Saturating(8))
            .with_foreign(&[node_exporter_name("node_infiniband_port_constraint_errors_transmitted_total")]);
    SWITCH_RELAY_ERRORS, "Packets received that a switch could not forward.",
        Metric::new_counter("gaunt_port_receive_switch_relay_errors_total", Port, Unit::Count, Saturating(16))
            .with_foreign(&[node_exporter_name("node_infiniband_port_receive_switch_relay_errors_total")]);
    RECEIVE_DROPS, "Packets that the card received and dropped.",
        Metric::new_counter("gaunt_port_receive_drops_total", Port, Unit::Count, Bits64)
            .with_history().with_foreign(&[node_exporter_name("node_infiniband_port_discards_received_total")]);
    TRANSMIT_DROPS, "Packets that the card dropped instead of transmitting them.",
        Metric::new_counter("gaunt_port_transmit_drops_total", Port, Unit::Count, Bits64);
    ROCE_RECEIVE_ERRORS, "RoCE packets received with an error.",
        Metric::new_counter("gaunt_port_roce_receive_errors_total", Port, Unit::Count, Bits64);
    ROCE_TRANSMIT_ERRORS, "RoCE packets that could not be transmitted.",
        Metric::new_counter("gaunt_port_roce_transmit_errors_total", Port, Unit::Count, Bits64);
    ICRC_ERRORS, "RoCE packets received with a wrong checksum.",
        Metric::new_counter("gaunt_port_icrc_errors_total", Port, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_infiniband_rx_icrc_encapsulated_errors_total")]);
    CNP_IGNORED, "Congestion notifications that this port received and did not obey.",
        Metric::new_counter("gaunt_port_cnp_ignored_packets_total", Port, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_infiniband_rp_cnp_ignored_packets_received_total")]);
    IMPLIED_NAK_ERRORS, "Acknowledgements that skipped packets: the ones between were lost.",
        Metric::new_counter("gaunt_port_implied_nak_errors_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_implied_nak_seq_errors_total")]);
    DUPLICATE_REQUESTS, "Requests received twice: the sender had given up waiting.",
        Metric::new_counter("gaunt_port_duplicate_requests_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_duplicate_requests_packets_total")]);
    TRANSPORT_RETRIES_EXCEEDED, "Connections lost because nobody acknowledged.",
        Metric::new_counter("gaunt_port_transport_retries_exceeded_total", Port, Unit::Count, Wrapping32)
            .with_history();
    RNR_RETRIES_EXCEEDED, "Connections lost because the receiver was never ready.",
        Metric::new_counter("gaunt_port_rnr_retries_exceeded_total", Port, Unit::Count, Wrapping32);
    ADAPTIVE_RETRANSMIT_TIMEOUTS, "Adaptive retransmissions that a timeout caused.",
        Metric::new_counter("gaunt_port_adaptive_retransmit_timeouts_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_roce_adp_retransmits_timeout_total")]);
    SLOW_RESTART_CNPS, "Congestion notifications that slow restart generated.",
        Metric::new_counter("gaunt_port_slow_restart_cnp_packets_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_roce_slow_restart_cnps_total")]);
    SLOW_RESTART_TRANSITIONS, "Times that a flow changed its state to slow restart.",
        Metric::new_counter("gaunt_port_slow_restart_transitions_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_roce_slow_restart_total")]);
    RETRANSMIT_PACKETS, "Packets transmitted again.",
        Metric::new_counter("gaunt_port_retransmit_packets_total", Port, Unit::Count, Bits64)
            .with_history();
    RETRANSMIT_BYTES, "Bytes transmitted again.",
        Metric::new_counter("gaunt_port_retransmit_bytes_total", Port, Unit::Bytes, Bits64);
    UNRESPONSIVE_REMOTES, "Times that the other end of a connection stopped to answer.",
        Metric::new_counter("gaunt_port_unresponsive_remotes_total", Port, Unit::Count, Bits64)
            .with_history();
    IMPAIRED_REMOTES, "Times that a connection to the other end was impaired.",
        Metric::new_counter("gaunt_port_impaired_remotes_total", Port, Unit::Count, Bits64)
            .with_history();
    READ_REQUESTS, "RDMA reads that others asked of this port.",
        Metric::new_counter("gaunt_port_read_requests_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_rx_read_requests_total")]);
    WRITE_REQUESTS, "RDMA writes that others sent to this port.",
        Metric::new_counter("gaunt_port_write_requests_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_rx_write_requests_total")]);
    ATOMIC_REQUESTS, "Atomic operations that others asked of this port.",
        Metric::new_counter("gaunt_port_atomic_requests_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_rx_atomic_requests_total")]);
    CONNECT_REQUESTS, "Dynamic connections that others asked for.",
        Metric::new_counter("gaunt_port_connect_requests_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_rx_dct_connect_requests_total")]);
    READ_BYTES, "Bytes that this port read from others.",
        Metric::new_counter("gaunt_port_rdma_read_bytes_total", Port, Unit::Bytes, Bits64);
    READ_RESPONSE_BYTES, "Bytes that others read from this port.",
        Metric::new_counter("gaunt_port_rdma_read_response_bytes_total", Port, Unit::Bytes, Bits64);
    WRITE_BYTES, "Bytes that this port wrote to others.",
        Metric::new_counter("gaunt_port_rdma_write_bytes_total", Port, Unit::Bytes, Bits64);
    WRITE_RECEIVE_BYTES, "Bytes that others wrote to this port.",
        Metric::new_counter("gaunt_port_rdma_write_receive_bytes_total", Port, Unit::Bytes, Bits64);
    SEND_BYTES, "Bytes of send requests.",
        Metric::new_counter("gaunt_port_send_bytes_total", Port, Unit::Bytes, Bits64);
    SEND_RECEIVE_BYTES, "Bytes that send requests of others brought.",
        Metric::new_counter("gaunt_port_send_receive_bytes_total", Port, Unit::Bytes, Bits64);
    READ_OPERATIONS, "Work requests to read from others.",
        Metric::new_counter("gaunt_port_rdma_read_operations_total", Port, Unit::Count, Bits64);
    WRITE_OPERATIONS, "Work requests to write to others.",
        Metric::new_counter("gaunt_port_rdma_write_operations_total", Port, Unit::Count, Bits64);
    SEND_OPERATIONS, "Work requests to send.",
        Metric::new_counter("gaunt_port_send_operations_total", Port, Unit::Count, Bits64);
    RECEIVE_OPERATIONS, "Work requests to receive.",
        Metric::new_counter("gaunt_port_receive_operations_total", Port, Unit::Count, Bits64);
    READ_ERRORS, "Work requests to read from others that failed.",
        Metric::new_counter("gaunt_port_rdma_read_errors_total", Port, Unit::Count, Bits64);
    WRITE_ERRORS, "Work requests to write to others that failed.",
        Metric::new_counter("gaunt_port_rdma_write_errors_total", Port, Unit::Count, Bits64);
    REQUEST_COMPLETION_ERRORS, "Requests of this port that completed with an error.",
        Metric::new_counter("gaunt_port_request_completion_errors_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_req_cqes_errors_total")]);
    RESPONSE_COMPLETION_ERRORS, "Requests of others that completed with an error here.",
        Metric::new_counter("gaunt_port_response_completion_errors_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_resp_cqes_errors_total")]);
    REQUEST_FLUSH_ERRORS, "Requests of this port that were flushed when their connection ended.",
        Metric::new_counter("gaunt_port_request_flush_errors_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_req_cqes_flush_errors_total")]);
    RESPONSE_FLUSH_ERRORS, "Receive buffers that were flushed when their connection ended.",
        Metric::new_counter("gaunt_port_response_flush_errors_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_resp_cqes_flush_errors_total")]);
    REQUEST_ACCESS_ERRORS, "Requests of this port that the other end refused for lack of rights.",
        Metric::new_counter("gaunt_port_request_remote_access_errors_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_req_remote_access_errors_total")]);
    RESPONSE_ACCESS_ERRORS, "Requests of others that this port refused for lack of rights.",
        Metric::new_counter("gaunt_port_response_remote_access_errors_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_resp_remote_access_errors_total")]);
    REQUEST_INVALID_ERRORS, "Requests of this port that the other end called invalid.",
        Metric::new_counter("gaunt_port_request_remote_invalid_errors_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_req_remote_invalid_request_errors_total")]);
    RESPONSE_LENGTH_ERRORS, "Requests of others that did not fit the receive buffer.",
        Metric::new_counter("gaunt_port_response_local_length_errors_total", Port, Unit::Count, Wrapping32)
            .with_foreign(&[node_exporter_name("node_infiniband_resp_local_length_errors_total")]);
    REMOTE_OPERATION_ERRORS, "Requests of this port that failed at the other end.",
        Metric::new_counter("gaunt_port_remote_operation_errors_total", Port, Unit::Count, Wrapping32);
    LOCAL_OPERATION_ERRORS, "Requests that failed inside this card.",
        Metric::new_counter("gaunt_port_local_operation_errors_total", Port, Unit::Count, Wrapping32);
    LOCAL_PROTECTION_ERRORS, "Requests that named memory they may not touch.",
        Metric::new_counter("gaunt_port_local_protection_errors_total", Port, Unit::Count, Wrapping32);
    BAD_RESPONSE_ERRORS, "Responses that made no sense.",
        Metric::new_counter("gaunt_port_bad_response_errors_total", Port, Unit::Count, Wrapping32);
    COMPLETION_QUEUE_OVERFLOWS, "Completion queues that overflowed: software did not collect.",
        Metric::new_counter("gaunt_port_completion_queue_overflows_total", Port, Unit::Count, Wrapping32);
    UNRECOVERABLE_ERRORS, "Errors after which a connection could not go on.",
        Metric::new_counter("gaunt_port_unrecoverable_errors_total", Port, Unit::Count, Bits64);
    PCI_RECEIVE_ERRORS, "Errors of the PCIe bus while the card wrote what it received.",
        Metric::new_counter("gaunt_port_pci_receive_errors_total", Port, Unit::Count, Bits64);
    PCI_TRANSMIT_ERRORS, "Errors of the PCIe bus while the card read what it was to transmit.",
        Metric::new_counter("gaunt_port_pci_transmit_errors_total", Port, Unit::Count, Bits64);
    PCI_STALLS, "Cycles in which the card waited for the PCIe bus.",
        Metric::new_counter("gaunt_port_pci_stalls_total", Port, Unit::Count, Wrapping32);
    COMMANDS, "Commands that the driver gave to the card.",
        Metric::new_counter("gaunt_port_commands_total", Port, Unit::Count, Bits64);
    COMMAND_ERRORS, "Commands that the card refused.",
        Metric::new_counter("gaunt_port_command_errors_total", Port, Unit::Count, Bits64);
    COMMAND_TIMEOUTS, "Commands that the card never completed.",
        Metric::new_counter("gaunt_port_command_timeouts_total", Port, Unit::Count, Bits64);
    KEEP_ALIVES, "Signs of life from the card.",
        Metric::new_counter("gaunt_port_keep_alives_total", Port, Unit::Count, Bits64);
}
