//! Suppression: one fault, one finding. Findings that follow from another fault are not reported.

use std::collections::BTreeSet;

use gaunt_schema::{Entity, Finding, FindingKind, SanitizedText};

use super::{
    JudgeState,
    finding_lifecycle::DetectorOutcome,
    gpu_failed::works_in_spite_of_it,
    pending_finding::PendingFinding,
    standing_fault::{is_harmless_to, nodes_of_fault},
};

/// Removes findings that another finding explains.
pub(super) fn suppress_consequences(judge: &JudgeState, outcome: &mut DetectorOutcome) {
    let all = || {
        let pending = outcome.suspicions.iter().map(|pending| &pending.finding);
        outcome.findings.iter().chain(pending)
    };
    let facts: Vec<&Finding> = all()
        .filter(|finding| {
            is_root_cause(finding.kind) && !works_in_spite_of_it(finding.kind, finding.lost_gpus)
        })
        .collect();
    let of_nodes = |kinds: &[FindingKind]| -> BTreeSet<SanitizedText> {
        let facts = facts.iter().filter(|fact| kinds.contains(&fact.kind));
        facts.flat_map(|fact| nodes_of_fault(fact).cloned()).collect()
    };
    let failing_nodes = of_nodes(&HARDWARE);
    let entities_of = |kind: FindingKind| -> BTreeSet<Entity> {
        let facts = facts.iter().filter(|fact| fact.kind == kind);
        facts.map(|fact| fact.entity.clone()).collect()
    };
    let throttled = entities_of(FindingKind::Throttled);
    let failed = entities_of(FindingKind::GpuFailed);
    let links = entities_of(FindingKind::NvlinkDegraded);
    let stopped: BTreeSet<SanitizedText> =
        all().flat_map(|found| jobs_stopped_by(judge, found)).collect();
    let storage = || all().filter(|finding| finding.kind == FindingKind::StorageSlow);
    let (any_storage, waiting_nodes) = (storage().next().is_some(), victim_nodes(storage()));
    let cable_nodes = of_nodes(&CABLES);
    let blocked_nodes = of_nodes(&[FindingKind::HostBlocksNetwork]);
    // It has victims while they suffer from it.
    let full = || all().filter(|finding| finding.kind == FindingKind::FilesystemFull);
    let full = || full().filter(|finding| !finding.victims.is_empty());
    let full_nodes: BTreeSet<SanitizedText> =
        full().flat_map(|finding| nodes_of_fault(finding).cloned()).collect();
    let without_space: BTreeSet<Entity> =
        full().flat_map(|finding| finding.victims.iter().cloned()).collect();
    let hidden = |finding: &Finding| {
        let is_on = |nodes: &BTreeSet<SanitizedText>| {
            finding.entity.node.as_ref().is_some_and(|node| nodes.contains(node))
        };
        match finding.kind {
            // While its job waits for storage, a node whose GPUs wait for it waits for that storage.
            FindingKind::DataStarved | FindingKind::HostBound => {
                is_on(&failing_nodes) || is_on(&waiting_nodes) || is_on(&full_nodes)
            }
            // Packets queue up before a slow link.
            FindingKind::LeafCongested if finding.entity.node.is_some() => {
                is_on(&failing_nodes) || is_on(&cable_nodes) || is_on(&blocked_nodes)
            }
            FindingKind::ComputeStraggler => {
                throttled.contains(&finding.entity) || is_on(&blocked_nodes)
            }
            FindingKind::CrashLoop | FindingKind::IdleAllocated => {
                finding.entity.job.as_ref().is_some_and(|job| stopped.contains(job))
                    || finding.victims.iter().any(|victim| without_space.contains(victim))
            }
            FindingKind::PcieDegraded | FindingKind::NvlinkDegraded | FindingKind::Throttled => {
                failed.contains(&finding.entity)
            }
            // A GPU without some of its NVLinks has less bandwidth in the fabric.
            FindingKind::FabricDegraded => {
                failed.contains(&finding.entity) || links.contains(&finding.entity)
            }
            _ => false,
        }
    };
    outcome.findings.retain(|finding| !hidden(finding));
    outcome.suspicions.retain(|pending| !hidden(&pending.finding));
    if any_storage {
        delay_starvation(outcome);
    }
}

/// Returns the jobs that can have stopped because of a fault: they lost a GPU or a port.
pub(super) fn jobs_stopped_by(judge: &JudgeState, fault: &Finding) -> Vec<SanitizedText> {
    if !matches!(
        fault.kind,
        FindingKind::GpuFailed | FindingKind::PortDown | FindingKind::FilesystemFull
    ) {
        return Vec::new();
    }
    let goes_on = |job: &SanitizedText| {
        let group = judge.job_groups.by_key(job);
        group.is_some_and(|group| is_harmless_to(judge, fault, group))
    };
    let jobs = fault.victims.iter().filter_map(|victim| victim.job.clone());
    jobs.filter(|job| !goes_on(job)).collect()
}

/// Another job may wait for the same storage. But a checkpoint looks alike: then the node has waited all along, and the
/// finding is reported as soon as the checkpoint is over.
fn delay_starvation(outcome: &mut DetectorOutcome) {
    let starved = |pending: &&mut PendingFinding| pending.finding.kind == FindingKind::DataStarved;
    outcome.suspicions.iter_mut().filter(starved).for_each(|pending| pending.hold = f64::INFINITY);
}

/// Returns the nodes that these findings affect.
fn victim_nodes<'a>(findings: impl Iterator<Item = &'a Finding>) -> BTreeSet<SanitizedText> {
    findings
        .flat_map(|finding| finding.victims.iter().filter_map(|victim| victim.node.clone()))
        .collect()
}

/// Hardware faults of a node: lower activity of its GPUs follows from them.
const HARDWARE: [FindingKind; 6] = [
    FindingKind::GpuFailed,
    FindingKind::Throttled,
    FindingKind::PcieDegraded,
    FindingKind::NvlinkDegraded,
    FindingKind::FabricDegraded,
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
    use super::super::Thresholds;
    use super::*;

    #[test]
    fn storage_finding_hides_starved_nodes_of_its_job_and_delays_others() {
        let on_node = |node: &str| Entity::new_node(&SanitizedText::new(node));
        let starved = |node: &str| {
            PendingFinding::of(FindingKind::DataStarved, on_node(node), 2, true)
                .with_hold_seconds(18.0)
        };
        let storage = Entity::new(gaunt_schema::EntityKind::Storage);
        let storage = PendingFinding::of(FindingKind::StorageSlow, storage, 2, true);
        let storage = storage.with_cost(1.0, vec![on_node("a"), on_node("b")]);
        let mut outcome = DetectorOutcome {
            suspicions: vec![storage, starved("a"), starved("c")],
            ..DetectorOutcome::default()
        };
        suppress_consequences(&JudgeState::new(Thresholds::default()), &mut outcome);
        let left: Vec<_> =
            outcome.suspicions.iter().map(|pending| (pending.finding.kind, pending.hold)).collect();
        let wanted = [(FindingKind::StorageSlow, 0.0), (FindingKind::DataStarved, f64::INFINITY)];
        assert_eq!(left, wanted);
    }
}
