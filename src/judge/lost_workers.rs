//! Lost workers: GPUs that a job holds and on which its process has ended, or does nothing any more, while those beside them
//! work on. A replica or a rank has crashed or hangs, and nothing has started it again.

use std::collections::BTreeSet;

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{DeviceClass, Finding, FindingKind, GpuState};

use super::{
    EvidenceRow, JudgeState, gpu_signals,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_count, format_nodes},
    ranks_on_node::rows_in_group,
    robust_stats::median,
};

/// The share of its usual activity from which a worker goes on as ever: those that wait for another one compute less.
const GOES_ON: f64 = 0.9;

/// The same of a service, whose load varies; and how many times as long a worker of it must do nothing: it has no requests
/// now and then.
const SERVES_ON: f64 = 0.5;
const LULL_TIMES: f64 = 4.0;

/// The GPUs of a job without a worker, and the nodes that they are on.
#[derive(Default)]
struct LostWorkers {
    nodes: BTreeSet<NodeId>,
    count: usize,
}

/// Returns a finding about the GPUs of a job whose workers are lost.
pub(super) fn detect_lost_workers(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
) -> Option<PendingFinding> {
    let job = group.job.as_ref()?;
    let limits = &judge.limits;
    let two_samples = group.interval.two_sample_seconds(limits);
    let ended = workers_that_ended(judge, cluster, group);
    if ended.count > 0 {
        let (verb, them) = if ended.count == 1 { ("has", "it") } else { ("have", "them") };
        let summary = format!(
            "{} of job {job} on {} {verb} no process any more, and the job still holds {them}.",
            format_count(ended.count, "GPU"),
            format_nodes(cluster, &ended.nodes),
        );
        let next = "Check the log of the worker that ended, and start it again or end the job.";
        let hold = limits.pause_settle_seconds.max(two_samples);
        return Some(ended.finding(cluster, group, summary, next).with_hold_seconds(hold));
    }
    let absent = nodes_without_workers(judge, cluster, group);
    if absent.count > 0 {
        let is_one = absent.nodes.len() == 1;
        let (is, them, whose) = if is_one { ("is", "it", "its") } else { ("are", "them", "their") };
        let summary = format!(
            "{} {is} given to job {job}, which works without {them}: no process uses {whose} {}.",
            format_nodes(cluster, &absent.nodes),
            format_count(absent.count, "GPU"),
        );
        let next = "Check whether its worker ever started there; start it again, or give back what the job does not use.";
        return Some(absent.finding(cluster, group, summary, next).with_hold_seconds(two_samples));
    }
    let still = workers_that_stand_still(judge, cluster, group)?;
    let verb = if still.count == 1 { "does" } else { "do" };
    let summary = format!(
        "{} of job {job} on {} {verb} nothing any more, though its processes hold the memory; its other GPUs work on as before.",
        format_count(still.count, "GPU"),
        format_nodes(cluster, &still.nodes),
    );
    let next = "Check the log of the worker that does nothing, and whether requests or work still reach it; start it again.";
    let is_steady = judge.gangs.of(group).is_steady(group);
    let times = if is_steady { 1.0 } else { LULL_TIMES };
    let hold = limits.pause_settle_seconds * times + two_samples;
    Some(still.finding(cluster, group, summary, next).with_hold_seconds(hold))
}

impl LostWorkers {
    fn finding(
        self,
        cluster: &Cluster,
        group: &JobGroup,
        summary: String,
        next: &str,
    ) -> PendingFinding {
        let count = self.count as f64;
        PendingFinding::of(FindingKind::IdleAllocated, group.to_entity(), 1, true)
            .with_interval(group.interval)
            .with_cost(count, group.list_victims(cluster, None))
            .with_summary(summary, next.to_owned())
            .with_evidence([EvidenceRow::IdleGpus.to_evidence(Some(count), None)])
    }
}

/// Returns the GPUs that the processes of a job have left, where others on the same node still hold theirs: a job that ends,
/// or gives a node back, leaves all of that node.
fn workers_that_ended(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> LostWorkers {
    let limits = &judge.limits;
    // A restart of the aggregator forgets who has worked.
    let id = Finding::build_id(FindingKind::IdleAllocated, &group.to_entity());
    let is_told = judge.tracker.open_one(&id).is_some();
    let mut ended = LostWorkers::default();
    for id in &group.nodes {
        let Some(node) = cluster.node_by_id(*id) else { continue };
        let rows = rows_in_group(judge, cluster, node, group);
        let is_left = |row: &&u32| {
            let start = judge.gpus.get(**row as usize).map(|gpu| gpu.start);
            start.is_some_and(|start| start.is_empty() && (start.has_worked || is_told))
        };
        let left = rows.iter().filter(is_left).count();
        let is_held = |row: &u32| gpu_signals::is_held(cluster, *row, limits) == Some(true);
        if left > 0 && rows.iter().any(is_held) {
            ended.nodes.insert(*id);
            ended.count += left;
        }
    }
    ended
}

/// Returns the nodes that a job holds and on which no process of it has used a GPU for so long that none is to begin, while
/// it works steadily on most of its GPUs: it does not wait for them.
fn nodes_without_workers(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> LostWorkers {
    let (now, gap) = (cluster.now(), cluster.freshness_window());
    let mut absent = LostWorkers::default();
    let known = |row: &u32| judge.gpus.get(*row as usize);
    let works = |row: &&u32| {
        let busy = known(row).and_then(|gpu| gpu.averages.utilization_at(now, gap));
        busy.is_some_and(|busy| busy >= judge.limits.utilization_launch_ratio)
    };
    let evidence = judge.gangs.of(group);
    let is_steady = evidence.is_learned() && evidence.is_steady(group);
    if !is_steady || group.gpus.iter().filter(works).count() * 2 <= group.gpus.len() {
        return absent;
    }
    let is_left = |row: &u32| known(row).is_some_and(|gpu| gpu.start.is_never_to_begin(now));
    for id in &group.nodes {
        let Some(node) = cluster.node_by_id(*id) else { continue };
        let rows = rows_in_group(judge, cluster, node, group);
        if !rows.is_empty() && rows.iter().all(is_left) {
            absent.nodes.insert(*id);
            absent.count += rows.len();
        }
    }
    absent
}

/// Returns the GPUs of a job that were busy and do nothing now, while the others of it go on as ever: they are no ranks that
/// wait for each other.
fn workers_that_stand_still(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
) -> Option<LostWorkers> {
    let limits = &judge.limits;
    let (now, gap) = (cluster.now(), cluster.freshness_window());
    let mut still = LostWorkers::default();
    let mut others = Vec::new();
    for row in &group.gpus {
        let gpu = judge.gpus.get(*row as usize)?;
        if gpu.start.is_empty() {
            continue;
        }
        if judge.gpu_state(*row) == GpuState::IdleAllocated {
            let was_busy = gpu.averages.usual_utilization()? >= limits.utilization_launch_ratio;
            if !was_busy || !gpu.start.has_worked {
                return None;
            }
            still.nodes.insert(cluster.device_at(DeviceClass::Gpu, *row)?.node);
            still.count += 1;
        } else {
            others.push(gpu.averages.activity_ratio(now, gap, limits)?);
        }
    }
    let is_steady = judge.gangs.of(group).is_steady(group);
    let least = if is_steady { GOES_ON } else { SERVES_ON };
    (still.count > 0 && median(others)? >= least).then_some(still)
}
