//! UFM Telemetry: the ports of all switches and adapters of a fabric, each device by its GUID.

#![cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "a table names most rows of a class")
)]

use super::{
    decode_plan::BlankValues,
    dialect_table::{DialectTable, IdentityLabels, same_unit},
};
use crate::{
    DeviceClass, Dialect,
    catalogue::switch_port::{self as port, *},
};

/// Its table: the names of its fast telemetry, then those of its slow one. Its data counters are in bytes, unlike the
/// four-byte words of the performance queries from which they come: its pages count 288 for each management packet.
pub(super) const TABLE: DialectTable = DialectTable {
    dialect: Dialect::Ufm,
    mappings: &[
        same_unit("PortXmitDataExtended", TRANSMIT_BYTES),
        same_unit("PortRcvDataExtended", RECEIVE_BYTES),
        same_unit("PortXmitPktsExtended", TRANSMIT_PACKETS),
        same_unit("PortRcvPktsExtended", RECEIVE_PACKETS),
        same_unit("PortXmitWaitExtended", TRANSMIT_WAIT),
        same_unit("PortXmitDiscardsExtended", TRANSMIT_DISCARDS),
        same_unit("PortRcvErrorsExtended", RECEIVE_ERRORS),
        same_unit("SymbolErrorCounterExtended", SYMBOL_ERRORS),
        same_unit("LinkDownedCounterExtended", LINK_DOWNED),
        same_unit("LinkErrorRecoveryCounterExtended", LINK_ERROR_RECOVERY),
        same_unit("PortRcvRemotePhysicalErrorsExtended", REMOTE_PHYSICAL_ERRORS),
        same_unit("PortRcvSwitchRelayErrorsExtended", SWITCH_RELAY_ERRORS),
        same_unit("PortRcvConstraintErrorsExtended", RECEIVE_CONSTRAINT_ERRORS),
        same_unit("PortXmitConstraintErrorsExtended", TRANSMIT_CONSTRAINT_ERRORS),
        same_unit("LocalLinkIntegrityErrorsExtended", LOCAL_LINK_INTEGRITY_ERRORS),
        same_unit("ExcessiveBufferOverrunErrorsExtended", BUFFER_OVERRUN_ERRORS),
        same_unit("VL15DroppedExtended", VL15_DROPPED),
        same_unit("Link_Down", LINK_DOWNED),
        same_unit("LinkErrorRecoveryCounter", LINK_ERROR_RECOVERY),
    ],
    keys: &[(DeviceClass::SwitchPort, &["node_guid|Node_GUID", "port_num|Port_Number"])],
    identity: &[IdentityLabels {
        class: DeviceClass::SwitchPort,
        info: port::INFO,
        labels: &[("guid", "node_guid|Node_GUID"), ("description", "node_description|node_desc")],
    }],
    node: &[],
    parts: &[],
    blank: BlankValues::Never,
};
