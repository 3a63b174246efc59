//! Metrics of switch ports: InfiniBand by performance queries, Ethernet by SNMP.
//!
//! Directions are the switch's: what a port receives, the device at the other end of its cable transmitted.

use super::{Metric, hardware, rows};
use crate::{
    DeviceClass::SwitchPort,
    unit::{
        CounterWidth::{Bits64, Saturating},
        Unit,
    },
};

rows! {
    from hardware::END;
    INFO, "Where the port of the switch leads: a node or switch, and the device and port there.",
        Metric::new_info_series("gaunt_switch_port_info", SwitchPort,
            &["guid", "lid", "peer", "peer_kind", "peer_device", "peer_port", "peer_guid", "peer_lid", "description"]).with_rare_changes();
    UP, "Whether the link of the port is up.",
        Metric::new_gauge("gaunt_switch_port_up", SwitchPort, Unit::Count, 1.0).with_history();
    ENABLED, "Whether the port is switched on by its operator.",
        Metric::new_gauge("gaunt_switch_port_enabled", SwitchPort, Unit::Count, 1.0);
    RATE, "Line rate of the port.",
        Metric::new_gauge("gaunt_switch_port_rate_bytes_per_second", SwitchPort, Unit::BytesPerSecond, 1.0);
    RECEIVE_BYTES, "Bytes received.",
        Metric::new_counter("gaunt_switch_port_receive_bytes_total", SwitchPort, Unit::Bytes, Bits64).with_history();
    TRANSMIT_BYTES, "Bytes transmitted.",
        Metric::new_counter("gaunt_switch_port_transmit_bytes_total", SwitchPort, Unit::Bytes, Bits64).with_history();
    RECEIVE_PACKETS, "Packets received.",
        Metric::new_counter("gaunt_switch_port_receive_packets_total", SwitchPort, Unit::Count, Bits64);
    TRANSMIT_PACKETS, "Packets transmitted.",
        Metric::new_counter("gaunt_switch_port_transmit_packets_total", SwitchPort, Unit::Count, Bits64);
    TRANSMIT_WAIT, "Ticks in which data was ready and could not be transmitted.",
        Metric::new_counter("gaunt_switch_port_transmit_wait_total", SwitchPort, Unit::Count, Saturating(32)).with_history();
    RECEIVE_ERRORS, "Packets received with an error.",
        Metric::new_counter("gaunt_switch_port_receive_errors_total", SwitchPort, Unit::Count, Bits64).with_history();
    TRANSMIT_ERRORS, "Packets that could not be transmitted because of errors.",
        Metric::new_counter("gaunt_switch_port_transmit_errors_total", SwitchPort, Unit::Count, Bits64);
    RECEIVE_DISCARDS, "Packets received and dropped without an error, as for lack of a buffer.",
        Metric::new_counter("gaunt_switch_port_receive_discards_total", SwitchPort, Unit::Count, Bits64).with_history();
    TRANSMIT_DISCARDS, "Packets dropped instead of transmitted: the port was down or congested.",
        Metric::new_counter("gaunt_switch_port_transmit_discards_total", SwitchPort, Unit::Count, Bits64).with_history();
    RECEIVE_PAUSE, "Pause frames received: the other end stops this port.",
        Metric::new_counter("gaunt_switch_port_receive_pause_frames_total", SwitchPort, Unit::Count, Bits64).with_history();
    TRANSMIT_PAUSE, "Pause frames transmitted: this port stops the other end.",
        Metric::new_counter("gaunt_switch_port_transmit_pause_frames_total", SwitchPort, Unit::Count, Bits64).with_history();
    SYMBOL_ERRORS, "Minor link errors on at least one lane.",
        Metric::new_counter("gaunt_switch_port_symbol_errors_total", SwitchPort, Unit::Count, Saturating(16)).with_history();
    LINK_DOWNED, "Times that the link failed to recover and went down.",
        Metric::new_counter("gaunt_switch_port_link_downed_total", SwitchPort, Unit::Count, Saturating(8)).with_history();
    LINK_ERROR_RECOVERY, "Times that the link recovered from an error by itself.",
        Metric::new_counter("gaunt_switch_port_link_error_recovery_total", SwitchPort, Unit::Count, Saturating(8));
    REMOTE_PHYSICAL_ERRORS, "Packets received that the other end had marked as bad.",
        Metric::new_counter("gaunt_switch_port_receive_remote_physical_errors_total", SwitchPort, Unit::Count, Saturating(16));
    SWITCH_RELAY_ERRORS, "Packets received that the switch could not forward.",
        Metric::new_counter("gaunt_switch_port_receive_switch_relay_errors_total", SwitchPort, Unit::Count, Saturating(16));
    RECEIVE_CONSTRAINT_ERRORS, "Packets received and refused for their partition key or lane.",
        Metric::new_counter("gaunt_switch_port_receive_constraint_errors_total", SwitchPort, Unit::Count, Saturating(8));
    TRANSMIT_CONSTRAINT_ERRORS, "Packets not transmitted for their partition key or lane.",
        Metric::new_counter("gaunt_switch_port_transmit_constraint_errors_total", SwitchPort, Unit::Count, Saturating(8));
    LOCAL_LINK_INTEGRITY_ERRORS, "Times that local physical errors passed their threshold.",
        Metric::new_counter("gaunt_switch_port_local_link_integrity_errors_total", SwitchPort, Unit::Count, Saturating(4));
    BUFFER_OVERRUN_ERRORS, "Times that buffer overruns passed their threshold.",
        Metric::new_counter("gaunt_switch_port_excessive_buffer_overrun_errors_total", SwitchPort, Unit::Count, Saturating(4));
    VL15_DROPPED, "Management packets dropped for lack of a buffer.",
        Metric::new_counter("gaunt_switch_port_vl15_dropped_total", SwitchPort, Unit::Count, Saturating(16));
}
