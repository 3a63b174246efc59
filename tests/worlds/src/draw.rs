//! Draws worlds: a family and a seed give exporters and cluster, then jobs, then the fault or the quiet case.
//!
//! Every draw has a key of its own, so that the same family and seed with another fault is the same cluster.

use crate::{
    cluster_plan::{ChorePlan, ClusterPlan, GpuModel, NodePlan},
    fault_plan::{FaultCourse, FaultKind},
    random::RandomKey,
    world::World,
};

mod blame;
mod device_names;
mod exporters;
mod fabric;
mod family;
mod faults;
mod jobs;
mod limits;
mod machines;
pub mod names;
mod places;
mod quiet;
mod site_files;
mod truths;
mod visibility;

pub use family::{FAMILIES, FamilySplit, FamilySummary, find_family};
use family::{Forced, forced_by};
use faults::{FaultGround, FaultWish};
use machines::GpuDraw;
pub use names::{JobPod, job_number, job_pod};
pub use places::FAULT_KINDS;
pub use quiet::quiet_cases;
pub use site_files::{
    job_list_json, job_list_json_at, leaf_name, topology_file_name, topology_text,
};
pub use truths::world_truths;
pub use visibility::is_culprit_on_pages;

/// Seconds of a run for which hosts have their chores drawn: longer than any run as it is drawn.
const CHORES_WITHIN_S: f64 = 3_600.0;

/// Least seconds and scrapes of a run after its last time limit.
const AFTERWARDS_S: f64 = 45.0;
const AFTERWARDS_LOOKS: f64 = 4.0;

/// What happens in a world.
#[derive(Clone, Debug, PartialEq)]
pub enum WorldCase<'a> {
    /// A fault; what is `None` is drawn.
    Fault {
        /// What breaks.
        kind: Option<FaultKind>,
        /// Share of the job's speed that it costs, for kinds that are sized.
        loss: Option<f64>,
        /// How it goes on; a drawn course may also begin before the run or during a checkpoint.
        course: Option<FaultCourse>,
        /// Whether there is a second fault, where one is possible; otherwise some 7 % of the worlds whose kind is
        /// drawn have one.
        second: bool,
    },
    /// No fault, and an event that looks like one.
    Quiet {
        /// Its name, of [`quiet_cases`].
        case: Option<&'a str>,
    },
}

/// Draws a world.
pub fn draw_world(family: &str, seed: u64, case: WorldCase<'_>) -> Result<World, String> {
    let family = find_family(family).ok_or_else(|| format!("{family:?} is no family of worlds"))?;
    let key = RandomKey::new(seed).child(family.name);
    let forced = forced_by(family.name);
    let cluster = draw_cluster(key, &forced);
    let exporters = exporters::draw_exporters(key, &forced, &cluster);
    let mut world = World {
        family: family.name,
        seed,
        cluster,
        exporters,
        faults: Vec::new(),
        quiet_case: None,
        duration_s: 0.0,
    };
    match case {
        WorldCase::Quiet { case } => quiet::apply_quiet_case(&mut world, key, case)?,
        WorldCase::Fault { kind, loss, course, second } => {
            let ground = FaultGround { cluster: &world.cluster, exporters: &world.exporters };
            let wish = FaultWish { kind, loss, course, has_second: second };
            world.faults = ground.draw_faults(key, &wish)?;
            world.duration_s = fault_duration_s(&world);
        }
    }
    Ok(world)
}

/// Lets a drawn world last this long: its hosts have their chores of the first hour in each hour.
pub fn lengthen_world(world: &mut World, duration_s: f64) {
    for node in &mut world.cluster.nodes {
        let chores = &mut node.host.chores;
        let first_hour = chores.clone();
        let mut later_s = CHORES_WITHIN_S;
        while later_s < duration_s {
            chores.extend(first_hour.iter().map(|chore| ChorePlan {
                span_s: chore.span_s.start + later_s..chore.span_s.end + later_s,
                ..*chore
            }));
            later_s += CHORES_WITHIN_S;
        }
    }
    world.duration_s = duration_s;
}

/// The kinds of faults that can strike the cluster of a family and seed.
pub fn feasible_kinds(family: &str, seed: u64) -> Result<Vec<FaultKind>, String> {
    let world = draw_world(family, seed, WorldCase::Quiet { case: Some("nothing") })?;
    let ground = FaultGround { cluster: &world.cluster, exporters: &world.exporters };
    Ok(ground.feasible_kinds())
}

/// Duration of a run with faults: until the last time limit, and a while afterwards.
fn fault_duration_s(world: &World) -> f64 {
    let limits = world.faults.iter().map(|fault| {
        let limit_s = limits::limit_s(&world.cluster, &world.exporters, fault, None);
        fault.onset_s + limit_s
    });
    let last_s = limits.fold(0.0, f64::max);
    last_s + AFTERWARDS_S.max(AFTERWARDS_LOOKS * world.exporters.scrape_s)
}

fn draw_cluster(key: RandomKey, forced: &Forced) -> ClusterPlan {
    let key = key.child("cluster");
    let (least, most) = forced.nodes.unwrap_or((4, 14));
    let drawn = least + key.child("nodes").index(most - least + 1);
    let is_tiny = forced.nodes.is_none() && key.child("tiny").chance(0.03);
    let nodes = if is_tiny { 1 + key.child("few").index(3) } else { drawn };
    // Many nodes have fewer GPUs, so that a run costs no more than it must.
    let sizes: &[usize] = if nodes > 16 { &[2, 4] } else { &[4, 4, 8, 8] };
    let gpus = key.child("gpus per node").pick(sizes);
    let gpu_draw = GpuDraw::draw(key, forced, nodes, gpus);
    let rails = fabric::draw_rails(key, gpu_draw.model, gpus);
    let fabric = fabric::draw_fabric(key, forced, nodes, rails);
    let ports = fabric::draw_ports(key, forced, &fabric, nodes, (gpu_draw.model, rails));
    let new_node = |(node, ports)| {
        let gpus = gpu_draw.node_gpus(node, gpus);
        NodePlan {
            has_nvlink: gpus[0].model != GpuModel::L40S,
            gpus,
            ports,
            host: machines::draw_host(key, forced, node, CHORES_WITHIN_S),
            rack: node / fabric.nodes_per_leaf.min(8),
        }
    };
    let nodes: Vec<NodePlan> = ports.into_iter().enumerate().map(new_node).collect();
    let jobs = jobs::draw_jobs(key, forced, &nodes, &gpu_draw);
    ClusterPlan { nodes, jobs, fabric, power_cap: None }
}

#[cfg(test)]
mod tests;
