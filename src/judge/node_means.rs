//! Node means: what each node of a job did on average over a long time: how busy its GPUs were, and how much they worked.

use std::collections::{BTreeMap, HashSet};

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::DeviceClass;

use super::{
    Thresholds,
    gpu_tracker::GpuTracker,
    job_group::{JobGroup, JobGroups},
    job_pauses::Pauses,
    moving_average::{CompactTimestamp, MovingAverage, SampleTiming},
    network_share::network_share,
};

/// Seconds over which the mean reaches: long beside a checkpoint that one rank writes.
const MEMORY_SECONDS: f64 = 600.0;

/// The long means of all jobs' nodes, by group key.
#[derive(Debug, Default)]
pub(super) struct NodeMeans {
    jobs: BTreeMap<String, BTreeMap<NodeId, NodeMean>>,
}

/// The long means of one node of a job: shares of 1. A value that no page has is not a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeMean {
    /// Its GPUs' utilization.
    pub(super) utilization: f32,
    /// Their tensor core activity.
    pub(super) tensor: f32,
    /// The share of the line rate that it sends and receives.
    pub(super) traffic: f32,
    /// Its GPUs' utilization of late.
    pub(super) recent: MovingAverage,
    /// The time that samples cover, up to the memory.
    pub(super) seconds: f32,
    last: CompactTimestamp,
}

impl NodeMean {
    /// Adds the values since the last sample; after a gap of more than `gap` seconds none of that time is known.
    fn add(&mut self, at: CompactTimestamp, values: [Option<f64>; 3], gap: f64) {
        let passed = at.seconds_since(self.last).min(gap);
        self.last = at;
        self.seconds = (f64::from(self.seconds) + passed).min(MEMORY_SECONDS) as f32;
        let weight = (passed / f64::from(self.seconds).max(1e-3)) as f32;
        let means = [&mut self.utilization, &mut self.tensor, &mut self.traffic];
        for (mean, value) in means.into_iter().zip(values) {
            let Some(value) = value.map(|value| value as f32) else { continue };
            *mean = if mean.is_nan() { value } else { *mean + (value - *mean) * weight };
        }
    }
}

impl NodeMeans {
    /// Returns the means of a job's nodes.
    pub(super) fn of(&self, group: &JobGroup) -> Option<&BTreeMap<NodeId, NodeMean>> {
        self.jobs.get(&group.group_key())
    }

    /// Adds the new samples of each job that does not pause.
    pub(super) fn observe_groups(
        &mut self,
        cluster: &Cluster,
        groups: &JobGroups,
        pauses: &Pauses,
        gpus: &[GpuTracker],
        limits: &Thresholds,
    ) {
        let keys: Vec<String> = groups.all_groups().iter().map(JobGroup::group_key).collect();
        let known: HashSet<&String> = keys.iter().collect();
        self.jobs.retain(|key, _| known.contains(key));
        for (group, key) in groups.all_groups().iter().zip(keys) {
            let is_waiting = !group.is_progressing() || group.nodes.len() < 2;
            if is_waiting || pauses.distort_averages(group, cluster.now(), limits) {
                continue;
            }
            let means = self.jobs.entry(key).or_default();
            means.retain(|id, _| group.has_node(*id));
            for id in &group.nodes {
                let Some(node) = cluster.node_by_id(*id) else { continue };
                let Some(sampled) = node.sampled else { continue };
                let at = CompactTimestamp::of(sampled);
                let timing = &mut SampleTiming::new(
                    sampled,
                    limits.pace_slow_seconds,
                    cluster.freshness_window(),
                );
                let mean = means.entry(*id).or_insert_with(|| NodeMean::starting_at(at));
                if at.is_after(mean.last) {
                    let is_in = |row| groups.of(row).is_some_and(|of| std::ptr::eq(of, group));
                    let values = values_of(cluster, node, gpus, is_in);
                    mean.recent.add_sample(values[0], timing);
                    mean.add(at, values, cluster.freshness_window().as_secs_f64());
                }
            }
        }
    }
}

impl NodeMean {
    fn starting_at(at: CompactTimestamp) -> Self {
        let unknown = f32::NAN;
        Self {
            utilization: unknown,
            tensor: unknown,
            traffic: unknown,
            recent: MovingAverage::default(),
            seconds: 0.0,
            last: at,
        }
    }
}

/// Returns the utilization, tensor activity and traffic of a job's GPUs on a node, or of the node.
fn values_of(
    cluster: &Cluster,
    node: &Node,
    gpus: &[GpuTracker],
    is_in: impl Fn(u32) -> bool,
) -> [Option<f64>; 3] {
    let (now, gap) = (cluster.now(), cluster.freshness_window());
    let rows = node.device_rows(DeviceClass::Gpu).iter();
    let rows: Vec<u32> = rows.filter(|row| is_in(**row)).copied().collect();
    let mean_of = |value: &dyn Fn(&GpuTracker) -> Option<f64>| {
        let values = rows.iter().filter_map(|row| value(gpus.get(*row as usize)?));
        let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), it| (sum + it, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    };
    [
        mean_of(&|gpu| gpu.averages.utilization_at(now, gap)),
        mean_of(&|gpu| gpu.averages.pipe_activity(now, gap).1),
        network_share(cluster, node).map(|share| share.exchanged),
    ]
}
