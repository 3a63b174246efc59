//! Wiring: where every known node, port and GPU is, and who shares a leaf, a rail, a rack or an NVLink domain with it.
//!
//! It is what the sources say, resolved once after a change to the rows of the columns. What nobody says is none.

use std::collections::{BTreeMap, HashMap};

use gaunt_schema::{
    Class, Origin, Safe,
    catalogue::{gpu, port},
};

use super::{
    inventory::Inventory,
    node::{Entry, Node, NodeId},
};

mod facts;
#[cfg(test)]
mod tests;

pub(super) use facts::Facts;

/// The most disputes that are kept as sentences; all are counted.
const MAX_DISPUTES: usize = 32;

/// One fact and who says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What is said: the name of a rail, a switch, a rack, a domain.
    pub value: Safe,
    /// How the source knows.
    pub origin: Origin,
    /// Who says it: the name of a file, or `its page`.
    pub source: Safe,
}

/// Where a port is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortWiring {
    /// Its rail.
    pub rail: Option<Told>,
    /// The leaf switch that it is plugged into.
    pub leaf: Option<Told>,
}

/// Where a GPU is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuWiring {
    /// The NVLink domain, where that is larger than the node.
    pub domain: Option<Told>,
    /// Rows of the ports nearest to it on the bus, as far as the node says so.
    pub ports: Vec<u32>,
}

/// Where a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeWiring {
    /// The rack that it stands in.
    pub rack: Option<Told>,
    /// The one leaf that a source says of the whole node. A scheduler's word is not passed on to the node's ports.
    pub leaf: Option<Told>,
    /// The NVLink domain, where that is larger than the node.
    pub domain: Option<Told>,
}

/// Who hangs at a leaf switch, and what it hangs at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaf {
    /// Rows of the ports that are plugged into it.
    pub ports: Vec<u32>,
    /// Nodes that it serves: those of the ports, and those of which a source only says so as a whole.
    pub nodes: Vec<NodeId>,
    /// The switches above it.
    pub spines: Vec<Safe>,
}

/// Who shares an NVLink domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// Its nodes.
    pub nodes: Vec<NodeId>,
    /// Rows of its GPUs.
    pub gpus: Vec<u32>,
}

/// What hangs where.
#[derive(Debug, Default)]
pub struct Wiring {
    ports: Vec<PortWiring>,
    gpus: Vec<GpuWiring>,
    nodes: HashMap<NodeId, NodeWiring>,
    leaves: BTreeMap<Safe, Leaf>,
    rails: BTreeMap<Safe, Vec<u32>>,
    racks: BTreeMap<Safe, Vec<NodeId>>,
    domains: BTreeMap<Safe, Domain>,
    spines: BTreeMap<Safe, Vec<Safe>>,
    disputes: Vec<Safe>,
    disputed: u64,
}

impl Wiring {
    /// Where the port at this row is.
    pub fn port(&self, row: u32) -> Option<&PortWiring> {
        self.ports.get(row as usize)
    }

    /// Where the GPU at this row is.
    pub fn gpu(&self, row: u32) -> Option<&GpuWiring> {
        self.gpus.get(row as usize)
    }

    /// Where a node is.
    pub fn node(&self, id: NodeId) -> Option<&NodeWiring> {
        self.nodes.get(&id)
    }

    /// The rail of the GPU at this row: that of the ports nearest to it, if they agree.
    pub fn rail_of_gpu(&self, row: u32) -> Option<&Safe> {
        let ports = self.gpu(row)?.ports.iter();
        let mut rails = ports.map(|port| Some(&self.port(*port)?.rail.as_ref()?.value));
        let first = rails.next()??;
        rails.all(|rail| rail == Some(first)).then_some(first)
    }

    /// Every leaf switch that is known, by name, with who hangs at it.
    pub fn leaves(&self) -> &BTreeMap<Safe, Leaf> {
        &self.leaves
    }

    /// Every rail with the rows of its ports.
    pub fn rails(&self) -> &BTreeMap<Safe, Vec<u32>> {
        &self.rails
    }

    /// Every rack with its nodes.
    pub fn racks(&self) -> &BTreeMap<Safe, Vec<NodeId>> {
        &self.racks
    }

    /// Every NVLink domain that is larger than a node.
    pub fn domains(&self) -> &BTreeMap<Safe, Domain> {
        &self.domains
    }

    /// Every switch above a leaf, with the leaves below it.
    pub fn spines(&self) -> &BTreeMap<Safe, Vec<Safe>> {
        &self.spines
    }

    /// Where sources contradict each other about a leaf, as sentences; the first few.
    pub fn disputes(&self) -> &[Safe] {
        &self.disputes
    }

    /// How many ports the sources contradict each other about.
    pub fn disputed(&self) -> u64 {
        self.disputed
    }

    /// Resolves what the sources and the pages say to the devices that are known now.
    pub(super) fn resolve(facts: &Facts, inventory: &Inventory) -> Self {
        let mut wiring = Self::default();
        wiring.ports.resize_with(inventory.rows(Class::Port), PortWiring::default);
        wiring.gpus.resize_with(inventory.rows(Class::Gpu), GpuWiring::default);
        for (id, node) in inventory.nodes() {
            let place = facts.node(&node.name);
            for row in node.rows(Class::Port) {
                if let Some(entry) = inventory.entry(Class::Port, *row) {
                    wiring.place_port(facts, id, node, *row, entry);
                }
            }
            wiring.place_gpus(inventory, id, node, place.domain.as_ref());
            wiring.place_node(id, place);
        }
        for (name, leaf) in &mut wiring.leaves {
            leaf.nodes.sort_unstable();
            leaf.nodes.dedup();
            leaf.spines = facts.above(name);
            for spine in &leaf.spines {
                wiring.spines.entry(spine.clone()).or_default().push(name.clone());
            }
        }
        wiring
    }

    fn place_port(&mut self, facts: &Facts, id: NodeId, node: &Node, row: u32, entry: &Entry) {
        let (place, dispute) = facts.port(&node.name, entry);
        if let Some(dispute) = dispute {
            self.disputed += 1;
            if self.disputes.len() < MAX_DISPUTES {
                self.disputes.push(dispute);
            }
        }
        if let Some(leaf) = &place.leaf {
            let leaf = self.leaves.entry(leaf.value.clone()).or_default();
            leaf.ports.push(row);
            leaf.nodes.push(id);
        }
        if let Some(rail) = &place.rail {
            self.rails.entry(rail.value.clone()).or_default().push(row);
        }
        self.ports[row as usize] = place;
    }

    fn place_node(&mut self, id: NodeId, place: NodeWiring) {
        if let Some(leaf) = &place.leaf {
            self.leaves.entry(leaf.value.clone()).or_default().nodes.push(id);
        }
        if let Some(rack) = &place.rack {
            self.racks.entry(rack.value.clone()).or_default().push(id);
        }
        if place != NodeWiring::default() {
            self.nodes.insert(id, place);
        }
    }

    fn place_gpus(
        &mut self,
        inventory: &Inventory,
        id: NodeId,
        node: &Node,
        declared: Option<&Told>,
    ) {
        let mut ports: HashMap<String, Vec<u32>> = HashMap::new();
        for row in node.rows(Class::Port) {
            let entry = inventory.entry(Class::Port, *row);
            let near = entry.and_then(|entry| entry.info(port::INFO, "gpu_pci_bus_ids"));
            let near = near.into_iter().flat_map(|near| near.split([',', ' ']));
            for bus in near.filter(|bus| !bus.is_empty()) {
                let ports = ports.entry(bare_bus(bus)).or_default();
                if ports.last() != Some(row) {
                    ports.push(*row);
                }
            }
        }
        for row in node.rows(Class::Gpu) {
            let Some(entry) = inventory.entry(Class::Gpu, *row) else { continue };
            let domain = declared.cloned().or_else(|| fabric_of(entry));
            if let Some(domain) = &domain {
                let domain = self.domains.entry(domain.value.clone()).or_default();
                domain.gpus.push(*row);
                if domain.nodes.last() != Some(&id) {
                    domain.nodes.push(id);
                }
            }
            let own = entry.info(gpu::INFO, "pci_bus_id");
            let near = own.and_then(|own| ports.get(&bare_bus(own))).cloned();
            self.gpus[*row as usize] = GpuWiring { domain, ports: near.unwrap_or_default() };
        }
    }
}

/// The NVLink domain that the driver names: a cluster and a clique in it. A board that is in none says zeros.
fn fabric_of(entry: &Entry) -> Option<Told> {
    let cluster = entry.info(gpu::INFO, "cluster_uuid")?;
    if cluster.chars().all(|c| matches!(c, '0' | '-')) {
        return None;
    }
    let clique = entry.info(gpu::INFO, "clique").map_or("0", Safe::as_str);
    Some(facts::of_page(&Safe::new(&format!("{cluster}.{clique}"))))
}

/// A place on the bus in one spelling: the domain is written with four digits or eight, in either case.
fn bare_bus(text: &str) -> String {
    text.trim_start_matches('0').to_ascii_lowercase()
}
