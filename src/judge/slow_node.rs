//! Slow nodes: GPUs of one node that are slow at the same time, or whose PCIe links are, share a cause, and are one finding.

use gaunt_cluster::Node;
use gaunt_schema::{DeviceClass, Entity, Finding, FindingKind};

use super::{
    EvidenceRow, JudgeState, finding_lifecycle::DetectorOutcome, pending_finding::PendingFinding,
};

/// From so many GPUs of one node on, and more than half of them, slow GPUs share a cause; or both of a node with two. An open
/// finding about the node stays with fewer.
pub(super) const SHARED_GPUS: usize = 3;
const STILL_SHARED_GPUS: usize = 2;

/// The kinds of GPUs that are slow themselves, of which one may follow another.
pub(super) const SLOW_KINDS: &[FindingKind] =
    &[FindingKind::Throttled, FindingKind::ComputeStraggler];

/// Adds the findings of these kinds about the GPUs of a node: one about the node where they are about most of its GPUs.
pub(super) fn add_gpus_or_node(
    judge: &JudgeState,
    node: &Node,
    kinds: &[FindingKind],
    found: Vec<PendingFinding>,
    outcome: &mut DetectorOutcome,
) {
    if found.is_empty() {
        return;
    }
    let gpus = node.device_rows(DeviceClass::Gpu).len();
    let entity = Entity::new_node(&node.name);
    let is_open =
        |kind: &FindingKind| judge.tracker.open_one(&Finding::build_id(*kind, &entity)).is_some();
    let is_known = kinds.iter().any(is_open);
    let is_shared = if is_known {
        found.len() >= STILL_SHARED_GPUS
    } else {
        found.len() >= SHARED_GPUS.min(gpus.max(STILL_SHARED_GPUS)) && found.len() * 2 > gpus
    };
    if !is_shared {
        outcome.suspicions.extend(found);
        return;
    }
    // Until the finding about the node is open, those about its GPUs stand: the GPUs of a job are not read at one moment.
    for slow in &found {
        if is_known {
            let reason = "explained by most GPUs of the node";
            outcome.supersede_open(&judge.tracker, &slow.finding.id, reason);
        } else {
            outcome.undecidable.push(slow.finding.id.clone());
        }
    }
    let slow = found.len();
    let worst = found.into_iter().max_by(|a, b| {
        let is_throttled = |slow: &PendingFinding| slow.finding.kind == FindingKind::Throttled;
        (is_throttled(a), a.finding.severity).cmp(&(is_throttled(b), b.finding.severity))
    });
    outcome.suspicions.extend(worst.map(|worst| of_node(worst, entity, slow, gpus)));
}

/// Returns the finding about a node from that about one of its GPUs.
fn of_node(worst: PendingFinding, entity: Entity, slow: usize, gpus: usize) -> PendingFinding {
    let how = worst.finding.summary.split_once(": ").map_or("", |(_, how)| how);
    let of = format!("{slow} of {gpus} GPUs of {entity}");
    let (summary, shared) = match worst.finding.kind {
        FindingKind::PcieDegraded => {
            let worst = &worst.finding.summary;
            (format!("{of} have degraded PCIe links at the same time. {worst}"), LINKS)
        }
        FindingKind::Throttled => (format!("{of} are throttled at the same time: {how}"), BOARD),
        _ => (format!("{of} are stragglers at the same time: {how}"), BOARD),
    };
    let next = format!("Check what the GPUs of {entity} share: {shared}.");
    let is_slow = SLOW_KINDS.contains(&worst.finding.kind);
    worst.about(entity).with_summary(summary, next).with_evidence(is_slow.then(|| {
        EvidenceRow::SlowGpus.to_evidence(Some(slow as f64), None).with_note(format!("of {gpus}"))
    }))
}

/// What the GPUs of a node have in common that makes them slow.
const BOARD: &str =
    "power supply and power brake, power cap, fans and inlet air, NVLink and NVSwitches";

/// What their PCIe links have in common.
const LINKS: &str = "PCIe switches and risers, BIOS settings and firmware";
