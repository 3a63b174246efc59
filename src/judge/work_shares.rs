//! Work shares: how the nodes of a job group share its work, recorded every step.

use std::collections::{BTreeMap, HashSet, VecDeque};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{DeviceClass, UnixMs};

use super::{
    Thresholds,
    gpu_tracker::GpuTracker,
    job_group::{JobGroup, JobGroups},
    moving_average::{MovingAverage, SampleTiming},
    robust_stats::median,
};

/// How a job group's nodes share the work, recorded every step.
#[derive(Debug, Default)]
pub(super) struct WorkShares {
    histories: BTreeMap<String, WorkHistory>,
}

/// What a group did over a longer time: a training step that is long relative to the moving averages makes them swing.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkHistory {
    /// Activity / baseline of each node.
    pub(super) paces: BTreeMap<NodeId, MovingAverage>,
    /// The node that worked at each of the last samples at which most others waited.
    busiest: VecDeque<NodeId>,
    last_sampled: Option<UnixMs>,
}

/// The maximum of recorded samples, whatever the settings.
const MAX_SAMPLES: usize = 256;

/// The minimum of nodes in a group that can share work.
pub(super) const LEAST_NODES: usize = 2;

impl WorkShares {
    /// Returns what a group did.
    pub(super) fn history_of(&self, group: &JobGroup) -> Option<&WorkHistory> {
        self.histories.get(&group.group_key())
    }

    /// Forgets a group whose present work was accepted as its baseline.
    pub(super) fn forget_group(&mut self, group: &str) {
        self.histories.remove(group);
    }

    /// Records how much each node works, and which one works while the others wait.
    pub(super) fn observe_groups(
        &mut self,
        cluster: &Cluster,
        groups: &JobGroups,
        gpus: &[GpuTracker],
        limits: &Thresholds,
    ) {
        let names: Vec<String> = groups.all_groups().iter().map(JobGroup::group_key).collect();
        let known: HashSet<&String> = names.iter().collect();
        self.histories.retain(|name, _| known.contains(name));
        for (group, name) in groups.all_groups().iter().zip(names) {
            let slow = group.interval.is_slow(limits);
            let history = self.histories.entry(name).or_default();
            let newest = group.nodes.iter().filter_map(|id| cluster.node_by_id(*id)?.sampled).max();
            let Some(at) = newest.filter(|_| history.last_sampled != newest) else { continue };
            history.last_sampled = newest;
            let span = if slow { limits.pace_slow_seconds } else { limits.pace_seconds };
            let tick = &mut SampleTiming::new(at, span, cluster.freshness_window());
            history.paces.retain(|id, _| group.has_node(*id));
            for (id, pace) in node_activity_ratios(cluster, group, gpus, limits) {
                history.paces.entry(id).or_default().add_sample(Some(pace), tick);
            }
            let samples = max_samples(limits);
            // Values that exporters collect now and then are of different moments on every node.
            let busiest = if slow { None } else { busiest_node(cluster, group, gpus, limits) };
            let Some(busiest) = busiest else { continue };
            while history.busiest.len() >= samples {
                history.busiest.pop_front();
            }
            history.busiest.push_back(busiest);
        }
    }
}

/// Recorded samples: several steps of a slow job.
fn max_samples(limits: &Thresholds) -> usize {
    (limits.favourite_looks.max(limits.favourite_kept_looks) as usize).clamp(1, MAX_SAMPLES)
}

/// Returns the node that works now while most others of its group wait.
fn busiest_node(
    cluster: &Cluster,
    group: &JobGroup,
    gpus: &[GpuTracker],
    limits: &Thresholds,
) -> Option<NodeId> {
    let effort_of = |id: &NodeId| {
        let rows = cluster.node_by_id(*id)?.device_rows(DeviceClass::Gpu);
        let trackers = rows.iter().filter_map(|row| gpus.get(*row as usize));
        Some((*id, trackers.filter_map(|gpu| gpu.averages.effort_now(limits)).reduce(f64::max)?))
    };
    let efforts: Vec<(NodeId, f64)> = group.nodes.iter().filter_map(effort_of).collect();
    let median_effort = median(efforts.iter().map(|(_, effort)| *effort))?;
    let (busiest, highest) = efforts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (highest >= median_effort * limits.stands_out_times).then_some(busiest)
}

impl WorkHistory {
    /// Returns the share of samples at which the most frequent busiest node was busiest; none before enough samples.
    pub(super) fn busiest_share(&self, limits: &Thresholds) -> Option<f64> {
        let samples = self.busiest.len();
        if samples < (limits.favourite_looks as usize).clamp(1, MAX_SAMPLES) {
            return None;
        }
        let mut times: BTreeMap<NodeId, usize> = BTreeMap::new();
        for node in &self.busiest {
            *times.entry(*node).or_default() += 1;
        }
        times.into_values().max().map(|most| most as f64 / samples as f64)
    }
}

/// Returns activity / baseline of each node of a group.
fn node_activity_ratios(
    cluster: &Cluster,
    group: &JobGroup,
    gpus: &[GpuTracker],
    limits: &Thresholds,
) -> Vec<(NodeId, f64)> {
    let (now, gap) = (cluster.now(), cluster.freshness_window());
    let activity_of = |id: &NodeId| {
        let rows = cluster.node_by_id(*id)?.device_rows(DeviceClass::Gpu);
        let trackers = rows.iter().filter_map(|row| gpus.get(*row as usize));
        // The median of single instants is misleading: most instants are of the busiest phase.
        let (mut sum, mut count) = (0.0, 0.0);
        for pace in trackers.filter_map(|gpu| gpu.averages.activity_ratio(now, gap, limits)) {
            sum += pace;
            count += 1.0;
        }
        (count > 0.0).then(|| (*id, sum / count))
    };
    group.nodes.iter().filter_map(activity_of).collect()
}
