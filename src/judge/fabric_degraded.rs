//! The NVLink fabric: GPUs whose part of it is unhealthy or does not become ready. One GPU that says so is blamed, most
//! GPUs of a node blame the node, and GPUs of several nodes their NVLink domain.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{DeviceClass, Entity, Finding, FindingKind, SanitizedText};

use super::{
    EvidenceRow, JudgeState,
    fabric_health::{FabricFault, FabricHealth},
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_count},
    slow_node::SHARED_GPUS,
};

/// The faulty GPUs of one class, by node.
type FaultyNodes = BTreeMap<NodeId, Vec<FabricHealth>>;

/// Adds the GPUs, nodes and NVLink domains with a degraded fabric.
pub(super) fn detect_degraded_fabric(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let topology = cluster.topology();
    let mut by_domain: BTreeMap<(FabricFault, Option<&SanitizedText>), FaultyNodes> =
        BTreeMap::new();
    for (id, node) in cluster.sorted_nodes() {
        for row in node.device_rows(DeviceClass::Gpu) {
            let Some(health) = FabricHealth::of(judge, cluster, *row) else { continue };
            let domain = topology.gpu_topology(*row).and_then(|gpu| gpu.domain.as_ref());
            let key = (health.fault, domain.map(|domain| &domain.value));
            by_domain.entry(key).or_default().entry(id).or_default().push(health);
        }
    }
    for ((_, domain), nodes) in by_domain {
        let gpus: usize = nodes.values().map(Vec::len).sum();
        match domain.filter(|_| nodes.len() > 1 && gpus >= SHARED_GPUS) {
            Some(domain) => {
                let gpus_of_domain = topology.nvlink_domains().get(domain);
                let all = gpus_of_domain.map_or(gpus, |members| members.gpus.len());
                let faulty: Vec<FabricHealth> = nodes.into_values().flatten().collect();
                supersede_members(judge, cluster, &faulty, outcome);
                let entity = Entity::new_nvlink_domain(domain);
                outcome.suspicions.push(shared_finding(judge, cluster, entity, &faulty, all));
            }
            None => {
                for (id, faulty) in nodes {
                    add_findings_of_node(judge, cluster, id, faulty, outcome);
                }
            }
        }
    }
}

/// Adds one finding about a node where most of its GPUs have a fault, and else one about each GPU.
fn add_findings_of_node(
    judge: &JudgeState,
    cluster: &Cluster,
    id: NodeId,
    faulty: Vec<FabricHealth>,
    outcome: &mut DetectorOutcome,
) {
    let Some(node) = cluster.node_by_id(id) else { return };
    let all = node.device_rows(DeviceClass::Gpu).len();
    if faulty.len() > 1 && (faulty.len() == all || faulty.len() >= SHARED_GPUS) {
        supersede_gpus(judge, cluster, &faulty, "explained by several GPUs of the node", outcome);
        let entity = Entity::new_node(&node.name);
        outcome.suspicions.push(shared_finding(judge, cluster, entity, &faulty, all));
        return;
    }
    for health in faulty {
        let Some(entity) = gpu_entity(cluster, health.row) else { continue };
        let summary = format!("The NVLink fabric of {entity} has {}.", health.words);
        let next = next_step(health.fault, &entity);
        outcome.suspicions.push(
            base_finding(judge, cluster, entity, std::slice::from_ref(&health))
                .with_summary(summary, next)
                .with_evidence(health.collect_evidence()),
        );
    }
}

/// Returns the finding about what faulty GPUs share; `all` is the number of its GPUs.
fn shared_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    entity: Entity,
    faulty: &[FabricHealth],
    all: usize,
) -> PendingFinding {
    let count = faulty.len();
    let summary = format!(
        "The NVLink fabric of {count} of {} of {entity} has {}.",
        format_count(all, "GPU"),
        most_frequent_words(faulty)
    );
    let fault = faulty.first().map_or(FabricFault::Unhealthy, |health| health.fault);
    let next = next_step(fault, &entity);
    base_finding(judge, cluster, entity, faulty)
        .with_summary(summary, next)
        .with_evidence([EvidenceRow::FabricGpus
            .to_evidence(Some(count as f64), None)
            .with_note(format!("of {all}"))])
        .with_evidence(faulty.first().map(FabricHealth::collect_evidence).into_iter().flatten())
}

/// Returns a finding with its hold time, cost and victims.
fn base_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    entity: Entity,
    faulty: &[FabricHealth],
) -> PendingFinding {
    let limits = &judge.limits;
    let groups = faulty.iter().filter_map(|health| judge.job_groups.of(health.row));
    let group = groups.max_by(|a, b| a.lost_gpus().total_cmp(&b.lost_gpus()));
    let slowed = group.and_then(|group| group.confirmed_slowdown(limits.slowed_ratio));
    let is_unhealthy = faulty.iter().any(|health| health.fault == FabricFault::Unhealthy);
    let node = entity.node.as_ref().and_then(|name| Some(cluster.node_by_name(name)?.0));
    // The job of one GPU may be slow for another reason; what several GPUs say together is the likelier cause.
    let kinds = 1 + usize::from(entity.gpu.is_none() && slowed.is_some());
    PendingFinding::of(FindingKind::FabricDegraded, entity, kinds, true)
        .with_hold_seconds(if is_unhealthy {
            limits.fabric_fault_seconds
        } else {
            limits.fabric_start_seconds
        })
        .with_cost(
            group.map_or(0.0, JobGroup::lost_gpus),
            group.map(|group| group.list_victims(cluster, node)).unwrap_or_default(),
        )
        .with_evidence([EvidenceRow::JobSlowdown.to_evidence(slowed, Some(limits.slowed_ratio))])
}

/// Returns the faults that most GPUs have.
fn most_frequent_words(faulty: &[FabricHealth]) -> &str {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for health in faulty {
        *counts.entry(&health.words).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map_or("", |(words, _)| words)
}

fn gpu_entity(cluster: &Cluster, row: u32) -> Option<Entity> {
    let entry = cluster.device_at(DeviceClass::Gpu, row)?;
    let node = cluster.node_by_id(entry.node)?;
    Some(Entity::new_gpu(&node.name, entry.device.key.first()?))
}

/// Gives up the open findings about GPUs and nodes of a domain that is blamed.
fn supersede_members(
    judge: &JudgeState,
    cluster: &Cluster,
    faulty: &[FabricHealth],
    outcome: &mut DetectorOutcome,
) {
    let reason = "explained by several nodes of the NVLink domain";
    supersede_gpus(judge, cluster, faulty, reason, outcome);
    let nodes = faulty.iter().filter_map(|health| gpu_entity(cluster, health.row)?.node);
    for node in nodes.collect::<BTreeSet<_>>() {
        let id = Finding::build_id(FindingKind::FabricDegraded, &Entity::new_node(&node));
        outcome.supersede_open(&judge.tracker, &id, reason);
    }
}

fn supersede_gpus(
    judge: &JudgeState,
    cluster: &Cluster,
    faulty: &[FabricHealth],
    reason: &str,
    outcome: &mut DetectorOutcome,
) {
    for entity in faulty.iter().filter_map(|health| gpu_entity(cluster, health.row)) {
        let id = Finding::build_id(FindingKind::FabricDegraded, &entity);
        outcome.supersede_open(&judge.tracker, &id, reason);
    }
}

fn next_step(fault: FabricFault, entity: &Entity) -> String {
    let is_domain = entity.domain.is_some();
    match fault {
        FabricFault::ImexNotReady => {
            "Check the IMEX daemons of all nodes of the job (nvidia-imex-ctl -N, systemctl status nvidia-imex): the node lists must be equal, and every node reachable."
        }
        FabricFault::Registering | FabricFault::Unhealthy if is_domain => {
            "Check the NVLink switches of the domain and the fabric manager that controls them (its log, the switches' cables and power)."
        }
        FabricFault::Registering => {
            "Check that the fabric manager runs and what it logs (systemctl status nvidia-fabricmanager; on a rack, its controller), then reset the GPUs."
        }
        FabricFault::Unhealthy => {
            "Drain the node and reset its GPUs; if the fault returns (nvidia-smi -q, section Fabric; fabric manager log), have the GPU, its NVLinks and the NVSwitch inspected."
        }
    }
    .to_owned()
}
