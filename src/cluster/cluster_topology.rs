//! Topology: where each known node, port and GPU is, and its peers on the same leaf, rail, rack or NVLink domain.
//!
//! It is resolved from the sources to the rows of the columns once after each change. Facts that no source reports are
//! none.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use gaunt_schema::{
    DeviceClass, SanitizedText, TopologyOrigin,
    catalogue::{gpu, port},
};

use super::{
    cluster_node::{DeviceEntry, Node, NodeId},
    device_inventory::DeviceInventory,
    port_kind::PortKinds,
};

mod attributed_facts;
#[cfg(test)]
mod tests;

use attributed_facts::FabricCables;
pub(super) use attributed_facts::TopologyFacts;

/// Maximum number of disputes that are kept as sentences; all are counted.
const MAX_DISPUTES: usize = 32;

/// One fact and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributedFact {
    /// The value: the name of a rail, a switch, a rack, a domain.
    pub value: SanitizedText,
    /// How the source knows it.
    pub origin: TopologyOrigin,
    /// The source: the name of a file, or `its page`.
    pub source: SanitizedText,
}

/// Topology of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortTopology {
    /// Its rail.
    pub rail: Option<AttributedFact>,
    /// The leaf switch that it is connected to.
    pub leaf: Option<AttributedFact>,
    /// The port of that switch at the other end of its cable.
    pub switch_port: Option<SanitizedText>,
}

impl PortTopology {
    /// The other end of the cable in words, as far as it is known: `port 17 of leaf-00`.
    pub fn describe_far_end(&self) -> String {
        match (&self.leaf, &self.switch_port) {
            (Some(leaf), Some(port)) => format!("port {port} of {}", leaf.value),
            (Some(leaf), None) => format!("its port on {}", leaf.value),
            (None, _) => "the switch port".to_owned(),
        }
    }
}

/// Topology of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuTopology {
    /// The NVLink domain, where that is larger than the node.
    pub domain: Option<AttributedFact>,
    /// Rows of the ports nearest to it on the PCIe bus, as far as the node reports it.
    pub ports: Vec<u32>,
}

/// Topology of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTopology {
    /// Its rack.
    pub rack: Option<AttributedFact>,
    /// The single leaf that a source reports for the whole node: that of its ports of which no source states their own.
    pub leaf: Option<AttributedFact>,
    /// The NVLink domain, where that is larger than the node.
    pub domain: Option<AttributedFact>,
}

/// The ports and nodes at a leaf switch, and the switches above it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeafSwitch {
    /// Rows of the ports that are connected to it.
    pub ports: Vec<u32>,
    /// Its nodes: those of the ports, and those that a source assigns to it only as a whole.
    pub nodes: Vec<NodeId>,
    /// The switches above it.
    pub spines: Vec<SanitizedText>,
}

/// Nodes and GPUs of an NVLink domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvlinkDomainMembers {
    /// Its nodes.
    pub nodes: Vec<NodeId>,
    /// Rows of its GPUs.
    pub gpus: Vec<u32>,
}

/// The resolved topology of the cluster.
#[derive(Debug, Default)]
pub struct ClusterTopology {
    ports: Vec<PortTopology>,
    port_kinds: PortKinds,
    gpus: Vec<GpuTopology>,
    /// The row of the GPU of each NVLink.
    nvlinks: Vec<Option<u32>>,
    nodes: HashMap<NodeId, NodeTopology>,
    leaves: BTreeMap<SanitizedText, LeafSwitch>,
    rails: BTreeMap<SanitizedText, Vec<u32>>,
    racks: BTreeMap<SanitizedText, Vec<NodeId>>,
    domains: BTreeMap<SanitizedText, NvlinkDomainMembers>,
    spines: BTreeMap<SanitizedText, Vec<SanitizedText>>,
    cables: Vec<Arc<FabricCables>>,
    disputes: Vec<SanitizedText>,
    disputed_ports: u64,
}

impl ClusterTopology {
    /// Topology of the port at this row.
    pub fn port_topology(&self, row: u32) -> Option<&PortTopology> {
        self.ports.get(row as usize)
    }

    /// The leaf switch of the port at this row, or of its node where that of the port is not known.
    pub fn leaf_of_port(&self, node: NodeId, row: u32) -> Option<&AttributedFact> {
        let of_port = self.port_topology(row).and_then(|port| port.leaf.as_ref());
        let of_node = || self.node_topology(node).and_then(|node| node.leaf.as_ref());
        of_port.or_else(of_node)
    }

    /// The kind of the port at this row: ports of one kind have one type of adapter, link layer and number. The numbers
    /// of kinds have no meaning beyond that, and change with the topology.
    pub fn port_kind(&self, row: u32) -> Option<u32> {
        self.port_kinds.of_port(row)
    }

    /// The group of a node with ports: nodes of one group have equally many ports of each kind. The numbers of groups
    /// have no meaning beyond that, and change with the topology.
    pub fn port_group(&self, id: NodeId) -> Option<u32> {
        self.port_kinds.group_of_node(id)
    }

    /// The row of the GPU that the NVLink at this row belongs to.
    #[inline]
    pub fn gpu_of_nvlink(&self, row: u32) -> Option<u32> {
        *self.nvlinks.get(row as usize)?
    }

    /// Topology of the GPU at this row.
    pub fn gpu_topology(&self, row: u32) -> Option<&GpuTopology> {
        self.gpus.get(row as usize)
    }

    /// Topology of a node.
    pub fn node_topology(&self, id: NodeId) -> Option<&NodeTopology> {
        self.nodes.get(&id)
    }

    /// The rail of the GPU at this row: that of the ports nearest to it, if they agree.
    pub fn rail_of_gpu(&self, row: u32) -> Option<&SanitizedText> {
        let ports = self.gpu_topology(row)?.ports.iter();
        let mut rails = ports.map(|port| Some(&self.port_topology(*port)?.rail.as_ref()?.value));
        let first = rails.next()??;
        rails.all(|rail| rail == Some(first)).then_some(first)
    }

    /// Every known leaf switch, by name.
    pub fn leaf_switches(&self) -> &BTreeMap<SanitizedText, LeafSwitch> {
        &self.leaves
    }

    /// Every rail with the rows of its ports.
    pub fn ports_by_rail(&self) -> &BTreeMap<SanitizedText, Vec<u32>> {
        &self.rails
    }

    /// Every rack with its nodes.
    pub fn nodes_by_rack(&self) -> &BTreeMap<SanitizedText, Vec<NodeId>> {
        &self.racks
    }

    /// Every NVLink domain that is larger than a node.
    pub fn nvlink_domains(&self) -> &BTreeMap<SanitizedText, NvlinkDomainMembers> {
        &self.domains
    }

    /// Every switch above a leaf, with the leaves below it.
    pub fn leaves_by_spine(&self) -> &BTreeMap<SanitizedText, Vec<SanitizedText>> {
        &self.spines
    }

    /// The node's name and the adapter at the other end of the cable at this port of the switch with this GUID.
    pub fn cable_end(
        &self,
        switch_guid: u64,
        port: &SanitizedText,
    ) -> Option<(&SanitizedText, &SanitizedText)> {
        let key = (switch_guid, port.clone());
        let end = self.cables.iter().find_map(|cables| cables.get(&key));
        end.map(|(node, adapter)| (node, adapter))
    }

    /// Contradictions between sources about a leaf, as sentences; the first few.
    pub fn dispute_sentences(&self) -> &[SanitizedText] {
        &self.disputes
    }

    /// Number of ports about which sources contradict each other.
    pub fn disputed_ports(&self) -> u64 {
        self.disputed_ports
    }

    /// Resolves the facts of sources and pages to the devices that are known now.
    pub(super) fn from_facts(facts: &TopologyFacts, inventory: &DeviceInventory) -> Self {
        let mut topology = Self { cables: facts.all_cables(), ..Self::default() };
        topology.ports.resize_with(inventory.row_count(DeviceClass::Port), PortTopology::default);
        topology.port_kinds = PortKinds::of(inventory);
        topology.gpus.resize_with(inventory.row_count(DeviceClass::Gpu), GpuTopology::default);
        topology.nvlinks.resize(inventory.row_count(DeviceClass::Nvlink), None);
        for (id, node) in inventory.sorted_nodes() {
            let location = facts.locate_node(&node.name);
            for row in node.device_rows(DeviceClass::Port) {
                if let Some(entry) = inventory.entry_at(DeviceClass::Port, *row) {
                    topology.add_port(facts, id, node, *row, entry);
                }
            }
            topology.add_gpus(inventory, id, node, location.domain.as_ref());
            topology.add_nvlinks(inventory, node);
            topology.add_node(id, location);
        }
        for (name, leaf) in &mut topology.leaves {
            leaf.nodes.sort_unstable();
            leaf.nodes.dedup();
            leaf.spines = facts.switches_above(name);
            for spine in &leaf.spines {
                topology.spines.entry(spine.clone()).or_default().push(name.clone());
            }
        }
        topology
    }

    fn add_port(
        &mut self,
        facts: &TopologyFacts,
        id: NodeId,
        node: &Node,
        row: u32,
        entry: &DeviceEntry,
    ) {
        let (location, dispute) = facts.locate_port(&node.name, entry);
        if let Some(dispute) = dispute {
            self.disputed_ports += 1;
            if self.disputes.len() < MAX_DISPUTES {
                self.disputes.push(dispute);
            }
        }
        if let Some(leaf) = &location.leaf {
            let leaf = self.leaves.entry(leaf.value.clone()).or_default();
            leaf.ports.push(row);
            leaf.nodes.push(id);
        }
        if let Some(rail) = &location.rail {
            self.rails.entry(rail.value.clone()).or_default().push(row);
        }
        self.ports[row as usize] = location;
    }

    fn add_node(&mut self, id: NodeId, location: NodeTopology) {
        if let Some(leaf) = &location.leaf {
            self.leaves.entry(leaf.value.clone()).or_default().nodes.push(id);
        }
        if let Some(rack) = &location.rack {
            self.racks.entry(rack.value.clone()).or_default().push(id);
        }
        if location != NodeTopology::default() {
            self.nodes.insert(id, location);
        }
    }

    fn add_nvlinks(&mut self, inventory: &DeviceInventory, node: &Node) {
        let name =
            |class, row| inventory.entry_at(class, row).and_then(|entry| entry.device.key.first());
        let gpus = node.device_rows(DeviceClass::Gpu).iter();
        let gpus: HashMap<_, u32> = gpus.map(|row| (name(DeviceClass::Gpu, *row), *row)).collect();
        for row in node.device_rows(DeviceClass::Nvlink) {
            self.nvlinks[*row as usize] = gpus.get(&name(DeviceClass::Nvlink, *row)).copied();
        }
    }

    fn add_gpus(
        &mut self,
        inventory: &DeviceInventory,
        id: NodeId,
        node: &Node,
        declared_domain: Option<&AttributedFact>,
    ) {
        let mut ports: HashMap<String, Vec<u32>> = HashMap::new();
        for row in node.device_rows(DeviceClass::Port) {
            let entry = inventory.entry_at(DeviceClass::Port, *row);
            let nearest = entry.and_then(|entry| entry.info_label(port::INFO, "gpu_pci_bus_ids"));
            let nearest = nearest.into_iter().flat_map(|nearest| nearest.split([',', ' ']));
            for bus in nearest.filter(|bus| !bus.is_empty()) {
                let ports = ports.entry(normalize_bus_id(bus)).or_default();
                if ports.last() != Some(row) {
                    ports.push(*row);
                }
            }
        }
        for row in node.device_rows(DeviceClass::Gpu) {
            let Some(entry) = inventory.entry_at(DeviceClass::Gpu, *row) else { continue };
            let domain = declared_domain.cloned().or_else(|| nvlink_domain_of(entry));
            if let Some(domain) = &domain {
                let domain = self.domains.entry(domain.value.clone()).or_default();
                domain.gpus.push(*row);
                if domain.nodes.last() != Some(&id) {
                    domain.nodes.push(id);
                }
            }
            let own_bus = entry.info_label(gpu::INFO, "pci_bus_id");
            let nearest =
                own_bus.and_then(|own_bus| ports.get(&normalize_bus_id(own_bus))).cloned();
            self.gpus[*row as usize] = GpuTopology { domain, ports: nearest.unwrap_or_default() };
        }
    }
}

/// The NVLink domain as the driver reports it: a cluster and a clique in it. A GPU without a domain reports zeros.
fn nvlink_domain_of(entry: &DeviceEntry) -> Option<AttributedFact> {
    let cluster = entry.info_label(gpu::INFO, "cluster_uuid")?;
    if cluster.chars().all(|c| matches!(c, '0' | '-')) {
        return None;
    }
    let clique = entry.info_label(gpu::INFO, "clique").map_or("0", SanitizedText::as_str);
    Some(attributed_facts::page_fact(&SanitizedText::new(&format!("{cluster}.{clique}"))))
}

/// A PCIe bus id in one spelling: the PCI domain has four or eight digits, in either case.
fn normalize_bus_id(text: &str) -> String {
    text.trim_start_matches('0').to_ascii_lowercase()
}
