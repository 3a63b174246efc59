//! What the sources say about the wiring, kept by name, and whom to believe where they differ.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use gaunt_schema::{NodePlace, Origin, PortPlace, Safe, Topology, catalogue::port};

use super::{NodeWiring, PortWiring, Told};
use crate::cluster::node::Entry;

/// The most sources that are kept: a site has a handful of files.
const MAX_SOURCES: usize = 64;

/// Every source, those first that are believed first.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Facts {
    sources: BTreeMap<(Origin, Safe), Source>,
}

/// What one source says, to be looked up.
#[derive(Debug, Default)]
struct Source {
    nodes: HashMap<Safe, NodePlace>,
    ports: HashMap<Safe, Vec<PortPlace>>,
    rails: HashMap<Safe, Safe>,
    above: HashMap<Safe, Vec<Safe>>,
    switch_rails: HashMap<Safe, Safe>,
}

/// What a page says.
pub(super) fn of_page(value: &Safe) -> Told {
    Told { value: value.clone(), origin: Origin::Page, source: Safe::new("its page") }
}

impl Facts {
    /// Takes what a source says instead of what it said before.
    pub(in crate::cluster) fn replace(&mut self, topology: Topology) {
        self.sources.retain(|(_, source), _| *source != topology.source);
        if topology.is_empty() || self.sources.len() >= MAX_SOURCES {
            return;
        }
        let key = (topology.origin, topology.source.clone());
        self.sources.insert(key, Source::new(topology));
    }

    /// Where a node is.
    pub(super) fn node(&self, name: &str) -> NodeWiring {
        let of = |what: fn(&NodePlace) -> Option<&Safe>| {
            let mut all = self.sources.iter();
            all.find_map(|(key, source)| told(key, what(by_name(&source.nodes, name)?)?))
        };
        NodeWiring {
            rack: of(|place| place.rack.as_ref()),
            leaf: of(|place| place.leaf.as_ref()),
            domain: of(|place| place.domain.as_ref()),
        }
    }

    /// Where a port is, and a sentence if the sources contradict each other.
    pub(super) fn port(&self, node: &Safe, entry: &Entry) -> (PortWiring, Option<Safe>) {
        let names = Names::of(entry);
        let page = entry.info(port::INFO, "leaf");
        let mut leaves = self.ask(page, |origin, source| source.leaf(origin, node, &names));
        let leaf = leaves.next();
        let other = leaf.as_ref().and_then(|leaf| leaves.find(|other| other.value != leaf.value));
        let page = entry.info(port::INFO, "rail");
        let at = leaf.as_ref().map(|leaf| &leaf.value);
        let rail = self.ask(page, |_, source| source.rail(node, &names, at)).next();
        let dispute = leaf.as_ref().zip(other).map(|(first, other)| {
            Safe::new(&format!(
                "{node} {}: {} says {}, {} says {}; the first is believed",
                entry.device, first.source, first.value, other.source, other.value
            ))
        });
        (PortWiring { rail, leaf }, dispute)
    }

    /// The switches above a switch, as every source says.
    pub(super) fn above(&self, switch: &Safe) -> Vec<Safe> {
        let all = self.sources.values().filter_map(|source| source.above.get(switch));
        let mut all: Vec<_> = all.flatten().cloned().collect();
        all.sort();
        all.dedup();
        all
    }

    /// The answers of all sources and of the page, those first that are believed first.
    fn ask<'a>(
        &'a self,
        page: Option<&'a Safe>,
        answer: impl Fn(Origin, &'a Source) -> Option<&'a Safe> + Clone + 'a,
    ) -> impl Iterator<Item = Told> + 'a {
        let ranked = move |before: bool| {
            let answer = answer.clone();
            let sources = self.sources.iter();
            sources
                .filter(move |((origin, _), _)| (*origin < Origin::Page) == before)
                .filter_map(move |(key, source)| told(key, answer(key.0, source)?))
        };
        ranked(true).chain(page.map(of_page)).chain(ranked(false))
    }
}

fn told((origin, source): &(Origin, Safe), value: &Safe) -> Option<Told> {
    (!value.is_empty()).then(|| Told {
        value: value.clone(),
        origin: *origin,
        source: source.clone(),
    })
}

/// What a port may be called.
struct Names<'a> {
    device: &'a str,
    port: &'a str,
    netdev: Option<&'a Safe>,
}

impl<'a> Names<'a> {
    fn of(entry: &'a Entry) -> Self {
        let key = |at: usize| entry.device.key.get(at).map_or("", Safe::as_str);
        Self { device: key(0), port: key(1), netdev: entry.info(port::INFO, "netdev") }
    }

    fn is(&self, place: &PortPlace) -> bool {
        let is_device = place.device == self.device && !self.device.is_empty();
        let is_netdev = self.netdev == Some(&place.device);
        is_netdev || is_device && place.port.as_ref().is_none_or(|port| *port == self.port)
    }
}

impl Source {
    fn new(topology: Topology) -> Self {
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
        let short: Vec<_> = source.nodes.keys().filter_map(short_of).collect();
        for (short, name) in short {
            if let Some(place) = source.nodes.get(&name).cloned() {
                source.nodes.entry(short).or_insert(place);
            }
        }
        let short: Vec<_> = source.ports.keys().filter_map(short_of).collect();
        for (short, name) in short {
            if let Some(places) = source.ports.get(&name).cloned() {
                source.ports.entry(short).or_insert(places);
            }
        }
        source
    }

    /// The leaf of a port. What is declared of a whole node holds for each of its ports.
    fn leaf(&self, origin: Origin, node: &str, names: &Names<'_>) -> Option<&Safe> {
        let whole = || by_name(&self.nodes, node).filter(|_| origin == Origin::Declared);
        self.place(node, names, |place| place.leaf.as_ref())
            .or_else(|| whole().and_then(|place| place.leaf.as_ref()))
    }

    /// The rail of a port: its own, that of its device's name, or that of the switch.
    fn rail(&self, node: &str, names: &Names<'_>, leaf: Option<&Safe>) -> Option<&Safe> {
        self.place(node, names, |place| place.rail.as_ref())
            .or_else(|| self.rails.get(names.device))
            .or_else(|| self.rails.get(names.netdev?))
            .or_else(|| self.switch_rails.get(leaf?))
    }

    fn place<'a>(
        &'a self,
        node: &str,
        names: &Names<'_>,
        what: impl Fn(&'a PortPlace) -> Option<&'a Safe>,
    ) -> Option<&'a Safe> {
        by_name(&self.ports, node)?.iter().filter(|place| names.is(place)).find_map(what)
    }
}

/// What is said of a node under its name, or under the name before its domain.
fn by_name<'a, T>(map: &'a HashMap<Safe, T>, name: &str) -> Option<&'a T> {
    let short = || map.get(short_of(&Safe::new(name))?.0.as_str());
    map.get(name).or_else(short)
}

/// The host's name without its domain, with the whole of it; none if it has no domain or is an address.
fn short_of(name: &Safe) -> Option<(Safe, Safe)> {
    let (short, _) = name.split_once('.')?;
    let is_name = !short.is_empty() && name.parse::<IpAddr>().is_err();
    is_name.then(|| (Safe::new(short), name.clone()))
}
