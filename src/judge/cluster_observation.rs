//! The observation step: ingests the newest samples of the cluster into averages, baselines, states and job groups.

use std::collections::HashSet;

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{
    AbsenceReason, DeviceClass, Entity, Finding, FindingKind, GpuState, Severity, UnixMs,
    catalogue::gpu,
};

use super::{
    JudgeState,
    baseline::SampleMoment,
    baseline_restore, clock_decline,
    clock_drift::ClockDrift,
    compact_value::NodeTag,
    evidence_sum::LevelEvidence,
    frozen_baselines::FrozenBaselines,
    gpu_signals::{self, GpuSignals},
    gpu_state_rules,
    gpu_tracker::GpuTracker,
    host_averages::{HostAverages, NodeUse},
    job_group::JobGroup,
    moving_average::{CompactTimestamp, MovingAverage, SampleTiming},
    rack_down,
    sample_interval::SampleInterval,
    standing_fault::harm_of,
    still_gpu,
    unnamed_switches::unnamed_leaf_ports,
};

impl JudgeState {
    /// Ingests the newest samples of all nodes.
    pub(super) fn observe_cluster(&mut self, cluster: &Cluster) {
        let began = *self.first_step.get_or_insert(cluster.now());
        if cluster.now().duration_since(began).as_secs_f64() >= self.limits.resume_seconds {
            self.restored_hung_since.clear();
        }
        self.gpus.resize_with(cluster.row_count(DeviceClass::Gpu), GpuTracker::default);
        self.hosts.retain(|id| cluster.node_by_id(id).is_some());
        self.health_read_at.retain(|id, _| cluster.node_by_id(*id).is_some());
        baseline_restore::restore_devices(self, cluster);
        self.node_names.observe_names(cluster);
        if rack_down::is_known_cut_off(&self.tracker) {
            self.cut_off_at = cluster.now();
        }
        self.frozen = FrozenBaselines::of_open(
            cluster,
            self.tracker.iter_open(),
            &self.job_groups,
            |finding| harm_of(self, cluster, finding),
        );
        self.observe_nodes(cluster);
        self.health.mark_consequences(cluster);
        self.mark_hung_jobs(cluster);
        self.ports.observe_ports(cluster, &self.links, &self.limits);
        self.links.observe_ports(cluster, &self.frozen, &self.limits);
        self.netdevs.observe_netdevs(cluster, &self.links, &self.frozen, &self.limits);
        self.switches.observe_switch_ports(cluster, &self.limits);
        self.nvlinks.observe_nvlinks(cluster, &self.frozen, &self.limits);
        let best_rate = |row| self.links.of(row)?.best_rate();
        self.job_groups.rebuild_groups(cluster, &self.gpus, &self.hosts, best_rate, &self.limits);
        self.pauses.observe_pauses(
            cluster,
            &self.job_groups,
            &self.gpus,
            &self.hosts,
            &self.limits,
        );
        self.restarts.observe_groups(cluster, &self.job_groups, &self.gpus);
        let (pauses, limits) = (&self.pauses, &self.limits);
        self.job_groups.mark_creeping(|group| pauses.creeps(group, limits));
        self.shares.observe_groups(cluster, &self.job_groups, &self.gpus, &self.limits);
        self.node_means.observe_groups(cluster, &self.job_groups, pauses, &self.gpus, limits);
        self.usual_pressure.observe_hosts(cluster, &mut self.hosts, &self.frozen, &self.limits);
        self.gangs.observe_groups(
            cluster,
            &self.job_groups,
            &self.pauses,
            &self.frozen,
            &mut self.gpus,
            &self.limits,
        );
        self.observe_stops(cluster);
        self.observe_ranks(cluster);
        self.settle_paces(cluster);
        let congested = unnamed_leaf_ports(self, cluster);
        self.inferred_leaves.observe_congestion(congested, cluster.now(), &self.limits);
        clock_decline::observe_clocks(self, cluster);
    }

    /// Ingests the newest samples of the hosts and GPUs of all nodes.
    fn observe_nodes(&mut self, cluster: &Cluster) {
        let of_paused_jobs = self.nodes_in_pauses(cluster.now());
        for (id, node) in cluster.sorted_nodes() {
            let use_of_node = self.use_of_node(&of_paused_jobs, id, node);
            let host = self.hosts.get_or_default(id);
            host.observe_node(cluster, node, use_of_node, &self.limits);
            self.observe_health(cluster, id, node);
            let host = self.hosts.get(id).copied().unwrap_or_default();
            let (mut held, mut of_new_jobs) = (0, 0);
            let tag = NodeTag::of(&node.name);
            for row in node.device_rows(DeviceClass::Gpu) {
                of_new_jobs += usize::from(self.observe_gpu(cluster, (node, tag), &host, *row));
                held += usize::from(cluster.job_of_gpu(*row).is_some());
            }
            if of_new_jobs > 0 && of_new_jobs >= held {
                self.reset_node_baselines(id, node);
            }
        }
    }

    /// Updates which jobs stand still, and since when each is watched.
    fn observe_stops(&mut self, cluster: &Cluster) {
        let (gangs, first_step) = (&self.gangs, self.first_step.unwrap_or(cluster.now()));
        let known_since = |group: &JobGroup| gangs.of(group).first_seen().max(first_step);
        self.stops.observe_groups(cluster, &self.job_groups, known_since, &self.limits);
        let groups = &self.job_groups;
        let stands_still = |row| groups.of(row).map(|group| !group.is_progressing());
        self.health.observe_jobs(stands_still, cluster.now(), &self.limits);
    }

    /// Settles how slow each job is, from what the evidence says about its pace.
    fn settle_paces(&mut self, cluster: &Cluster) {
        let gangs = &self.gangs;
        let (pauses, limits, now) = (&self.pauses, &self.limits, cluster.now());
        self.job_groups.settle_paces(limits, |group| {
            // At short intervals a pause is seen as it is.
            let is_rare = group.interval.is_slow(limits);
            let may_pause = is_rare && pauses.distort_averages(group, now, limits);
            gangs.of(group).settle_pace(group, may_pause)
        });
    }

    /// Returns the nodes of jobs that pause, or did so a moment ago.
    fn nodes_in_pauses(&self, now: UnixMs) -> HashSet<NodeId> {
        let pauses = |group: &&JobGroup| {
            !group.is_progressing() || self.pauses.distort_averages(group, now, &self.limits)
        };
        let groups = self.job_groups.all_groups().iter().filter(pauses);
        groups.flat_map(|group| group.nodes.iter().copied()).collect()
    }

    fn use_of_node(&self, of_paused_jobs: &HashSet<NodeId>, id: NodeId, node: &Node) -> NodeUse {
        let rows = node.device_rows(DeviceClass::Gpu);
        let of = |row: &u32| self.gpus.get(*row as usize);
        let is_free = !rows.is_empty()
            && rows.iter().all(|row| of(row).is_some_and(|gpu| gpu.start.is_empty()));
        let is_busy = |row: &&u32| {
            let usual = of(row).and_then(|gpu| gpu.averages.usual_utilization());
            usual.is_some_and(|usual| usual >= self.limits.utilization_busy_ratio)
        };
        NodeUse {
            frozen: self.frozen.has_node(id),
            is_idle: is_free || of_paused_jobs.contains(&id),
            is_busy: rows.iter().filter(is_busy).count() * 2 > rows.len(),
        }
    }

    fn observe_health(&mut self, cluster: &Cluster, id: NodeId, node: &Node) {
        let Some(at) = node.last_fed(DeviceClass::Gpu) else { return };
        match self.health_read_at.insert(id, at) {
            Some(before) if before == at => {}
            before => self.health.observe_node(cluster, node, at, before.is_none(), &self.limits),
        }
    }

    /// Looks for the ranks for which the others of their job wait.
    fn observe_ranks(&mut self, cluster: &Cluster) {
        self.late_ranks.observe_groups(cluster, &self.job_groups, &self.limits);
        let gangs = (&self.gangs, &self.pauses);
        self.standouts.observe_groups(cluster, &self.job_groups, gangs, &self.limits);
    }

    /// Ingests the newest sample of a GPU; returns whether another job began on it.
    fn observe_gpu(
        &mut self,
        cluster: &Cluster,
        (node, tag): (&Node, NodeTag),
        host: &HostAverages,
        row: u32,
    ) -> bool {
        if cluster.device_at(DeviceClass::Gpu, row).is_none() {
            return false;
        }
        let gpu = &mut self.gpus[row as usize];
        if gpu.node != Some(tag) {
            *gpu = GpuTracker { node: Some(tag), ..GpuTracker::default() };
        }
        if let Some(state) = self.state_without_sample(cluster, node, row) {
            self.gpus[row as usize].hysteresis.force_state(state);
            return false;
        }
        let gpu = &mut self.gpus[row as usize];
        let Some(at) = node
            .last_fed(DeviceClass::Gpu)
            .filter(|at| CompactTimestamp::of(*at).is_after(gpu.last_sample))
        else {
            return false;
        };
        let sampled = CompactTimestamp::of(at);
        let since = sampled.seconds_after(std::mem::replace(&mut gpu.last_sample, sampled));
        let interval = SampleInterval::of_gpus(cluster, node);
        let tick = &mut SampleTiming::new(
            at,
            interval.average_seconds(&self.limits),
            cluster.freshness_window(),
        );
        gpu.averages.add_sample(cluster, row, at, tick, &self.limits);
        gpu.allocated = gpu_signals::is_allocated(cluster, row, &self.limits);
        let begins = self.observe_job_start(cluster, row, at);
        let (frozen, gap) = (self.frozen.has_gpu(row), cluster.freshness_window());
        let gpu = &mut self.gpus[row as usize];
        gpu.averages.learn_baselines(at, SampleMoment { since, gap, frozen }, &self.limits);
        gpu.averages.count_replays(cluster, row, at, frozen);
        self.health.observe_work(
            row,
            at,
            gpu.averages.works_as_usual(at, gap, &self.limits),
            &self.limits,
        );
        let signals = self.collect_signals(cluster, row, host, at);
        let gpu = &mut self.gpus[row as usize];
        let verdict =
            gpu_state_rules::classify_state(&signals, gpu.hysteresis.current_state(), &self.limits);
        gpu.hysteresis.observe_verdict(verdict, at, &self.limits);
        let used = gpu_signals::used_memory(cluster, row, &self.limits);
        let is_busy =
            signals.utilization.is_some_and(|busy| busy >= self.limits.utilization_launch_ratio);
        let pace = gpu.averages.activity_ratio(at, gap, &self.limits);
        let works = is_busy
            // One that has always busy-waited has that as its baseline.
            && !gpu_state_rules::is_quiet(&signals, &self.limits)
            && pace.is_none_or(|pace| pace >= self.limits.standstill_ratio);
        let busy_now = gpu.averages.utilization_now();
        let works_now =
            works && busy_now.is_none_or(|busy| busy >= self.limits.utilization_launch_ratio);
        gpu.start.observe_memory(at, used, [works, works_now]);
        begins
    }

    /// Returns the state of a GPU without a sample to classify: stale on a silent node, lost if its driver reports so or
    /// its exporter left it out when it fell off the bus.
    fn state_without_sample(&self, cluster: &Cluster, node: &Node, row: u32) -> Option<GpuState> {
        if node.last_fed(DeviceClass::Gpu).is_none_or(|at| cluster.is_stale(at)) {
            return Some(GpuState::Stale);
        }
        if cluster.is_unseen(DeviceClass::Gpu, row) {
            let is_lost = self.health.of(row).gone.is_some();
            return Some(if is_lost { GpuState::Lost } else { GpuState::Stale });
        }
        let utilization = cluster.current_reading(gpu::UTILIZATION, row);
        let is_lost = utilization == Some(AbsenceReason::Lost.into())
            || cluster.current_value(gpu::PRESENT, row) == Some(0.0);
        is_lost.then_some(GpuState::Lost)
    }

    fn collect_signals(
        &self,
        cluster: &Cluster,
        row: u32,
        host: &HostAverages,
        at: UnixMs,
    ) -> GpuSignals {
        let gpu = &self.gpus[row as usize];
        let mut signals = gpu.averages.signals_at(at, cluster.freshness_window(), &self.limits);
        let of = |average: &MovingAverage| average.value_at(at, cluster.freshness_window());
        signals.allocated = gpu.allocated;
        // That which follows from idle CPUs is noisy: by itself the level says nothing.
        let is_io_known =
            !host.knows_only_iowait() || host.excess_io_pressure(cluster, &self.limits).is_some();
        signals.io_pressure = of(&host.io_pressure).filter(|_| is_io_known);
        signals.cpu_pressure = of(&host.cpu_pressure);
        signals.busiest_cpu = of(&host.busiest_cpu);
        signals.queue = host.queue.map(|queue| queue.waiting);
        signals.comm = match (signals.comm, of(&host.network)) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        signals.has_peers = cluster.job_size(row).is_none_or(|gpus| gpus > 1);
        let least = self.limits.clock_event_ratio;
        if signals.sw_thermal.is_some_and(|share| share >= least) {
            let peers = self.job_groups.clocks_of_peers(&self.gpus, cluster, &self.limits, row);
            let own = gpu.averages.clock_hertz(at, &self.limits);
            signals.clock_in_job = own.zip(peers).map(|(clock, peers)| clock / peers.median);
        }
        signals
    }

    /// Whether a GPU does none of its usual work, as far as known.
    fn is_still(&self, cluster: &Cluster, row: u32) -> bool {
        let gpu = self.gpus.get(row as usize);
        gpu.is_some_and(|gpu| still_gpu::is_still(self, cluster, gpu, true) == Some(true))
    }

    /// Marks a job as hung once all its GPUs wait while the network is silent for long enough.
    fn mark_hung_jobs(&mut self, cluster: &Cluster) {
        let now = cluster.now();
        self.hung_since.retain(|job, _| cluster.gpus_by_job().contains_key(job));
        for (job, gpus) in cluster.gpus_by_job() {
            let entity = Entity::new_job(job);
            let hang = Finding::build_id(FindingKind::CollectiveHang, &entity);
            let is_told = self
                .tracker
                .open_one(&hang)
                .is_some_and(|hang| hang.severity == Severity::Critical);
            let still = gpus.iter().all(|row| {
                let state = self.gpu_state(*row);
                let waits = matches!(state, GpuState::Waiting | GpuState::Hung)
                    || (is_told && self.is_still(cluster, *row));
                let node = cluster.device_at(DeviceClass::Gpu, *row).map(|entry| entry.node);
                let host = node.and_then(|node| self.hosts.get(node));
                let network =
                    host.and_then(|host| host.network.value_at(now, cluster.freshness_window()));
                let gpu = self.gpus.get(*row as usize);
                let moves = gpu.and_then(|gpu| {
                    gpu.averages.has_nvlink_traffic(now, cluster.freshness_window(), &self.limits)
                });
                waits
                    && moves != Some(true)
                    && network.is_none_or(|share| share < self.limits.silent_network_ratio)
            });
            if !still || gpus.len() < 2 {
                self.hung_since.remove(job);
                continue;
            }
            let before = self.restored_hung_since.remove(job).unwrap_or(now).min(now);
            let since = *self.hung_since.entry(job.clone()).or_insert(before);
            if now.duration_since(since).as_secs_f64() >= self.limits.hung_seconds {
                for row in gpus {
                    self.gpus[*row as usize].hysteresis.force_state(GpuState::Hung);
                }
            }
        }
    }

    /// Whether a job begins on the GPU at this row: then its baselines are learned anew.
    fn observe_job_start(&mut self, cluster: &Cluster, row: u32, at: UnixMs) -> bool {
        let job = cluster.job_of_gpu(row);
        let started = cluster.job_start_of_gpu(row);
        let frozen = self.frozen.has_gpu(row);
        let Some(gpu) = self.gpus.get_mut(row as usize) else { return false };
        let named = job.map(|job| (job, started));
        let begins = gpu.allocation.observe_holder(at, named, gpu.allocated, frozen, &self.limits);
        if begins {
            gpu.averages.reset_baselines();
            gpu.start.has_worked = false;
            gpu.idler = LevelEvidence::default();
            gpu.slower_clock = LevelEvidence::default();
            gpu.drift = ClockDrift::default();
        }
        begins
    }

    /// Resets the baselines of a node's host and ports because all its jobs began anew.
    fn reset_node_baselines(&mut self, id: NodeId, node: &Node) {
        if let Some(host) = self.hosts.get_mut(id) {
            host.reset_baselines();
        }
        for row in node.device_rows(DeviceClass::Port) {
            self.links.reset_traffic_baselines(*row);
        }
    }
}
