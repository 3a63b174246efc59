//! infiniband_exporter: the ports of all switches of a fabric, each switch by its GUID.

#![cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "a table names most rows of a class")
)]

use super::{
    assembly::{Assembly, has_info, text},
    plan::{Blank, Op},
    special::Special,
    table::{Table, Told, same},
};
use crate::{
    Class, Dialect, Safe,
    catalogue::switch_port::{self as port, *},
    text::{Reason, Sample},
};

/// Its words: bytes are bytes, it multiplied the words of four itself.
pub(super) const TABLE: Table = Table {
    dialect: Dialect::Infiniband,
    words: &[
        same("infiniband_switch_port_transmit_data_bytes_total", TRANSMIT_BYTES),
        same("infiniband_switch_port_receive_data_bytes_total", RECEIVE_BYTES),
        same("infiniband_switch_port_transmit_packets_total", TRANSMIT_PACKETS),
        same("infiniband_switch_port_receive_packets_total", RECEIVE_PACKETS),
        same("infiniband_switch_port_transmit_wait_total", TRANSMIT_WAIT),
        same("infiniband_switch_port_transmit_discards_total", TRANSMIT_DISCARDS),
        same("infiniband_switch_port_receive_errors_total", RECEIVE_ERRORS),
        same("infiniband_switch_port_symbol_error_total", SYMBOL_ERRORS),
        same("infiniband_switch_port_link_downed_total", LINK_DOWNED),
        same("infiniband_switch_port_link_error_recovery_total", LINK_ERROR_RECOVERY),
        same("infiniband_switch_port_receive_remote_physical_errors_total", REMOTE_PHYSICAL_ERRORS),
        same("infiniband_switch_port_receive_switch_relay_errors_total", SWITCH_RELAY_ERRORS),
        same("infiniband_switch_port_receive_constraint_errors_total", RECEIVE_CONSTRAINT_ERRORS),
        same("infiniband_switch_port_transmit_constraint_errors_total", TRANSMIT_CONSTRAINT_ERRORS),
        same(
            "infiniband_switch_port_local_link_integrity_errors_total",
            LOCAL_LINK_INTEGRITY_ERRORS,
        ),
        same("infiniband_switch_port_excessive_buffer_overrun_errors_total", BUFFER_OVERRUN_ERRORS),
        same("infiniband_switch_port_vl15_dropped_total", VL15_DROPPED),
        same("infiniband_switch_port_rate_bytes_per_second", RATE),
    ],
    keys: &[(Class::SwitchPort, &["guid", "port"])],
    identity: &[],
    node: &[],
    parts: &[],
    blank: Blank::Never,
};

/// Who the switches are, and where their ports lead.
pub(super) const SPECIAL: [Special; 2] = [
    Special { name: "infiniband_switch_info", dialect: Dialect::Infiniband, take: switch },
    Special { name: "infiniband_switch_uplink_info", dialect: Dialect::Infiniband, take: uplink },
];

fn switch<'a>(
    _: &mut Told,
    assembly: &mut Assembly<'a>,
    sample: &Sample<'_, 'a>,
) -> Result<Op, Reason> {
    let guid = text(sample, "guid").ok_or(Reason::NoDevice)?;
    if let Some(name) = text(sample, "switch") {
        assembly.alias(Class::SwitchPort, Safe::new(&guid), Safe::new(&name));
    }
    Ok(Op::Ignore)
}

/// What is at the other end of a port. The description of a card is by habit the node's name and the card's:
/// `gpu007 mlx5_0`, or `gpu007 HCA-1`.
fn uplink<'a>(
    told: &mut Told,
    assembly: &mut Assembly<'a>,
    sample: &Sample<'_, 'a>,
) -> Result<Op, Reason> {
    switch(told, assembly, sample)?;
    let device = TABLE.device(Class::SwitchPort, assembly, sample).ok_or(Reason::NoDevice)?;
    if has_info(&assembly.report, device, port::INFO) {
        return Ok(Op::Ignore);
    }
    let value = |label| text(sample, label).unwrap_or_default();
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
    let known: Vec<_> = labels.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    assembly.report.info(device, port::INFO, &known);
    Ok(Op::Ignore)
}
