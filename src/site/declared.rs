//! Declared topology: gaunt's own topology file, written by the operator in TOML.

use std::collections::BTreeMap;

use gaunt_schema::{
    DeviceRail, FabricSwitch, NodeLocation, PortLocation, SanitizedText, SourceTopology,
    TopologyOrigin, plain_error,
};
use serde::Deserialize;
use toml::Spanned;

use super::{name_expander::NameExpander, site_error::SiteFault};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DeclaredTopology {
    nodes: Vec<DeclaredNodes>,
    rails: BTreeMap<String, Vec<String>>,
    switches: Vec<DeclaredSwitches>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredNodes {
    names: Spanned<String>,
    rack: Option<String>,
    leaf: Option<String>,
    domain: Option<String>,
    /// The leaf of each device, or of a single port: `mlx5_0/1`.
    #[serde(default)]
    ports: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredSwitches {
    names: Spanned<String>,
    above: Option<Spanned<String>>,
    rail: Option<String>,
}

/// Parses the operator's file.
pub(super) fn parse_topology(
    text: &str,
    source: SanitizedText,
) -> Result<SourceTopology, SiteFault> {
    let file: DeclaredTopology = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let what = plain_error::document(
            error.message(),
            "TOML",
            toml::from_str::<toml::Table>(text).is_ok(),
        );
        SiteFault::at_byte(text, offset, format!("{what}; config/topology.toml shows every key"))
    })?;
    let mut expander = NameExpander::default();
    let mut expand = |names: &Spanned<String>| {
        let line = SiteFault::at_byte(text, names.span().start, "").line;
        expander.expand_non_empty(names.get_ref(), line)
    };
    let sanitized = |text: &Option<String>| text.as_deref().map(SanitizedText::new);
    let mut topology = SourceTopology::new(source, TopologyOrigin::Declared);
    for nodes in &file.nodes {
        for node in expand(&nodes.names)? {
            for (device, leaf) in &nodes.ports {
                topology.ports.push(port_location(&node, device, leaf));
            }
            let (rack, leaf, domain) =
                (sanitized(&nodes.rack), sanitized(&nodes.leaf), sanitized(&nodes.domain));
            topology.nodes.push(NodeLocation { node, rack, leaf, domain });
        }
    }
    for (rail, devices) in &file.rails {
        let rail = SanitizedText::new(rail);
        let devices = devices.iter();
        topology.rails.extend(
            devices.map(|name| DeviceRail { device: SanitizedText::new(name), rail: rail.clone() }),
        );
    }
    for switches in &file.switches {
        let above = switches.above.as_ref().map(&mut expand).transpose()?.unwrap_or_default();
        for name in expand(&switches.names)? {
            topology.switches.push(FabricSwitch {
                name,
                above: above.clone(),
                rail: sanitized(&switches.rail),
            });
        }
    }
    if topology.is_empty() {
        return Err(SiteFault::at_line(
            1,
            "no topology in it; config/topology.toml shows every key",
        ));
    }
    Ok(topology)
}

fn port_location(node: &SanitizedText, device: &str, leaf: &str) -> PortLocation {
    let (device, port) = match device.split_once('/') {
        Some((device, port)) => (device, Some(SanitizedText::new(port))),
        None => (device, None),
    };
    PortLocation {
        node: node.clone(),
        device: device.into(),
        port,
        leaf: Some(leaf.into()),
        ..PortLocation::default()
    }
}

#[cfg(test)]
mod tests;
