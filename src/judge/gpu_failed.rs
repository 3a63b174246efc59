//! Failed GPUs: gone from the bus, or with an error that requires a reset or a replacement (RMA).

use std::collections::{BTreeSet, HashSet};

use gaunt_schema::{
    DeviceClass, Entity, FindingKind, SanitizedText, UnixMs, unit::Unit, xid::describe_xid,
};

use super::{
    FindingEvidence, Judge, Whereabouts, evidence_coverage,
    finding_lifecycle::DetectorOutcome,
    pending_finding::{PendingFinding, format_count, format_time_of_day},
};
use gaunt_cluster::Cluster;

/// Adds every failed GPU.
pub(super) fn detect_failed_gpus(judge: &Judge, cluster: &Cluster, seen: &mut DetectorOutcome) {
    find_missing(judge, cluster, seen);
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
            let what = match (gone.is_some(), failure) {
                (true, Some(xid)) => format!("is gone: XID {}, {}", xid.code, xid.meaning),
                (true, None) => "is gone: its node answers without it".to_owned(),
                (false, Some(xid)) => format!("failed: XID {}, {}", xid.code, xid.meaning),
                (false, None) => "has memory errors that could not be corrected".to_owned(),
            };
            let action =
                failure.map_or("drain the node and look at the kernel log", |xid| xid.action);
            let mut next = action.to_owned();
            next[..1].make_ascii_uppercase();
            let gang = judge.job_groups.of(*row);
            let held = gang.is_some()
                || judge.gpus.get(*row as usize).is_some_and(|gpu| gpu.allocated == Some(true));
            let suspicion = PendingFinding::of(
                FindingKind::GpuFailed,
                entity.clone(),
                if fact && held { kinds.max(2) } else { 1 },
                true,
            )
            .with_cost(
                gang.map_or(1.0, |gang| gang.lost_gpus().max(1.0)),
                gang.map(|gang| gang.list_victims(cluster, Some(id))).unwrap_or_default(),
            )
            .with_summary(
                format!("{entity} {what}, since {}.", format_time_of_day(since)),
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
            seen.findings.push(finding);
        }
    }
}

/// Adds the GPUs that a node had before a restart and does not list since: no row exists for them now.
fn find_missing(judge: &Judge, cluster: &Cluster, seen: &mut DetectorOutcome) {
    let nodes = Whereabouts::of(judge, cluster);
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
            let gang = rows.iter().find_map(|row| judge.job_groups.of(*row));
            let says = format!(
                "{entity} is gone since the restart: its node answers without it, with {} of {}.",
                rows.len(),
                format_count(before.len(), "GPU")
            );
            let next = "Drain the node and look at the kernel log.".to_owned();
            let victims = gang.map(|gang| gang.list_victims(cluster, Some(id))).unwrap_or_default();
            seen.suspicions.push(
                PendingFinding::of(FindingKind::GpuFailed, entity, 1, true)
                    .with_hold_seconds(judge.limits.average_seconds)
                    .with_cost(1.0, victims)
                    .with_summary(says, next)
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
) -> [FindingEvidence; 3] {
    [
        FindingEvidence::new("board answers", gone.then_some(0.0), Unit::Count, Some(1.0))
            .with_note("the limit is what it should be"),
        FindingEvidence::new("XID", xid, Unit::Count, None)
            .with_note("the driver's error by its number"),
        FindingEvidence::new(
            "seconds since an uncorrectable memory error",
            memory.map(|at| now.duration_since(at).as_secs_f64()),
            Unit::Seconds,
            None,
        ),
    ]
}
