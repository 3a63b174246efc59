//! Topology: what hangs where in a cluster, as far as some source says it; nothing here is ever guessed.

use serde::{Deserialize, Serialize};

use crate::Safe;

/// How a source knows what it says. Of two that differ the one that stands first here is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
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

impl Origin {
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
pub struct Topology {
    /// Who says it, as a person would look it up: the name of a file.
    pub source: Safe,
    /// How it knows.
    pub origin: Origin,
    /// Facts about whole nodes.
    pub nodes: Vec<NodePlace>,
    /// Facts about single ports.
    pub ports: Vec<PortPlace>,
    /// Rails that hold for a device's name on every node.
    pub rails: Vec<DeviceRail>,
    /// Facts about switches.
    pub switches: Vec<Switch>,
}

/// Where a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePlace {
    /// Its name.
    pub node: Safe,
    /// The rack that it stands in.
    pub rack: Option<Safe>,
    /// The leaf switch that all its ports are plugged into, which a fabric of rails has not.
    pub leaf: Option<Safe>,
    /// The NVLink domain of its GPUs, if that is larger than the node.
    pub domain: Option<Safe>,
}

/// Where a port is plugged in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortPlace {
    /// The node's name.
    pub node: Safe,
    /// The RDMA device, or the network device of the kernel that belongs to it.
    pub device: Safe,
    /// The port of that device; none for the only one.
    pub port: Option<Safe>,
    /// Its rail.
    pub rail: Option<Safe>,
    /// Its leaf switch.
    pub leaf: Option<Safe>,
}

/// The rail that the ports of a device are on, whichever node it is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRail {
    /// The RDMA device, or the network device of the kernel that belongs to it.
    pub device: Safe,
    /// Its rail.
    pub rail: Safe,
}

/// A switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// Its name.
    pub name: Safe,
    /// The switches above it: of a leaf, its spines.
    pub above: Vec<Safe>,
    /// The rail that all ports on it are on.
    pub rail: Option<Safe>,
}

impl Topology {
    /// A source that says nothing yet.
    pub fn new(source: Safe, origin: Origin) -> Self {
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
