//! The rail of a port: as the topology states it, or by the number or the rank of its device. Names by hardware address tell
//! no rail: the fast ports that have one share what is called the unnamed rail.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use gaunt_cluster::{Cluster, Node, is_named_by_address};
use gaunt_schema::{DeviceClass, SanitizedText, catalogue::port};

/// The rail of ports whose names tell none, and any switch that no source names.
pub(super) const UNNAMED: &str = "unnamed";

/// The rails of a node's ports.
pub(super) struct NodeRails<'a> {
    node: &'a Node,
    naming: OnceCell<PortNaming>,
}

/// What the names of a node's ports tell about their rails.
enum PortNaming {
    /// The numbers at their ends tell them apart.
    Numbered,
    /// They do not: the ports in the order of their names.
    Ranked(Vec<u32>),
    /// Nothing: the ports that are as fast as most.
    ByAddress(Vec<u32>),
}

/// Whether it stands for the rails of ports whose names tell none.
pub(super) fn is_unnamed(rail: &SanitizedText) -> bool {
    rail.as_str() == UNNAMED
}

/// Returns the words for a rail in a sentence: `rail 3`, `unnamed rails`.
pub(super) fn render_rail(rail: &SanitizedText) -> String {
    if is_unnamed(rail) { "unnamed rails".to_owned() } else { format!("rail {rail}") }
}

impl<'a> NodeRails<'a> {
    pub(super) fn of(node: &'a Node) -> Self {
        Self { node, naming: OnceCell::new() }
    }

    /// Returns the rail of a port of the node. Where the rail is unknown, ports with equal numbers are on equal rails;
    /// names by PCI address, such as `rocep75s0`, end in equal numbers: there ports of equal rank are.
    pub(super) fn rail_of(&self, cluster: &Cluster, row: u32) -> Option<SanitizedText> {
        let wiring = cluster.topology().port_topology(row);
        let reported = wiring.and_then(|wiring| wiring.rail.as_ref());
        if let Some(rail) = reported {
            return Some(rail.value.clone());
        }
        let name = device_name(cluster, row)?;
        match self.naming.get_or_init(|| PortNaming::of(cluster, self.node)) {
            PortNaming::Numbered => Some(trailing_number(name)),
            PortNaming::Ranked(ranks) => {
                let rank = ranks.iter().position(|other| *other == row)?;
                Some(SanitizedText::from(rank.to_string()))
            }
            PortNaming::ByAddress(fast) => {
                Some(SanitizedText::new(if fast.contains(&row) { UNNAMED } else { name }))
            }
        }
    }
}

fn device_name(cluster: &Cluster, row: u32) -> Option<&str> {
    cluster.device_at(DeviceClass::Port, row)?.device.key.first().map(SanitizedText::as_str)
}

impl PortNaming {
    fn of(cluster: &Cluster, node: &Node) -> Self {
        let rows = node.device_rows(DeviceClass::Port);
        let names: Vec<&str> = rows.iter().filter_map(|row| device_name(cluster, *row)).collect();
        // Slower adapters, such as those for storage or the front end, are on no rail of the others.
        let rate = |row: u32| cluster.current_value(port::RATE, row).map(|rate| rate as u64);
        let usual = commonest(rows.iter().filter_map(|row| rate(*row)));
        let is_slower = |row: u32| rate(row).is_some_and(|rate| Some(rate) < usual);
        if names.iter().any(|name| is_named_by_address(name)) {
            return Self::ByAddress(rows.iter().copied().filter(|row| !is_slower(*row)).collect());
        }
        let numbers: BTreeSet<SanitizedText> = names.iter().copied().map(trailing_number).collect();
        if numbers.len() == names.len() {
            return Self::Numbered;
        }
        let mut ranked = rows.to_vec();
        ranked.sort_by_cached_key(|row| {
            (is_slower(*row), device_name(cluster, *row).map(natural_key))
        });
        Self::Ranked(ranked)
    }
}

/// Returns the commonest of these numbers, the largest of several.
fn commonest(numbers: impl Iterator<Item = u64>) -> Option<u64> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    numbers.for_each(|number| *counts.entry(number).or_default() += 1);
    counts.into_iter().max_by_key(|(number, count)| (*count, *number)).map(|(number, _)| number)
}

/// A key that sorts `rocep9s0` before `rocep75s0`.
fn natural_key(name: &str) -> Vec<(u64, String)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(text);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (number, after) = after.split_at(digits);
        parts.push((0, word.to_owned()));
        parts.push((number.parse().unwrap_or(u64::MAX), String::new()));
        rest = after;
    }
    parts
}

/// Returns the number at the end of a device's name.
fn trailing_number(name: &str) -> SanitizedText {
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    if digits < name.len() { SanitizedText::new(&name[digits..]) } else { SanitizedText::new(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commonest_rate_is_that_of_the_compute_ports() {
        assert_eq!(commonest([400, 100, 400, 25].into_iter()), Some(400));
        assert_eq!(commonest([100, 400].into_iter()), Some(400));
        assert_eq!(commonest([].into_iter()), None);
    }

    #[test]
    fn names_by_pci_address_sort_by_bus_number() {
        let mut names = ["rocep155s0", "rocep75s0", "rocep9s0f1", "rocep9s0f0"];
        names.sort_by_cached_key(|name| natural_key(name));
        assert_eq!(names, ["rocep9s0f0", "rocep9s0f1", "rocep75s0", "rocep155s0"]);
    }
}
