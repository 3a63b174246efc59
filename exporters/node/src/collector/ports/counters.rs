//! Which file of a port is which metric, and what its number means.

use gaunt_schema::{
    Absent, MetricId, Reading,
    catalogue::port,
    unit::{Kind, Width},
};

/// InfiniBand counts data in words of four bytes.
const WORD: u64 = 4;

/// What the kernel writes where the card's firmware does not answer for a counter: `N/A (no PMA)`.
const NO_VALUE: &str = "N/A";

/// One counter file of a port.
pub(super) struct Counter {
    /// Where it is below the port's folder.
    pub(super) file: &'static str,
    /// What it counts.
    pub(super) metric: MetricId,
    /// From the number in the file to the catalogue's unit.
    scale: u64,
}

const fn plain(file: &'static str, metric: MetricId) -> Counter {
    Counter { file, metric, scale: 1 }
}

const fn words(file: &'static str, metric: MetricId) -> Counter {
    Counter { file, metric, scale: WORD }
}

/// Every counter file that is read. AWS's EFA has no `counters` folder and counts plain bytes among `hw_counters`.
pub(super) const COUNTERS: &[Counter] = &[
    words("counters/port_rcv_data", port::RECEIVE_BYTES),
    words("counters/port_xmit_data", port::TRANSMIT_BYTES),
    plain("hw_counters/rx_bytes", port::RECEIVE_BYTES),
    plain("hw_counters/tx_bytes", port::TRANSMIT_BYTES),
    plain("counters/port_rcv_packets", port::RECEIVE_PACKETS),
    plain("counters/port_xmit_packets", port::TRANSMIT_PACKETS),
    plain("hw_counters/rx_pkts", port::RECEIVE_PACKETS),
    plain("hw_counters/tx_pkts", port::TRANSMIT_PACKETS),
    plain("counters/port_xmit_wait", port::TRANSMIT_WAIT),
    plain("counters/symbol_error", port::SYMBOL_ERRORS),
    plain("counters/link_downed", port::LINK_DOWNED),
    plain("counters/link_error_recovery", port::LINK_ERROR_RECOVERY),
    plain("counters/port_rcv_errors", port::RECEIVE_ERRORS),
    plain("counters/port_rcv_remote_physical_errors", port::REMOTE_PHYSICAL_ERRORS),
    plain("counters/port_xmit_discards", port::TRANSMIT_DISCARDS),
    plain("counters/local_link_integrity_errors", port::LOCAL_LINK_INTEGRITY_ERRORS),
    plain("counters/excessive_buffer_overrun_errors", port::BUFFER_OVERRUN_ERRORS),
    plain("counters/VL15_dropped", port::VL15_DROPPED),
    plain("hw_counters/np_ecn_marked_roce_packets", port::ECN_MARKED),
    plain("hw_counters/np_cnp_sent", port::CNP_SENT),
    plain("hw_counters/rp_cnp_handled", port::CNP_HANDLED),
    plain("hw_counters/out_of_sequence", port::OUT_OF_SEQUENCE),
    plain("hw_counters/packet_seq_err", port::PACKET_SEQUENCE_ERRORS),
    plain("hw_counters/local_ack_timeout_err", port::LOCAL_ACK_TIMEOUTS),
    plain("hw_counters/rnr_nak_retry_err", port::RNR_NAK_RETRIES),
    plain("hw_counters/out_of_buffer", port::OUT_OF_BUFFER),
    plain("hw_counters/roce_adp_retrans", port::ADAPTIVE_RETRANSMITS),
    plain("hw_counters/roce_slow_restart", port::SLOW_RESTARTS),
];

impl Counter {
    /// What the file's text says. A counter that stands at its maximum says nothing any more; one beyond it is
    /// wider on this card than in the kernel's table, and counts.
    pub(super) fn reading(&self, text: &str) -> Reading {
        if text.starts_with(NO_VALUE) {
            return Absent::Unsupported.into();
        }
        let Ok(count) = text.parse::<u64>() else { return Absent::Error.into() };
        if let Kind::Counter(width @ Width::Saturating(_)) = self.metric.row().kind
            && width.max() == Some(count as f64)
        {
            return Absent::Saturated.into();
        }
        // In floating point, because a word count may exceed a quarter of 64 bits.
        Reading::of(count as f64 * self.scale as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str, text: &str) -> Reading {
        COUNTERS.iter().find(|counter| counter.file == file).unwrap().reading(text)
    }

    #[test]
    fn data_is_bytes_whatever_the_driver_counts_in() {
        assert_eq!(read("counters/port_xmit_data", "1000"), Reading::of(4000.0));
        assert_eq!(read("hw_counters/tx_bytes", "1000"), Reading::of(1000.0));
    }

    #[test]
    fn a_counter_at_its_end_is_not_a_number() {
        assert_eq!(read("counters/port_xmit_wait", "4294967295"), Absent::Saturated.into());
        assert_eq!(read("counters/port_xmit_wait", "4294967294"), Reading::of(4_294_967_294.0));
        assert_eq!(read("counters/link_downed", "255"), Absent::Saturated.into());
        assert_eq!(read("counters/symbol_error", "65535"), Absent::Saturated.into());
        assert_eq!(read("counters/symbol_error", "70000"), Reading::of(70_000.0));
        // A counter that wraps has no end.
        assert_eq!(read("hw_counters/packet_seq_err", "4294967295"), Reading::of(4_294_967_295.0));
    }

    #[test]
    fn garbage_costs_only_itself() {
        let silent = read("counters/symbol_error", "N/A (no PMA)");
        assert_eq!(silent, Absent::Unsupported.into());
        for text in ["", "-1", "0x10"] {
            assert_eq!(read("counters/symbol_error", text), Absent::Error.into(), "{text}");
        }
    }

    #[test]
    fn every_port_counter_of_the_catalogue_has_a_file() {
        for id in MetricId::all().filter(|id| id.row().name.starts_with("gaunt_port_")) {
            let counted = matches!(id.row().kind, Kind::Counter(_));
            let read = COUNTERS.iter().any(|counter| counter.metric == id);
            assert_eq!(counted, read, "{}", id.key());
        }
    }
}
