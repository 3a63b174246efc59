//! Topology: the location of nodes, ports and switches as reported by a source; nothing here is inferred.

use serde::{Deserialize, Serialize};

use crate::SanitizedText;

/// How a source obtained its facts. If two sources differ, the variant listed first here takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TopologyOrigin {
    /// The operator declared it for gaunt.
    Declared,
    /// The fabric was discovered, cable by cable: `ibnetdiscover`.
    Fabric,
    /// The two ends of a cable exchanged it: LLDP.
    Neighbour,
    /// The node's own page.
    Page,
    /// A scheduler's configuration: Slurm's topology lists nodes and has no cables.
    Scheduler,
}

impl TopologyOrigin {
    /// The name in answers and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Declared => "declared",
            Self::Fabric => "fabric",
            Self::Neighbour => "neighbour",
            Self::Page => "page",
            Self::Scheduler => "scheduler",
        }
    }
}

/// All facts of one source. They replace the previous facts of the source with this name; an empty set withdraws them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceTopology {
    /// The name of the source for display: a file name.
    pub source: SanitizedText,
    /// How the facts were obtained.
    pub origin: TopologyOrigin,
    /// Facts about whole nodes.
    pub nodes: Vec<NodeLocation>,
    /// Facts about single ports.
    pub ports: Vec<PortLocation>,
    /// Rails that hold for a device's name on every node.
    pub rails: Vec<DeviceRail>,
    /// Facts about switches.
    pub switches: Vec<FabricSwitch>,
    /// Cables between switches and nodes; empty in recordings of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cables: Vec<FabricCable>,
}

/// The location of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLocation {
    /// Its name.
    pub node: SanitizedText,
    /// Its rack.
    pub rack: Option<SanitizedText>,
    /// The leaf switch of all its ports; a rail-optimised fabric has none.
    pub leaf: Option<SanitizedText>,
    /// The NVLink domain of its GPUs, if that is larger than the node.
    pub domain: Option<SanitizedText>,
}

/// The location of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortLocation {
    /// The node's name.
    pub node: SanitizedText,
    /// The RDMA device, or the kernel's network device that belongs to it.
    pub device: SanitizedText,
    /// The port of that device; none if it has only one.
    pub port: Option<SanitizedText>,
    /// The node GUID of its adapter as 16 lower-case hexadecimal digits, if the source states it. Where the port's own
    /// GUID is known too, it decides, and not the names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guid: Option<SanitizedText>,
    /// Its rail.
    pub rail: Option<SanitizedText>,
    /// Its leaf switch.
    pub leaf: Option<SanitizedText>,
    /// The port of that switch at the other end of its cable, as the switch names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_port: Option<SanitizedText>,
}

/// The rail of a device's ports, on every node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRail {
    /// The RDMA device, or the kernel's network device that belongs to it.
    pub device: SanitizedText,
    /// Its rail.
    pub rail: SanitizedText,
}

/// A switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricSwitch {
    /// Its name.
    pub name: SanitizedText,
    /// The switches above it: of a leaf, its spines.
    pub above: Vec<SanitizedText>,
    /// The rail of all its ports.
    pub rail: Option<SanitizedText>,
}

/// A cable from a port of a switch to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricCable {
    /// The GUID of the switch.
    pub switch_guid: u64,
    /// The port of the switch.
    pub switch_port: SanitizedText,
    /// The node's name.
    pub node: SanitizedText,
    /// The adapter as the node describes it: a device (`mlx5_0`) or its number (`HCA-1`).
    pub adapter: SanitizedText,
}

/// The number of a GUID such as `0xfc6a1c0300aa0100`, with or without a prefix.
pub fn parse_guid(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("S-")).unwrap_or(text);
    let is_guid = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_guid.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

impl SourceTopology {
    /// A source without facts.
    pub fn new(source: SanitizedText, origin: TopologyOrigin) -> Self {
        Self {
            source,
            origin,
            nodes: Vec::new(),
            ports: Vec::new(),
            rails: Vec::new(),
            switches: Vec::new(),
            cables: Vec::new(),
        }
    }

    /// Whether there are no facts.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
            && self.ports.is_empty()
            && self.rails.is_empty()
            && self.switches.is_empty()
            && self.cables.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_are_sixteen_hexadecimal_digits() {
        for text in ["0xfc6a1c0300aa0100", "S-fc6a1c0300aa0100", "FC6A1C0300AA0100"] {
            assert_eq!(parse_guid(text), Some(0xfc6a_1c03_00aa_0100), "{text}");
        }
        for text in
            ["", "0x", "leaf-1", "0xfc6a1c0300aa010", "0xfc6a1c0300aa01000", "+c6a1c0300aa0100"]
        {
            assert_eq!(parse_guid(text), None, "{text}");
        }
    }
}
