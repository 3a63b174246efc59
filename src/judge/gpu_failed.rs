//! Failed GPUs: gone from the bus, or with an error that requires a reset or a replacement (RMA).

use std::collections::{BTreeSet, HashSet};

use gaunt_schema::{
    DeviceClass, Entity, EvidenceItem, FindingKind, SanitizedText, UnixMs, xid::describe_xid,
};

use super::{
    EvidenceRow, JudgeState, Whereabouts, evidence_coverage,
    finding_lifecycle::DetectorOutcome,
    pending_finding::{PendingFinding, format_count, format_time_of_day},
};
use gaunt_cluster::Cluster;

/// Adds every failed GPU.
pub(super) fn detect_failed_gpus(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    find_missing(judge, cluster, outcome);
    for (id, node) in cluster.sorted_nodes() {
        let gone = node
            .device_rows(DeviceClass::Gpu)
            .iter()
            .filter(|row| judge.health.of(**row).gone.is_some());
        // A driver reload removes all GPUs for a moment.
        let all = node.device_rows(DeviceClass::Gpu).len() > 1
            && gone.count() == node.device_rows(DeviceClass::Gpu).len();
        for row in node.device_rows(DeviceClass::Gpu) {
            let broken = judge.health.of(*row);
            let gone = broken.gone.filter(|_| !all);
            let times = [gone, broken.memory, broken.xid.map(|(_, at)| at)];
            let Some(since) = times.into_iter().flatten().min() else { continue };
            let Some(entry) = cluster.device_at(DeviceClass::Gpu, *row) else { continue };
            let empty = gaunt_schema::SanitizedText::default();
            let entity = Entity::new_gpu(&node.name, entry.device.key.first().unwrap_or(&empty));
            let kinds = times.iter().flatten().count();
            // Memory errors alone are a warning; a GPU that is gone or has an error that needs a reset is a fact.
            let fact = gone.is_some() || broken.xid.is_some();
            let failure = broken.xid.map(|(code, _)| describe_xid(code));
            let symptom = match (gone.is_some(), failure) {
                (true, Some(xid)) => format!("is missing: XID {}, {}", xid.code, xid.meaning),
                (true, None) => "is missing from the metrics of its node".to_owned(),
                (false, Some(xid)) => format!("failed: XID {}, {}", xid.code, xid.meaning),
                (false, None) => "has uncorrectable ECC errors".to_owned(),
            };
            let action =
                failure.map_or("drain the node and check the kernel log", |xid| xid.action);
            let mut next = action.to_owned();
            next[..1].make_ascii_uppercase();
            let group = judge.job_groups.of(*row);
            let is_used = group.is_some()
                || judge.gpus.get(*row as usize).is_some_and(|gpu| gpu.allocated == Some(true));
            let suspicion = PendingFinding::of(
                FindingKind::GpuFailed,
                entity.clone(),
                if fact && is_used { kinds.max(2) } else { 1 },
                true,
            )
            .with_cost(
                group.map_or(1.0, |group| group.lost_gpus().max(1.0)),
                group.map(|group| group.list_victims(cluster, Some(id))).unwrap_or_default(),
            )
            .with_summary(
                format!("{entity} {symptom}, since {}.", format_time_of_day(since)),
                format!("{next}."),
            )
            .with_evidence(failure_evidence(
                gone.is_some(),
                broken.xid.map(|(code, _)| f64::from(code)),
                broken.memory,
                cluster.now(),
            ));
            let confidence = suspicion.compute_confidence(&judge.limits);
            let mut finding = suspicion.finding;
            finding.confidence = confidence;
            finding.since = since;
            outcome.findings.push(finding);
        }
    }
}

/// Adds the GPUs that a node had before a restart and does not list since: no row exists for them now.
fn find_missing(judge: &JudgeState, cluster: &Cluster, outcome: &mut DetectorOutcome) {
    let nodes = Whereabouts::of(&judge.node_names, cluster);
    for (id, node) in cluster.sorted_nodes() {
        let rows = node.device_rows(DeviceClass::Gpu);
        let Some(before) = judge.restored_gpus.get(&node.name).filter(|it| it.len() > rows.len())
        else {
            continue;
        };
        // Without any GPU the driver is being reloaded, or the pages of another target have not arrived yet.
        if rows.is_empty()
            || evidence_coverage::is_silent(cluster, node, FindingKind::GpuFailed)
            || nodes.has_unread(&node.name)
        {
            continue;
        }
        let now: HashSet<&SanitizedText> = rows
            .iter()
            .filter_map(|row| cluster.device_at(DeviceClass::Gpu, *row)?.device.key.first())
            .collect();
        let missing: BTreeSet<&SanitizedText> =
            before.iter().filter(|key| !now.contains(key)).collect();
        if missing.len() != before.len() - rows.len() {
            continue; // The others are renamed: which one is missing is unknown.
        }
        for key in missing {
            let entity = Entity::new_gpu(&node.name, key);
            let group = rows.iter().find_map(|row| judge.job_groups.of(*row));
            let summary = format!(
                "{entity} is missing since the restart of gaunt: its node reports {} of {}.",
                rows.len(),
                format_count(before.len(), "GPU")
            );
            let next = "Drain the node and check the kernel log.".to_owned();
            let victims =
                group.map(|group| group.list_victims(cluster, Some(id))).unwrap_or_default();
            outcome.suspicions.push(
                PendingFinding::of(FindingKind::GpuFailed, entity, 1, true)
                    .with_hold_seconds(judge.limits.average_seconds)
                    .with_cost(1.0, victims)
                    .with_summary(summary, next)
                    .with_evidence(failure_evidence(true, None, None, cluster.now())),
            );
        }
    }
}

fn failure_evidence(
    gone: bool,
    xid: Option<f64>,
    memory: Option<UnixMs>,
    now: UnixMs,
) -> [EvidenceItem; 3] {
    [
        EvidenceRow::GpuPresent
            .to_evidence(gone.then_some(0.0), Some(1.0))
            .with_note("limit: expected value"),
        EvidenceRow::Xid.to_evidence(xid, None).with_note("NVIDIA driver error code"),
        EvidenceRow::EccErrorAge
            .to_evidence(memory.map(|at| now.duration_since(at).as_secs_f64()), None),
    ]
}
