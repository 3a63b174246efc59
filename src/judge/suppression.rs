//! Suppression: one fault, one finding. Findings that follow from another fault are not reported.

use std::collections::BTreeSet;

use gaunt_schema::{Entity, Finding, FindingKind, SanitizedText};

use super::{finding_lifecycle::DetectorOutcome, pending_finding::PendingFinding};

/// Removes findings that another finding explains.
pub(super) fn suppress_consequences(outcome: &mut DetectorOutcome) {
    let all = || {
        let held = outcome.suspicions.iter().map(|held| &held.finding);
        outcome.findings.iter().chain(held)
    };
    let facts: Vec<(FindingKind, Entity, Vec<SanitizedText>)> = all()
        .filter(|finding| is_root_cause(finding.kind))
        .map(|finding| {
            let jobs = finding.victims.iter().filter_map(|victim| victim.job.clone());
            (finding.kind, finding.entity.clone(), jobs.collect())
        })
        .collect();
    let of_nodes = |kinds: &[FindingKind]| -> BTreeSet<SanitizedText> {
        let facts = facts.iter().filter(|(kind, ..)| kinds.contains(kind));
        facts.filter_map(|(_, entity, _)| entity.node.clone()).collect()
    };
    let sick = of_nodes(&HARDWARE);
    let hot = facts
        .iter()
        .filter(|(kind, ..)| *kind == FindingKind::Throttled)
        .map(|(_, entity, _)| entity.clone());
    let hot: BTreeSet<Entity> = hot.collect();
    let failed: BTreeSet<Entity> = facts
        .iter()
        .filter(|(kind, ..)| *kind == FindingKind::GpuFailed)
        .map(|(_, entity, _)| entity.clone())
        .collect();
    let stopped: BTreeSet<SanitizedText> = facts
        .iter()
        .filter(|(kind, ..)| matches!(kind, FindingKind::GpuFailed | FindingKind::PortDown))
        .flat_map(|(.., jobs)| jobs.clone())
        .collect();
    let storage = || all().filter(|finding| finding.kind == FindingKind::StorageSlow);
    let (any_storage, waiting) = (storage().next().is_some(), victim_nodes(storage()));
    let cabled = of_nodes(&CABLES);
    let blocked = of_nodes(&[FindingKind::HostBlocksNetwork]);
    let hidden = |finding: &Finding| {
        let on = |nodes: &BTreeSet<SanitizedText>| {
            finding.entity.node.as_ref().is_some_and(|node| nodes.contains(node))
        };
        match finding.kind {
            // While its job waits for storage, a node that waits for input waits for that storage.
            FindingKind::DataStarved => on(&sick) || on(&waiting),
            FindingKind::HostBound => on(&sick),
            // Packets queue up before a slow link.
            FindingKind::LeafCongested if finding.entity.node.is_some() => {
                on(&sick) || on(&cabled) || on(&blocked)
            }
            FindingKind::ComputeStraggler => hot.contains(&finding.entity) || on(&blocked),
            FindingKind::CollectiveHang | FindingKind::IdleAllocated => {
                finding.entity.job.as_ref().is_some_and(|job| stopped.contains(job))
            }
            FindingKind::PcieDegraded | FindingKind::NvlinkDegraded | FindingKind::Throttled => {
                failed.contains(&finding.entity)
            }
            _ => false,
        }
    };
    outcome.findings.retain(|finding| !hidden(finding));
    outcome.suspicions.retain(|held| !hidden(&held.finding));
    if any_storage {
        delay_starvation(outcome);
    }
}

/// Another job may wait for the same storage. But a checkpoint looks alike: then the node has waited all along, and the
/// finding is reported as soon as the checkpoint is over.
fn delay_starvation(outcome: &mut DetectorOutcome) {
    let starved = |held: &&mut PendingFinding| held.finding.kind == FindingKind::DataStarved;
    outcome.suspicions.iter_mut().filter(starved).for_each(|held| held.hold = f64::INFINITY);
}

/// Returns the nodes that these findings affect.
fn victim_nodes<'a>(findings: impl Iterator<Item = &'a Finding>) -> BTreeSet<SanitizedText> {
    findings
        .flat_map(|finding| finding.victims.iter().filter_map(|victim| victim.node.clone()))
        .collect()
}

/// Hardware faults of a node: lower activity of its GPUs follows from them.
const HARDWARE: [FindingKind; 5] = [
    FindingKind::GpuFailed,
    FindingKind::Throttled,
    FindingKind::PcieDegraded,
    FindingKind::NvlinkDegraded,
    FindingKind::ComputeStraggler,
];

/// Faults of a node's cables.
const CABLES: [FindingKind; 3] =
    [FindingKind::PortDown, FindingKind::PortRateLow, FindingKind::LinkErrors];

fn is_root_cause(kind: FindingKind) -> bool {
    HARDWARE.contains(&kind) || CABLES.contains(&kind) || kind == FindingKind::HostBlocksNetwork
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_that_one_job_waits_for_hides_its_nodes_and_only_delays_those_of_others() {
        let on = |node: &str| Entity::new_node(&SanitizedText::new(node));
        let starved = |node: &str| {
            PendingFinding::of(FindingKind::DataStarved, on(node), 2, true).with_hold_seconds(18.0)
        };
        let storage = Entity::new(gaunt_schema::EntityKind::Storage);
        let storage = PendingFinding::of(FindingKind::StorageSlow, storage, 2, true);
        let storage = storage.with_cost(1.0, vec![on("a"), on("b")]);
        let mut outcome = DetectorOutcome {
            suspicions: vec![storage, starved("a"), starved("c")],
            ..DetectorOutcome::default()
        };
        suppress_consequences(&mut outcome);
        let left: Vec<_> =
            outcome.suspicions.iter().map(|held| (held.finding.kind, held.hold)).collect();
        let wanted = [(FindingKind::StorageSlow, 0.0), (FindingKind::DataStarved, f64::INFINITY)];
        assert_eq!(left, wanted);
    }
}
