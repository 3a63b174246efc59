//! The names of network drivers' statistics: mlx5, mlx4, bnxt, ice and AWS's ena.

use gaunt_schema::{MetricId, catalogue::ethernet};

/// Drivers count pauses in microseconds.
const MICROSECONDS: f64 = 1e6;

/// Statistics of one card, by name.
const WORDS: &[(&str, MetricId, f64)] = &[
    ("rx_global_pause", ethernet::RECEIVE_GLOBAL_PAUSE, 1.0),
    ("tx_global_pause", ethernet::TRANSMIT_GLOBAL_PAUSE, 1.0),
    ("rx_pause_frames", ethernet::RECEIVE_GLOBAL_PAUSE, 1.0),
    ("tx_pause_frames", ethernet::TRANSMIT_GLOBAL_PAUSE, 1.0),
    ("rx_global_pause_duration", ethernet::RECEIVE_GLOBAL_PAUSED, MICROSECONDS),
    ("tx_global_pause_duration", ethernet::TRANSMIT_GLOBAL_PAUSED, MICROSECONDS),
    ("tx_pause_storm_warning_events", ethernet::PAUSE_STORMS_WARNING, 1.0),
    ("tx_pause_storm_error_events", ethernet::PAUSE_STORMS_ERROR, 1.0),
    ("rx_discards_phy", ethernet::PHY_RECEIVE_DISCARDS, 1.0),
    ("tx_discards_phy", ethernet::PHY_TRANSMIT_DISCARDS, 1.0),
    ("rx_stat_discard", ethernet::PHY_RECEIVE_DISCARDS, 1.0),
    ("tx_stat_discard", ethernet::PHY_TRANSMIT_DISCARDS, 1.0),
    ("rx_buffer_passed_thres_phy", ethernet::BUFFER_THRESHOLDS, 1.0),
    ("rx_out_of_buffer", ethernet::OUT_OF_BUFFER, 1.0),
    ("rx_ecn_mark", ethernet::ECN_MARKED, 1.0),
    ("rx_crc_errors_phy", ethernet::CRC_ERRORS, 1.0),
    ("rx_fcs_err_frames", ethernet::CRC_ERRORS, 1.0),
    ("rx_crc_errors.nic", ethernet::CRC_ERRORS, 1.0),
    ("rx_symbol_err_phy", ethernet::PHY_SYMBOL_ERRORS, 1.0),
    ("rx_pcs_symbol_err", ethernet::PCS_SYMBOL_ERRORS, 1.0),
    ("rx_pcs_symbol_err_phy", ethernet::PCS_SYMBOL_ERRORS, 1.0),
    ("rx_corrected_bits", ethernet::CORRECTED_BITS, 1.0),
    ("rx_corrected_bits_phy", ethernet::CORRECTED_BITS, 1.0),
    ("rx_bits", ethernet::PHY_BITS, 1.0),
    ("rx_bits_phy", ethernet::PHY_BITS, 1.0),
    ("rx_fec_corrected_blocks", ethernet::FEC_CORRECTED, 1.0),
    ("rx_fec_uncorrectable_blocks", ethernet::FEC_UNCORRECTABLE, 1.0),
    ("link_down_events_phy", ethernet::LINK_DOWN, 1.0),
    ("link_down_events", ethernet::LINK_DOWN, 1.0),
    ("rx_pci_signal_integrity", ethernet::PCI_RECEIVE_SIGNAL, 1.0),
    ("tx_pci_signal_integrity", ethernet::PCI_TRANSMIT_SIGNAL, 1.0),
    ("outbound_pci_stalled_rd_events", ethernet::PCI_READ_STALLS, 1.0),
    ("outbound_pci_stalled_wr_events", ethernet::PCI_WRITE_STALLS, 1.0),
    ("outbound_pci_buffer_overflow", ethernet::PCI_OVERFLOWS, 1.0),
    ("module_high_temp", ethernet::MODULE_HOT, 1.0),
    ("module_bad_shorted", ethernet::MODULE_FAULTS, 1.0),
    ("bw_in_allowance_exceeded", ethernet::ALLOWANCE_EXCEEDED_IN, 1.0),
    ("bw_out_allowance_exceeded", ethernet::ALLOWANCE_EXCEEDED_OUT, 1.0),
    ("pps_allowance_exceeded", ethernet::ALLOWANCE_EXCEEDED_PACKETS, 1.0),
];

/// Statistics per priority or lane (eight of each): the text before and after the number; the metric is that of number
/// 0, and those of the others follow it.
const NUMBERED: &[(&str, &str, MetricId, f64)] = &[
    ("rx_prio", "_pause", ethernet::RECEIVE_PAUSE_0, 1.0),
    ("tx_prio", "_pause", ethernet::TRANSMIT_PAUSE_0, 1.0),
    ("rx_prio", "_pause_duration", ethernet::RECEIVE_PAUSED_0, MICROSECONDS),
    ("tx_prio", "_pause_duration", ethernet::TRANSMIT_PAUSED_0, MICROSECONDS),
    ("rx_prio", "_pause_transition", ethernet::RECEIVE_PAUSE_TRANSITIONS_0, 1.0),
    ("rx_prio", "_discards", ethernet::PRIORITY_DISCARDS_0, 1.0),
    ("rx_err_lane_", "_phy", ethernet::LANE_ERRORS_0, 1.0),
    ("rx_pause_prio_", "", ethernet::RECEIVE_PAUSE_0, 1.0),
    ("tx_pause_prio_", "", ethernet::TRANSMIT_PAUSE_0, 1.0),
    ("rx_pause_duration_prio_", "", ethernet::RECEIVE_PAUSED_0, MICROSECONDS),
    ("tx_pause_duration_prio_", "", ethernet::TRANSMIT_PAUSED_0, MICROSECONDS),
    ("rx_pause_transition_prio_", "", ethernet::RECEIVE_PAUSE_TRANSITIONS_0, 1.0),
    ("rx_pfc_ena_frames_pri", "", ethernet::RECEIVE_PAUSE_0, 1.0),
    ("tx_pfc_ena_frames_pri", "", ethernet::TRANSMIT_PAUSE_0, 1.0),
    ("pfc_pri", "_rx_duration_us", ethernet::RECEIVE_PAUSED_0, MICROSECONDS),
    ("pfc_pri", "_tx_duration_us", ethernet::TRANSMIT_PAUSED_0, MICROSECONDS),
    ("pfc_pri", "_rx_transitions", ethernet::RECEIVE_PAUSE_TRANSITIONS_0, 1.0),
    ("rx_priority_", "_xoff.nic", ethernet::RECEIVE_PAUSE_0, 1.0),
    ("tx_priority_", "_xoff.nic", ethernet::TRANSMIT_PAUSE_0, 1.0),
];

/// The metric of a driver's statistic, and how many of its units make one of ours.
pub(super) fn metric_of_statistic(statistic: &str) -> Option<(MetricId, f64)> {
    let exact = WORDS.iter().find(|(name, ..)| *name == statistic);
    if let Some((_, metric, divisor)) = exact {
        return Some((*metric, *divisor));
    }
    NUMBERED.iter().find_map(|(before, after, first, divisor)| {
        let number = statistic.strip_prefix(before)?.strip_suffix(after)?;
        let digit = number.parse::<u16>().ok().filter(|digit| *digit < 8 && number.len() == 1)?;
        Some((MetricId(first.0 + digit), *divisor))
    })
}
