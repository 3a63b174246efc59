//! Files that a site has beside its exporters: the topology of its network, and the list of running jobs.

use std::fmt::Write as _;

use super::{
    fabric::leaves_per_group,
    names::job_number,
    places::{collective_ports, rail_count},
};
use crate::{
    cluster_plan::LeafLayout,
    exporter_plan::TopologyPlan,
    job_plan::JobKind,
    random::RandomKey,
    world::{RUN_START, World},
};

/// The name of the file that [`topology_text`] is: its ending says its format.
pub fn topology_file_name(world: &World) -> &'static str {
    match world.exporters.topology {
        TopologyPlan::Declared => "topology.toml",
        _ => "topology.conf",
    }
}

/// The name that the site's files have for a leaf switch; none if they have none.
pub fn leaf_name(world: &World, leaf: usize) -> Option<String> {
    let fabric = &world.cluster.fabric;
    let group = leaf / leaves_per_group(fabric.leaf_layout, rail_count(&world.cluster));
    match world.exporters.topology {
        TopologyPlan::Declared => Some(format!("leaf-{:02}", leaf + 1)),
        TopologyPlan::SlurmTree | TopologyPlan::SlurmTreeStale => Some(group_name(world, group)),
        TopologyPlan::None | TopologyPlan::SlurmBlock => None,
    }
}

fn group_name(world: &World, group: usize) -> String {
    let prefix = match world.cluster.fabric.leaf_layout {
        LeafLayout::PerRail => "su",
        LeafLayout::PerRack => "leaf",
        LeafLayout::DualRack => "rack",
    };
    format!("{prefix}{:02}", group + 1)
}

/// The topology as the site wrote it, in the format of [`topology_file_name`]; none if it wrote none.
pub fn topology_text(world: &World) -> Option<String> {
    match world.exporters.topology {
        TopologyPlan::None => None,
        TopologyPlan::SlurmTree => Some(tree_text(world, None)),
        TopologyPlan::SlurmTreeStale => Some(tree_text(world, moved_node(world))),
        TopologyPlan::SlurmBlock => Some(block_text(world)),
        TopologyPlan::Declared => Some(declared_text(world)),
    }
}

fn key_of(world: &World) -> RandomKey {
    RandomKey::new(world.seed).child("site files")
}

/// The node of a stale tree that has moved, with the group that the tree has it in.
fn moved_node(world: &World) -> Option<(usize, usize)> {
    let groups = group_count(world);
    let node = key_of(world).child("moved").index(world.cluster.nodes.len());
    let group = node / world.cluster.fabric.nodes_per_leaf;
    (groups > 1).then_some((node, (group + 1) % groups))
}

fn group_count(world: &World) -> usize {
    world.cluster.nodes.len().div_ceil(world.cluster.fabric.nodes_per_leaf)
}

/// Names of the nodes of each group of leaf switches, joined by commas.
fn group_lists(world: &World, moved: Option<(usize, usize)>) -> Vec<String> {
    let mut lists = vec![Vec::new(); group_count(world)];
    for (node, plan) in world.exporters.nodes.iter().enumerate() {
        let group = match moved {
            Some((other, group)) if other == node => group,
            _ => node / world.cluster.fabric.nodes_per_leaf,
        };
        lists[group].push(plan.name.as_str());
    }
    lists.iter().map(|names| names.join(",")).collect()
}

fn tree_text(world: &World, moved: Option<(usize, usize)>) -> String {
    let mut text = String::from("# topology/tree\n");
    let mut groups = Vec::new();
    for (group, nodes) in group_lists(world, moved).into_iter().enumerate() {
        if !nodes.is_empty() {
            let name = group_name(world, group);
            let _ = writeln!(text, "SwitchName={name} Nodes={nodes}");
            groups.push(name);
        }
    }
    if groups.len() > 1 {
        let _ = writeln!(text, "SwitchName=spine Switches={}", groups.join(","));
    }
    text
}

/// Blocks of nodes, which have nothing to do with leaf switches.
fn block_text(world: &World) -> String {
    let size = key_of(world).child("block").pick(&[2, 4, 8]);
    let mut text = String::from("# topology/block\n");
    for (block, nodes) in world.exporters.nodes.chunks(size).enumerate() {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let _ = writeln!(text, "BlockName=block{:02} Nodes={}", block + 1, names.join(","));
    }
    let _ = writeln!(text, "BlockSizes={size}");
    text
}

/// Leaf switch and rail of every port, as an operator declares them.
fn declared_text(world: &World) -> String {
    let mut text = String::new();
    let mut rails: Vec<Vec<&str>> = vec![Vec::new(); rail_count(&world.cluster)];
    for (node, plan) in world.exporters.nodes.iter().enumerate() {
        let ports = collective_ports(&world.cluster).filter(|(other, ..)| *other == node);
        let mut entries = Vec::new();
        for (_, port, rail, leaf) in ports {
            let device = plan.ports[port].device.as_str();
            entries.push(format!("\"{device}\" = \"leaf-{:02}\"", leaf + 1));
            if !rails[rail].contains(&device) {
                rails[rail].push(device);
            }
        }
        let rack = world.cluster.nodes[node].rack + 1;
        let _ = writeln!(text, "[[nodes]]\nnames = \"{}\"\nrack = \"r{rack:02}\"", plan.name);
        let _ = writeln!(text, "ports = {{ {} }}\n", entries.join(", "));
    }
    // A device that has another rail on another node has none that holds everywhere.
    let is_unique = |device: &str| rails.iter().filter(|rail| rail.contains(&device)).count() == 1;
    let mut lines = String::new();
    for (rail, devices) in rails.iter().enumerate() {
        let unique = devices.iter().filter(|device| is_unique(device));
        let unique: Vec<String> = unique.map(|device| format!("\"{device}\"")).collect();
        if !unique.is_empty() {
            let _ = writeln!(lines, "\"{rail}\" = [{}]", unique.join(", "));
        }
    }
    if !lines.is_empty() {
        let _ = write!(text, "[rails]\n{lines}");
    }
    text
}

/// The running jobs as `squeue --json` prints them at the end of the run; none if the site has no such list.
pub fn job_list_json(world: &World) -> Option<String> {
    job_list_json_at(world, world.duration_s)
}

/// The running jobs as `squeue --json` prints them at an instant; none if the site has no such list.
pub fn job_list_json_at(world: &World, at_s: f64) -> Option<String> {
    if !world.exporters.has_job_list {
        return None;
    }
    let jobs = world.cluster.jobs.iter().enumerate();
    let running = jobs.filter(|(_, job)| job.runs_s.contains(&at_s));
    let entries: Vec<String> = running.map(|(index, _)| job_entry(world, index)).collect();
    Some(format!("{{\"jobs\": [\n{}\n], \"errors\": []}}\n", entries.join(",\n")))
}

fn job_entry(world: &World, index: usize) -> String {
    let job = &world.cluster.jobs[index];
    let id = job_number(&world.cluster, world.seed, index);
    let is_old = key_of(world).child("parser").chance(0.3);
    let start = RUN_START.0 / 1_000 + job.runs_s.start.floor() as i64;
    let (state, start) = if is_old {
        ("\"RUNNING\"".to_owned(), start.to_string())
    } else {
        let number = format!("{{\"set\": true, \"infinite\": false, \"number\": {start}}}");
        ("[\"RUNNING\"]".to_owned(), number)
    };
    let names: Vec<&str> =
        job.nodes.iter().map(|node| world.exporters.nodes[*node].name.as_str()).collect();
    let details = job.nodes.iter().map(|node| {
        let numbers = &world.exporters.nodes[*node].gpu_numbers;
        let mut held: Vec<usize> = job.gpus.clone().map(|gpu| numbers[gpu]).collect();
        held.sort_unstable();
        let list: Vec<String> = held.iter().map(usize::to_string).collect();
        format!("\"gpu:{}(IDX:{})\"", held.len(), list.join(","))
    });
    let details: Vec<String> = details.collect();
    let name = if job.kind == JobKind::Serve { "serve" } else { "train" };
    format!(
        "{{\"job_id\": {id}, \"name\": \"{name}{index}\", \"user_name\": \"user{index}\", \"account\": \"ml\", \
         \"partition\": \"gpu\", \"job_state\": {state}, \"nodes\": \"{}\", \"gres_detail\": [{}], \
         \"start_time\": {start}}}",
        names.join(","),
        details.join(", ")
    )
}
