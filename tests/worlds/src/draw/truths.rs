//! What a judge should say of each fault: kind, blame, what is equally right, victims and time limit.

use std::time::Duration;

use gaunt_schema::{Entity, EntityKind, FindingKind, SanitizedText, UnixMs};
use gaunt_sim::GroundTruth;

use super::{
    blame::{Blame, blame_fault},
    limits::limit_s,
    names::{job_number, job_pod},
    places::{collective_ports, is_steady, rail_count, uses_network},
};
use crate::{
    exporter_plan::JobLabels,
    fault_plan::{FaultCourse, FaultKind, FaultPlan},
    job_plan::JobPlan,
    world::{RUN_START, World, WorldTruth},
};

/// What a judge should say of each fault of a world.
///
/// `shown_from_s` has, in the order of the faults, the instant at which a fault first shows in the state of a machine,
/// from which its time limit counts: a full queue of batches, for example, hides a slow loader for a while. A fault
/// that never shows (`None`) has no truth. Of a fault beyond the end of the list nothing is known: it counts from its
/// onset.
pub fn world_truths(world: &World, shown_from_s: &[Option<f64>]) -> Vec<WorldTruth> {
    let faults = world.faults.iter().enumerate();
    let truths = faults.filter_map(|(index, fault)| match shown_from_s.get(index) {
        Some(None) => None,
        Some(shown) => Some(build_truth(world, fault, *shown)),
        None => Some(build_truth(world, fault, None)),
    });
    truths.collect()
}

fn build_truth(world: &World, fault: &FaultPlan, shown_from_s: Option<f64>) -> WorldTruth {
    let blame: Blame = blame_fault(world, fault);
    let stops = fault.loss >= 1.0;
    let at = |seconds: f64| UnixMs(RUN_START.0 + (1_000.0 * seconds).round() as i64);
    let ends = match fault.course {
        FaultCourse::Healed { after_s } => Some(at(fault.onset_s + after_s)),
        _ => None,
    };
    let limit_s = limit_s(&world.cluster, &world.exporters, fault, shown_from_s);
    let mut follows = blame.follows;
    if stops && !matches!(fault.kind, FaultKind::Hang | FaultKind::IdleAllocated) {
        for job in fault.job.into_iter().flat_map(|job| job_entities(world, job)) {
            let hang = (FindingKind::CollectiveHang, job);
            if !follows.contains(&hang) {
                follows.push(hang);
            }
        }
    }
    // That a job is slower for an unknown reason is no wrong verdict about a fault that slows it, and no right one.
    for job in slowed_jobs(world, fault).into_iter().flat_map(|job| job_entities(world, job)) {
        follows.push((FindingKind::UnexplainedSlowdown, job));
    }
    let blamed_node = blame.blamed.node.clone();
    let victims = victim_nodes(world, fault).into_iter();
    let victims = victims
        .map(|node| Entity::new_node(&node_name(world, node)))
        .filter(|victim| victim.node != blamed_node);
    let also = blame.also.into_iter().filter(|entity| *entity != blame.blamed);
    WorldTruth {
        truth: GroundTruth {
            kind: blame.kind,
            also: also.collect(),
            blamed: blame.blamed,
            kinds: blame.kinds,
            follows,
            onset: at(fault.onset_s),
            ends,
            limit: Duration::from_secs_f64(limit_s),
            victims: victims.collect(),
        },
        members: members_of(world, fault),
        loss: fault.loss,
    }
}

/// The name of a node.
pub(super) fn node_name(world: &World, node: usize) -> SanitizedText {
    SanitizedText::new(&world.exporters.nodes[node].name)
}

/// Every name of a node that is right: short, full, or its address; not the name of a pod, and not `localhost`.
pub(super) fn node_names(world: &World, node: usize) -> Vec<SanitizedText> {
    let plan = &world.exporters.nodes[node];
    let short = plan.name.to_lowercase();
    let is_spelling = |name: &str| {
        let lower = name.to_lowercase();
        lower == short || lower.split('.').next() == Some(&short)
    };
    let pages = [plan.gpu_page_name.as_deref(), Some(plan.host_page_name.as_str())];
    let spellings = pages.into_iter().flatten().filter(|name| is_spelling(name));
    let mut names = vec![SanitizedText::new(&plan.name)];
    for name in spellings.chain([plan.address.as_str()]).map(SanitizedText::new) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The entity of a job by its label, and the entity that stands for any name.
pub(super) fn job_entities(world: &World, job: usize) -> Vec<Entity> {
    let unnamed = Entity::new(EntityKind::Job);
    let name = match world.exporters.labels {
        JobLabels::HpcJob => Some(job_number(&world.cluster, world.seed, job)),
        JobLabels::Pods => {
            let pod = job_pod(&world.cluster, world.seed, job, 0);
            Some(format!("{}/{}", pod.namespace, pod.owner))
        }
        JobLabels::None if world.exporters.has_job_list => {
            Some(job_number(&world.cluster, world.seed, job))
        }
        JobLabels::None => None,
    };
    let named = name.map(|name| Entity { job: Some(SanitizedText::new(&name)), ..unnamed.clone() });
    // An owner's name may be shortened in another way; without labels a judge may use any name.
    let is_free = world.exporters.labels != JobLabels::HpcJob;
    named.into_iter().chain(is_free.then_some(unnamed)).collect()
}

/// The nodes that a fault slows.
fn victim_nodes(world: &World, fault: &FaultPlan) -> Vec<usize> {
    let jobs = slowed_jobs(world, fault).into_iter();
    let mut nodes: Vec<usize> =
        jobs.flat_map(|job| world.cluster.jobs[job].nodes.clone()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// The jobs that a fault slows.
pub(super) fn slowed_jobs(world: &World, fault: &FaultPlan) -> Vec<usize> {
    let is_harmless = fault.loss <= 0.0;
    let cluster = &world.cluster;
    let rails = rail_count(cluster);
    let is_slowed = |index: usize, job: &JobPlan| {
        let uses = |ports: &dyn Fn(usize, usize, usize) -> bool| {
            uses_network(job)
                && collective_ports(cluster).any(|(node, _, rail, leaf)| {
                    job.nodes.contains(&node) && ports(node, rail, leaf)
                })
        };
        match fault.kind {
            _ if is_harmless || !is_steady(job) => false,
            FaultKind::StorageSlowForAll => job.step.read_bytes_per_s > 0.0,
            FaultKind::LeafCongested => uses(&|_, _, leaf| leaf == fault.leaf),
            FaultKind::RailSlow => uses(&|_, rail, _| rail == fault.rail || rails == 1),
            FaultKind::SlowReceiver | FaultKind::Incast => uses(&|node, _, _| node == fault.node),
            FaultKind::PowerBrake | FaultKind::NvswitchSlow => job.nodes.contains(&fault.node),
            _ => fault.job == Some(index),
        }
    };
    let jobs = cluster.jobs.iter().enumerate();
    jobs.filter(|(index, job)| is_slowed(*index, job)).map(|(index, _)| index).collect()
}

/// The ports of the leaf switch or rail of a fault, as (node name, device).
pub(super) fn members_of(world: &World, fault: &FaultPlan) -> Vec<(String, String)> {
    let is_member = |rail: usize, leaf: usize| match fault.kind {
        FaultKind::LeafCongested => leaf == fault.leaf,
        FaultKind::RailSlow => rail == fault.rail,
        _ => false,
    };
    let ports =
        collective_ports(&world.cluster).filter(|(_, _, rail, leaf)| is_member(*rail, *leaf));
    let name = |(node, port, ..): (usize, usize, usize, usize)| {
        let plan = &world.exporters.nodes[node];
        (plan.name.clone(), plan.ports[port].device.clone())
    };
    ports.map(name).collect()
}

/// The pipeline stage of a node of a job, and how many nodes that stage has.
pub(super) fn stage_of(job: &JobPlan, node: usize) -> (usize, usize) {
    let per_stage = (job.nodes.len() / job.step.pipeline_stages.max(1)).max(1);
    let position = job.nodes.iter().position(|other| *other == node).unwrap_or(0);
    (position / per_stage, per_stage)
}
