//! Topology: what hangs where in a cluster, as far as some source says it; nothing here is ever guessed.

use serde::{Deserialize, Serialize};

use crate::SanitizedText;

/// How a source knows what it says. Of two that differ the one that stands first here is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TopologyOrigin {
    /// The operator wrote it down for gaunt.
    Declared,
    /// The fabric was asked, cable by cable: `ibnetdiscover`.
    Fabric,
    /// Who is at the end of a cable said it to who is at the other: LLDP.
    Neighbour,
    /// The node's own page.
    Page,
    /// A scheduler plans by it: Slurm's topology tells of nodes and knows no cable.
    Scheduler,
}

impl TopologyOrigin {
    /// The word in answers and labels.
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

/// All that one source says. It replaces what the source of this name said before; an empty one withdraws it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceTopology {
    /// Who says it, as a person would look it up: the name of a file.
    pub source: SanitizedText,
    /// How it knows.
    pub origin: TopologyOrigin,
    /// Facts about whole nodes.
    pub nodes: Vec<NodeLocation>,
    /// Facts about single ports.
    pub ports: Vec<PortLocation>,
    /// Rails that hold for a device's name on every node.
    pub rails: Vec<DeviceRail>,
    /// Facts about switches.
    pub switches: Vec<FabricSwitch>,
}

/// Where a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLocation {
    /// Its name.
    pub node: SanitizedText,
    /// The rack that it stands in.
    pub rack: Option<SanitizedText>,
    /// The leaf switch that all its ports are plugged into, which a fabric of rails has not.
    pub leaf: Option<SanitizedText>,
    /// The NVLink domain of its GPUs, if that is larger than the node.
    pub domain: Option<SanitizedText>,
}

/// Where a port is plugged in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortLocation {
    /// The node's name.
    pub node: SanitizedText,
    /// The RDMA device, or the network device of the kernel that belongs to it.
    pub device: SanitizedText,
    /// The port of that device; none for the only one.
    pub port: Option<SanitizedText>,
    /// Its rail.
    pub rail: Option<SanitizedText>,
    /// Its leaf switch.
    pub leaf: Option<SanitizedText>,
}

/// The rail that the ports of a device are on, whichever node it is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRail {
    /// The RDMA device, or the network device of the kernel that belongs to it.
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
    /// The rail that all ports on it are on.
    pub rail: Option<SanitizedText>,
}

impl SourceTopology {
    /// A source that says nothing yet.
    pub fn new(source: SanitizedText, origin: TopologyOrigin) -> Self {
        Self {
            source,
            origin,
            nodes: Vec::new(),
            ports: Vec::new(),
            rails: Vec::new(),
            switches: Vec::new(),
        }
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
            && self.ports.is_empty()
            && self.rails.is_empty()
            && self.switches.is_empty()
    }
}
