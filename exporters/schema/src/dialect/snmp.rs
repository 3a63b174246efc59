//! snmp_exporter: the interfaces of one switch, as the interface tables of its agent tell them.

#![cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "a table names most rows of a class")
)]

use super::{
    assembly::{Assembly, text},
    plan::{Blank, Op},
    special::Special,
    table::{Identity, Table, To, Told, Word, row, same},
};
use crate::{
    Class, Dialect, Safe,
    catalogue::{
        Scale::Times,
        switch_port::{self as port, *},
    },
    text::{Reason, Sample},
};

/// `up(1)` of the agent's states.
const UP_STATE: f64 = 1.0;

const fn flag(name: &'static str, metric: crate::MetricId) -> Word {
    Word { name, when: None, to: To::Flag(metric, UP_STATE) }
}

/// Its words. Interfaces are ports whatever they are: who asks for a port of a bond asks for its members as well. The
/// page does not say which switch it is of; its node's name does. Wide counters only: narrow ones of bytes wrap within
/// a second on fast links.
pub(super) const TABLE: Table = Table {
    dialect: Dialect::Snmp,
    words: &[
        same("ifHCInOctets", RECEIVE_BYTES),
        same("ifHCOutOctets", TRANSMIT_BYTES),
        same("ifHCInUcastPkts", RECEIVE_PACKETS),
        same("ifHCOutUcastPkts", TRANSMIT_PACKETS),
        same("ifInErrors", RECEIVE_ERRORS),
        same("ifOutErrors", TRANSMIT_ERRORS),
        same("ifInDiscards", RECEIVE_DISCARDS),
        same("ifOutDiscards", TRANSMIT_DISCARDS),
        same("dot3InPauseFrames", RECEIVE_PAUSE),
        same("dot3OutPauseFrames", TRANSMIT_PAUSE),
        same("dot3HCInPauseFrames", RECEIVE_PAUSE),
        same("dot3HCOutPauseFrames", TRANSMIT_PAUSE),
        row("ifHighSpeed", RATE, Times(125_000.0)),
        flag("ifOperStatus", UP),
        flag("ifAdminStatus", ENABLED),
    ],
    keys: &[(Class::SwitchPort, &["", "ifName|ifDescr|ifIndex"])],
    identity: &[Identity {
        class: Class::SwitchPort,
        info: port::INFO,
        labels: &[
            ("description", "ifAlias"),
            ("peer", "lldpRemSysName"),
            ("peer_port", "lldpRemPortId"),
        ],
    }],
    node: &["sysName"],
    parts: &[],
    blank: Blank::Never,
};

/// What the switch calls itself.
pub(super) const SPECIAL: [Special; 1] =
    [Special { name: "sysName", dialect: Dialect::Snmp, take: name }];

#[expect(
    clippy::unnecessary_wraps,
    reason = "a series of another exporter is taken by this signature"
)]
fn name<'a>(told: &mut Told, _: &mut Assembly<'a>, sample: &Sample<'_, 'a>) -> Result<Op, Reason> {
    let name = text(sample, "sysName");
    told.node = told.node.take().or_else(|| name.map(|name| Safe::new(&name)));
    Ok(Op::Ignore)
}
