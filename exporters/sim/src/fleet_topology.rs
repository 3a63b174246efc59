//! The topology of a fleet as its operator would declare it: as a data structure and as gaunt's topology file.

use std::{fmt::Write as _, ops::Range};

use gaunt_schema::{NodeLocation, PortLocation, SanitizedText, SourceTopology, TopologyOrigin};

use crate::{fleet_shape::FleetShape, sim_fleet::node_names};

impl FleetShape {
    /// The position of every port: its leaf switch and rail.
    pub fn to_topology(&self) -> SourceTopology {
        let mut topology = SourceTopology::new("topology.toml".into(), TopologyOrigin::Declared);
        for (node, name) in node_names(self.nodes).into_iter().enumerate() {
            if let Some(domain) = self.domain_name(node).map(SanitizedText::from) {
                let location =
                    NodeLocation { node: name.clone(), domain: Some(domain), ..Default::default() };
                topology.nodes.push(location);
            }
            topology.ports.extend((0..self.rails).map(|rail| PortLocation {
                node: name.clone(),
                device: SanitizedText::from(format!("mlx5_{rail}")),
                port: None,
                guid: None,
                rail: Some(SanitizedText::from(rail.to_string())),
                leaf: Some(SanitizedText::from(self.leaf_name(node, rail))),
                switch_port: Some(SanitizedText::from((1 + node % self.leaf_nodes).to_string())),
            }));
        }
        topology
    }

    /// The same as a topology file; neighbouring nodes with the same cabling share an entry.
    pub fn topology_file(&self) -> String {
        let mut file = String::from("# Topology of this simulated fleet.\n");
        let names = node_names(self.nodes);
        let mut next = 0;
        while next < self.nodes {
            let (leaf, domain) = (self.nodes_below_leaf(next), self.domain_of(next));
            let end = if self.domain_nodes > 1 { leaf.end.min(domain.end) } else { leaf.end };
            self.write_entry(&names, next..end, &mut file);
            next = end;
        }
        file.push_str("\n[rails]\n");
        for rail in 0..self.rails {
            // Writing to a `String` cannot fail.
            _ = writeln!(file, "{rail} = [\"mlx5_{rail}\"]");
        }
        file
    }

    fn write_entry(&self, names: &[SanitizedText], nodes: Range<usize>, file: &mut String) {
        let number = |node: usize| names[node].trim_start_matches("gpu");
        let list = match nodes.len() {
            1 => names[nodes.start].to_string(),
            _ => format!("gpu[{}-{}]", number(nodes.start), number(nodes.end - 1)),
        };
        _ = writeln!(file, "\n[[nodes]]\nnames = \"{list}\"");
        if let Some(domain) = self.domain_name(nodes.start) {
            _ = writeln!(file, "domain = \"{domain}\"");
        }
        _ = writeln!(file, "[nodes.ports]");
        for rail in 0..self.rails {
            _ = writeln!(file, "mlx5_{rail} = \"{}\"", self.leaf_name(nodes.start, rail));
        }
    }

    /// The name of a node's NVLink domain, if the domain is larger than the node.
    fn domain_name(&self, node: usize) -> Option<String> {
        (self.domain_nodes > 1).then(|| format!("domain-{:02}", node / self.domain_nodes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_in_both_topologies_on_the_same_leaf() {
        for domain_nodes in [1, 9] {
            let shape =
                FleetShape { rails: 2, leaf_nodes: 8, domain_nodes, ..FleetShape::new_usual(21) };
            let file: toml::Table = shape.topology_file().parse().unwrap();
            let entries = file["nodes"].as_array().unwrap();
            let numbers = |list: &str| -> Range<usize> {
                let inner = list.trim_start_matches("gpu").trim_matches(['[', ']']);
                let (first, last) = inner.split_once('-').unwrap_or((inner, inner));
                first.parse::<usize>().unwrap() - 1..last.parse().unwrap()
            };
            let topology = shape.to_topology();
            assert_eq!(topology.ports.len(), 42);
            assert_eq!(topology.nodes.len(), if domain_nodes > 1 { 21 } else { 0 });
            for (node, rail) in (0..21).flat_map(|node| [(node, 0), (node, 1)]) {
                let mut matching = entries
                    .iter()
                    .filter(|entry| numbers(entry["names"].as_str().unwrap()).contains(&node));
                let entry = matching.next().unwrap();
                assert!(matching.next().is_none(), "node {node} is in one entry");
                let port = &topology.ports[node * 2 + rail];
                let leaf = entry["ports"][&format!("mlx5_{rail}")].as_str().unwrap();
                assert_eq!(port.leaf.as_deref(), Some(leaf));
                let domain = entry.get("domain").map(|domain| domain.as_str().unwrap());
                let declared = topology.nodes.get(node).and_then(|node| node.domain.as_deref());
                assert_eq!(domain, declared);
            }
            assert_eq!(file["rails"]["1"].as_array().unwrap()[0].as_str(), Some("mlx5_1"));
        }
    }
}
