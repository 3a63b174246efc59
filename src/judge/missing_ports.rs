//! Ports that their node does not list any more, while it lists others: their adapter is gone from the bus.

use gaunt_cluster::{Cluster, DeviceEntry, Node};
use gaunt_schema::{DeviceClass, Entity, FindingKind, SanitizedText, UnixMs, catalogue::port};

use super::{
    EvidenceRow, JudgeState,
    compact_value::NodeTag,
    evidence_coverage::is_silent,
    finding_lifecycle::DetectorOutcome,
    pending_finding::{PendingFinding, format_count, format_time_of_day},
    port_link::is_port_active,
    port_trackers::PortTracker,
    sample_interval::SampleInterval,
};

/// Adds the ports that are missing.
pub(super) fn detect_missing_ports(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    for (id, node) in cluster.sorted_nodes() {
        let rows = node.device_rows(DeviceClass::Port);
        let is_gone = |row: &&u32| cluster.is_unseen(DeviceClass::Port, **row);
        if !rows.iter().any(|row| is_gone(&row)) || is_silent(cluster, node, FindingKind::PortDown)
        {
            continue;
        }
        let tag = NodeTag::of(&node.name);
        let known = |row: &u32| judge.ports.of(*row).filter(|port| port.node == tag);
        let (gone, listed): (Vec<u32>, Vec<u32>) =
            rows.iter().copied().partition(|row| is_gone(&row));
        let gone: Vec<(u32, &PortTracker)> = gone
            .into_iter()
            .filter_map(|row| Some((row, known(&row)?)))
            .filter(|(_, port)| port.was_active() && port.down_samples() == 0)
            .collect();
        let active = listed.iter().filter(|row| is_port_active(cluster, **row) == Some(true));
        let active = active.count();
        // Where most are gone, the node was set up anew, or its ports were given to containers.
        if gone.len() > active {
            continue;
        }
        let groups = judge.job_groups.groups_on(node.device_rows(DeviceClass::Gpu));
        let slower = groups
            .into_iter()
            .filter(|group| judge.gangs.is_likely_slower(group, &judge.limits))
            .max_by(|a, b| a.lost_gpus().total_cmp(&b.lost_gpus()));
        for (row, tracker) in gone {
            let Some(since) = cluster.last_value_at(port::STATE, row) else { continue };
            // Another name has come in its place.
            let is_renamed = listed.iter().filter_map(known).any(|it| it.appeared_after(since));
            let Some(entry) = cluster.device_at(DeviceClass::Port, row).filter(|_| !is_renamed)
            else {
                continue;
            };
            let mut found = missing_port(cluster, node, (entry, tracker), (active, since));
            if let Some(group) = slower.filter(|_| tracker.was_used()) {
                let least = Some(judge.limits.slowed_ratio);
                let slowdown = EvidenceRow::JobSlowdown.to_evidence(group.slowdown_ratio(), least);
                found.add_confirmation(slowdown.or_context());
                found = found
                    .with_slowed_jobs(std::iter::once(group.group_key()))
                    .with_cost(group.lost_gpus(), group.list_victims(cluster, Some(id)));
            }
            outcome.suspicions.push(found);
        }
    }
}

/// Returns the finding of a port that is gone, of a node with so many active ones.
fn missing_port(
    cluster: &Cluster,
    node: &Node,
    (entry, tracker): (&DeviceEntry, &PortTracker),
    (active, since): (usize, UnixMs),
) -> PendingFinding {
    let device = &entry.device;
    let empty = SanitizedText::default();
    let key = |at: usize| device.key.get(at).unwrap_or(&empty);
    let entity = Entity::new_port(&node.name, key(0), key(1));
    let summary = format!(
        "{device} on {} is missing since {}: the node lists {} and not this one.",
        node.name,
        format_time_of_day(since),
        format_count(active, "active port"),
    );
    let next = format!(
        "Look for the adapter of {device} in the kernel log and in lspci; if it is gone from the bus, drain the node and reseat or replace it."
    );
    // It pages if a job on the node is slower: containers may be given a port.
    PendingFinding::of(FindingKind::PortDown, entity, 1, true)
        .with_hold_seconds(SampleInterval::of_pages(cluster).seconds())
        .with_summary(summary, next)
        .with_evidence([
            EvidenceRow::ActiveSiblingPorts.to_evidence(Some(active as f64), None),
            EvidenceRow::FormerLineRate.to_evidence(tracker.rate_before(), None),
        ])
}
