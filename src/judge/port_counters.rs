//! Port counters that are added up as one signal.

use gaunt_schema::{MetricId, catalogue::port};

/// Error counters of the link itself; those that an application causes are not included.
pub(super) const LINK_ERRORS: [MetricId; 4] = [
    port::SYMBOL_ERRORS,
    port::RECEIVE_ERRORS,
    port::LOCAL_LINK_INTEGRITY_ERRORS,
    port::ICRC_ERRORS,
];

/// Counters of retransmitted packets.
pub(super) const RETRANSMITS: [MetricId; 3] =
    [port::PACKET_SEQUENCE_ERRORS, port::ADAPTIVE_RETRANSMITS, port::RETRANSMIT_PACKETS];
