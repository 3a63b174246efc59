//! rdma_exporter: the counters of RDMA ports under the kernel's own names, and pauses by priority.

#![cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "a table names most rows of a class")
)]

use super::{
    assembly::{Assembly, text},
    plan::{Blank, Op, Rule},
    special::Special,
    table::{Identity, Table, To, Told, Word, row, same},
};
use crate::{
    Class, Device, Dialect, MetricId,
    catalogue::{
        Scale::{self, Per, Same, Times},
        ethernet,
        port::{self, *},
    },
    text::{Reason, Sample},
};

/// Bytes of the words in which ports count their data.
const WORD: f64 = 4.0;

/// Its words.
pub(super) const TABLE: Table = Table {
    dialect: Dialect::Rdma,
    words: &[
        Word { name: "rdma_port_info", when: None, to: To::Who(Class::Port) },
        row("rdma_port_rcv_data_total", RECEIVE_BYTES, Times(WORD)),
        row("rdma_port_xmit_data_total", TRANSMIT_BYTES, Times(WORD)),
        same("rdma_port_rcv_packets_total", RECEIVE_PACKETS),
        same("rdma_port_xmit_packets_total", TRANSMIT_PACKETS),
        same("rdma_unicast_rcv_packets_total", UNICAST_RECEIVE_PACKETS),
        same("rdma_unicast_xmit_packets_total", UNICAST_TRANSMIT_PACKETS),
        same("rdma_multicast_rcv_packets_total", MULTICAST_RECEIVE_PACKETS),
        same("rdma_multicast_xmit_packets_total", MULTICAST_TRANSMIT_PACKETS),
        same("rdma_port_xmit_wait_total", TRANSMIT_WAIT),
        same("rdma_port_xmit_discards_total", TRANSMIT_DISCARDS),
        same("rdma_port_rcv_errors_total", RECEIVE_ERRORS),
        same("rdma_port_rcv_remote_physical_errors_total", REMOTE_PHYSICAL_ERRORS),
        same("rdma_port_rcv_switch_relay_errors_total", SWITCH_RELAY_ERRORS),
        same("rdma_port_rcv_constraint_errors_total", RECEIVE_CONSTRAINT_ERRORS),
        same("rdma_port_xmit_constraint_errors_total", TRANSMIT_CONSTRAINT_ERRORS),
        same("rdma_symbol_error_total", SYMBOL_ERRORS),
        same("rdma_link_downed_total", LINK_DOWNED),
        same("rdma_link_error_recovery_total", LINK_ERROR_RECOVERY),
        same("rdma_local_link_integrity_errors_total", LOCAL_LINK_INTEGRITY_ERRORS),
        same("rdma_excessive_buffer_overrun_errors_total", BUFFER_OVERRUN_ERRORS),
        same("rdma_vl15_dropped_total", VL15_DROPPED),
        same("rdma_np_ecn_marked_roce_packets_total", ECN_MARKED),
        same("rdma_np_cnp_sent_total", CNP_SENT),
        same("rdma_rp_cnp_handled_total", CNP_HANDLED),
        same("rdma_rp_cnp_ignored_total", CNP_IGNORED),
        same("rdma_out_of_sequence_total", OUT_OF_SEQUENCE),
        same("rdma_packet_seq_err_total", PACKET_SEQUENCE_ERRORS),
        same("rdma_local_ack_timeout_err_total", LOCAL_ACK_TIMEOUTS),
        same("rdma_rnr_nak_retry_err_total", RNR_NAK_RETRIES),
        same("rdma_out_of_buffer_total", OUT_OF_BUFFER),
        same("rdma_implied_nak_seq_err_total", IMPLIED_NAK_ERRORS),
        same("rdma_duplicate_request_total", DUPLICATE_REQUESTS),
        same("rdma_rx_icrc_encapsulated_total", ICRC_ERRORS),
        same("rdma_roce_adp_retrans_total", ADAPTIVE_RETRANSMITS),
        same("rdma_roce_adp_retrans_to_total", ADAPTIVE_RETRANSMIT_TIMEOUTS),
        same("rdma_roce_slow_restart_total", SLOW_RESTARTS),
        same("rdma_roce_slow_restart_cnps_total", SLOW_RESTART_CNPS),
        same("rdma_roce_slow_restart_trans_total", SLOW_RESTART_TRANSITIONS),
        same("rdma_rx_read_requests_total", READ_REQUESTS),
        same("rdma_rx_write_requests_total", WRITE_REQUESTS),
        same("rdma_rx_atomic_requests_total", ATOMIC_REQUESTS),
        same("rdma_req_cqe_error_total", REQUEST_COMPLETION_ERRORS),
        same("rdma_resp_cqe_error_total", RESPONSE_COMPLETION_ERRORS),
        same("rdma_req_cqe_flush_error_total", REQUEST_FLUSH_ERRORS),
        same("rdma_resp_cqe_flush_error_total", RESPONSE_FLUSH_ERRORS),
        same("rdma_req_remote_access_errors_total", REQUEST_ACCESS_ERRORS),
        same("rdma_resp_remote_access_errors_total", RESPONSE_ACCESS_ERRORS),
        same("rdma_req_remote_invalid_request_total", REQUEST_INVALID_ERRORS),
        same("rdma_resp_local_length_error_total", RESPONSE_LENGTH_ERRORS),
    ],
    keys: &[],
    identity: &[Identity {
        class: Class::Port,
        info: port::INFO,
        labels: &[("netdev", "netdev"), ("link_layer", "link_layer"), ("pci_bus_id", "pci_addr")],
    }],
    node: &[],
    parts: &[],
    blank: Blank::Never,
};

const fn pause(name: &'static str, take: super::special::Take) -> Special {
    Special { name, dialect: Dialect::Rdma, take }
}

/// Pauses by priority: of the network device, which the series names.
pub(super) const SPECIAL: [Special; 3] = [
    pause("rdma_roce_pfc_pause_frames_total", frames),
    pause("rdma_roce_pfc_pause_duration_total", duration),
    pause("rdma_roce_pfc_pause_transitions_total", transitions),
];

fn frames<'a>(_: &mut Told, to: &mut Assembly<'a>, sample: &Sample<'_, 'a>) -> Result<Op, Reason> {
    let rows = [Some(ethernet::RECEIVE_PAUSE_0), Some(ethernet::TRANSMIT_PAUSE_0)];
    priority(to, sample, rows, Same)
}

fn duration<'a>(
    _: &mut Told,
    to: &mut Assembly<'a>,
    sample: &Sample<'_, 'a>,
) -> Result<Op, Reason> {
    let rows = [Some(ethernet::RECEIVE_PAUSED_0), Some(ethernet::TRANSMIT_PAUSED_0)];
    priority(to, sample, rows, Per(1e6))
}

fn transitions<'a>(
    _: &mut Told,
    to: &mut Assembly<'a>,
    sample: &Sample<'_, 'a>,
) -> Result<Op, Reason> {
    priority(to, sample, [Some(ethernet::RECEIVE_PAUSE_TRANSITIONS_0), None], Same)
}

/// The row of the priority that the labels name, counted from that of priority 0 of each direction.
fn priority<'a>(
    assembly: &mut Assembly<'a>,
    sample: &Sample<'_, 'a>,
    [received, transmitted]: [Option<MetricId>; 2],
    scale: Scale,
) -> Result<Op, Reason> {
    let netdev = text(sample, "netdev|device").ok_or(Reason::NoDevice)?;
    let direction = text(sample, "direction").ok_or(Reason::NoDevice)?;
    let first = if direction == "rx" { received } else { transmitted };
    let number = text(sample, "priority").and_then(|number| number.parse().ok());
    let (Some(first), Some(number @ 0..8_u16)) = (first, number) else { return Ok(Op::Ignore) };
    let metric = MetricId(first.0 + number);
    let device = assembly.device(Device::netdev(&netdev));
    assembly.read_foreign(device, metric, Rule::of(metric, scale, Blank::Never))
}
