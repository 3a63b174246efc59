//! gaunt's own topology file: what the operator writes down himself, in TOML.

use std::collections::BTreeMap;

use gaunt_schema::{DeviceRail, NodePlace, Origin, PortPlace, Safe, Switch, Topology, plain_error};
use serde::Deserialize;
use toml::Spanned;

use super::{fault::Fault, names::Room};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    nodes: Vec<Nodes>,
    rails: BTreeMap<String, Vec<String>>,
    switches: Vec<Switches>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nodes {
    names: Spanned<String>,
    rack: Option<String>,
    leaf: Option<String>,
    domain: Option<String>,
    /// The leaf of each device, of which a single port may be named: `mlx5_0/1`.
    #[serde(default)]
    ports: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Switches {
    names: Spanned<String>,
    above: Option<Spanned<String>>,
    rail: Option<String>,
}

/// Reads the operator's file.
pub(super) fn read(text: &str, source: Safe) -> Result<Topology, Fault> {
    let file: File = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let what = plain_error::document(
            error.message(),
            "TOML",
            toml::from_str::<toml::Table>(text).is_ok(),
        );
        Fault::at_byte(text, at, format!("{what}; config/topology.toml shows every key"))
    })?;
    let mut room = Room::default();
    let mut list = |names: &Spanned<String>| {
        let line = Fault::at_byte(text, names.span().start, "").line;
        room.expand_some(names.get_ref(), line)
    };
    let safe = |text: &Option<String>| text.as_deref().map(Safe::new);
    let mut topology = Topology::new(source, Origin::Declared);
    for nodes in &file.nodes {
        for node in list(&nodes.names)? {
            for (device, leaf) in &nodes.ports {
                topology.ports.push(port(&node, device, leaf));
            }
            let (rack, leaf, domain) = (safe(&nodes.rack), safe(&nodes.leaf), safe(&nodes.domain));
            topology.nodes.push(NodePlace { node, rack, leaf, domain });
        }
    }
    for (rail, devices) in &file.rails {
        let rail = Safe::new(rail);
        let devices = devices.iter();
        topology
            .rails
            .extend(devices.map(|name| DeviceRail { device: Safe::new(name), rail: rail.clone() }));
    }
    for switches in &file.switches {
        let above = switches.above.as_ref().map(&mut list).transpose()?.unwrap_or_default();
        for name in list(&switches.names)? {
            topology.switches.push(Switch {
                name,
                above: above.clone(),
                rail: safe(&switches.rail),
            });
        }
    }
    if topology.is_empty() {
        return Err(Fault::at(1, "nothing is said in it; config/topology.toml shows every key"));
    }
    Ok(topology)
}

fn port(node: &Safe, device: &str, leaf: &str) -> PortPlace {
    let (device, port) = match device.split_once('/') {
        Some((device, port)) => (device, Some(Safe::new(port))),
        None => (device, None),
    };
    PortPlace {
        node: node.clone(),
        device: device.into(),
        port,
        rail: None,
        leaf: Some(leaf.into()),
    }
}

#[cfg(test)]
mod tests;
