//! Topology facts of all sources by name, and which source takes precedence where they differ.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use gaunt_schema::{
    NodeLocation, PortLocation, SanitizedText, SourceTopology, TopologyOrigin, catalogue::port,
};

use super::{AttributedFact, NodeTopology, PortTopology};
use crate::cluster_node::DeviceEntry;

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
    rails: HashMap<SanitizedText, SanitizedText>,
    above: HashMap<SanitizedText, Vec<SanitizedText>>,
    switch_rails: HashMap<SanitizedText, SanitizedText>,
}

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
        let of = |what: fn(&NodeLocation) -> Option<&SanitizedText>| {
            let mut all = self.sources.iter();
            all.find_map(|(key, source)| {
                source_fact(key, what(find_by_name(&source.nodes, name)?)?)
            })
        };
        NodeTopology {
            rack: of(|place| place.rack.as_ref()),
            leaf: of(|place| place.leaf.as_ref()),
            domain: of(|place| place.domain.as_ref()),
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
        let at = leaf.as_ref().map(|leaf| &leaf.value);
        let rail =
            self.collect_answers(page, |_, source| source.rail_of_port(node, &names, at)).next();
        let dispute = leaf.as_ref().zip(other).map(|(first, other)| {
            SanitizedText::new(&format!(
                "{node} {}: {} says {}, {} says {}; the first is used",
                entry.device, first.source, first.value, other.source, other.value
            ))
        });
        (PortTopology { rail, leaf }, dispute)
    }

    /// The switches above a switch, from all sources.
    pub(super) fn switches_above(&self, switch: &SanitizedText) -> Vec<SanitizedText> {
        let all = self.sources.values().filter_map(|source| source.above.get(switch));
        let mut all: Vec<_> = all.flatten().cloned().collect();
        all.sort();
        all.dedup();
        all
    }

    /// The answers of all sources and of the page, in order of precedence.
    fn collect_answers<'a>(
        &'a self,
        page: Option<&'a SanitizedText>,
        answer: impl Fn(TopologyOrigin, &'a SourceFacts) -> Option<&'a SanitizedText> + Clone + 'a,
    ) -> impl Iterator<Item = AttributedFact> + 'a {
        let ranked = move |before: bool| {
            let answer = answer.clone();
            let sources = self.sources.iter();
            sources
                .filter(move |((origin, _), _)| (*origin < TopologyOrigin::Page) == before)
                .filter_map(move |(key, source)| source_fact(key, answer(key.0, source)?))
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
}

impl<'a> PortNames<'a> {
    fn of(entry: &'a DeviceEntry) -> Self {
        let key = |at: usize| entry.device.key.get(at).map_or("", SanitizedText::as_str);
        Self { device: key(0), port: key(1), netdev: entry.info_label(port::INFO, "netdev") }
    }

    fn matches_location(&self, place: &PortLocation) -> bool {
        let is_device = place.device == self.device && !self.device.is_empty();
        let is_netdev = self.netdev == Some(&place.device);
        is_netdev || is_device && place.port.as_ref().is_none_or(|port| *port == self.port)
    }
}

impl SourceFacts {
    fn new(topology: SourceTopology) -> Self {
        let mut source = Self::default();
        for place in topology.nodes {
            source.nodes.insert(place.node.clone(), place);
        }
        for place in topology.ports {
            source.ports.entry(place.node.clone()).or_default().push(place);
        }
        for one in topology.rails {
            source.rails.insert(one.device, one.rail);
        }
        for switch in topology.switches {
            if let Some(rail) = switch.rail {
                source.switch_rails.insert(switch.name.clone(), rail);
            }
            source.above.insert(switch.name, switch.above);
        }
        let short: Vec<_> = source.nodes.keys().filter_map(short_name).collect();
        for (short, name) in short {
            if let Some(place) = source.nodes.get(&name).cloned() {
                source.nodes.entry(short).or_insert(place);
            }
        }
        let short: Vec<_> = source.ports.keys().filter_map(short_name).collect();
        for (short, name) in short {
            if let Some(places) = source.ports.get(&name).cloned() {
                source.ports.entry(short).or_insert(places);
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
        let whole =
            || find_by_name(&self.nodes, node).filter(|_| origin == TopologyOrigin::Declared);
        self.find_location(node, names, |place| place.leaf.as_ref())
            .or_else(|| whole().and_then(|place| place.leaf.as_ref()))
    }

    /// The rail of a port: its own, that of its device's name, or that of the switch.
    fn rail_of_port(
        &self,
        node: &str,
        names: &PortNames<'_>,
        leaf: Option<&SanitizedText>,
    ) -> Option<&SanitizedText> {
        self.find_location(node, names, |place| place.rail.as_ref())
            .or_else(|| self.rails.get(names.device))
            .or_else(|| self.rails.get(names.netdev?))
            .or_else(|| self.switch_rails.get(leaf?))
    }

    fn find_location<'a>(
        &'a self,
        node: &str,
        names: &PortNames<'_>,
        what: impl Fn(&'a PortLocation) -> Option<&'a SanitizedText>,
    ) -> Option<&'a SanitizedText> {
        find_by_name(&self.ports, node)?
            .iter()
            .filter(|place| names.matches_location(place))
            .find_map(what)
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
