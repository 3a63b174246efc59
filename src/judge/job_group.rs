//! Job groups: the GPUs of one synchronous job, their medians, and how far they are below their baseline speed.
//!
//! A job label defines a group. Without job labels, nodes that are equally busy in calm times form one.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use gaunt_schema::{DeviceClass, Entity, EntityKind, GpuState, SanitizedText, UnixMs};

use super::{
    Thresholds,
    gpu_tracker::{self, GpuTracker},
    host_averages::HostAverages,
    inferred_groups::{infer_groups, used_rows},
    lingering_gpus::{LingeringGpu, list_lingering},
    node_table::NodeTable,
    peer_clocks::{PeerClocks, model_of},
    pending_finding::{MAX_VICTIMS, format_count},
    robust_stats::{RobustStats, median},
    sample_interval::SampleInterval,
};
use gaunt_cluster::{Cluster, NodeId};

/// All job groups, and the group of each GPU.
#[derive(Debug, Default)]
pub(super) struct JobGroups {
    all: Vec<JobGroup>,
    /// The group of each GPU by row: its index in `all` plus one, 0 without a group.
    of_gpu: Vec<u32>,
    /// The clocks of the busy GPUs of each node that has GPUs without a group, from the rebuild to the end of a step.
    node_clocks: BTreeMap<NodeId, PeerClocks>,
    /// Nodes without job labels, by inferred group, and when that was inferred.
    unnamed: Vec<Vec<NodeId>>,
    regrouped: Option<UnixMs>,
}

/// The GPUs of one synchronous job.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(super) struct JobGroup {
    /// The job, if it is labelled.
    pub(super) job: Option<SanitizedText>,
    /// Without a job label, the node that identifies the group.
    pub(super) first_node: Option<SanitizedText>,
    /// Its GPUs by row.
    pub(super) gpus: Vec<u32>,
    /// Its nodes.
    pub(super) nodes: Vec<NodeId>,
    /// The time between two samples of its GPUs, the longest of its nodes.
    pub(super) interval: SampleInterval,
    /// The median of its GPUs' utilization.
    pub(super) utilization: Option<f64>,
    /// The median pace of its GPUs, relative to the baseline: 1 is the baseline.
    pub(super) pace: Option<f64>,
    /// The median traffic of those of its nodes that it has for itself, relative to the baseline.
    pub(super) traffic: Option<f64>,
    /// Whether it makes progress, however slowly.
    goes_on: bool,
    /// Whether it does although it nearly stands still.
    pub(super) creeps: bool,
    /// Whether it is below its baseline speed by enough to count as lost time.
    is_slowed: bool,
    /// Whether it is slower than its pace usually varies.
    pub(super) confirms_slowdown: bool,
    /// Whether it pauses, or most likely does, or did so a moment ago: averages of its work still contain it.
    pub(super) may_pause: bool,
    /// Its GPUs that busy-wait in a collective; kept because each slow GPU reports the count.
    waiting: usize,
    /// Its GPUs that take longer than the others.
    lingering: Vec<LingeringGpu>,
    /// The clocks of its busy GPUs, by model and role.
    pub(super) peers: PeerClocks,
}

/// What the evidence about a job says about its pace.
#[derive(Clone, Copy, Debug)]
pub(super) struct SettledPace {
    /// Its traffic tells its pace better than the activity of its GPUs.
    pub(super) is_traffic: bool,
    /// It is slower than its pace usually varies.
    pub(super) confirms_slowdown: bool,
    /// It pauses, or most likely does, or did so a moment ago.
    pub(super) may_pause: bool,
}

impl JobGroups {
    /// Rebuilds the groups and evaluates their members.
    pub(super) fn rebuild_groups(
        &mut self,
        cluster: &Cluster,
        gpus: &[GpuTracker],
        hosts: &NodeTable<HostAverages>,
        best_rate: impl Fn(u32) -> Option<f64>,
        limits: &Thresholds,
    ) {
        let due = self.regrouped.is_none_or(|at| {
            cluster.now().duration_since(at).as_secs_f64() >= limits.regroup_seconds
        });
        if due {
            self.unnamed = infer_groups(cluster, gpus, hosts, best_rate, limits, &self.unnamed);
            self.regrouped = Some(cluster.now());
        }
        let named =
            cluster.gpus_by_job().iter().map(|(job, gpus)| (Some(job.clone()), gpus.clone()));
        let of_nodes = |nodes: &Vec<NodeId>| {
            let nodes = nodes.iter().filter_map(|id| cluster.node_by_id(*id));
            let rows = nodes.flat_map(|node| used_rows(cluster, gpus, limits, node));
            rows.collect::<Vec<u32>>()
        };
        let unnamed = self.unnamed.iter().map(|nodes| (None, of_nodes(nodes)));
        let unnamed = unnamed.filter(|(_, rows)| !rows.is_empty());
        let mut all: Vec<JobGroup> = named
            .chain(unnamed)
            .map(|(job, rows)| JobGroup::of(cluster, gpus, limits, job, rows))
            .collect();
        for group in &mut all {
            let before = group.gpus.first().and_then(|row| self.of(*row));
            let before = before.is_some_and(|before| before.is_slowed);
            group.is_slowed = is_slowed(group.slowdown_ratio(), before, limits);
        }
        self.all = all;
        self.of_gpu.clear();
        self.of_gpu.resize(cluster.row_count(DeviceClass::Gpu), 0);
        for (at, group) in self.all.iter().enumerate() {
            for row in &group.gpus {
                self.of_gpu[*row as usize] = at as u32 + 1;
            }
        }
        self.compute_node_clocks(cluster, gpus, limits);
        for at in 0..self.all.len() {
            let traffic = self.relative_traffic(cluster, hosts, at);
            self.all[at].traffic = traffic;
            // Activity may be known from single instants, at which all of its ranks wait.
            self.all[at].goes_on |= traffic.is_some_and(|share| share >= limits.standstill_ratio);
        }
    }

    /// Forgets what follows from the averages of this step: the next one reads new samples before its rebuild.
    pub(super) fn forget_node_clocks(&mut self) {
        self.node_clocks.clear();
    }

    /// Computes the clocks of each node that has GPUs without a group, once for all of them.
    fn compute_node_clocks(&mut self, cluster: &Cluster, gpus: &[GpuTracker], limits: &Thresholds) {
        let nodes =
            cluster.sorted_nodes().map(|(id, node)| (id, node.device_rows(DeviceClass::Gpu)));
        let lone =
            nodes.filter(|(_, rows)| rows.iter().any(|row| self.group_index(*row).is_none()));
        let clocks = lone.map(|(id, rows)| (id, PeerClocks::of(cluster, gpus, limits, rows)));
        self.node_clocks = clocks.collect();
    }

    /// Returns the median traffic of the nodes that a group has for itself, relative to their baselines.
    fn relative_traffic(
        &self,
        cluster: &Cluster,
        hosts: &NodeTable<HostAverages>,
        at: usize,
    ) -> Option<f64> {
        let group = &self.all[at];
        if group.nodes.len() < 2 {
            return None;
        }
        let of_node = |id: &NodeId| {
            let rows = cluster.node_by_id(*id)?.device_rows(DeviceClass::Gpu);
            let is_own = |row: &u32| self.group_index(*row).is_none_or(|index| index == at);
            hosts.get(*id).filter(|_| rows.iter().all(is_own))?.traffic_ratio(cluster)
        };
        median(group.nodes.iter().filter_map(of_node))
    }

    /// Returns all groups.
    pub(super) fn all_groups(&self) -> &[JobGroup] {
        &self.all
    }

    /// Marks the groups that nearly stand still and go on.
    pub(super) fn mark_creeping(&mut self, creeps: impl Fn(&JobGroup) -> bool) {
        for group in &mut self.all {
            group.creeps = creeps(group);
            group.goes_on |= group.creeps;
        }
    }

    /// Sets which pace of each group is known better, and whether its slowdown confirms a fault.
    pub(super) fn settle_paces(
        &mut self,
        limits: &Thresholds,
        settle: impl Fn(&JobGroup) -> SettledPace,
    ) {
        for group in &mut self.all {
            let settled = settle(group);
            group.confirms_slowdown = settled.confirms_slowdown;
            group.may_pause = settled.may_pause;
            if settled.is_traffic {
                group.pace = group.traffic;
                group.is_slowed = is_slowed(group.slowdown_ratio(), group.is_slowed, limits);
            }
        }
    }

    /// Returns the group with this key: the name of its job, if that is labelled.
    pub(super) fn by_key(&self, key: &str) -> Option<&JobGroup> {
        let has_key = |group: &&JobGroup| match &group.job {
            Some(job) => job.as_str() == key,
            None => group.group_key() == key,
        };
        self.all.iter().find(has_key)
    }

    /// Returns the group of a GPU.
    pub(super) fn of(&self, gpu: u32) -> Option<&JobGroup> {
        self.all.get(self.group_index(gpu)?)
    }

    /// Returns the index of a GPU's group in [`Self::all_groups`].
    pub(super) fn group_index(&self, gpu: u32) -> Option<usize> {
        self.of_gpu.get(gpu as usize)?.checked_sub(1).map(|index| index as usize)
    }

    /// Returns all groups that have GPUs on a node.
    pub(super) fn groups_on(&self, gpus: &[u32]) -> Vec<&JobGroup> {
        let mut groups: Vec<&JobGroup> = gpus.iter().filter_map(|row| self.of(*row)).collect();
        groups.dedup_by(|a, b| std::ptr::eq(*a, *b));
        groups
    }

    /// Returns the group on these GPUs with the largest slowdown, if that is at least `least`, and the slowdown.
    pub(super) fn most_slowed_on(&self, gpus: &[u32], least: f64) -> Option<(&JobGroup, f64)> {
        let groups = gpus.iter().filter_map(|row| self.of(*row));
        let slowed = groups.filter_map(|group| Some((group, group.confirmed_slowdown(least)?)));
        slowed.max_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    /// Returns the groups on these nodes that are below their baseline speed, each once.
    pub(super) fn slowed_on_nodes(
        &self,
        cluster: &Cluster,
        nodes: &BTreeSet<NodeId>,
        limits: &Thresholds,
    ) -> Vec<&JobGroup> {
        let (mut groups, mut listed): (Vec<&JobGroup>, HashSet<*const JobGroup>) =
            Default::default();
        for node in nodes.iter().filter_map(|id| cluster.node_by_id(*id)) {
            for group in self.groups_on(node.device_rows(DeviceClass::Gpu)) {
                let slow = group.confirmed_slowdown(limits.least_slowdown_ratio).is_some();
                if slow && listed.insert(std::ptr::from_ref(group)) {
                    groups.push(group);
                }
            }
        }
        groups
    }

    /// Returns the clocks of the GPUs of its model and role in a GPU's job group, or on its node where there is no
    /// group.
    pub(super) fn clocks_of_peers(
        &self,
        trackers: &[GpuTracker],
        cluster: &Cluster,
        limits: &Thresholds,
        row: u32,
    ) -> Option<RobustStats> {
        let model = model_of(cluster, row);
        let power = trackers.get(row as usize)?.averages.usual_power();
        if let Some(group) = self.of(row) {
            return group.peers.role_clocks(model, power);
        }
        let id = cluster.device_at(DeviceClass::Gpu, row)?.node;
        if let Some(clocks) = self.node_clocks.get(&id) {
            return clocks.role_clocks(model, power);
        }
        let rows = cluster.node_by_id(id)?.device_rows(DeviceClass::Gpu);
        PeerClocks::of(cluster, trackers, limits, rows).role_clocks(model, power)
    }
}

impl JobGroup {
    fn of(
        cluster: &Cluster,
        trackers: &[GpuTracker],
        limits: &Thresholds,
        job: Option<SanitizedText>,
        gpus: Vec<u32>,
    ) -> Self {
        let mut nodes: Vec<NodeId> = gpus
            .iter()
            .filter_map(|row| Some(cluster.device_at(DeviceClass::Gpu, *row)?.node))
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        let members = || gpus.iter().filter_map(|row| trackers.get(*row as usize));
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let utilization = median(members().filter_map(|gpu| gpu.averages.utilization_at(now, gap)));
        let pace =
            median(members().filter_map(|gpu| gpu.averages.activity_ratio(now, gap, limits)));
        let peers = PeerClocks::of(cluster, trackers, limits, &gpus);
        let first = nodes.first().filter(|_| job.is_none());
        let first = first.and_then(|id| Some(cluster.node_by_id(*id)?.name.clone()));
        let goes_on = pace.is_none_or(|pace| pace >= limits.standstill_ratio);
        let waits = |row: &&u32| gpu_tracker::state_at_row(trackers, **row) == GpuState::Waiting;
        let waiting = gpus.iter().filter(waits).count();
        Self {
            job,
            first_node: first,
            interval: SampleInterval::of_nodes(cluster, &nodes),
            lingering: list_lingering(trackers, &gpus, (now, gap), limits),
            gpus,
            nodes,
            utilization,
            pace,
            traffic: None,
            goes_on,
            creeps: false,
            is_slowed: false,
            confirms_slowdown: false,
            may_pause: false,
            waiting,
            peers,
        }
    }

    /// Whether a node belongs to it; nodes are sorted by number.
    pub(super) fn has_node(&self, id: NodeId) -> bool {
        self.nodes.binary_search(&id).is_ok()
    }

    /// Returns its slowdown if that confirms a fault: it is at least `least`, and more than the pace of this job varies
    /// by chance, as far as that is known.
    pub(super) fn confirmed_slowdown(&self, least: f64) -> Option<f64> {
        self.slowdown_ratio().filter(|slowed| self.confirms_slowdown && *slowed >= least)
    }

    /// Returns the share of its baseline speed that it has lost; none if unknown.
    pub(super) fn slowdown_ratio(&self) -> Option<f64> {
        self.pace.map(|pace| (1.0 - pace).max(0.0))
    }

    /// Whether it makes progress, however slowly.
    pub(super) fn is_progressing(&self) -> bool {
        self.goes_on
    }

    /// Whether most of its GPUs report profiling counters.
    pub(super) fn is_profiled(
        &self,
        trackers: &[GpuTracker],
        now: UnixMs,
        gap: std::time::Duration,
    ) -> bool {
        let members = self.gpus.iter().filter_map(|row| trackers.get(*row as usize));
        members.filter(|gpu| gpu.averages.is_profiled(now, gap)).count() * 2 > self.gpus.len()
    }

    /// Returns the slowdown that counts as lost time: none below the limit, where noise is as large; none without a
    /// baseline speed.
    pub(super) fn lost_share(&self) -> Option<f64> {
        self.slowdown_ratio().map(|slowed| if self.is_slowed { slowed } else { 0.0 })
    }

    /// Estimates the cost of a pending finding: the whole group's slowdown. The cost of an open finding is the sum of
    /// the shares that are attributed to it (`loss_attribution`).
    pub(super) fn lost_gpus(&self) -> f64 {
        self.slowdown_ratio().unwrap_or_default() * self.gpus.len() as f64
    }

    /// Returns the group as an entity that can be blamed or affected.
    pub(super) fn to_entity(&self) -> Entity {
        Entity {
            job: self.job.clone(),
            node: self.first_node.clone(),
            ..Entity::new(EntityKind::Job)
        }
    }

    /// Returns the key that identifies it from step to step.
    pub(super) fn group_key(&self) -> String {
        self.job.as_ref().map_or_else(
            || format!("on {}", self.first_node.as_deref().unwrap_or_default()),
            ToString::to_string,
        )
    }

    /// Formats the group as the subject of a sentence.
    pub(super) fn render_title(&self) -> String {
        match (&self.job, &self.first_node, self.nodes.len()) {
            (Some(job), ..) => format!("Job {job}"),
            (None, Some(node), 0 | 1) => format!("Unnamed job on {node}"),
            (None, Some(node), nodes) => {
                format!("Unnamed job on {node} and {}", format_count(nodes - 1, "node"))
            }
            _ => "Unnamed job".to_owned(),
        }
    }

    /// Returns how much longer than the others a GPU takes, if it clearly does.
    pub(super) fn lingering_gpu(&self, row: u32) -> Option<LingeringGpu> {
        self.lingering.iter().find(|lingering| lingering.is_at(row)).copied()
    }

    /// Lists the victims when one of its nodes is to blame.
    pub(super) fn list_victims(&self, cluster: &Cluster, but: Option<NodeId>) -> Vec<Entity> {
        let job = self.job.as_ref().map(|_| self.to_entity());
        let nodes = self.nodes.iter().filter(|id| Some(**id) != but);
        let nodes = nodes.filter_map(|id| {
            Some(Entity {
                job: self.job.clone(),
                ..Entity::new_node(&cluster.node_by_id(*id)?.name)
            })
        });
        job.into_iter().chain(nodes).take(MAX_VICTIMS).collect()
    }

    /// Returns its GPUs that busy-wait in a collective.
    pub(super) fn waiting_gpus(&self) -> usize {
        self.waiting
    }
}

/// Whether a slowdown counts as lost time: the limit to leave is lower than the one to enter (hysteresis).
pub(super) fn is_slowed(slowed: Option<f64>, before: bool, limits: &Thresholds) -> bool {
    let slack = if before { limits.leave_share.clamp(0.1, 1.0) } else { 1.0 };
    slowed.is_some_and(|slowed| slowed >= limits.slowed_ratio * slack)
}
