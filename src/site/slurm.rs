//! Slurm's topology: `topology.conf` of the tree and block plugins, and the newer `topology.yaml`.
//!
//! A switch that has nodes becomes their leaf and the switches that list it become its spines; a block becomes an
//! NVLink domain, for which it stands. Nothing is said of ports: Slurm knows no cables.

use std::collections::{BTreeMap, btree_map::Entry};

use gaunt_schema::{NodePlace, Origin, Safe, Switch, Topology};

use super::{
    fault::{Fault, quote},
    names::Room,
};

mod yaml;

pub(super) use yaml::read as read_yaml;

/// Keys of the tree plugin that say how fast or how high, which is nothing to us.
const PASSED_OVER: [&str; 2] = ["level", "linkspeed"];

/// Reads `topology.conf`.
pub(super) fn read(text: &str, source: Safe) -> Result<Topology, Fault> {
    let mut plan = Plan::default();
    for (line, text) in lines(text) {
        plan.take(line, &text)?;
    }
    Ok(plan.finish(source))
}

/// Lines without their comments, joined where a backslash ends them; each with its number, from 1.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continued = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        let (line, goes_on) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| continued) {
            Some((_, before)) => {
                before.push(' ');
                before.push_str(line);
            }
            None => lines.push((number, line.to_owned())),
        }
        continued = goes_on;
    }
    lines.retain(|(_, line)| !line.trim().is_empty());
    lines
}

/// What is planned, while it is read.
#[derive(Debug, Default)]
struct Plan {
    room: Room,
    nodes: BTreeMap<Safe, NodePlace>,
    /// Nodes that hang below several leaves: then none of them is the one.
    several: Vec<Safe>,
    above: BTreeMap<Safe, Vec<Safe>>,
}

impl Plan {
    fn take(&mut self, line: usize, text: &str) -> Result<(), Fault> {
        let mut fields = BTreeMap::new();
        for field in text.split_whitespace() {
            let Some((key, value)) = field.split_once('=') else {
                let what =
                    format!("{} is not KEY=VALUE; write SwitchName=… or BlockName=…", quote(field));
                return Err(Fault::at(line, what));
            };
            let value = value.trim_matches('"');
            if fields.insert(key.to_ascii_lowercase(), value.to_owned()).is_some() {
                return Err(Fault::at(line, format!("{} stands twice; keep one", quote(key))));
            }
        }
        for key in PASSED_OVER {
            fields.remove(key);
        }
        // How many blocks make a larger one tells nothing of a single node.
        if fields.remove("blocksizes").is_some() {
            return nothing_else(line, &fields);
        }
        let nodes = fields.remove("nodes").unwrap_or_default();
        let children = fields.remove("switches").unwrap_or_default();
        let (switch, block) = (fields.remove("switchname"), fields.remove("blockname"));
        nothing_else(line, &fields)?;
        match (switch, block) {
            (Some(switch), None) => self.switch(line, &switch, &nodes, &children),
            (None, Some(block)) if children.is_empty() => self.block(line, &block, &nodes),
            (None, Some(_)) => Err(Fault::at(line, "a block has no Switches; give Nodes")),
            _ => Err(Fault::at(line, "one of SwitchName and BlockName must stand in each line")),
        }
    }

    fn switch(
        &mut self,
        line: usize,
        name: &str,
        nodes: &str,
        children: &str,
    ) -> Result<(), Fault> {
        if nodes.is_empty() == children.is_empty() {
            let what = format!("{} needs either Nodes or Switches", quote(name));
            return Err(Fault::at(line, what));
        }
        let name = Safe::new(name);
        for child in self.room.expand(children, line)? {
            self.above.entry(child).or_default().push(name.clone());
        }
        for node in self.room.expand(nodes, line)? {
            match self.nodes.entry(node.clone()) {
                Entry::Occupied(mut known) => {
                    let leaf = &mut known.get_mut().leaf;
                    match leaf {
                        Some(other) if *other != name => self.several.push(node),
                        _ => *leaf = Some(name.clone()),
                    }
                }
                Entry::Vacant(place) => {
                    let leaf = Some(name.clone());
                    place.insert(NodePlace { node, leaf, ..NodePlace::default() });
                }
            }
        }
        Ok(())
    }

    fn block(&mut self, line: usize, name: &str, nodes: &str) -> Result<(), Fault> {
        for node in self.room.expand_some(nodes, line)? {
            let place = self.nodes.entry(node.clone()).or_default();
            place.node = node;
            place.domain = Some(Safe::new(name));
        }
        Ok(())
    }

    fn finish(mut self, source: Safe) -> Topology {
        for node in self.several {
            if let Some(place) = self.nodes.get_mut(&node) {
                place.leaf = None;
            }
        }
        let switch = |(name, above)| Switch { name, above, rail: None };
        Topology {
            nodes: self.nodes.into_values().collect(),
            switches: self.above.into_iter().map(switch).collect(),
            ..Topology::new(source, Origin::Scheduler)
        }
    }
}

fn nothing_else(line: usize, fields: &BTreeMap<String, String>) -> Result<(), Fault> {
    fields.keys().next().map_or(Ok(()), |key| {
        let known = "SwitchName, Switches, Nodes, Level, LinkSpeed, BlockName, BlockSizes";
        Err(Fault::at(line, format!("{} is not known here; known are {known}", quote(key))))
    })
}

#[cfg(test)]
mod tests;
