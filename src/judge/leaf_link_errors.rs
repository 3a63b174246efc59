//! A leaf switch most of whose links have errors: one finding instead of one for each port below it.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{DeviceClass, Entity, EntityKind, Finding, FindingKind, SanitizedText};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    pending_finding::{MAX_VICTIMS, MOST_BELOW, PendingFinding, format_most_nodes},
    port_link::is_port_usable,
};

/// The least ports, of two nodes at least, that are reported as one switch: two may fail together by chance.
const LEAST_PORTS: usize = 3;

/// A port whose link has errors, and what is told of it alone.
pub(super) struct FaultyPort {
    pub(super) node: NodeId,
    pub(super) row: u32,
    pub(super) pending: PendingFinding,
}

/// Adds the findings of ports whose links have errors; those of a leaf most of whose ports do are one.
pub(super) fn add_ports_or_leaves(
    judge: &JudgeState,
    cluster: &Cluster,
    faulty: Vec<FaultyPort>,
    outcome: &mut DetectorOutcome,
) {
    let mut of_leaf: BTreeMap<&SanitizedText, Vec<FaultyPort>> = BTreeMap::new();
    for port in faulty {
        match cluster.topology().leaf_of_port(port.node, port.row) {
            Some(leaf) => of_leaf.entry(&leaf.value).or_default().push(port),
            None => outcome.suspicions.push(port.pending),
        }
    }
    of_leaf.retain(|_, ports| {
        let are_few = ports.len() < LEAST_PORTS;
        if are_few {
            outcome.suspicions.extend(ports.drain(..).map(|port| port.pending));
        }
        !are_few
    });
    let members = count_ports_below(cluster, &of_leaf);
    for (leaf, ports) in of_leaf {
        let nodes: BTreeSet<NodeId> = ports.iter().map(|port| port.node).collect();
        let members = members.get(leaf).copied().unwrap_or_default();
        if nodes.len() < 2 || ports.len() * 2 <= members {
            outcome.suspicions.extend(ports.into_iter().map(|port| port.pending));
            continue;
        }
        let entity = leaf_entity(leaf);
        let id = Finding::build_id(FindingKind::LinkErrors, &entity);
        let is_told = judge.tracker.open_one(&id).is_some();
        for port in &ports {
            let own = &port.pending.finding.id;
            if is_told {
                outcome.supersede_open(&judge.tracker, own, &format!("explained by {id}"));
            } else {
                outcome.undecidable.push(own.clone());
            }
        }
        outcome.suspicions.extend(leaf_finding(cluster, entity, ports, (&nodes, members)));
    }
}

/// Returns the id of the open finding that most links of the leaf of this port have errors.
pub(super) fn told_of_leaf(
    judge: &JudgeState,
    cluster: &Cluster,
    node: NodeId,
    row: u32,
) -> Option<String> {
    let leaf = cluster.topology().leaf_of_port(node, row)?;
    let id = Finding::build_id(FindingKind::LinkErrors, &leaf_entity(&leaf.value));
    judge.tracker.open_one(&id).map(|_| id)
}

fn leaf_entity(leaf: &SanitizedText) -> Entity {
    Entity { leaf: Some(leaf.clone()), ..Entity::new(EntityKind::Leaf) }
}

/// Returns the number of usable ports below each of these leaves.
fn count_ports_below<'a>(
    cluster: &'a Cluster,
    leaves: &BTreeMap<&'a SanitizedText, Vec<FaultyPort>>,
) -> BTreeMap<&'a SanitizedText, usize> {
    let mut members = BTreeMap::new();
    if leaves.is_empty() {
        return members;
    }
    for (id, node) in cluster.sorted_nodes() {
        for row in node.device_rows(DeviceClass::Port) {
            let leaf = cluster.topology().leaf_of_port(id, *row).map(|fact| &fact.value);
            if let Some(leaf) = leaf.filter(|leaf| leaves.contains_key(leaf))
                && is_port_usable(cluster, *row)
            {
                *members.entry(leaf).or_default() += 1;
            }
        }
    }
    members
}

/// Returns the finding about a leaf: that of the port whose job loses most, with the number of ports as further evidence.
fn leaf_finding(
    cluster: &Cluster,
    entity: Entity,
    mut ports: Vec<FaultyPort>,
    (nodes, members): (&BTreeSet<NodeId>, usize),
) -> Option<PendingFinding> {
    let leaf = entity.leaf.clone().unwrap_or_default();
    let names: Vec<String> =
        ports.iter().map(|port| port.pending.finding.entity.to_string()).collect();
    let mut victims: Vec<Entity> =
        ports.iter().flat_map(|port| port.pending.finding.victims.iter().cloned()).collect();
    victims.sort();
    victims.dedup();
    victims.truncate(MAX_VICTIMS);
    ports.sort_by(|a, b| b.pending.finding.lost_gpus.total_cmp(&a.pending.finding.lost_gpus));
    let count = names.len();
    let worst = ports.into_iter().next()?.pending;
    let lost = worst.finding.lost_gpus;
    let summary = format!(
        "{count} of {members} ports below {leaf} have link errors, those of {}. At one of them: {}",
        format_most_nodes(cluster, nodes, MOST_BELOW),
        worst.finding.summary,
    );
    let next = format!("Check the log of {leaf}, its transceivers and its temperature.");
    let mut found = worst
        .about(entity)
        .with_members(names)
        .with_cost(lost, victims)
        .with_summary(summary, next);
    found.add_confirmation(
        EvidenceRow::FaultyPorts
            .to_evidence(Some(count as f64), Some((members / 2 + 1) as f64))
            .with_note(format!("limit: more than half of {members}")),
    );
    Some(found)
}
