//! Slurm's `topology.yaml`: several topologies in one file, each a tree, a set of blocks, or flat.

use gaunt_schema::{Safe, Topology, plain_error};
use serde::Deserialize;

use super::Plan;
use crate::site::fault::Fault;

/// One topology of the file. Keys that only Slurm needs are passed over.
#[derive(Debug, Deserialize)]
struct Entry {
    topology: String,
    #[serde(default)]
    cluster_default: bool,
    tree: Option<Tree>,
    block: Option<Blocks>,
}

#[derive(Debug, Deserialize)]
struct Tree {
    #[serde(default)]
    switches: Vec<SwitchEntry>,
}

#[derive(Debug, Deserialize)]
struct SwitchEntry {
    switch: String,
    #[serde(default)]
    nodes: String,
    #[serde(default)]
    children: String,
}

#[derive(Debug, Deserialize)]
struct Blocks {
    #[serde(default)]
    blocks: Vec<BlockEntry>,
}

#[derive(Debug, Deserialize)]
struct BlockEntry {
    block: String,
    #[serde(default)]
    nodes: String,
}

/// Reads `topology.yaml`. Of several trees the cluster's default counts, or else the first; blocks count wherever
/// they stand, for they say something else than a tree does.
pub(in crate::site) fn read(text: &str, source: Safe) -> Result<Topology, Fault> {
    let entries: Vec<Entry> = serde_saphyr::from_str(text).map_err(|error| {
        let line = error.location().map_or(1, |at| at.line() as usize);
        let said = error.without_snippet().to_string();
        let parses = serde_saphyr::from_str::<serde::de::IgnoredAny>(text).is_ok();
        let said = plain_error::document(&said, "YAML", parses);
        Fault::at(line, format!("{said}; see Slurm's topology.yaml(5)"))
    })?;
    let mut plan = Plan::default();
    let mut trees: Vec<_> = entries.iter().filter(|entry| entry.tree.is_some()).collect();
    trees.sort_by_key(|entry| !entry.cluster_default);
    for switch in
        trees.first().and_then(|entry| entry.tree.as_ref()).iter().flat_map(|t| &t.switches)
    {
        let line = line_of(text, &switch.switch);
        plan.switch(line, &switch.switch, &switch.nodes, &switch.children)?;
    }
    for block in entries.iter().filter_map(|entry| entry.block.as_ref()).flat_map(|b| &b.blocks) {
        plan.block(line_of(text, &block.block), &block.block, &block.nodes)?;
    }
    if entries.is_empty() {
        return Err(Fault::at(1, "no topology is in it; see Slurm's topology.yaml(5)"));
    }
    tracing::debug!(topologies = entries.len(), first = entries[0].topology, "topology.yaml");
    Ok(plan.finish(source))
}

/// The line where a switch or block is named, from 1.
fn line_of(text: &str, name: &str) -> usize {
    let named = |line: &str| {
        let value = line.split_once(':').map(|(_, value)| value.trim().trim_matches(['"', '\'']));
        value == Some(name)
    };
    text.lines().position(named).map_or(1, |at| at + 1)
}
