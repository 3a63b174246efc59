//! The wiring of a fleet as its operator would write it down: for a program, and as gaunt's own topology file.

use std::{fmt::Write as _, ops::Range};

use gaunt_schema::{NodePlace, Origin, PortPlace, Safe, Topology};

use crate::{fleet::names, shape::Shape};

impl Shape {
    /// Where everything is plugged in.
    pub fn topology(&self) -> Topology {
        let mut all = Topology::new("topology.toml".into(), Origin::Declared);
        for (node, name) in names(self.nodes).into_iter().enumerate() {
            if let Some(domain) = self.domain(node).map(Safe::from) {
                let place =
                    NodePlace { node: name.clone(), domain: Some(domain), ..Default::default() };
                all.nodes.push(place);
            }
            all.ports.extend((0..self.rails).map(|rail| PortPlace {
                node: name.clone(),
                device: Safe::from(format!("mlx5_{rail}")),
                port: None,
                rail: Some(Safe::from(rail.to_string())),
                leaf: Some(Safe::from(self.leaf(node, rail))),
            }));
        }
        all
    }

    /// The same as a file: neighbours that are plugged in alike in one entry.
    pub fn topology_file(&self) -> String {
        let mut file = String::from("# Where the nodes of this simulated fleet are plugged in.\n");
        let names = names(self.nodes);
        let mut next = 0;
        while next < self.nodes {
            let (leaf, domain) = (self.below_leaf_of(next), self.domain_of(next));
            let end = if self.domain_nodes > 1 { leaf.end.min(domain.end) } else { leaf.end };
            self.entry(&names, next..end, &mut file);
            next = end;
        }
        file.push_str("\n[rails]\n");
        for rail in 0..self.rails {
            // Writing to a string cannot fail.
            _ = writeln!(file, "{rail} = [\"mlx5_{rail}\"]");
        }
        file
    }

    fn entry(&self, names: &[Safe], nodes: Range<usize>, file: &mut String) {
        let number = |node: usize| names[node].trim_start_matches("gpu");
        let list = match nodes.len() {
            1 => names[nodes.start].to_string(),
            _ => format!("gpu[{}-{}]", number(nodes.start), number(nodes.end - 1)),
        };
        _ = writeln!(file, "\n[[nodes]]\nnames = \"{list}\"");
        if let Some(domain) = self.domain(nodes.start) {
            _ = writeln!(file, "domain = \"{domain}\"");
        }
        _ = writeln!(file, "[nodes.ports]");
        for rail in 0..self.rails {
            _ = writeln!(file, "mlx5_{rail} = \"{}\"", self.leaf(nodes.start, rail));
        }
    }

    /// The name of the NVLink domain of a node, where that is larger than the node.
    fn domain(&self, node: usize) -> Option<String> {
        (self.domain_nodes > 1).then(|| format!("domain-{:02}", node / self.domain_nodes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_is_in_both_and_on_the_same_leaf() {
        for domain_nodes in [1, 9] {
            let shape = Shape { rails: 2, leaf_nodes: 8, domain_nodes, ..Shape::usual(21) };
            let file: toml::Table = shape.topology_file().parse().unwrap();
            let entries = file["nodes"].as_array().unwrap();
            let numbers = |list: &str| -> Range<usize> {
                let inner = list.trim_start_matches("gpu").trim_matches(['[', ']']);
                let (first, last) = inner.split_once('-').unwrap_or((inner, inner));
                first.parse::<usize>().unwrap() - 1..last.parse().unwrap()
            };
            let topology = shape.topology();
            assert_eq!(topology.ports.len(), 42);
            assert_eq!(topology.nodes.len(), if domain_nodes > 1 { 21 } else { 0 });
            for (node, rail) in (0..21).flat_map(|node| [(node, 0), (node, 1)]) {
                let mut at = entries
                    .iter()
                    .filter(|e| numbers(e["names"].as_str().unwrap()).contains(&node));
                let entry = at.next().unwrap();
                assert!(at.next().is_none(), "node {node} stands in one entry");
                let place = &topology.ports[node * 2 + rail];
                let leaf = entry["ports"][&format!("mlx5_{rail}")].as_str().unwrap();
                assert_eq!(place.leaf.as_deref(), Some(leaf));
                let domain = entry.get("domain").map(|domain| domain.as_str().unwrap());
                let told = topology.nodes.get(node).and_then(|place| place.domain.as_deref());
                assert_eq!(domain, told);
            }
            assert_eq!(file["rails"]["1"].as_array().unwrap()[0].as_str(), Some("mlx5_1"));
        }
    }
}
