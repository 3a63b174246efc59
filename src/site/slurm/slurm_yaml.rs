//! Parser of Slurm's `topology.yaml`: several topologies in one file, each a tree, a set of blocks, or flat.

use gaunt_schema::{SanitizedText, SourceTopology, plain_error};
use serde::Deserialize;

use super::SlurmTopology;
use crate::site_error::SiteFault;

/// One topology of the file. Keys that only Slurm needs are ignored.
#[derive(Debug, Deserialize)]
struct SlurmTopologyEntry {
    topology: String,
    #[serde(default)]
    cluster_default: bool,
    tree: Option<SlurmTree>,
    block: Option<SlurmBlocks>,
}

#[derive(Debug, Deserialize)]
struct SlurmTree {
    #[serde(default)]
    switches: Vec<SlurmSwitchEntry>,
}

#[derive(Debug, Deserialize)]
struct SlurmSwitchEntry {
    switch: String,
    #[serde(default)]
    nodes: String,
    #[serde(default)]
    children: String,
}

#[derive(Debug, Deserialize)]
struct SlurmBlocks {
    #[serde(default)]
    blocks: Vec<SlurmBlockEntry>,
}

#[derive(Debug, Deserialize)]
struct SlurmBlockEntry {
    block: String,
    #[serde(default)]
    nodes: String,
}

/// Parses `topology.yaml`. Of several trees the cluster's default is used, or else the first; blocks are always used,
/// because they describe something else than a tree.
pub(crate) fn parse_yaml(text: &str, source: SanitizedText) -> Result<SourceTopology, SiteFault> {
    let entries: Vec<SlurmTopologyEntry> = serde_saphyr::from_str(text).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line() as usize);
        let message = error.without_snippet().to_string();
        let parses = serde_saphyr::from_str::<serde::de::IgnoredAny>(text).is_ok();
        let message = plain_error::document(&message, "YAML", parses);
        SiteFault::at_line(line, format!("{message}; see Slurm's topology.yaml(5)"))
    })?;
    let mut topology = SlurmTopology::default();
    let mut trees: Vec<_> = entries.iter().filter(|entry| entry.tree.is_some()).collect();
    trees.sort_by_key(|entry| !entry.cluster_default);
    for switch in
        trees.first().and_then(|entry| entry.tree.as_ref()).iter().flat_map(|t| &t.switches)
    {
        let line = line_of(text, &switch.switch);
        topology.add_switch(line, &switch.switch, &switch.nodes, &switch.children)?;
    }
    for block in entries.iter().filter_map(|entry| entry.block.as_ref()).flat_map(|b| &b.blocks) {
        topology.add_block(line_of(text, &block.block), &block.block, &block.nodes)?;
    }
    if entries.is_empty() {
        return Err(SiteFault::at_line(1, "no topology in it; see Slurm's topology.yaml(5)"));
    }
    tracing::debug!(topologies = entries.len(), first = entries[0].topology, "topology.yaml");
    Ok(topology.into_topology(source))
}

/// The line that names a switch or block, from 1.
fn line_of(text: &str, name: &str) -> usize {
    let is_named = |line: &str| {
        let value = line.split_once(':').map(|(_, value)| value.trim().trim_matches(['"', '\'']));
        value == Some(name)
    };
    text.lines().position(is_named).map_or(1, |index| index + 1)
}
