//! Topology facts of all sources by name, and which source takes precedence where they differ.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
};

use gaunt_schema::{
    NodeLocation, PortLocation, SanitizedText, SourceTopology, TopologyOrigin, catalogue::port,
};

use super::{AttributedFact, NodeTopology, PortTopology};
use crate::{cluster_node::DeviceEntry, port_netdevs::has_same_place};

/// Maximum number of sources: a site has a handful of files.
const MAX_SOURCES: usize = 64;

/// Every source, in order of precedence.
#[derive(Debug, Default)]
pub(crate) struct TopologyFacts {
    sources: BTreeMap<(TopologyOrigin, SanitizedText), SourceFacts>,
}

/// The facts of one source, indexed.
#[derive(Debug, Default)]
struct SourceFacts {
    nodes: HashMap<SanitizedText, NodeLocation>,
    ports: HashMap<SanitizedText, Vec<PortLocation>>,
    /// Ports by the GUIDs of their adapters, as far as it states these.
    ports_by_guid: HashMap<SanitizedText, Vec<PortLocation>>,
    rails: HashMap<SanitizedText, SanitizedText>,
    above: HashMap<SanitizedText, Vec<SanitizedText>>,
    switch_rails: HashMap<SanitizedText, SanitizedText>,
    cables: Arc<FabricCables>,
}

/// The cables of one source: node and adapter by the switch's GUID and port.
pub(super) type FabricCables = HashMap<(u64, SanitizedText), (SanitizedText, SanitizedText)>;

/// A fact from a page.
pub(super) fn page_fact(value: &SanitizedText) -> AttributedFact {
    AttributedFact {
        value: value.clone(),
        origin: TopologyOrigin::Page,
        source: SanitizedText::new("its page"),
    }
}

impl TopologyFacts {
    /// Replaces the facts of a source.
    pub(crate) fn replace_source(&mut self, topology: SourceTopology) {
        self.sources.retain(|(_, source), _| *source != topology.source);
        if topology.is_empty() || self.sources.len() >= MAX_SOURCES {
            return;
        }
        let key = (topology.origin, topology.source.clone());
        self.sources.insert(key, SourceFacts::new(topology));
    }

    /// Topology of a node.
    pub(super) fn locate_node(&self, name: &str) -> NodeTopology {
        let fact_of = |select: fn(&NodeLocation) -> Option<&SanitizedText>| {
            let mut sources = self.sources.iter();
            sources.find_map(|(key, source)| {
                source_fact(key, select(find_by_name(&source.nodes, name)?)?)
            })
        };
        NodeTopology {
            rack: fact_of(|location| location.rack.as_ref()),
            leaf: fact_of(|location| location.leaf.as_ref()),
            domain: fact_of(|location| location.domain.as_ref()),
        }
    }

    /// Topology of a port, and a sentence if the sources contradict each other.
    pub(super) fn locate_port(
        &self,
        node: &SanitizedText,
        entry: &DeviceEntry,
    ) -> (PortTopology, Option<SanitizedText>) {
        let names = PortNames::of(entry);
        let page = entry.info_label(port::INFO, "leaf");
        let mut leaves =
            self.collect_answers(page, |origin, source| source.leaf_of_port(origin, node, &names));
        let leaf = leaves.next();
        let other = leaf.as_ref().and_then(|leaf| leaves.find(|other| other.value != leaf.value));
        let page = entry.info_label(port::INFO, "rail");
        let leaf_name = leaf.as_ref().map(|leaf| &leaf.value);
        let rail = self
            .collect_answers(page, |_, source| source.rail_of_port(node, &names, leaf_name))
            .next();
        let dispute = leaf.as_ref().zip(other).map(|(first, other)| {
            SanitizedText::new(&format!(
                "{node} {}: {} says {}, {} says {}; the first is used",
                entry.device, first.source, first.value, other.source, other.value
            ))
        });
        // A port of another switch than the leaf is not the other end.
        let switch_port = leaf_name.and_then(|leaf| {
            let mut sources = self.sources.values();
            sources.find_map(|source| source.switch_port(node, &names, leaf)).cloned()
        });
        (PortTopology { rail, leaf, switch_port }, dispute)
    }

    /// The cables of every source, the best source first.
    pub(super) fn all_cables(&self) -> Vec<Arc<FabricCables>> {
        let sources = self.sources.values().map(|source| &source.cables);
        sources.filter(|cables| !cables.is_empty()).cloned().collect()
    }

    /// The switches above a switch, from all sources.
    pub(super) fn switches_above(&self, switch: &SanitizedText) -> Vec<SanitizedText> {
        let switches = self.sources.values().filter_map(|source| source.above.get(switch));
        let mut switches: Vec<_> = switches.flatten().cloned().collect();
        switches.sort();
        switches.dedup();
        switches
    }

    /// The answers of all sources and of the page, in order of precedence.
    fn collect_answers<'a>(
        &'a self,
        page: Option<&'a SanitizedText>,
        value_of: impl Fn(TopologyOrigin, &'a SourceFacts) -> Option<&'a SanitizedText> + Clone + 'a,
    ) -> impl Iterator<Item = AttributedFact> + 'a {
        let ranked = move |before_page: bool| {
            let value_of = value_of.clone();
            let sources = self.sources.iter();
            sources
                .filter(move |((origin, _), _)| (*origin < TopologyOrigin::Page) == before_page)
                .filter_map(move |(key, source)| source_fact(key, value_of(key.0, source)?))
        };
        ranked(true).chain(page.map(page_fact)).chain(ranked(false))
    }
}

fn source_fact(
    (origin, source): &(TopologyOrigin, SanitizedText),
    value: &SanitizedText,
) -> Option<AttributedFact> {
    (!value.is_empty()).then(|| AttributedFact {
        value: value.clone(),
        origin: *origin,
        source: source.clone(),
    })
}

/// The possible names of a port.
struct PortNames<'a> {
    device: &'a str,
    port: &'a str,
    netdev: Option<&'a SanitizedText>,
    /// The node GUID of its adapter, from its page or its name.
    guid: Option<&'a str>,
}

impl<'a> PortNames<'a> {
    fn of(entry: &'a DeviceEntry) -> Self {
        let key = |index: usize| entry.device.key.get(index).map_or("", SanitizedText::as_str);
        let stated = entry.info_label(port::INFO, "guid").map(SanitizedText::as_str);
        Self {
            device: key(0),
            port: key(1),
            netdev: entry.info_label(port::INFO, "netdev"),
            guid: stated.filter(|guid| !guid.is_empty()).or_else(|| guid_of_name(key(0))),
        }
    }

    fn matches_location(&self, location: &PortLocation) -> bool {
        // Names may be those of another host that had the description before.
        let is_other = self.guid.zip(location.guid.as_deref()).is_some_and(|(own, it)| own != it);
        if is_other || location.device.is_empty() {
            return false;
        }
        let is_device = location.device == self.device && !self.device.is_empty();
        let is_netdev = self.netdev.map_or_else(
            || has_same_place(self.device, &location.device),
            |netdev| *netdev == location.device,
        );
        is_netdev || is_device && location.port.as_ref().is_none_or(|port| *port == self.port)
    }
}

/// The GUID in a device name that the kernel's naming rules make of it: `ibxb8cef603007ad1f0`.
fn guid_of_name(device: &str) -> Option<&str> {
    let kinds = ["roce", "ib", "iw", "opa"].iter();
    let digits = kinds.clone().find_map(|kind| device.strip_prefix(kind)?.strip_prefix('x'))?;
    let is_guid = digits.len() == 16
        && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_guid.then_some(digits)
}

impl SourceFacts {
    fn new(topology: SourceTopology) -> Self {
        let mut source = Self::default();
        for location in topology.nodes {
            source.nodes.insert(location.node.clone(), location);
        }
        for location in topology.ports {
            if let Some(guid) = &location.guid {
                source.ports_by_guid.entry(guid.clone()).or_default().push(location.clone());
            }
            source.ports.entry(location.node.clone()).or_default().push(location);
        }
        for device_rail in topology.rails {
            source.rails.insert(device_rail.device, device_rail.rail);
        }
        for switch in topology.switches {
            if let Some(rail) = switch.rail {
                source.switch_rails.insert(switch.name.clone(), rail);
            }
            source.above.insert(switch.name, switch.above);
        }
        let cables = topology.cables.into_iter();
        let cables = cables.map(|c| ((c.switch_guid, c.switch_port), (c.node, c.adapter)));
        source.cables = Arc::new(cables.collect());
        let short: Vec<_> = source.nodes.keys().filter_map(short_name).collect();
        for (short, name) in short {
            if let Some(location) = source.nodes.get(&name).cloned() {
                source.nodes.entry(short).or_insert(location);
            }
        }
        let short: Vec<_> = source.ports.keys().filter_map(short_name).collect();
        for (short, name) in short {
            if let Some(locations) = source.ports.get(&name).cloned() {
                source.ports.entry(short).or_insert(locations);
            }
        }
        source
    }

    /// The leaf of a port. A leaf of a whole node applies to each of its ports.
    fn leaf_of_port(
        &self,
        origin: TopologyOrigin,
        node: &str,
        names: &PortNames<'_>,
    ) -> Option<&SanitizedText> {
        let node_location =
            || find_by_name(&self.nodes, node).filter(|_| origin == TopologyOrigin::Declared);
        self.find_location(node, names, |location| location.leaf.as_ref())
            .or_else(|| node_location().and_then(|location| location.leaf.as_ref()))
    }

    /// The rail of a port: its own, that of its device's name, or that of the switch.
    fn rail_of_port(
        &self,
        node: &str,
        names: &PortNames<'_>,
        leaf: Option<&SanitizedText>,
    ) -> Option<&SanitizedText> {
        self.find_location(node, names, |location| location.rail.as_ref())
            .or_else(|| self.rails.get(names.device))
            .or_else(|| self.rails.get(names.netdev?))
            .or_else(|| self.switch_rails.get(leaf?))
    }

    /// The port of this leaf at the other end of a port's cable.
    fn switch_port<'a>(
        &'a self,
        node: &str,
        names: &PortNames<'_>,
        leaf: &SanitizedText,
    ) -> Option<&'a SanitizedText> {
        let port = self.find_location(node, names, |location| {
            let is_end = location.leaf.as_ref() == Some(leaf);
            location.switch_port.as_ref().filter(|_| is_end)
        });
        port.filter(|port| !port.is_empty())
    }

    fn find_location<'a>(
        &'a self,
        node: &str,
        names: &PortNames<'_>,
        select: impl Fn(&'a PortLocation) -> Option<&'a SanitizedText>,
    ) -> Option<&'a SanitizedText> {
        let of_adapter = names.guid.and_then(|guid| self.ports_by_guid.get(guid));
        let is_port = |location: &&PortLocation| {
            location.port.as_ref().is_none_or(|port| *port == names.port)
        };
        let by_guid = of_adapter.into_iter().flatten().filter(is_port);
        let by_name = find_by_name(&self.ports, node).into_iter().flatten();
        by_guid.chain(by_name.filter(|location| names.matches_location(location))).find_map(select)
    }
}

/// The entry of a node under its name, or under its short name (without domain).
fn find_by_name<'a, T>(map: &'a HashMap<SanitizedText, T>, name: &str) -> Option<&'a T> {
    let short = || map.get(short_name(&SanitizedText::new(name))?.0.as_str());
    map.get(name).or_else(short)
}

/// The short name of a host (without domain) and its full name; none if it has no domain or is an address.
fn short_name(name: &SanitizedText) -> Option<(SanitizedText, SanitizedText)> {
    let (short, _) = name.split_once('.')?;
    let is_name = !short.is_empty() && name.parse::<IpAddr>().is_err();
    is_name.then(|| (SanitizedText::new(short), name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guid_is_read_from_names_that_the_kernel_makes_of_it() {
        assert_eq!(guid_of_name("ibxb8cef603007ad1f0"), Some("b8cef603007ad1f0"));
        assert_eq!(guid_of_name("rocexb8cef603007ad1f0"), Some("b8cef603007ad1f0"));
        for name in ["mlx5_0", "ibp12s0", "ibxb8cef603007a", "ibxB8CEF603007AD1F0"] {
            assert_eq!(guid_of_name(name), None, "{name}");
        }
    }
}
