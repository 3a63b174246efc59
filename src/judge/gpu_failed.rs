//! GPUs that failed: gone from the bus, or with an error that only a reset or an exchange mends.

use std::collections::{BTreeSet, HashSet};

use gaunt_schema::{Class, Entity, FindingKind, Safe, UnixMs, unit::Unit, xid::xid};

use super::{
    Evidence, Judge, Whereabouts,
    finding::{Suspicion, count, time_of_day},
    life::Seen,
    resumed,
};
use crate::cluster::Cluster;

/// Adds every GPU that failed.
pub(super) fn find(judge: &Judge, cluster: &Cluster, seen: &mut Seen) {
    find_missing(judge, cluster, seen);
    for (id, node) in cluster.nodes() {
        let gone = node.rows(Class::Gpu).iter().filter(|row| judge.health.of(**row).gone.is_some());
        // A driver that is loaded anew takes all boards away for a moment.
        let all = node.rows(Class::Gpu).len() > 1 && gone.count() == node.rows(Class::Gpu).len();
        for row in node.rows(Class::Gpu) {
            let broken = judge.health.of(*row);
            let gone = broken.gone.filter(|_| !all);
            let times = [gone, broken.memory, broken.xid.map(|(_, at)| at)];
            let Some(since) = times.into_iter().flatten().min() else { continue };
            let Some(entry) = cluster.device(Class::Gpu, *row) else { continue };
            let empty = gaunt_schema::Safe::default();
            let entity = Entity::gpu(&node.name, entry.device.key.first().unwrap_or(&empty));
            let kinds = times.iter().flatten().count();
            // Memory errors alone are worth a look; that a board is gone or has an error that needs a reset is a fact.
            let fact = gone.is_some() || broken.xid.is_some();
            let failure = broken.xid.map(|(code, _)| xid(code));
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
            let gang = judge.gangs.of(*row);
            let held = gang.is_some()
                || judge.gpus.get(*row as usize).is_some_and(|gpu| gpu.allocated == Some(true));
            let suspicion = Suspicion::of(
                FindingKind::GpuFailed,
                entity.clone(),
                if fact && held { kinds.max(2) } else { 1 },
                true,
            )
            .costs(
                gang.map_or(1.0, |gang| gang.lost_gpus().max(1.0)),
                gang.map(|gang| gang.victims(cluster, Some(id))).unwrap_or_default(),
            )
            .says(format!("{entity} {what}, since {}.", time_of_day(since)), format!("{next}."))
            .on(evidence(
                gone.is_some(),
                broken.xid.map(|(code, _)| f64::from(code)),
                broken.memory,
                cluster.now(),
            ));
            let confidence = suspicion.confidence(&judge.limits);
            let mut finding = suspicion.finding;
            finding.confidence = confidence;
            finding.since = since;
            seen.findings.push(finding);
        }
    }
}

/// Adds the GPUs that a node had before a restart and does not list since: nothing has a place for them now.
fn find_missing(judge: &Judge, cluster: &Cluster, seen: &mut Seen) {
    let nodes = Whereabouts::of(judge, cluster);
    for (id, node) in cluster.nodes() {
        let rows = node.rows(Class::Gpu);
        let Some(before) = judge.boards.get(&node.name).filter(|it| it.len() > rows.len()) else {
            continue;
        };
        // Without any a driver is loaded anew, and what another target brings is not there yet.
        if rows.is_empty()
            || resumed::is_silent(cluster, node, FindingKind::GpuFailed)
            || nodes.has_unread(&node.name)
        {
            continue;
        }
        let now: HashSet<&Safe> = rows
            .iter()
            .filter_map(|row| cluster.device(Class::Gpu, *row)?.device.key.first())
            .collect();
        let missing: BTreeSet<&Safe> = before.iter().filter(|key| !now.contains(key)).collect();
        if missing.len() != before.len() - rows.len() {
            continue; // Others have other names now: which one is missing is not known.
        }
        for key in missing {
            let entity = Entity::gpu(&node.name, key);
            let gang = rows.iter().find_map(|row| judge.gangs.of(*row));
            let says = format!(
                "{entity} is gone since the restart: its node answers without it, with {} of {}.",
                rows.len(),
                count(before.len(), "GPU")
            );
            let next = "Drain the node and look at the kernel log.".to_owned();
            let victims = gang.map(|gang| gang.victims(cluster, Some(id))).unwrap_or_default();
            seen.suspicions.push(
                Suspicion::of(FindingKind::GpuFailed, entity, 1, true)
                    .hold(judge.limits.average_seconds)
                    .costs(1.0, victims)
                    .says(says, next)
                    .on(evidence(true, None, None, cluster.now())),
            );
        }
    }
}

fn evidence(gone: bool, xid: Option<f64>, memory: Option<UnixMs>, now: UnixMs) -> [Evidence; 3] {
    [
        Evidence::new("board answers", gone.then_some(0.0), Unit::Count, Some(1.0))
            .note("the limit is what it should be"),
        Evidence::new("XID", xid, Unit::Count, None).note("the driver's error by its number"),
        Evidence::new(
            "seconds since an uncorrectable memory error",
            memory.map(|at| now.since(at).as_secs_f64()),
            Unit::Seconds,
            None,
        ),
    ]
}
