//! LLDP neighbours as `lldpcli -f json show neighbors` prints them, on a node or on a switch; one file for each.
//!
//! The file does not contain the local machine's name: its file name does, `gpu-001.json`. A neighbour that bridges or
//! routes is the leaf of the local port; one that does neither, or whose port is a network device of Linux, is a node at a
//! port of the local machine, which is then a switch.

use gaunt_schema::{PortLocation, SanitizedText};
use serde_json::Value;

use super::site_error::{SiteFault, quote_excerpt};

/// The most neighbours that are read from one file: a chassis has some hundred ports.
const MAX_NEIGHBOURS: usize = 4_096;

/// Capabilities of a device that bridges or routes.
const SWITCHES: [&str; 2] = ["Bridge", "Router"];

/// Parses the locations of ports from the neighbours of the machine with this name.
pub(super) fn parse_neighbours(text: &str, machine: &str) -> Result<Vec<PortLocation>, SiteFault> {
    let document: Value = serde_json::from_str(text).map_err(|error| {
        SiteFault::json(&error, "write it with `lldpcli -f json show neighbors`")
    })?;
    let Some(lldp) = document.get("lldp") else {
        let what = "no \"lldp\" in it; write it with `lldpcli -f json show neighbors`";
        return Err(SiteFault::at_line(1, what));
    };
    let mut locations = Vec::new();
    if list_neighbours(lldp).iter().any(|(_, interface)| is_local(interface)) {
        let what = "it shows the machine's own interfaces, as `lldpcli show interfaces` does; write it \
                    with `lldpcli -f json show neighbors`";
        return Err(SiteFault::at_line(1, what));
    }
    for (port, neighbour) in list_neighbours(lldp) {
        if locations.len() >= MAX_NEIGHBOURS {
            return Err(SiteFault::at_line(1, format!("more than {MAX_NEIGHBOURS} neighbours")));
        }
        let Some(name) = neighbour_name(neighbour) else { continue };
        let far = neighbour_port(neighbour);
        locations.push(if is_switch(neighbour) {
            port_location(machine, &port, &name, far.as_deref())
        } else if let Some(device) = far {
            port_location(&name, &device, machine, Some(&port))
        } else {
            continue;
        });
    }
    if locations.is_empty() && !text.contains("\"interface\"") && !is_empty(lldp) {
        let what = format!("{} has no interface; write it with `-f json`", quote_excerpt(text));
        return Err(SiteFault::at_line(1, what));
    }
    Ok(locations)
}

fn port_location(node: &str, device: &str, leaf: &str, switch_port: Option<&str>) -> PortLocation {
    let (node, device, leaf) = (node.into(), device.into(), Some(SanitizedText::new(leaf)));
    let switch_port = switch_port.map(SanitizedText::new);
    PortLocation { node, device, leaf, switch_port, ..PortLocation::default() }
}

fn is_empty(lldp: &Value) -> bool {
    lldp.as_object().is_some_and(serde_json::Map::is_empty) || lldp.as_array().is_some()
}

/// Each local port with the data of its neighbour. One interface is an object and several are a list of objects with
/// one key each; the format `json0` has lists everywhere and the name in a field.
fn list_neighbours(lldp: &Value) -> Vec<(String, &Value)> {
    let mut neighbours = Vec::new();
    for group in as_list(lldp) {
        for interface in group.get("interface").map(as_list).unwrap_or_default() {
            let Some(object) = interface.as_object() else { continue };
            match object.get("name").and_then(Value::as_str) {
                Some(name) => neighbours.push((name.to_owned(), interface)),
                None => neighbours
                    .extend(object.iter().map(|(name, neighbour)| (name.clone(), neighbour))),
            }
        }
    }
    neighbours
}

/// A list as is, and anything else as a list of one.
fn as_list(value: &Value) -> Vec<&Value> {
    value.as_array().map_or_else(|| vec![value], |list| list.iter().collect())
}

/// The neighbour's chassis: in the shorter format its name is the key.
fn find_chassis(neighbour: &Value) -> Option<(Option<&str>, &Value)> {
    let chassis = *neighbour.get("chassis").map(as_list)?.first()?;
    let object = chassis.as_object()?;
    if object.contains_key("id") {
        let name = chassis.get("name").and_then(text_value);
        return Some((name, chassis));
    }
    object.iter().next().map(|(name, details)| (Some(name.as_str()), details))
}

/// Whether an interface is the machine's own and not its neighbour: only that has a status, and no protocol by which it
/// was heard.
fn is_local(interface: &Value) -> bool {
    interface.get("status").is_some() && interface.get("via").is_none()
}

fn neighbour_name(neighbour: &Value) -> Option<String> {
    let name = find_chassis(neighbour)?.0?.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Beginnings of the names that Linux gives network devices.
const LINUX_DEVICES: [&str; 5] = ["en", "eth", "ib", "bond", "mlx"];

/// Whether the neighbour's port is a network device of Linux, as lldpd states it on a host: its hardware address, described by
/// its name. A host that runs containers bridges and routes, too; switches give their ports names.
fn is_host_port(neighbour: &Value) -> bool {
    let port = || neighbour.get("port").map(as_list)?.first().copied();
    let is_address = || {
        let id = *port()?.get("id").map(as_list)?.first()?;
        Some(id.get("type")?.as_str()? == "mac")
    };
    let device = || port()?.get("descr").and_then(text_value);
    is_address() == Some(true)
        && device().is_some_and(|name| LINUX_DEVICES.iter().any(|start| name.starts_with(start)))
}

fn is_switch(neighbour: &Value) -> bool {
    if is_host_port(neighbour) {
        return false;
    }
    let Some((_, chassis)) = find_chassis(neighbour) else { return false };
    let capabilities = chassis.get("capability").map(as_list).unwrap_or_default();
    capabilities.iter().any(|capability| {
        let kind = capability.get("type").and_then(Value::as_str).unwrap_or_default();
        SWITCHES.contains(&kind) && capability.get("enabled").and_then(Value::as_bool) == Some(true)
    })
}

/// The neighbour's own name for its port, unless that is an address.
fn neighbour_port(neighbour: &Value) -> Option<String> {
    let port = *neighbour.get("port").map(as_list)?.first()?;
    let id = *port.get("id").map(as_list)?.first()?;
    let is_name = matches!(id.get("type")?.as_str()?, "ifname" | "ifalias" | "local");
    let name =
        if is_name { id.get("value")?.as_str() } else { port.get("descr").and_then(text_value) };
    name.map(str::to_owned)
}

/// A text, or the one in a list of objects with a value.
fn text_value(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.as_array()?.first()?.get("value")?.as_str())
}

#[cfg(test)]
mod tests;
