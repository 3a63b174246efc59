//! GPUs with inactive NVLinks, or whose NVLinks have errors or retransmit packets.

use gaunt_schema::{DeviceClass, Entity, FindingKind, SanitizedText};

use super::{
    EvidenceRow, JudgeState, finding_lifecycle::DetectorOutcome, job_group::JobGroup,
    pending_finding::PendingFinding,
};
use gaunt_cluster::Cluster;

/// Adds every GPU with degraded NVLinks.
pub(super) fn detect_degraded_nvlinks(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let limits = &judge.limits;
    for (id, node) in cluster.sorted_nodes() {
        for row in node.device_rows(DeviceClass::Gpu) {
            let Some(links) = judge.nvlinks.of(*row) else { continue };
            let errors = links.errors.value_at(cluster.now(), cluster.freshness_window());
            let errs = errors.is_some_and(|rate| rate >= limits.nvlink_errors_per_second);
            // GPUs of one machine have equally many; one that never had them all lacks some as well.
            let others = node
                .device_rows(DeviceClass::Gpu)
                .iter()
                .filter_map(|other| judge.nvlinks.of(*other));
            let most = others.map(|links| links.most).max().unwrap_or_default();
            let lost = links.up.is_some_and(|up| up < most && judge.health.of(*row).gone.is_none());
            if !errs && !lost {
                continue;
            }
            let Some(entry) = cluster.device_at(DeviceClass::Gpu, *row) else { continue };
            let entity = Entity::new_gpu(
                &node.name,
                entry.device.key.first().unwrap_or(&SanitizedText::default()),
            );
            let group = judge.job_groups.of(*row);
            let slowed = group.and_then(|group| group.confirmed_slowdown(limits.slowed_ratio));
            let kinds = [errs, lost, slowed.is_some()].into_iter().filter(|kind| *kind).count();
            let how = match links.up.filter(|_| lost) {
                Some(up) => format!("has {up} of {most} active NVLinks"),
                None => format!("has {:.1} NVLink errors per second", errors.unwrap_or_default()),
            };
            let suspicion = PendingFinding::of(FindingKind::NvlinkDegraded, entity.clone(), kinds, true)
                .with_hold_seconds(limits.nvlink_seconds)
                .with_cost(
                    group.map_or(0.0, JobGroup::lost_gpus),
                    group.map(|group| group.list_victims(cluster, Some(id))).unwrap_or_default(),
                )
                .with_summary(
                    format!("{entity} {how}."),
                    "Drain the node and reset its GPUs; if the errors persist (nvidia-smi nvlink -e), have the GPU and the NVSwitch inspected.".to_owned(),
                )
                .with_possible_evidence([
                    EvidenceRow::ActiveNvlinks.to_evidence(links.up.map(f64::from), Some(f64::from(most))).with_note("limit: most on the other GPUs of the node"),
                    EvidenceRow::NvlinkErrors.to_evidence(errors, Some(limits.nvlink_errors_per_second)),
                    EvidenceRow::JobSlowdown.to_evidence(slowed, Some(limits.slowed_ratio)),
                ]);
            outcome.suspicions.push(suspicion);
        }
    }
}
