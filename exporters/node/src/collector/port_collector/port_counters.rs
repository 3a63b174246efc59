//! Converts the counter files of a port to metrics.

use gaunt_schema::{
    AbsenceReason, MetricId, Reading,
    unit::{CounterWidth, MetricKind},
};

mod counter_files;

pub(super) use counter_files::COUNTERS;

/// InfiniBand counts data in words of four bytes.
const WORD: u64 = 4;

/// The kernel's text where the card's firmware does not return a counter: `N/A (no PMA)`.
const NO_VALUE: &str = "N/A";

/// One counter file of a port.
pub(super) struct PortCounterFile {
    /// Its path below the port's folder.
    pub(super) file: &'static str,
    /// What it counts.
    pub(super) metric: MetricId,
    /// From the number in the file to the catalogue's unit.
    scale: u64,
}

const fn plain_counter(file: &'static str, metric: MetricId) -> PortCounterFile {
    PortCounterFile { file, metric, scale: 1 }
}

const fn word_counter(file: &'static str, metric: MetricId) -> PortCounterFile {
    PortCounterFile { file, metric, scale: WORD }
}

impl PortCounterFile {
    /// Parses the file's text. A saturated counter carries no information; one beyond the maximum is wider on this card
    /// than in the kernel's table, and is valid.
    pub(super) fn parse_reading(&self, text: &str) -> Reading {
        if text.starts_with(NO_VALUE) {
            return AbsenceReason::Unsupported.into();
        }
        let Ok(count) = text.parse::<u64>() else { return AbsenceReason::Error.into() };
        // A card that fell off the bus reads as all ones.
        if count == u64::MAX {
            return AbsenceReason::Lost.into();
        }
        if let MetricKind::Counter(width @ CounterWidth::Saturating(_)) =
            self.metric.catalogue_row().kind
            && width.max_value() == Some(count as f64)
        {
            return AbsenceReason::Saturated.into();
        }
        // In floating point, because a word count may exceed a quarter of 64 bits.
        Reading::of(count as f64 * self.scale as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_counter(file: &str, text: &str) -> Reading {
        COUNTERS.iter().find(|counter| counter.file == file).unwrap().parse_reading(text)
    }

    #[test]
    fn data_counters_are_bytes_whatever_unit_the_driver_uses() {
        assert_eq!(parse_counter("counters/port_xmit_data", "1000"), Reading::of(4000.0));
        assert_eq!(parse_counter("hw_counters/tx_bytes", "1000"), Reading::of(1000.0));
    }

    #[test]
    fn saturated_counter_has_no_value() {
        assert_eq!(
            parse_counter("counters/port_xmit_wait", "4294967295"),
            AbsenceReason::Saturated.into()
        );
        assert_eq!(
            parse_counter("counters/port_xmit_wait", "4294967294"),
            Reading::of(4_294_967_294.0)
        );
        assert_eq!(parse_counter("counters/link_downed", "255"), AbsenceReason::Saturated.into());
        assert_eq!(
            parse_counter("counters/symbol_error", "65535"),
            AbsenceReason::Saturated.into()
        );
        assert_eq!(parse_counter("counters/symbol_error", "70000"), Reading::of(70_000.0));
        assert_eq!(
            parse_counter("counters/port_rcv_data", "18446744073709551615"),
            AbsenceReason::Lost.into()
        );
        // A counter that wraps does not saturate.
        assert_eq!(
            parse_counter("hw_counters/packet_seq_err", "4294967295"),
            Reading::of(4_294_967_295.0)
        );
    }

    #[test]
    fn malformed_counter_affects_only_itself() {
        let unsupported = parse_counter("counters/symbol_error", "N/A (no PMA)");
        assert_eq!(unsupported, AbsenceReason::Unsupported.into());
        for text in ["", "-1", "0x10"] {
            assert_eq!(
                parse_counter("counters/symbol_error", text),
                AbsenceReason::Error.into(),
                "{text}"
            );
        }
    }

    /// node_exporter's names of the files of `hw_counters`, without their common prefix and suffix.
    const HW_COUNTERS: [(&str, &str); 31] = [
        ("duplicate_request", "duplicate_requests_packets"),
        ("implied_nak_seq_err", "implied_nak_seq_errors"),
        ("local_ack_timeout_err", "local_ack_timeout_errors"),
        ("np_cnp_sent", "np_cnp_packets_sent"),
        ("np_ecn_marked_roce_packets", "np_ecn_marked_roce_packets_received"),
        ("out_of_buffer", "out_of_buffer_drops"),
        ("out_of_sequence", "out_of_sequence_packets_received"),
        ("packet_seq_err", "packet_sequence_errors"),
        ("req_cqe_error", "req_cqes_errors"),
        ("req_cqe_flush_error", "req_cqes_flush_errors"),
        ("req_remote_access_errors", "req_remote_access_errors"),
        ("req_remote_invalid_request", "req_remote_invalid_request_errors"),
        ("resp_cqe_error", "resp_cqes_errors"),
        ("resp_cqe_flush_error", "resp_cqes_flush_errors"),
        ("resp_local_length_error", "resp_local_length_errors"),
        ("resp_remote_access_errors", "resp_remote_access_errors"),
        ("rnr_nak_retry_err", "rnr_nak_retry_packets_received"),
        ("roce_adp_retrans", "roce_adp_retransmits"),
        ("roce_adp_retrans_to", "roce_adp_retransmits_timeout"),
        ("roce_slow_restart", "roce_slow_restart_used"),
        ("roce_slow_restart_cnps", "roce_slow_restart_cnps"),
        ("roce_slow_restart_trans", "roce_slow_restart"),
        ("rp_cnp_handled", "rp_cnp_packets_handled"),
        ("rp_cnp_ignored", "rp_cnp_ignored_packets_received"),
        ("rx_atomic_requests", "rx_atomic_requests"),
        ("rx_dct_connect", "rx_dct_connect_requests"),
        ("rx_read_requests", "rx_read_requests"),
        ("rx_write_requests", "rx_write_requests"),
        ("rx_icrc_encapsulated", "rx_icrc_encapsulated_errors"),
        // Files in another folder have one name for both kinds of card.
        ("rx_bytes", "port_data_received_bytes"),
        ("tx_bytes", "port_data_transmitted_bytes"),
    ];

    #[test]
    fn hw_counters_have_the_names_that_node_exporter_gives_them() {
        for (file, name) in HW_COUNTERS {
            let file = format!("hw_counters/{file}");
            let counter = COUNTERS.iter().find(|counter| counter.file == file).unwrap();
            let names = counter.metric.catalogue_row().foreign.iter().map(|foreign| foreign.name);
            let names: Vec<_> = names.collect();
            assert_eq!(names, [format!("node_infiniband_{name}_total")], "{file}");
        }
    }

    #[test]
    fn port_counters_of_catalogue_all_have_a_file() {
        for id in
            MetricId::all_ids().filter(|id| id.catalogue_row().name.starts_with("gaunt_port_"))
        {
            let is_counter = matches!(id.catalogue_row().kind, MetricKind::Counter(_));
            let read = COUNTERS.iter().any(|counter| counter.metric == id);
            assert_eq!(is_counter, read, "{}", id.series_key());
        }
    }
}
