//! Port counters that are added up as one signal.

use gaunt_schema::{MetricId, catalogue::port};

/// Counters of errors that a link transports; those that an application causes are not included.
pub(super) const BIT_ERRORS: [MetricId; 4] = [
    port::SYMBOL_ERRORS,
    port::RECEIVE_ERRORS,
    port::LOCAL_LINK_INTEGRITY_ERRORS,
    port::ICRC_ERRORS,
];

/// Error counters of the link itself: also how often it recovered by itself. It stops for that time, and its state stays active.
pub(super) const LINK_ERRORS: [MetricId; 5] =
    [BIT_ERRORS[0], BIT_ERRORS[1], BIT_ERRORS[2], BIT_ERRORS[3], port::LINK_ERROR_RECOVERY];

/// Counters of retransmitted packets.
pub(super) const RETRANSMITS: [MetricId; 3] =
    [port::PACKET_SEQUENCE_ERRORS, port::ADAPTIVE_RETRANSMITS, port::RETRANSMIT_PACKETS];
