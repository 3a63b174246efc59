//! Slurm topology: `topology.conf` of the tree and block plugins, and the newer `topology.yaml`.
//!
//! A switch that has nodes becomes their leaf and the switches that list it become its spines; a block becomes an
//! NVLink domain. Ports have no entries: Slurm does not know cables.

use std::collections::{BTreeMap, btree_map::Entry};

use gaunt_schema::{FabricSwitch, NodeLocation, SanitizedText, SourceTopology, TopologyOrigin};

use super::{
    name_expander::NameExpander,
    site_error::{SiteFault, quote_excerpt},
};

mod slurm_yaml;

pub(super) use slurm_yaml::parse_yaml as read_yaml;

/// Keys for speed, and for what `scontrol show topology` counts, which are ignored.
const PASSED_OVER: [&str; 3] = ["linkspeed", "blockindex", "blocksize"];

/// What is said of a ring of nodes.
const RING_SKIPPED: &str = "is a ring of nodes, which has no leaf and no NVLink domain; \
                            declare these in gaunt's own .toml if there are any";

/// Parses `topology.conf`.
pub(super) fn parse_topology(
    text: &str,
    source: SanitizedText,
) -> Result<(SourceTopology, Vec<SiteFault>), SiteFault> {
    let mut topology = SlurmTopology::default();
    let mut skipped = Vec::new();
    for (line, text) in join_lines(text) {
        if is_ring(&text) {
            skipped.push(SiteFault::at_line(line, format!("RingName {RING_SKIPPED}")));
            continue;
        }
        topology.parse_line(line, &text)?;
    }
    Ok((topology.into_topology(source), skipped))
}

/// Whether a line is of Slurm's ring plugin.
fn is_ring(text: &str) -> bool {
    let key = text.split_whitespace().next().and_then(|field| field.split_once('='));
    key.is_some_and(|(key, _)| key.eq_ignore_ascii_case("RingName"))
}

/// Lines without comments, joined where a backslash ends them; each with its number, from 1.
fn join_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continued = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim_end();
        let (line, is_continued) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| continued) {
            // A value may go on in the next line.
            Some((_, previous)) => previous.push_str(line),
            None => lines.push((number, line.to_owned())),
        }
        continued = is_continued;
    }
    lines.retain(|(_, line)| !line.trim().is_empty());
    lines
}

/// The topology while it is parsed.
#[derive(Debug, Default)]
struct SlurmTopology {
    expander: NameExpander,
    nodes: BTreeMap<SanitizedText, NodeLocation>,
    /// Nodes below several leaves: then no leaf is assigned.
    ambiguous: Vec<SanitizedText>,
    above: BTreeMap<SanitizedText, Vec<SanitizedText>>,
}

impl SlurmTopology {
    fn parse_line(&mut self, line: usize, text: &str) -> Result<(), SiteFault> {
        let mut fields = BTreeMap::new();
        for field in text.split_whitespace() {
            let Some((key, value)) = field.split_once('=') else {
                let what = format!(
                    "{} is not KEY=VALUE; write SwitchName=… or BlockName=…",
                    quote_excerpt(field)
                );
                return Err(SiteFault::at_line(line, what));
            };
            let value = value.trim_matches('"');
            if fields.insert(key.to_ascii_lowercase(), value.to_owned()).is_some() {
                return Err(SiteFault::at_line(
                    line,
                    format!("{} is given twice; keep one", quote_excerpt(key)),
                ));
            }
        }
        for key in PASSED_OVER {
            fields.remove(key);
        }
        let level = fields.remove("level");
        // The sizes of aggregated blocks do not concern a single node.
        if fields.remove("blocksizes").is_some() {
            return reject_unknown_keys(line, &fields);
        }
        let mut nodes = fields.remove("nodes").unwrap_or_default();
        // `scontrol show topology` repeats the nodes of leaves and blocks for all that is above them.
        if fields.remove("aggregatedblock").is_some() {
            return reject_unknown_keys(line, &fields);
        }
        if fields.contains_key("switches") && level.is_some() {
            nodes.clear();
        }
        let children = fields.remove("switches").unwrap_or_default();
        let (switch, block) = (fields.remove("switchname"), fields.remove("blockname"));
        reject_unknown_keys(line, &fields)?;
        match (switch, block) {
            (Some(switch), None) => self.add_switch(line, &switch, &nodes, &children),
            (None, Some(block)) if children.is_empty() => self.add_block(line, &block, &nodes),
            (None, Some(_)) => {
                Err(SiteFault::at_line(line, "a block cannot have Switches; give Nodes"))
            }
            _ => Err(SiteFault::at_line(line, "each line needs one of SwitchName and BlockName")),
        }
    }

    fn add_switch(
        &mut self,
        line: usize,
        name: &str,
        nodes: &str,
        children: &str,
    ) -> Result<(), SiteFault> {
        if nodes.is_empty() == children.is_empty() {
            let what = format!("{} needs either Nodes or Switches", quote_excerpt(name));
            return Err(SiteFault::at_line(line, what));
        }
        let name = SanitizedText::new(name);
        for child in self.expander.expand_list(children, line)? {
            self.above.entry(child).or_default().push(name.clone());
        }
        for node in self.expander.expand_list(nodes, line)? {
            match self.nodes.entry(node.clone()) {
                Entry::Occupied(mut occupied) => {
                    let leaf = &mut occupied.get_mut().leaf;
                    match leaf {
                        Some(other) if *other != name => self.ambiguous.push(node),
                        _ => *leaf = Some(name.clone()),
                    }
                }
                Entry::Vacant(vacant) => {
                    let leaf = Some(name.clone());
                    vacant.insert(NodeLocation { node, leaf, ..NodeLocation::default() });
                }
            }
        }
        Ok(())
    }

    fn add_block(&mut self, line: usize, name: &str, nodes: &str) -> Result<(), SiteFault> {
        for node in self.expander.expand_non_empty(nodes, line)? {
            let location = self.nodes.entry(node.clone()).or_default();
            location.node = node;
            location.domain = Some(SanitizedText::new(name));
        }
        Ok(())
    }

    fn into_topology(mut self, source: SanitizedText) -> SourceTopology {
        for node in self.ambiguous {
            if let Some(location) = self.nodes.get_mut(&node) {
                location.leaf = None;
            }
        }
        let switch = |(name, above)| FabricSwitch { name, above, rail: None };
        SourceTopology {
            nodes: self.nodes.into_values().collect(),
            switches: self.above.into_iter().map(switch).collect(),
            ..SourceTopology::new(source, TopologyOrigin::Scheduler)
        }
    }
}

fn reject_unknown_keys(line: usize, fields: &BTreeMap<String, String>) -> Result<(), SiteFault> {
    fields.keys().next().map_or(Ok(()), |key| {
        let known_keys = "SwitchName, Switches, Nodes, Level, LinkSpeed, BlockName, BlockSizes";
        Err(SiteFault::at_line(
            line,
            format!("{} is not a known key; known are {known_keys}", quote_excerpt(key)),
        ))
    })
}

#[cfg(test)]
mod tests;
