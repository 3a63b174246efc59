//! LLDP neighbours as `lldpcli -f json show neighbors` writes them, on a node or on a switch; one file for each.
//!
//! The file does not say whose neighbours they are: its name does, `gpu-001.json`. A neighbour that bridges or routes
//! is the leaf of our port; one that does neither is a node at a port of ours, which is then a switch.

use gaunt_schema::{PortPlace, Safe};
use serde_json::Value;

use super::fault::{Fault, quote};

/// The most neighbours that are taken of one file: a chassis has some hundred ports.
const MAX_NEIGHBOURS: usize = 4_096;

/// What bridges or routes says so with one of these.
const SWITCHES: [&str; 2] = ["Bridge", "Router"];

/// Where ports are, by the neighbours of the machine of this name.
pub(super) fn read(text: &str, machine: &str) -> Result<Vec<PortPlace>, Fault> {
    let told: Value = serde_json::from_str(text)
        .map_err(|error| Fault::json(&error, "write it with `lldpcli -f json show neighbors`"))?;
    let Some(lldp) = told.get("lldp") else {
        let what = "no \"lldp\" in it; write it with `lldpcli -f json show neighbors`";
        return Err(Fault::at(1, what));
    };
    let mut places = Vec::new();
    for (port, neighbour) in neighbours(lldp) {
        if places.len() >= MAX_NEIGHBOURS {
            return Err(Fault::at(1, format!("more than {MAX_NEIGHBOURS} neighbours")));
        }
        let Some(name) = name_of(neighbour) else { continue };
        places.push(if is_switch(neighbour) {
            place(machine, &port, &name)
        } else if let Some(device) = port_of(neighbour) {
            place(&name, &device, machine)
        } else {
            continue;
        });
    }
    if places.is_empty() && !text.contains("\"interface\"") && !is_empty(lldp) {
        let what = format!("{} has no interface; write it with `-f json`", quote(text));
        return Err(Fault::at(1, what));
    }
    Ok(places)
}

fn place(node: &str, device: &str, leaf: &str) -> PortPlace {
    let (node, device, leaf) = (node.into(), device.into(), Some(Safe::new(leaf)));
    PortPlace { node, device, port: None, rail: None, leaf }
}

fn is_empty(lldp: &Value) -> bool {
    lldp.as_object().is_some_and(serde_json::Map::is_empty) || lldp.as_array().is_some()
}

/// Each local port with what is told of the neighbour there. One interface is an object and several are a list of
/// objects with one key each; the format `json0` has lists everywhere and the name in a field.
fn neighbours(lldp: &Value) -> Vec<(String, &Value)> {
    let mut all = Vec::new();
    for group in listed(lldp) {
        for interface in group.get("interface").map(listed).unwrap_or_default() {
            let Some(object) = interface.as_object() else { continue };
            match object.get("name").and_then(Value::as_str) {
                Some(name) => all.push((name.to_owned(), interface)),
                None => all.extend(object.iter().map(|(name, told)| (name.clone(), told))),
            }
        }
    }
    all
}

/// A list as it is, and anything else as a list of one.
fn listed(value: &Value) -> Vec<&Value> {
    value.as_array().map_or_else(|| vec![value], |list| list.iter().collect())
}

/// What is told of the neighbour's machine: in the shorter format its name is the key.
fn chassis(neighbour: &Value) -> Option<(Option<&str>, &Value)> {
    let chassis = *neighbour.get("chassis").map(listed)?.first()?;
    let object = chassis.as_object()?;
    if object.contains_key("id") {
        let name = chassis.get("name").and_then(text_of);
        return Some((name, chassis));
    }
    object.iter().next().map(|(name, told)| (Some(name.as_str()), told))
}

fn name_of(neighbour: &Value) -> Option<String> {
    let name = chassis(neighbour)?.0?.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

fn is_switch(neighbour: &Value) -> bool {
    let Some((_, chassis)) = chassis(neighbour) else { return false };
    let capabilities = chassis.get("capability").map(listed).unwrap_or_default();
    capabilities.iter().any(|one| {
        let kind = one.get("type").and_then(Value::as_str).unwrap_or_default();
        SWITCHES.contains(&kind) && one.get("enabled").and_then(Value::as_bool) == Some(true)
    })
}

/// The neighbour's own name for its port, if it gives one that is no address.
fn port_of(neighbour: &Value) -> Option<String> {
    let port = *neighbour.get("port").map(listed)?.first()?;
    let id = *port.get("id").map(listed)?.first()?;
    let named = matches!(id.get("type")?.as_str()?, "ifname" | "ifalias" | "local");
    let name = if named { id.get("value")?.as_str() } else { port.get("descr").and_then(text_of) };
    name.map(str::to_owned)
}

/// A text, or the one in a list of objects with a value.
fn text_of(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.as_array()?.first()?.get("value")?.as_str())
}

#[cfg(test)]
mod tests;
