//! The rail of a port: as the topology states it, or by the number of its device.

use gaunt_cluster::Cluster;
use gaunt_schema::{DeviceClass, SanitizedText};

/// Returns the rail of a port.
pub(super) fn rail_of(cluster: &Cluster, row: u32) -> Option<SanitizedText> {
    let wiring = cluster.topology().port_topology(row);
    let reported = wiring.and_then(|wiring| wiring.rail.as_ref()).map(|fact| fact.value.clone());
    reported.or_else(|| {
        Some(trailing_number(cluster.device_at(DeviceClass::Port, row)?.device.key.first()))
    })
}

/// Returns the number at the end of a device's name: where the rail is unknown, equal devices are on equal rails.
fn trailing_number(device: Option<&SanitizedText>) -> SanitizedText {
    let name = device.map(SanitizedText::as_str).unwrap_or_default();
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    if digits < name.len() { SanitizedText::new(&name[digits..]) } else { SanitizedText::new(name) }
}
