//! Idle ranks: GPUs of a slower job that idle more than the rest of it, so that the rest waits for them.

use std::collections::{BTreeMap, HashSet};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::DeviceClass;

use super::{
    JudgeState, gpu_tracker::GpuTracker, job_group::JobGroup, ranks_on_node::gpu_utilization_drop,
    robust_stats::median,
};

/// A node that idles less than this share of the one that idles most only waits for it.
pub(super) const NEIGHBOUR_SHARE: f64 = 0.5;

/// Least share of a job's slowdown that the idle time of a rank must be to explain it.
const EXPLAINED_SHARE: f64 = 0.4;

/// Who idles in a job that is slower than its baseline.
pub(super) struct IdleRanks {
    /// Nodes with idle ranks, unless most nodes have some.
    nodes: BTreeMap<NodeId, Vec<u32>>,
    /// Whether the rest of the job busy-waits: then it waits for these ranks.
    others_wait: bool,
    /// Whether most GPUs of the job are less busy than usual.
    pub(super) is_whole_job: bool,
}

impl IdleRanks {
    /// Finds the idle ranks of a job; none if the job is not known to be slower.
    pub(super) fn find(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> Option<Self> {
        let limits = &judge.limits;
        let job = judge.gangs.of(group);
        if !job.may_be_slower(group, limits) {
            return None;
        }
        let is_slower = job.is_slower(group, limits);
        let node_of = |row: &u32| Some(cluster.device_at(DeviceClass::Gpu, *row)?.node);
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        // A rank that does nothing at all has stopped, and is not slow, unless its job goes on.
        let is_idle = |gpu: &GpuTracker| {
            let busy = gpu.averages.utilization_at(now, gap);
            let works = |busy: f64| busy >= limits.standstill_ratio || group.creeps;
            gpu.idler.is_likely() && busy.is_some_and(works)
        };
        let mut nodes: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        let mut counts: BTreeMap<NodeId, usize> = BTreeMap::new();
        for row in &group.gpus {
            let Some(node) = node_of(row) else { continue };
            *counts.entry(node).or_default() += 1;
            if judge.gpus.get(*row as usize).is_some_and(is_idle) {
                nodes.entry(node).or_default().push(*row);
            }
        }
        // One GPU of many is an outlier by chance now and then; most GPUs of a node are not.
        nodes.retain(|id, rows| {
            let all = counts.get(id).copied().unwrap_or_default();
            let is_clear = |row: &u32| judge.gpus[*row as usize].idler.is_likely_alone();
            rows.len() > 1 && rows.len() * 2 > all || (is_slower && rows.iter().any(is_clear))
        });
        if nodes.len() * 2 > group.nodes.len() && group.nodes.len() > 1 {
            nodes.clear();
        }
        let averages = |row: &u32| Some(&judge.gpus.get(*row as usize)?.averages);
        let idle_rows: HashSet<u32> = nodes.values().flatten().copied().collect();
        let others: Vec<&u32> = group.gpus.iter().filter(|row| !idle_rows.contains(row)).collect();
        let drop = |row: &u32| gpu_utilization_drop(judge, cluster, *row);
        let drops: BTreeMap<NodeId, f64> = nodes
            .iter()
            .filter_map(|(id, rows)| Some((*id, median(rows.iter().filter_map(drop))?)))
            .collect();
        let busy = median(others.iter().filter_map(|row| averages(row)?.utilization_at(now, gap)));
        let spins = busy.is_some_and(|busy| busy >= limits.utilization_spinning_ratio);
        let others_drop = median(others.iter().filter_map(|row| drop(row)));
        let others_wait = spins && others_drop.is_some_and(|drop| drop <= limits.shift_floor_ratio);
        let change = median(group.gpus.iter().filter_map(drop));
        if !others_wait {
            nodes.clear();
        }
        // What idles less than half as much waits for the same cause, such as the next stage of a pipeline.
        let most = drops.values().copied().fold(0.0, f64::max);
        nodes.retain(|id, _| drops.get(id).is_some_and(|drop| *drop >= most * NEIGHBOUR_SHARE));
        // One that idles far less than the job is slower does not explain it.
        let lost = job.slowdown_rise(group).unwrap_or_default();
        nodes.retain(|id, _| {
            drops.get(id).is_some_and(|drop| {
                drop - others_drop.unwrap_or_default() >= lost * EXPLAINED_SHARE
            })
        });
        Some(Self {
            others_wait,
            is_whole_job: is_slower
                && change.is_some_and(|change| change >= limits.least_slowdown_ratio / 2.0),
            nodes,
        })
    }

    /// Returns the idle ranks of a node; empty if it has none.
    pub(super) fn on_node(&self, id: NodeId) -> &[u32] {
        self.nodes.get(&id).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether the rest of the job busy-waits.
    pub(super) fn others_wait(&self) -> bool {
        self.others_wait
    }

    /// Whether a single node idles.
    pub(super) fn is_single(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Whether no node idles.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}
