//! PCIe links of GPUs that are narrower or slower than they should be, or that send packets again.

use gaunt_schema::{
    DeviceClass, Entity, FindingKind, SanitizedText, catalogue::gpu_health as health, unit::Unit,
};

use super::{
    FindingEvidence, Judge, finding_lifecycle::DetectorOutcome, job_group::JobGroup,
    pending_finding::PendingFinding,
};
use crate::cluster::{Cluster, Node, NodeId};

/// Adds every GPU whose PCIe link is not what it should be.
pub(super) fn detect_degraded_pcie(judge: &Judge, cluster: &Cluster, seen: &mut DetectorOutcome) {
    for (id, node) in cluster.sorted_nodes() {
        let rows = node.device_rows(DeviceClass::Gpu).iter();
        seen.suspicions
            .extend(rows.filter_map(|row| degraded_link(judge, cluster, (id, node), *row)));
    }
}

/// The finding of a GPU whose link is narrower or slower than it should be, or that sends packets again.
fn degraded_link(
    judge: &Judge,
    cluster: &Cluster,
    (id, node): (NodeId, &Node),
    row: u32,
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    let (now, gap) = (cluster.now(), cluster.freshness_window());
    let Some(own) = judge.gpus.get(row as usize) else { return None };
    let value = |metric| cluster.current_value(metric, row).filter(|value| *value > 0.0);
    // A link that has nothing to do is slowed down to save power, but never made narrower.
    // The average may still be of the work that has just ended.
    let works = |share: f64| share >= limits.utilization_launch_ratio;
    let busy = own.averages.utilization_at(now, gap).is_some_and(works)
        && own.averages.utilization_now().is_some_and(works);
    let (width, lanes) = (value(health::PCIE_WIDTH), value(health::PCIE_WIDTH_MAX));
    let (generation, best) = (value(health::PCIE_GENERATION), value(health::PCIE_GENERATION_MAX));
    let narrow = width.zip(lanes).is_some_and(|(now, most)| now < most);
    let slow = busy && generation.zip(best).is_some_and(|(now, most)| now < most);
    let replays = own.averages.pcie_replays(now, gap);
    let resent = replays.is_some_and(|rate| rate >= limits.pcie_replays_per_second);
    if !narrow && !slow && !resent {
        return None;
    }
    let Some(entry) = cluster.device_at(DeviceClass::Gpu, row) else { return None };
    let entity =
        Entity::new_gpu(&node.name, entry.device.key.first().unwrap_or(&SanitizedText::default()));
    let gang = judge.job_groups.of(row);
    let slowed =
        gang.and_then(JobGroup::slowdown_ratio).filter(|slowed| *slowed >= limits.slowed_ratio);
    // A link that was trained down is a fact of its own; the job that it slows is another.
    let kinds = [narrow || slow, resent, slowed.is_some()].into_iter().filter(|kind| *kind).count();
    let how = match (narrow, slow) {
        (true, _) => {
            format!("runs on {} of {} lanes", value_or_zero(width), value_or_zero(lanes))
        }
        (_, true) => {
            format!("runs at generation {} of {}", value_or_zero(generation), value_or_zero(best))
        }
        _ => format!("sends {:.1} packets a second again", value_or_zero(replays)),
    };
    // What is told now and then may be of two instants: only lanes stay as they are, and packets are counted.
    let hold = match (narrow, resent) {
        (true, _) => limits.pcie_seconds,
        (_, true) => limits.pcie_replay_seconds.max(judge.two_sample_seconds(cluster)),
        _ => limits.pcie_replay_seconds.max(judge.two_collection_seconds(cluster)),
    };
    Some(
        PendingFinding::of(FindingKind::PcieDegraded, entity.clone(), kinds, true)
            .with_hold_seconds(hold)
            .with_cost(
                gang.map_or(0.0, JobGroup::lost_gpus),
                gang.map(|gang| gang.list_victims(cluster, Some(id))).unwrap_or_default(),
            )
            .with_summary(
                format!("The PCIe link of {entity} {how}."),
                "Drain the node, reset the GPU, and reseat or exchange it if the link stays so."
                    .to_owned(),
            )
            .with_evidence(link_evidence(
                [width, lanes],
                [generation, best],
                replays,
                slowed,
                limits,
            )),
    )
}

fn link_evidence(
    [width, lanes]: [Option<f64>; 2],
    [generation, best]: [Option<f64>; 2],
    replays: Option<f64>,
    slowed: Option<f64>,
    limits: &super::Thresholds,
) -> [FindingEvidence; 4] {
    [
        FindingEvidence::new("PCIe lanes", width, Unit::Count, lanes)
            .with_note("the limit is what it should be"),
        FindingEvidence::new("PCIe generation", generation, Unit::Count, best)
            .with_note("the limit is what it should be under load"),
        FindingEvidence::new(
            "packets sent again in a second",
            replays,
            Unit::Count,
            Some(limits.pcie_replays_per_second),
        ),
        FindingEvidence::new(
            "speed that its job has lost",
            slowed,
            Unit::Ratio,
            Some(limits.slowed_ratio),
        ),
    ]
}

/// A number that is known where it is said.
fn value_or_zero(number: Option<f64>) -> f64 {
    number.unwrap_or_default()
}
