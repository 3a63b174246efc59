//! Checkpoint pauses: jobs that do nothing for a while and are not starved. They write a checkpoint, or end.

use std::collections::BTreeMap;

use gaunt_schema::{
    DeviceClass, Entity, EntityKind, FindingKind, GpuState, UnixMs, catalogue::gpu,
};

use super::{
    DetectedFinding, Judge, Thresholds, finding_lifecycle::DetectorOutcome, job_group::JobGroup,
    pending_finding::finding_id,
};
use gaunt_cluster::{Cluster, Node, NodeId};

/// Refutes starvation of a job that stops sending: it pauses as a whole, which began with the low activity before.
pub(super) fn refute_starvation(
    judge: &Judge,
    cluster: &Cluster,
    group: &JobGroup,
    outcome: &mut DetectorOutcome,
) {
    let pauses = |id: &&NodeId| {
        let pauses = judge.hosts.get(id).and_then(|host| host.is_pausing(cluster, &judge.limits));
        pauses == Some(true)
    };
    let pausing = group.nodes.iter().filter(pauses).filter_map(|id| cluster.node_by_id(*id));
    let pausing: Vec<&Node> = pausing.collect();
    if pausing.len() * 2 <= group.nodes.len() {
        return;
    }
    let starved =
        |node: &&Node| finding_id(FindingKind::DataStarved, &Entity::new_node(&node.name));
    outcome.refuted.extend(pausing.iter().map(starved));
    outcome.refuted.push(finding_id(FindingKind::StorageSlow, &Entity::new(EntityKind::Storage)));
}

/// Whether a GPU stood still a moment ago and is active again: any activity excludes a pause. Where pages come rarely,
/// only counters between them show it.
pub(super) fn works_intermittently(judge: &Judge, cluster: &Cluster, row: u32) -> bool {
    let limits = &judge.limits;
    let Some(averages) = judge.gpus.get(row as usize).map(|gpu| &gpu.averages) else {
        return false;
    };
    if judge.has_slow_period(cluster) {
        let counted = cluster.current_rate(gpu::UTILIZATION_SECONDS, row).is_some();
        return counted
            && averages.utilization_now().is_some_and(|share| share >= limits.active_ratio);
    }
    averages.since_active_again(cluster.now()).is_some_and(|it| it < limits.active_again_seconds)
}

/// Jobs that pause now, or did a moment ago.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    of: BTreeMap<String, Pause>,
}

/// One pause: its first and its last instant.
#[derive(Clone, Copy, Debug)]
struct Pause {
    began: UnixMs,
    seen: UnixMs,
}

impl Pauses {
    /// Updates every job: it pauses if most of its nodes have sent next to nothing of their baseline for a while or,
    /// where traffic is not reported, if its GPUs stand still and are not starved.
    pub(super) fn look(judge: &mut Judge, cluster: &Cluster) {
        let (now, limits) = (cluster.now(), &judge.limits);
        let mut of = std::mem::take(&mut judge.pauses.of);
        of.retain(|_, pause| {
            now.duration_since(pause.seen).as_secs_f64() < settles(judge, cluster)
        });
        for group in judge.job_groups.all_groups() {
            let silent = group.nodes.iter().filter_map(|id| judge.hosts.get(id));
            let silent: Vec<bool> =
                silent.filter_map(|host| host.is_silent(cluster, limits)).collect();
            let pauses = if silent.len() * 2 > group.nodes.len() {
                silent.iter().filter(|silent| **silent).count() * 2 > group.nodes.len()
            } else {
                let starves = |row: &u32| judge.gpu_state(*row) == GpuState::DataStarved;
                !group.is_progressing() && !group.gpus.iter().any(starves)
            };
            if !pauses {
                continue;
            }
            let pause = of.entry(group.group_key()).or_insert(Pause { began: now, seen: now });
            let gap = now.duration_since(pause.seen).as_secs_f64();
            if gap > limits.pause_seconds + 2.0 * cluster.scrape_period().as_secs_f64() {
                pause.began = now;
            }
            pause.seen = now;
        }
        judge.pauses.of = of;
    }

    /// Whether a job pauses or did so a moment ago, so that averages of its work are not valid. A long pause is
    /// reported as idle or hung instead, and an earlier slowdown is over.
    fn has(&self, group: &JobGroup, now: UnixMs, limits: &Thresholds) -> bool {
        let pause = (!self.of.is_empty()).then(|| self.of.get(&group.group_key())).flatten();
        pause.is_some_and(|pause| {
            now.duration_since(pause.began).as_secs_f64() < limits.idle_seconds
        })
    }
}

/// Returns the seconds after a pause until averages show the job's pace again.
fn settles(judge: &Judge, cluster: &Cluster) -> f64 {
    judge.limits.pause_settle_seconds + judge.two_sample_seconds_of_all(cluster)
}

/// Whether an open finding depends on the work of a job that pauses.
pub(super) fn is_unclear(judge: &Judge, cluster: &Cluster, finding: &DetectedFinding) -> bool {
    if !rests_on_work(finding.kind) {
        return false;
    }
    let (entity, now) = (&finding.entity, cluster.now());
    let pauses = |group: &JobGroup| judge.pauses.has(group, now, &judge.limits);
    let on_node = |entity: &Entity| {
        let (_, node) = cluster.node_by_name(entity.node.as_ref()?)?;
        let rows = node.device_rows(DeviceClass::Gpu).iter().filter(|row| {
            let key = cluster
                .device_at(DeviceClass::Gpu, **row)
                .and_then(|entry| entry.device.key.first());
            entity.gpu.is_none() || key == entity.gpu.as_ref()
        });
        Some(rows.filter_map(|row| judge.job_groups.of(*row)).any(pauses))
    };
    let of_job = |entity: &Entity| {
        let job = entity.job.as_ref()?;
        let group =
            judge.job_groups.all_groups().iter().find(|group| group.job.as_ref() == Some(job))?;
        Some(pauses(group))
    };
    // An entity larger than a node is observed through its victims.
    of_job(entity).or_else(|| on_node(entity)).unwrap_or_else(|| {
        finding
            .victims
            .iter()
            .any(|victim| of_job(victim).or_else(|| on_node(victim)) == Some(true))
    })
}

/// Whether the evidence of a kind of finding exists only while a job works.
fn rests_on_work(kind: FindingKind) -> bool {
    use FindingKind::{
        ComputeStraggler, DataSkew, DataStarved, HostBlocksNetwork, HostBound, LeafCongested,
        LinkErrors, NvlinkDegraded, PcieDegraded, RailSlow, StageImbalance, StorageSlow, Throttled,
    };
    matches!(
        kind,
        ComputeStraggler
            | DataSkew
            | DataStarved
            | HostBlocksNetwork
            | HostBound
            | LeafCongested
            | LinkErrors
            | NvlinkDegraded
            | PcieDegraded
            | RailSlow
            | StageImbalance
            | StorageSlow
            | Throttled
    )
}
