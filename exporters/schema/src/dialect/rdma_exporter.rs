//! rdma_exporter: the counters of RDMA ports under the kernel's own names, and PFC pauses by priority.

#![cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "a table names most rows of a class")
)]

use super::{
    custom_handler::CustomHandler,
    decode_plan::{BlankValues, DecodeOp, ValueRule},
    dialect_table::{
        DecodeContext, DialectTable, IdentityLabels, MappingTarget, NameMapping, same_unit,
        scaled_unit,
    },
    report_builder::{ReportBuilder, label_text},
};
use crate::{
    Device, DeviceClass, Dialect, MetricId,
    catalogue::{
        UnitScale::{self, Per, Same, Times},
        ethernet,
        port::{self, *},
    },
    text::{Reason, TextSample},
};

/// Bytes per word, the unit in which ports count their data.
const WORD: f64 = 4.0;

/// Its table.
pub(super) const TABLE: DialectTable = DialectTable {
    dialect: Dialect::Rdma,
    mappings: &[
        NameMapping {
            name: "rdma_port_info",
            when: None,
            to: MappingTarget::IdentityOnly(DeviceClass::Port),
        },
        scaled_unit("rdma_port_rcv_data_total", RECEIVE_BYTES, Times(WORD)),
        scaled_unit("rdma_port_xmit_data_total", TRANSMIT_BYTES, Times(WORD)),
        same_unit("rdma_port_rcv_packets_total", RECEIVE_PACKETS),
        same_unit("rdma_port_xmit_packets_total", TRANSMIT_PACKETS),
        same_unit("rdma_unicast_rcv_packets_total", UNICAST_RECEIVE_PACKETS),
        same_unit("rdma_unicast_xmit_packets_total", UNICAST_TRANSMIT_PACKETS),
        same_unit("rdma_multicast_rcv_packets_total", MULTICAST_RECEIVE_PACKETS),
        same_unit("rdma_multicast_xmit_packets_total", MULTICAST_TRANSMIT_PACKETS),
        same_unit("rdma_port_xmit_wait_total", TRANSMIT_WAIT),
        same_unit("rdma_port_xmit_discards_total", TRANSMIT_DISCARDS),
        same_unit("rdma_port_rcv_errors_total", RECEIVE_ERRORS),
        same_unit("rdma_port_rcv_remote_physical_errors_total", REMOTE_PHYSICAL_ERRORS),
        same_unit("rdma_port_rcv_switch_relay_errors_total", SWITCH_RELAY_ERRORS),
        same_unit("rdma_port_rcv_constraint_errors_total", RECEIVE_CONSTRAINT_ERRORS),
        same_unit("rdma_port_xmit_constraint_errors_total", TRANSMIT_CONSTRAINT_ERRORS),
        same_unit("rdma_symbol_error_total", SYMBOL_ERRORS),
        same_unit("rdma_link_downed_total", LINK_DOWNED),
        same_unit("rdma_link_error_recovery_total", LINK_ERROR_RECOVERY),
        same_unit("rdma_local_link_integrity_errors_total", LOCAL_LINK_INTEGRITY_ERRORS),
        same_unit("rdma_excessive_buffer_overrun_errors_total", BUFFER_OVERRUN_ERRORS),
        same_unit("rdma_vl15_dropped_total", VL15_DROPPED),
        same_unit("rdma_np_ecn_marked_roce_packets_total", ECN_MARKED),
        same_unit("rdma_np_cnp_sent_total", CNP_SENT),
        same_unit("rdma_rp_cnp_handled_total", CNP_HANDLED),
        same_unit("rdma_rp_cnp_ignored_total", CNP_IGNORED),
        same_unit("rdma_out_of_sequence_total", OUT_OF_SEQUENCE),
        same_unit("rdma_packet_seq_err_total", PACKET_SEQUENCE_ERRORS),
        same_unit("rdma_local_ack_timeout_err_total", LOCAL_ACK_TIMEOUTS),
        same_unit("rdma_rnr_nak_retry_err_total", RNR_NAK_RETRIES),
        same_unit("rdma_out_of_buffer_total", OUT_OF_BUFFER),
        same_unit("rdma_implied_nak_seq_err_total", IMPLIED_NAK_ERRORS),
        same_unit("rdma_duplicate_request_total", DUPLICATE_REQUESTS),
        same_unit("rdma_rx_icrc_encapsulated_total", ICRC_ERRORS),
        same_unit("rdma_roce_adp_retrans_total", ADAPTIVE_RETRANSMITS),
        same_unit("rdma_roce_adp_retrans_to_total", ADAPTIVE_RETRANSMIT_TIMEOUTS),
        same_unit("rdma_roce_slow_restart_total", SLOW_RESTARTS),
        same_unit("rdma_roce_slow_restart_cnps_total", SLOW_RESTART_CNPS),
        same_unit("rdma_roce_slow_restart_trans_total", SLOW_RESTART_TRANSITIONS),
        same_unit("rdma_rx_read_requests_total", READ_REQUESTS),
        same_unit("rdma_rx_write_requests_total", WRITE_REQUESTS),
        same_unit("rdma_rx_atomic_requests_total", ATOMIC_REQUESTS),
        same_unit("rdma_req_cqe_error_total", REQUEST_COMPLETION_ERRORS),
        same_unit("rdma_resp_cqe_error_total", RESPONSE_COMPLETION_ERRORS),
        same_unit("rdma_req_cqe_flush_error_total", REQUEST_FLUSH_ERRORS),
        same_unit("rdma_resp_cqe_flush_error_total", RESPONSE_FLUSH_ERRORS),
        same_unit("rdma_req_remote_access_errors_total", REQUEST_ACCESS_ERRORS),
        same_unit("rdma_resp_remote_access_errors_total", RESPONSE_ACCESS_ERRORS),
        same_unit("rdma_req_remote_invalid_request_total", REQUEST_INVALID_ERRORS),
        same_unit("rdma_resp_local_length_error_total", RESPONSE_LENGTH_ERRORS),
    ],
    keys: &[],
    identity: &[IdentityLabels {
        class: DeviceClass::Port,
        info: port::INFO,
        labels: &[("netdev", "netdev"), ("link_layer", "link_layer"), ("pci_bus_id", "pci_addr")],
    }],
    node: &[],
    parts: &[],
    blank: BlankValues::Never,
};

const fn pause_handler(
    name: &'static str,
    decode: super::custom_handler::DecodeFn,
) -> CustomHandler {
    CustomHandler { name, dialect: Dialect::Rdma, decode }
}

/// PFC pauses by priority: they belong to the network device that the series names.
pub(super) const SPECIAL: [CustomHandler; 3] = [
    pause_handler("rdma_roce_pfc_pause_frames_total", decode_pause_frames),
    pause_handler("rdma_roce_pfc_pause_duration_total", decode_pause_duration),
    pause_handler("rdma_roce_pfc_pause_transitions_total", decode_pause_transitions),
];

fn decode_pause_frames<'a>(
    _: &mut DecodeContext,
    builder: &mut ReportBuilder<'a>,
    sample: &TextSample<'_, 'a>,
) -> Result<DecodeOp, Reason> {
    let rows = [Some(ethernet::RECEIVE_PAUSE_0), Some(ethernet::TRANSMIT_PAUSE_0)];
    decode_priority(builder, sample, rows, Same)
}

fn decode_pause_duration<'a>(
    _: &mut DecodeContext,
    builder: &mut ReportBuilder<'a>,
    sample: &TextSample<'_, 'a>,
) -> Result<DecodeOp, Reason> {
    let rows = [Some(ethernet::RECEIVE_PAUSED_0), Some(ethernet::TRANSMIT_PAUSED_0)];
    decode_priority(builder, sample, rows, Per(1e6))
}

fn decode_pause_transitions<'a>(
    _: &mut DecodeContext,
    builder: &mut ReportBuilder<'a>,
    sample: &TextSample<'_, 'a>,
) -> Result<DecodeOp, Reason> {
    decode_priority(builder, sample, [Some(ethernet::RECEIVE_PAUSE_TRANSITIONS_0), None], Same)
}

/// The row of the priority that the labels name, as an offset from priority 0 of each direction.
fn decode_priority<'a>(
    builder: &mut ReportBuilder<'a>,
    sample: &TextSample<'_, 'a>,
    [received, transmitted]: [Option<MetricId>; 2],
    scale: UnitScale,
) -> Result<DecodeOp, Reason> {
    let netdev = label_text(sample, "netdev|device").ok_or(Reason::NoDevice)?;
    let direction = label_text(sample, "direction").ok_or(Reason::NoDevice)?;
    let first = if direction == "rx" { received } else { transmitted };
    let number = label_text(sample, "priority").and_then(|number| number.parse().ok());
    let (Some(first), Some(number @ 0..8_u16)) = (first, number) else {
        return Ok(DecodeOp::Ignore);
    };
    let metric = MetricId(first.0 + number);
    let device = builder.ensure_device(Device::new_netdev(&netdev));
    builder.plan_foreign_reading(device, metric, ValueRule::of(metric, scale, BlankValues::Never))
}
