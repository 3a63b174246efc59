//! Counters of Ethernet cards themselves, in addition to those of the kernel.

use super::{Metric, port, rows};
use crate::{
    DeviceClass::Netdev,
    unit::{CounterWidth::Bits64, Unit},
};

/// The label that holds the priority of a link's traffic class.
const PRIORITY: &str = "priority";

const fn tagged_count(name: &'static str, label: &'static str, value: &'static str) -> Metric {
    Metric::new_counter(name, Netdev, Unit::Count, Bits64).with_tag(label, value)
}

const fn tagged_seconds(name: &'static str, label: &'static str, value: &'static str) -> Metric {
    Metric::new_counter(name, Netdev, Unit::Seconds, Bits64).with_tag(label, value)
}

rows! {
    from port::END;
    RECEIVE_PAUSE_0, "Pause frames received for a priority: the network stops this port.", tagged_count("gaunt_netdev_receive_priority_pause_frames_total", PRIORITY, "0");
    RECEIVE_PAUSE_1, "Pause frames received for a priority: the network stops this port.", tagged_count("gaunt_netdev_receive_priority_pause_frames_total", PRIORITY, "1");
    RECEIVE_PAUSE_2, "Pause frames received for a priority: the network stops this port.", tagged_count("gaunt_netdev_receive_priority_pause_frames_total", PRIORITY, "2");
    RECEIVE_PAUSE_3, "Pause frames received for a priority: the network stops this port.", tagged_count("gaunt_netdev_receive_priority_pause_frames_total", PRIORITY, "3");
    RECEIVE_PAUSE_4, "Pause frames received for a priority: the network stops this port.", tagged_count("gaunt_netdev_receive_priority_pause_frames_total", PRIORITY, "4");
    RECEIVE_PAUSE_5, "Pause frames received for a priority: the network stops this port.", tagged_count("gaunt_netdev_receive_priority_pause_frames_total", PRIORITY, "5");
    RECEIVE_PAUSE_6, "Pause frames received for a priority: the network stops this port.", tagged_count("gaunt_netdev_receive_priority_pause_frames_total", PRIORITY, "6");
    RECEIVE_PAUSE_7, "Pause frames received for a priority: the network stops this port.", tagged_count("gaunt_netdev_receive_priority_pause_frames_total", PRIORITY, "7");
    TRANSMIT_PAUSE_0, "Pause frames transmitted for a priority: this port stops the network.", tagged_count("gaunt_netdev_transmit_priority_pause_frames_total", PRIORITY, "0");
    TRANSMIT_PAUSE_1, "Pause frames transmitted for a priority: this port stops the network.", tagged_count("gaunt_netdev_transmit_priority_pause_frames_total", PRIORITY, "1");
    TRANSMIT_PAUSE_2, "Pause frames transmitted for a priority: this port stops the network.", tagged_count("gaunt_netdev_transmit_priority_pause_frames_total", PRIORITY, "2");
    TRANSMIT_PAUSE_3, "Pause frames transmitted for a priority: this port stops the network.", tagged_count("gaunt_netdev_transmit_priority_pause_frames_total", PRIORITY, "3");
    TRANSMIT_PAUSE_4, "Pause frames transmitted for a priority: this port stops the network.", tagged_count("gaunt_netdev_transmit_priority_pause_frames_total", PRIORITY, "4");
    TRANSMIT_PAUSE_5, "Pause frames transmitted for a priority: this port stops the network.", tagged_count("gaunt_netdev_transmit_priority_pause_frames_total", PRIORITY, "5");
    TRANSMIT_PAUSE_6, "Pause frames transmitted for a priority: this port stops the network.", tagged_count("gaunt_netdev_transmit_priority_pause_frames_total", PRIORITY, "6");
    TRANSMIT_PAUSE_7, "Pause frames transmitted for a priority: this port stops the network.", tagged_count("gaunt_netdev_transmit_priority_pause_frames_total", PRIORITY, "7");
    RECEIVE_PAUSED_0, "Time that the network kept a priority of this port stopped.", tagged_seconds("gaunt_netdev_receive_priority_paused_seconds_total", PRIORITY, "0");
    RECEIVE_PAUSED_1, "Time that the network kept a priority of this port stopped.", tagged_seconds("gaunt_netdev_receive_priority_paused_seconds_total", PRIORITY, "1");
    RECEIVE_PAUSED_2, "Time that the network kept a priority of this port stopped.", tagged_seconds("gaunt_netdev_receive_priority_paused_seconds_total", PRIORITY, "2");
    RECEIVE_PAUSED_3, "Time that the network kept a priority of this port stopped.", tagged_seconds("gaunt_netdev_receive_priority_paused_seconds_total", PRIORITY, "3");
    RECEIVE_PAUSED_4, "Time that the network kept a priority of this port stopped.", tagged_seconds("gaunt_netdev_receive_priority_paused_seconds_total", PRIORITY, "4");
    RECEIVE_PAUSED_5, "Time that the network kept a priority of this port stopped.", tagged_seconds("gaunt_netdev_receive_priority_paused_seconds_total", PRIORITY, "5");
    RECEIVE_PAUSED_6, "Time that the network kept a priority of this port stopped.", tagged_seconds("gaunt_netdev_receive_priority_paused_seconds_total", PRIORITY, "6");
    RECEIVE_PAUSED_7, "Time that the network kept a priority of this port stopped.", tagged_seconds("gaunt_netdev_receive_priority_paused_seconds_total", PRIORITY, "7");
    TRANSMIT_PAUSED_0, "Time that this port kept a priority of the network stopped.", tagged_seconds("gaunt_netdev_transmit_priority_paused_seconds_total", PRIORITY, "0");
    TRANSMIT_PAUSED_1, "Time that this port kept a priority of the network stopped.", tagged_seconds("gaunt_netdev_transmit_priority_paused_seconds_total", PRIORITY, "1");
    TRANSMIT_PAUSED_2, "Time that this port kept a priority of the network stopped.", tagged_seconds("gaunt_netdev_transmit_priority_paused_seconds_total", PRIORITY, "2");
    TRANSMIT_PAUSED_3, "Time that this port kept a priority of the network stopped.", tagged_seconds("gaunt_netdev_transmit_priority_paused_seconds_total", PRIORITY, "3");
    TRANSMIT_PAUSED_4, "Time that this port kept a priority of the network stopped.", tagged_seconds("gaunt_netdev_transmit_priority_paused_seconds_total", PRIORITY, "4");
    TRANSMIT_PAUSED_5, "Time that this port kept a priority of the network stopped.", tagged_seconds("gaunt_netdev_transmit_priority_paused_seconds_total", PRIORITY, "5");
    TRANSMIT_PAUSED_6, "Time that this port kept a priority of the network stopped.", tagged_seconds("gaunt_netdev_transmit_priority_paused_seconds_total", PRIORITY, "6");
    TRANSMIT_PAUSED_7, "Time that this port kept a priority of the network stopped.", tagged_seconds("gaunt_netdev_transmit_priority_paused_seconds_total", PRIORITY, "7");
    RECEIVE_PAUSE_TRANSITIONS_0, "Times that a priority of this port went from flowing to stopped.", tagged_count("gaunt_netdev_receive_priority_pause_transitions_total", PRIORITY, "0");
    RECEIVE_PAUSE_TRANSITIONS_1, "Times that a priority of this port went from flowing to stopped.", tagged_count("gaunt_netdev_receive_priority_pause_transitions_total", PRIORITY, "1");
    RECEIVE_PAUSE_TRANSITIONS_2, "Times that a priority of this port went from flowing to stopped.", tagged_count("gaunt_netdev_receive_priority_pause_transitions_total", PRIORITY, "2");
    RECEIVE_PAUSE_TRANSITIONS_3, "Times that a priority of this port went from flowing to stopped.", tagged_count("gaunt_netdev_receive_priority_pause_transitions_total", PRIORITY, "3");
    RECEIVE_PAUSE_TRANSITIONS_4, "Times that a priority of this port went from flowing to stopped.", tagged_count("gaunt_netdev_receive_priority_pause_transitions_total", PRIORITY, "4");
    RECEIVE_PAUSE_TRANSITIONS_5, "Times that a priority of this port went from flowing to stopped.", tagged_count("gaunt_netdev_receive_priority_pause_transitions_total", PRIORITY, "5");
    RECEIVE_PAUSE_TRANSITIONS_6, "Times that a priority of this port went from flowing to stopped.", tagged_count("gaunt_netdev_receive_priority_pause_transitions_total", PRIORITY, "6");
    RECEIVE_PAUSE_TRANSITIONS_7, "Times that a priority of this port went from flowing to stopped.", tagged_count("gaunt_netdev_receive_priority_pause_transitions_total", PRIORITY, "7");
    PRIORITY_DISCARDS_0, "Packets of a priority received and dropped for lack of buffer.", tagged_count("gaunt_netdev_receive_priority_discards_total", PRIORITY, "0");
    PRIORITY_DISCARDS_1, "Packets of a priority received and dropped for lack of buffer.", tagged_count("gaunt_netdev_receive_priority_discards_total", PRIORITY, "1");
    PRIORITY_DISCARDS_2, "Packets of a priority received and dropped for lack of buffer.", tagged_count("gaunt_netdev_receive_priority_discards_total", PRIORITY, "2");
    PRIORITY_DISCARDS_3, "Packets of a priority received and dropped for lack of buffer.", tagged_count("gaunt_netdev_receive_priority_discards_total", PRIORITY, "3");
    PRIORITY_DISCARDS_4, "Packets of a priority received and dropped for lack of buffer.", tagged_count("gaunt_netdev_receive_priority_discards_total", PRIORITY, "4");
    PRIORITY_DISCARDS_5, "Packets of a priority received and dropped for lack of buffer.", tagged_count("gaunt_netdev_receive_priority_discards_total", PRIORITY, "5");
    PRIORITY_DISCARDS_6, "Packets of a priority received and dropped for lack of buffer.", tagged_count("gaunt_netdev_receive_priority_discards_total", PRIORITY, "6");
    PRIORITY_DISCARDS_7, "Packets of a priority received and dropped for lack of buffer.", tagged_count("gaunt_netdev_receive_priority_discards_total", PRIORITY, "7");
    LANE_ERRORS_0, "Bits received wrong on a lane, before correction.", tagged_count("gaunt_netdev_lane_errors_total", "lane", "0");
    LANE_ERRORS_1, "Bits received wrong on a lane, before correction.", tagged_count("gaunt_netdev_lane_errors_total", "lane", "1");
    LANE_ERRORS_2, "Bits received wrong on a lane, before correction.", tagged_count("gaunt_netdev_lane_errors_total", "lane", "2");
    LANE_ERRORS_3, "Bits received wrong on a lane, before correction.", tagged_count("gaunt_netdev_lane_errors_total", "lane", "3");
    LANE_ERRORS_4, "Bits received wrong on a lane, before correction.", tagged_count("gaunt_netdev_lane_errors_total", "lane", "4");
    LANE_ERRORS_5, "Bits received wrong on a lane, before correction.", tagged_count("gaunt_netdev_lane_errors_total", "lane", "5");
    LANE_ERRORS_6, "Bits received wrong on a lane, before correction.", tagged_count("gaunt_netdev_lane_errors_total", "lane", "6");
    LANE_ERRORS_7, "Bits received wrong on a lane, before correction.", tagged_count("gaunt_netdev_lane_errors_total", "lane", "7");
    PAUSE_STORMS_WARNING, "Times that this port paused the network for too long.", tagged_count("gaunt_netdev_pause_storms_total", "severity", "warning");
    PAUSE_STORMS_ERROR, "Times that this port paused the network for too long.", tagged_count("gaunt_netdev_pause_storms_total", "severity", "error");
    ALLOWANCE_EXCEEDED_IN, "Packets held back or dropped because a cloud instance used up its allowance.", tagged_count("gaunt_netdev_allowance_exceeded_total", "allowance", "in");
    ALLOWANCE_EXCEEDED_OUT, "Packets held back or dropped because a cloud instance used up its allowance.", tagged_count("gaunt_netdev_allowance_exceeded_total", "allowance", "out");
    ALLOWANCE_EXCEEDED_PACKETS, "Packets held back or dropped because a cloud instance used up its allowance.", tagged_count("gaunt_netdev_allowance_exceeded_total", "allowance", "packets");
    RECEIVE_GLOBAL_PAUSE, "Pause frames received for all priorities.",
        Metric::new_counter("gaunt_netdev_receive_pause_frames_total", Netdev, Unit::Count, Bits64);
    TRANSMIT_GLOBAL_PAUSE, "Pause frames transmitted for all priorities.",
        Metric::new_counter("gaunt_netdev_transmit_pause_frames_total", Netdev, Unit::Count, Bits64);
    RECEIVE_GLOBAL_PAUSED, "Time that the network kept this port stopped.",
        Metric::new_counter("gaunt_netdev_receive_paused_seconds_total", Netdev, Unit::Seconds, Bits64);
    TRANSMIT_GLOBAL_PAUSED, "Time that this port kept the network stopped.",
        Metric::new_counter("gaunt_netdev_transmit_paused_seconds_total", Netdev, Unit::Seconds, Bits64);
    PHY_RECEIVE_DISCARDS, "Packets dropped at the port for lack of buffer.",
        Metric::new_counter("gaunt_netdev_phy_receive_discards_total", Netdev, Unit::Count, Bits64).with_history();
    PHY_TRANSMIT_DISCARDS, "Packets dropped at the port instead of transmitted.",
        Metric::new_counter("gaunt_netdev_phy_transmit_discards_total", Netdev, Unit::Count, Bits64);
    BUFFER_THRESHOLDS, "Times that the receive buffer of the port was nearly full.",
        Metric::new_counter("gaunt_netdev_receive_buffer_threshold_events_total", Netdev, Unit::Count, Bits64);
    OUT_OF_BUFFER, "Packets dropped because software had no receive buffer ready.",
        Metric::new_counter("gaunt_netdev_receive_out_of_buffer_drops_total", Netdev, Unit::Count, Bits64);
    ECN_MARKED, "Packets received with a congestion mark.",
        Metric::new_counter("gaunt_netdev_receive_ecn_marked_packets_total", Netdev, Unit::Count, Bits64);
    CRC_ERRORS, "Packets received with a wrong checksum.",
        Metric::new_counter("gaunt_netdev_receive_crc_errors_total", Netdev, Unit::Count, Bits64);
    PHY_SYMBOL_ERRORS, "Packets received with a broken symbol.",
        Metric::new_counter("gaunt_netdev_receive_symbol_errors_total", Netdev, Unit::Count, Bits64);
    PCS_SYMBOL_ERRORS, "Symbols that forward error correction could not repair.",
        Metric::new_counter("gaunt_netdev_uncorrected_symbol_errors_total", Netdev, Unit::Count, Bits64).with_history();
    CORRECTED_BITS, "Bits that forward error correction repaired.",
        Metric::new_counter("gaunt_netdev_corrected_bits_total", Netdev, Unit::Count, Bits64);
    PHY_BITS, "Bits that could have been received: errors over these are the bit error rate.",
        Metric::new_counter("gaunt_netdev_phy_bits_total", Netdev, Unit::Count, Bits64);
    RAW_BIT_ERRORS, "Wrong bits of all bits received in the last minute, before forward error correction.",
        Metric::new_gauge("gaunt_netdev_raw_bit_error_ratio", Netdev, Unit::Ratio, 1e-15);
    EFFECTIVE_BIT_ERRORS, "Symbols that stayed wrong after forward error correction, of all bits received in the last minute.",
        Metric::new_gauge("gaunt_netdev_effective_bit_error_ratio", Netdev, Unit::Ratio, 1e-15);
    FEC_CORRECTED, "Blocks that forward error correction repaired.",
        Metric::new_counter("gaunt_netdev_fec_corrected_blocks_total", Netdev, Unit::Count, Bits64);
    FEC_UNCORRECTABLE, "Blocks that forward error correction could not repair.",
        Metric::new_counter("gaunt_netdev_fec_uncorrectable_blocks_total", Netdev, Unit::Count, Bits64);
    LINK_DOWN, "Times that the link went down, as the card counts them.",
        Metric::new_counter("gaunt_netdev_link_down_events_total", Netdev, Unit::Count, Bits64).with_history();
    PCI_RECEIVE_SIGNAL, "Errors of the PCIe signal towards the card.",
        Metric::new_counter("gaunt_netdev_pci_receive_signal_errors_total", Netdev, Unit::Count, Bits64);
    PCI_TRANSMIT_SIGNAL, "Errors of the PCIe signal from the card.",
        Metric::new_counter("gaunt_netdev_pci_transmit_signal_errors_total", Netdev, Unit::Count, Bits64);
    PCI_READ_STALLS, "Seconds in which reads over PCIe were stalled for a third of the time or longer.",
        Metric::new_counter("gaunt_netdev_pci_read_stall_events_total", Netdev, Unit::Count, Bits64);
    PCI_WRITE_STALLS, "Seconds in which writes over PCIe were stalled for a third of the time or longer.",
        Metric::new_counter("gaunt_netdev_pci_write_stall_events_total", Netdev, Unit::Count, Bits64);
    PCI_OVERFLOWS, "Packets dropped because PCIe did not take them in time.",
        Metric::new_counter("gaunt_netdev_pci_buffer_overflow_drops_total", Netdev, Unit::Count, Bits64);
    MODULE_HOT, "Times that the transceiver was too hot.",
        Metric::new_counter("gaunt_netdev_module_high_temperature_events_total", Netdev, Unit::Count, Bits64);
    MODULE_FAULTS, "Times that the transceiver or its cable was found faulty.",
        Metric::new_counter("gaunt_netdev_module_fault_events_total", Netdev, Unit::Count, Bits64);
}
