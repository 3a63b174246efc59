//! infiniband_exporter: the ports of all switches of a fabric, each switch by its GUID.

#![cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "a table names most rows of a class")
)]

use super::{
    custom_handler::CustomHandler,
    decode_plan::{BlankValues, DecodeOp},
    dialect_table::{DecodeContext, DialectTable, same_unit},
    report_builder::{ReportBuilder, has_info, label_text},
};
use crate::{
    DeviceClass, Dialect, SanitizedText,
    catalogue::switch_port::{self as port, *},
    text::{Reason, TextSample},
};

/// Its table: byte counters are in bytes, because it multiplies the four-byte words itself.
pub(super) const TABLE: DialectTable = DialectTable {
    dialect: Dialect::Infiniband,
    mappings: &[
        same_unit("infiniband_switch_port_transmit_data_bytes_total", TRANSMIT_BYTES),
        same_unit("infiniband_switch_port_receive_data_bytes_total", RECEIVE_BYTES),
        same_unit("infiniband_switch_port_transmit_packets_total", TRANSMIT_PACKETS),
        same_unit("infiniband_switch_port_receive_packets_total", RECEIVE_PACKETS),
        same_unit("infiniband_switch_port_transmit_wait_total", TRANSMIT_WAIT),
        same_unit("infiniband_switch_port_transmit_discards_total", TRANSMIT_DISCARDS),
        same_unit("infiniband_switch_port_receive_errors_total", RECEIVE_ERRORS),
        same_unit("infiniband_switch_port_symbol_error_total", SYMBOL_ERRORS),
        same_unit("infiniband_switch_port_link_downed_total", LINK_DOWNED),
        same_unit("infiniband_switch_port_link_error_recovery_total", LINK_ERROR_RECOVERY),
        same_unit(
            "infiniband_switch_port_receive_remote_physical_errors_total",
            REMOTE_PHYSICAL_ERRORS,
        ),
        same_unit("infiniband_switch_port_receive_switch_relay_errors_total", SWITCH_RELAY_ERRORS),
        same_unit(
            "infiniband_switch_port_receive_constraint_errors_total",
            RECEIVE_CONSTRAINT_ERRORS,
        ),
        same_unit(
            "infiniband_switch_port_transmit_constraint_errors_total",
            TRANSMIT_CONSTRAINT_ERRORS,
        ),
        same_unit(
            "infiniband_switch_port_local_link_integrity_errors_total",
            LOCAL_LINK_INTEGRITY_ERRORS,
        ),
        same_unit(
            "infiniband_switch_port_excessive_buffer_overrun_errors_total",
            BUFFER_OVERRUN_ERRORS,
        ),
        same_unit("infiniband_switch_port_vl15_dropped_total", VL15_DROPPED),
        same_unit("infiniband_switch_port_rate_bytes_per_second", RATE),
    ],
    keys: &[(DeviceClass::SwitchPort, &["guid", "port"])],
    identity: &[],
    node: &[],
    parts: &[],
    blank: BlankValues::Never,
};

/// The identity of the switches, and the far ends of their ports.
pub(super) const SPECIAL: [CustomHandler; 2] = [
    CustomHandler {
        name: "infiniband_switch_info",
        dialect: Dialect::Infiniband,
        decode: decode_switch,
    },
    CustomHandler {
        name: "infiniband_switch_uplink_info",
        dialect: Dialect::Infiniband,
        decode: decode_uplink,
    },
];

fn decode_switch<'a>(
    _: &mut DecodeContext,
    builder: &mut ReportBuilder<'a>,
    sample: &TextSample<'_, 'a>,
) -> Result<DecodeOp, Reason> {
    let guid = label_text(sample, "guid").ok_or(Reason::NoDevice)?;
    if let Some(name) = label_text(sample, "switch") {
        builder.add_alias(
            DeviceClass::SwitchPort,
            SanitizedText::new(&guid),
            SanitizedText::new(&name),
        );
    }
    Ok(DecodeOp::Ignore)
}

/// Decodes the far end of a port. By convention the description of a card is the node's name and the card's:
/// `gpu007 mlx5_0`, or `gpu007 HCA-1`.
fn decode_uplink<'a>(
    context: &mut DecodeContext,
    builder: &mut ReportBuilder<'a>,
    sample: &TextSample<'_, 'a>,
) -> Result<DecodeOp, Reason> {
    decode_switch(context, builder, sample)?;
    let device =
        TABLE.device_of_series(DeviceClass::SwitchPort, builder, sample).ok_or(Reason::NoDevice)?;
    if has_info(&builder.report, device, port::INFO) {
        return Ok(DecodeOp::Ignore);
    }
    let value = |label| label_text(sample, label).unwrap_or_default();
    let (uplink, kind) = (value("uplink"), value("uplink_type"));
    let is_switch = kind == "SW";
    let (peer, card) = match uplink.split_once(' ') {
        Some((node, card)) if !is_switch => (node, card.trim_matches(['\'', '"', ' '])),
        _ => (&*uplink, ""),
    };
    let (guid, port) = (value("guid"), value("uplink_port"));
    let (peer_guid, peer_lid) = (value("uplink_guid"), value("uplink_lid"));
    let labels = [
        ("guid", &*guid),
        ("peer", peer),
        ("peer_kind", if is_switch { "switch" } else { "node" }),
        ("peer_device", card),
        ("peer_port", &*port),
        ("peer_guid", &*peer_guid),
        ("peer_lid", &*peer_lid),
    ];
    let present: Vec<_> = labels.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    builder.report.add_info(device, port::INFO, &present);
    Ok(DecodeOp::Ignore)
}
