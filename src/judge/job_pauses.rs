//! Job pauses: jobs that do nothing for a while and are not starved. They write a checkpoint, or end.

use std::collections::{BTreeMap, HashMap};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{GpuState, UnixMs};

use super::{
    Thresholds,
    gpu_tracker::{self, GpuTracker},
    host_averages::HostAverages,
    job_group::{JobGroup, JobGroups},
    sample_interval::SampleInterval,
};

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
    pub(super) fn observe_pauses(
        &mut self,
        cluster: &Cluster,
        groups: &JobGroups,
        gpus: &[GpuTracker],
        hosts: &HashMap<NodeId, HostAverages>,
        limits: &Thresholds,
    ) {
        let now = cluster.now();
        // Until then averages do not show the job's pace again.
        let intervals: BTreeMap<String, SampleInterval> =
            groups.all_groups().iter().map(|group| (group.group_key(), group.interval)).collect();
        self.of.retain(|name, pause| {
            let interval = intervals.get(name).copied().unwrap_or_default();
            let settles = limits.pause_settle_seconds + interval.two_sample_seconds_of_all(limits);
            now.duration_since(pause.seen).as_secs_f64() < settles
        });
        for group in groups.all_groups() {
            let silent = group.nodes.iter().filter_map(|id| hosts.get(id));
            let silent: Vec<bool> =
                silent.filter_map(|host| host.is_silent(cluster, limits)).collect();
            let pauses = if silent.len() * 2 > group.nodes.len() {
                silent.iter().filter(|silent| **silent).count() * 2 > group.nodes.len()
            } else {
                let starves =
                    |row: &u32| gpu_tracker::state_at_row(gpus, *row) == GpuState::DataStarved;
                !group.is_progressing() && !group.gpus.iter().any(starves)
            };
            if !pauses {
                continue;
            }
            let pause = self.of.entry(group.group_key()).or_insert(Pause { began: now, seen: now });
            let gap = now.duration_since(pause.seen).as_secs_f64();
            if gap > limits.pause_seconds + 2.0 * cluster.scrape_period().as_secs_f64() {
                pause.began = now;
            }
            pause.seen = now;
        }
    }

    /// Whether a job pauses or did so a moment ago, so that averages of its work are not valid. A long pause is
    /// reported as idle or hung instead, and an earlier slowdown is over.
    pub(super) fn has(&self, group: &JobGroup, now: UnixMs, limits: &Thresholds) -> bool {
        self.pause_of(group, now, limits).is_some()
    }

    fn pause_of(&self, group: &JobGroup, now: UnixMs, limits: &Thresholds) -> Option<&Pause> {
        let pause = (!self.of.is_empty()).then(|| self.of.get(&group.group_key())).flatten();
        pause.filter(|pause| now.duration_since(pause.began).as_secs_f64() < limits.idle_seconds)
    }

    /// Whether a job pauses or did so a moment ago, so that averages of its work still contain the pause.
    pub(super) fn distort_averages(
        &self,
        group: &JobGroup,
        now: UnixMs,
        limits: &Thresholds,
    ) -> bool {
        let span = group.interval.average_seconds(limits) + group.interval.seconds();
        self.pause_of(group, now, limits)
            .is_some_and(|pause| now.duration_since(pause.seen).as_secs_f64() <= span)
    }
}
