//! snmp_exporter: the interfaces of one switch, from the interface tables of its SNMP agent.

#![cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "a table names most rows of a class")
)]

use super::{
    custom_handler::CustomHandler,
    decode_plan::{BlankValues, DecodeOp},
    dialect_table::{
        DecodeContext, DialectTable, IdentityLabels, MappingTarget, NameMapping, same_unit,
        scaled_unit,
    },
    report_builder::{ReportBuilder, label_text},
};
use crate::{
    DeviceClass, Dialect, SanitizedText,
    catalogue::{
        UnitScale::Times,
        switch_port::{self as port, *},
    },
    text::{Reason, TextSample},
};

/// `up(1)` of the agent's states.
const UP_STATE: f64 = 1.0;

const fn flag_state(name: &'static str, metric: crate::MetricId) -> NameMapping {
    NameMapping { name, when: None, to: MappingTarget::Flag(metric, UP_STATE) }
}

/// Its table. Every interface is a port, bonds and their members alike. The page does not name its switch; its node's
/// name does. Only 64-bit byte counters are read: 32-bit ones wrap within a second on fast links.
pub(super) const TABLE: DialectTable = DialectTable {
    dialect: Dialect::Snmp,
    mappings: &[
        same_unit("ifHCInOctets", RECEIVE_BYTES),
        same_unit("ifHCOutOctets", TRANSMIT_BYTES),
        same_unit("ifHCInUcastPkts", RECEIVE_PACKETS),
        same_unit("ifHCOutUcastPkts", TRANSMIT_PACKETS),
        same_unit("ifInErrors", RECEIVE_ERRORS),
        same_unit("ifOutErrors", TRANSMIT_ERRORS),
        same_unit("ifInDiscards", RECEIVE_DISCARDS),
        same_unit("ifOutDiscards", TRANSMIT_DISCARDS),
        same_unit("dot3InPauseFrames", RECEIVE_PAUSE),
        same_unit("dot3OutPauseFrames", TRANSMIT_PAUSE),
        same_unit("dot3HCInPauseFrames", RECEIVE_PAUSE),
        same_unit("dot3HCOutPauseFrames", TRANSMIT_PAUSE),
        scaled_unit("ifHighSpeed", RATE, Times(125_000.0)),
        flag_state("ifOperStatus", UP),
        flag_state("ifAdminStatus", ENABLED),
    ],
    keys: &[(DeviceClass::SwitchPort, &["", "ifName|ifDescr|ifIndex"])],
    identity: &[IdentityLabels {
        class: DeviceClass::SwitchPort,
        info: port::INFO,
        labels: &[
            ("description", "ifAlias"),
            ("peer", "lldpRemSysName"),
            ("peer_port", "lldpRemPortId"),
        ],
    }],
    node: &["sysName"],
    parts: &[],
    blank: BlankValues::Never,
};

/// The switch's own name (`sysName`).
pub(super) const SPECIAL: [CustomHandler; 1] =
    [CustomHandler { name: "sysName", dialect: Dialect::Snmp, decode: decode_switch_name }];

#[expect(
    clippy::unnecessary_wraps,
    reason = "a series of another exporter is taken by this signature"
)]
fn decode_switch_name<'a>(
    context: &mut DecodeContext,
    _: &mut ReportBuilder<'a>,
    sample: &TextSample<'_, 'a>,
) -> Result<DecodeOp, Reason> {
    let name = label_text(sample, "sysName");
    context.node = context.node.take().or_else(|| name.map(|name| SanitizedText::new(&name)));
    Ok(DecodeOp::Ignore)
}
