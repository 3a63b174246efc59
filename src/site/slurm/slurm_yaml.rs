//! Parser of Slurm's `topology.yaml`: several topologies in one file, each a tree, a set of blocks, or flat.

use gaunt_schema::{SanitizedText, SourceTopology, plain_error};
use serde::Deserialize;

use super::{RING_SKIPPED, SlurmTopology};
use crate::site_error::{SiteFault, quote_excerpt};

mod key_tree;

use key_tree::KeyTree;

/// The keys at each place of the file, as in Slurm's topology.yaml(5). Those without a field below are only Slurm's.
const KNOWN_KEYS: [(&[&str], &[&str]); 5] = [
    (&[], &["topology", "cluster_default", "tree", "block", "flat"]),
    (&["tree"], &["switches"]),
    (&["tree", "switches"], &["switch", "nodes", "children"]),
    (&["block"], &["block_sizes", "blocks"]),
    (&["block", "blocks"], &["block", "nodes"]),
];

/// One topology of the file.
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
/// because they describe something else than a tree. Unknown keys are skipped, and returned with their lines.
pub(crate) fn parse_yaml(
    text: &str,
    source: SanitizedText,
) -> Result<(SourceTopology, Vec<SiteFault>), SiteFault> {
    let entries: Vec<SlurmTopologyEntry> =
        serde_saphyr::from_str(text).map_err(|error| yaml_fault(text, &error))?;
    let keys: KeyTree = serde_saphyr::from_str(text).map_err(|error| yaml_fault(text, &error))?;
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
    Ok((topology.into_topology(source), skipped_keys(&keys)))
}

fn yaml_fault(text: &str, error: &serde_saphyr::Error) -> SiteFault {
    let line = error.location().map_or(1, |location| location.line() as usize);
    let message = error.without_snippet().to_string();
    let parses = serde_saphyr::from_str::<serde::de::IgnoredAny>(text).is_ok();
    let message = plain_error::document(&message, "YAML", parses);
    SiteFault::at_line(line, format!("{message}; see Slurm's topology.yaml(5)"))
}

/// Returns a fault for each key that has no meaning at its place, in the order of the file.
fn skipped_keys(keys: &KeyTree) -> Vec<SiteFault> {
    let mut skipped = Vec::new();
    for (place, known) in KNOWN_KEYS {
        keys.visit_mappings(place, &mut |key, line| {
            if !known.contains(&key) {
                skipped.push(SiteFault::at_line(line, describe_unknown_key(place, key, known)));
            }
        });
    }
    skipped.sort_by_key(|fault| fault.line);
    skipped
}

fn describe_unknown_key(place: &[&str], key: &str, known: &[&str]) -> String {
    if place.is_empty() && key == "ring" {
        return format!("ring {RING_SKIPPED}");
    }
    let path = [place, &[key]].concat().join(".");
    format!("{} is not a known key; known are {}", quote_excerpt(&path), known.join(", "))
}

/// The line that names a switch or block, from 1.
fn line_of(text: &str, name: &str) -> usize {
    let is_named = |line: &str| {
        let value = line.split_once(':').map(|(_, value)| value.trim().trim_matches(['"', '\'']));
        value == Some(name)
    };
    text.lines().position(is_named).map_or(1, |index| index + 1)
}
