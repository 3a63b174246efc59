//! Starved nodes: nodes whose GPUs are below their baseline and below those of their job, and the finding about one.

mod shown_evidence;

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{Entity, Finding, FindingKind, SanitizedText, Severity};

use super::{
    JudgeState, Thresholds, checkpoint_pause,
    host_averages::{BaselineComparison, HostAverages},
    host_evidence::PressureSource,
    host_pressure::{HostPressure, OutlyingPressure, only_pressed},
    idle_ranks::{IdleRanks, NEIGHBOUR_SHARE},
    job_group::JobGroup,
    job_survey::does_less_of_the_same,
    pending_finding::PendingFinding,
    ranks_on_node::{
        low_between_samples, pace_elsewhere, rows_in_group, utilization_drop, utilization_elsewhere,
    },
    robust_stats::median,
    sample_interval::SampleInterval,
};

/// A node whose GPUs are below their baseline and below those of its job group.
pub(super) struct StarvedNode<'a> {
    pub(super) id: NodeId,
    node: &'a Node,
    group: &'a JobGroup,
    host: HostAverages,
    /// Pressure that only its host has, where nothing else shows that it is unusual.
    outlying: Option<OutlyingPressure>,
    /// Its GPUs' utilization, their baseline, and that of the others.
    pub(super) utilization: f64,
    pub(super) baseline: Option<f64>,
    others: Option<f64>,
    /// GPUs below the baseline, and the number of all.
    pub(super) low: Vec<u32>,
    of: usize,
    /// Whether its GPUs are idle ranks of a slower job; then whether the others wait for them.
    idle_ranks: Option<bool>,
    /// The share of the baseline below which a GPU counts as starved.
    low_ratio: f64,
}

/// Whether a host works on the input of a job that waits for it, whose other GPUs are this busy: its tasks wait for a
/// CPU, which a hang does not need, while all other ranks wait.
fn is_waited_for(host: &HostAverages, elsewhere: Option<f64>, limits: &Thresholds) -> bool {
    host.evidence.is_likely(PressureSource::Cpu)
        && elsewhere.is_some_and(|busy| busy >= limits.utilization_spinning_ratio)
}

/// The kinds that blame the host of GPUs.
pub(super) const HOST_KINDS: [FindingKind; 2] = [FindingKind::DataStarved, FindingKind::HostBound];

/// Returns the kind as which a node that makes its GPUs wait is told: that of the open finding about it, if there is one.
/// What its host shows besides is more evidence of the same fault, and not another one.
pub(super) fn told_kind(
    judge: &JudgeState,
    node: &SanitizedText,
    kind: FindingKind,
) -> FindingKind {
    let is_open = |kind: &FindingKind| {
        let id = Finding::build_id(*kind, &Entity::new_node(node));
        judge.tracker.open_one(&id).is_some()
    };
    [kind].into_iter().chain(HOST_KINDS).find(is_open).unwrap_or(kind)
}

/// Whether an open finding above information blames the host of this node.
pub(super) fn is_host_told(judge: &JudgeState, node: &SanitizedText) -> bool {
    HOST_KINDS.into_iter().any(|kind| {
        let id = Finding::build_id(kind, &Entity::new_node(node));
        judge.tracker.open_one(&id).is_some_and(|open| open.severity > Severity::Info)
    })
}

/// Returns the seconds for which a host that writes may only write a checkpoint, which averages then forget.
pub(super) fn checkpoint_seconds(interval: SampleInterval, limits: &Thresholds) -> f64 {
    limits.inferred_hang_seconds + interval.two_sample_seconds(limits)
}

/// Returns the seconds for which it is information: a job may wait for as long while one of its nodes writes a checkpoint.
fn warning_delay(
    only_idles: bool,
    writes: bool,
    interval: SampleInterval,
    limits: &Thresholds,
) -> f64 {
    if writes {
        checkpoint_seconds(interval, limits)
    } else if only_idles {
        limits.pause_settle_seconds + interval.two_sample_seconds(limits)
    } else {
        0.0
    }
}

impl<'a> StarvedNode<'a> {
    pub(super) fn detect_node(
        judge: &'a JudgeState,
        cluster: &'a Cluster,
        group: &'a JobGroup,
        idle: Option<&IdleRanks>,
        id: NodeId,
    ) -> Option<Self> {
        let limits = &judge.limits;
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let node = cluster.node_by_id(id)?;
        let rows = rows_in_group(judge, cluster, node, group);
        if rows.is_empty() {
            return None;
        }
        let known = |row: &u32| judge.gpus.get(*row as usize);
        let busy = |rows: &[u32]| {
            median(rows.iter().filter_map(|row| known(row)?.averages.utilization_at(now, gap)))
        };
        let elsewhere = utilization_elsewhere(judge, cluster, group, &rows);
        let interval = SampleInterval::of_gpus(cluster, node);
        // Samples that are taken now and then vary by chance: only a large drop counts.
        let starved =
            if interval.is_slow(limits) { limits.hungry_slow_ratio } else { limits.hungry_ratio };
        // Where nothing is sent any more the whole job pauses: it writes a checkpoint, or ends.
        let host = judge.hosts.get(id).copied().unwrap_or_default();
        let is_waited_for = is_waited_for(&host, elsewhere, limits);
        if host.is_pausing(cluster, limits) == Some(true) && !is_waited_for {
            return None;
        }
        // What was there at the first look became the baseline: then the other nodes of the job are the reference.
        let outlying = Some(HostPressure::of(judge, cluster, &host))
            .filter(|pressure| !pressure.is_any())
            .and_then(|_| OutlyingPressure::of(judge, cluster, group, id));
        let low_one = |row: &u32| {
            let averages = &known(row)?.averages;
            let utilization = averages.utilization_at(now, gap)?;
            // Before its own baseline is known, the others serve as one if they are busy all the time.
            let spins = |busy: &f64| *busy >= limits.utilization_spinning_ratio;
            let own = averages.usual_utilization().filter(|_| outlying.is_none());
            let baseline = own.or(elsewhere.filter(spins))?;
            // It still does some work: a GPU that does none pauses, or hangs. Traffic does not show it: a checkpoint
            // may use the same ports.
            let works = utilization >= limits.standstill_ratio
                && averages.activity_ratio(now, gap, &judge.limits).unwrap_or(utilization)
                    >= limits.standstill_ratio;
            let works = works || is_waited_for;
            let goes_on = works || checkpoint_pause::works_intermittently(judge, cluster, *row);
            let was_busy = baseline >= limits.utilization_launch_ratio;
            Some(was_busy && utilization < baseline * starved && goes_on)
        };
        let now_low = rows.iter().filter(|row| low_one(row) == Some(true)).copied();
        let idle_rows = idle.map(|idle| idle.on_node(id)).unwrap_or_default();
        let idle_ranks = idle
            .filter(|_| !idle_rows.is_empty())
            .map(|idle| idle.others_wait() && idle.is_single());
        let low = match now_low.collect::<Vec<u32>>() {
            _ if idle_ranks.is_some() => idle_rows.to_vec(),
            low if !low.is_empty() => low,
            _ if interval.is_slow(limits) => {
                low_between_samples(judge, cluster, group, &host, &rows)?
            }
            _ => return None,
        };
        let own = |row: &u32| known(row)?.averages.usual_utilization();
        let baseline = median(low.iter().filter_map(own)).filter(|_| outlying.is_none());
        let baseline = baseline.or(elsewhere);
        // In a job group of one node the others are those GPUs of the node that stay at their baseline.
        let siblings = rows.iter().filter(|row| !low.contains(row)).copied();
        let others = elsewhere.or_else(|| busy(&siblings.collect::<Vec<u32>>()));
        let utilization = busy(&low)?;
        Some(Self {
            id,
            node,
            group,
            host,
            outlying,
            utilization,
            baseline,
            others,
            of: rows.len(),
            low,
            idle_ranks,
            low_ratio: starved,
        })
    }

    /// Creates one from those of its GPUs that idle; all of them if none are given.
    pub(super) fn of_idle_rows(
        judge: &'a JudgeState,
        cluster: &'a Cluster,
        group: &'a JobGroup,
        id: NodeId,
        idle_rows: Option<&[u32]>,
        idle_ranks: bool,
    ) -> Option<Self> {
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let node = cluster.node_by_id(id)?;
        let averages = |row: &u32| Some(&judge.gpus.get(*row as usize)?.averages);
        let rows = rows_in_group(judge, cluster, node, group);
        let low = idle_rows.map_or_else(|| rows.clone(), <[u32]>::to_vec);
        if rows.is_empty() {
            return None;
        }
        Some(Self {
            id,
            node,
            group,
            host: judge.hosts.get(id).copied().unwrap_or_default(),
            outlying: None,
            utilization: median(
                low.iter().filter_map(|row| averages(row)?.utilization_at(now, gap)),
            )?,
            baseline: median(low.iter().filter_map(|row| averages(row)?.usual_utilization())),
            others: utilization_elsewhere(judge, cluster, group, &rows),
            of: rows.len(),
            low,
            idle_ranks: Some(idle_ranks),
            low_ratio: judge.limits.hungry_ratio,
        })
    }

    /// Returns what its host waits for.
    fn pressure(&self, judge: &JudgeState, cluster: &Cluster) -> HostPressure {
        HostPressure::of(judge, cluster, &self.host).with_outlying(self.outlying)
    }

    /// Whether its GPUs are less busy than before.
    pub(super) fn is_below_baseline(&self, limits: &Thresholds) -> bool {
        self.baseline.is_some_and(|baseline| self.utilization < baseline * limits.hungry_ratio)
    }

    /// Whether all its GPUs idle half of the time that they were busy, while the others are busy all the time and lose at
    /// least half as much of their pace: they wait for it.
    fn is_plainly_waited_for(&self, judge: &JudgeState, cluster: &Cluster) -> bool {
        let spins = judge.limits.utilization_spinning_ratio;
        let is_half_of = |busy: &f64| *busy >= spins && self.utilization * 2.0 <= *busy;
        let Some(baseline) = self.baseline.filter(is_half_of) else { return false };
        if self.low.len() < self.of || !self.others.as_ref().is_some_and(is_half_of) {
            return false;
        }
        let lost = 1.0 - self.utilization / baseline;
        pace_elsewhere(judge, cluster, self.group, &self.low)
            .is_some_and(|pace| (1.0 - pace) * 2.0 >= lost)
    }

    /// Whether its host's tasks clearly wait, while its GPUs idle half of the time that the others are busy: that needs no
    /// comparison with chance. A job that stops again and again, or hardly goes on, gives no rounds to know that from.
    pub(super) fn is_plain(&self, judge: &JudgeState, cluster: &Cluster) -> bool {
        let pressure = self.pressure(judge, cluster);
        let is_pressed = pressure.pressed && is_waited_for(&self.host, self.others, &judge.limits);
        if is_pressed && self.others.is_some_and(|others| self.utilization * 2.0 <= others) {
            return true;
        }
        let waits_longer =
            |io: BaselineComparison| io.baseline.is_some_and(|baseline| io.now >= 2.0 * baseline);
        pressure.is_clear(&self.host)
            && self.excess_io_pressure(judge, cluster).is_some_and(waits_longer)
            && self.is_plainly_waited_for(judge, cluster)
    }

    /// Whether the others plainly wait for it, or seem to and are slower by more than chance while all its GPUs idle.
    fn is_awaited(&self, judge: &JudgeState, cluster: &Cluster, others_wait: bool) -> bool {
        let evidence = judge.gangs.of(self.group);
        let is_slower =
            || evidence.is_steady(self.group) && evidence.is_slower(self.group, &judge.limits);
        let is_alone = others_wait && self.low.len() == self.of && is_slower();
        (is_alone && !self.idles_with_another(judge, cluster))
            || self.is_plainly_waited_for(judge, cluster)
    }

    /// Whether another node of its job has lost at least half as much of its utilization: then both wait for something else.
    fn idles_with_another(&self, judge: &JudgeState, cluster: &Cluster) -> bool {
        let Some(baseline) = self.baseline else { return false };
        let least = (baseline - self.utilization) * NEIGHBOUR_SHARE;
        let others = self.group.nodes.iter().filter(|id| **id != self.id);
        others
            .filter_map(|id| utilization_drop(judge, cluster, self.group, *id))
            .any(|drop| drop >= least)
    }

    /// Whether the others are busier than it.
    pub(super) fn is_below_others(&self, judge: &JudgeState) -> bool {
        self.others.is_some_and(|others| self.utilization < others * judge.limits.hungry_ratio)
    }

    /// Whether its job is slower, and its host is the only one of the job that waits for CPU or IO more than hosts do.
    fn is_only_one_pressed(&self, judge: &JudgeState, cluster: &Cluster) -> bool {
        only_pressed(judge, cluster, self.group) == Some(self.id)
    }

    pub(super) fn excess_io_pressure(
        &self,
        judge: &JudgeState,
        cluster: &Cluster,
    ) -> Option<BaselineComparison> {
        self.host.excess_io_pressure(cluster, &judge.limits)
    }

    /// Returns the response time of its network file systems, if that is clearly above its baseline.
    pub(super) fn slow_response(
        &self,
        judge: &JudgeState,
        cluster: &Cluster,
    ) -> Option<BaselineComparison> {
        self.host.slow_response(cluster, &judge.limits)
    }

    /// Whether its host, which waits for IO, most likely writes a checkpoint, unless that goes on for longer: it writes more
    /// than it reads, and does not wait for CPUs. Where that is not known, its job stops, or did a moment ago: rare samples
    /// show a checkpoint for minutes.
    fn may_checkpoint(&self, judge: &JudgeState, cluster: &Cluster) -> bool {
        let (group, limits) = (self.group, &judge.limits);
        if group.interval.is_slow(limits) && !self.host.tells_transfers(cluster) {
            return judge.pauses.distort_averages(group, cluster.now(), limits);
        }
        self.mostly_writes(cluster) && !self.host.evidence.is_likely(PressureSource::Cpu)
    }

    /// Whether its host writes more than it reads.
    pub(super) fn mostly_writes(&self, cluster: &Cluster) -> bool {
        self.host.mostly_writes(cluster)
    }

    pub(super) fn waits_for_io(&self, judge: &JudgeState, cluster: &Cluster) -> bool {
        self.excess_io_pressure(judge, cluster).is_some() && self.low.len() * 2 > self.of
    }

    pub(super) fn pending_finding(
        &self,
        judge: &JudgeState,
        cluster: &Cluster,
    ) -> Option<PendingFinding> {
        let limits = &judge.limits;
        let pressure = self.pressure(judge, cluster);
        let HostPressure { io, pressed, crowded, pegged, .. } = pressure;
        // Where it is known how far ranks of this job differ by chance, they must differ by more.
        let is_known = judge.gangs.of(self.group).knows_its_ranks() && self.group.nodes.len() > 1;
        let idlers = self
            .low
            .iter()
            .filter(|row| judge.gpus.get(**row as usize).is_some_and(|gpu| gpu.idler.is_likely()));
        let is_idler = idlers.count() * 2 > self.low.len()
            || self.outlying.is_some()
            || self.is_plain(judge, cluster);
        let alone = self.is_below_others(judge) && (!is_known || is_idler);
        let is_slowed =
            self.group.slowdown_ratio().is_some_and(|slowed| slowed >= limits.slowed_ratio);
        let waits = (!is_known || is_idler)
            && is_slowed
            && self.group.nodes.len() > 1
            && self.others.is_some_and(|others| others >= limits.utilization_spinning_ratio);
        let host = [io, pressed || crowded, pegged].into_iter().filter(|kind| *kind).count();
        let others_wait = self.idle_ranks == Some(true) && is_slowed;
        if host == 0 && !(alone && waits) && !others_wait {
            return None;
        }
        // One rank that idles launches its kernels too slowly; input is late for all of a node.
        let is_rank = self.is_minority() && !io;
        let kind = if is_rank {
            FindingKind::HostBound
        } else if io || pressed || host == 0 {
            FindingKind::DataStarved
        } else {
            FindingKind::HostBound
        };
        let kind = told_kind(judge, &self.node.name, kind);
        let interval = SampleInterval::of_gpus(cluster, self.node);
        // Its own drop and the waiting of the others are one kind of evidence seen from two sides.
        let is_relative = alone || waits || self.idle_ranks == Some(true);
        // A CPU that does more than before, while GPUs do less of the same, works for them and is too slow.
        // GPUs that wait for requests do less at times, and their number decides how busy the host is.
        let is_steady = judge.gangs.of(self.group).is_steady(self.group);
        let is_busier = pegged && is_steady && does_less_of_the_same(judge, cluster, self.group);
        // Chores make tasks wait on any host: that pages where it is known to be more than hosts do by chance, or where
        // the rest of the job waits for this node.
        let is_much = pressure.is_clear(&self.host)
            || self.outlying.is_some()
            || self.host.evidence.is_likely(PressureSource::Cpu)
            || ((io || pressed || pegged) && alone && waits)
            || is_busier;
        let kinds = usize::from(host > 0 && is_much) + usize::from(is_relative);
        // A CPU is busier while a job begins to work; before its ranks are known only a saturated one shows anything, unless
        // the rest of the job goes on as usual.
        let is_saturated = pressure.saturated && !self.goes_on(is_slowed);
        let is_shown = is_known || io || pressed || crowded || is_saturated || is_busier;
        // A host with chores on which GPUs idle like all others proves nothing.
        // Until it is known how far ranks differ by chance, one that differs alone proves nothing.
        let is_hard = (others_wait && (is_known || !is_rank))
            || (is_rank && is_known && alone && waits)
            || (host > 0 && is_shown && (is_relative || self.group.nodes.len() == 1))
            || self.is_only_one_pressed(judge, cluster);
        let entity = Entity::new_node(&self.node.name);
        let summary = self.render_summary(kind, judge, cluster);
        // Others may also wait for a node that writes a checkpoint for all.
        let only_idles = !is_hard && self.is_awaited(judge, cluster, alone && waits);
        let mut pending = PendingFinding::of(kind, entity, kinds, is_hard || only_idles);
        if self.never_pages(judge, is_slowed) {
            pending.cap_severity();
        }
        let writes = pressure.io && self.may_checkpoint(judge, cluster);
        let pending = pending
            .with_warning_delay(warning_delay(only_idles, writes, interval, limits))
            .with_cost(
                self.group.lost_gpus().max(self.idle_gpus()),
                self.group.list_victims(cluster, Some(self.id)),
            );
        let is_chore = kinds < 2 && self.may_be_chore(cluster);
        Some(
            if is_chore { pending.delay_small_loss(judge.gpus.len()) } else { pending }
                .with_hold_seconds(self.hold_seconds(judge, io, host > 0, interval))
                .with_interval(interval)
                .with_summary(summary, self.next_step(kind, io))
                .with_possible_evidence(self.collect_evidence(judge, cluster)),
        )
    }

    /// Whether a job on one node may show what its host does now and then.
    fn may_be_chore(&self, cluster: &Cluster) -> bool {
        self.group.nodes.len() == 1 && !self.host.mostly_waits(cluster)
    }

    /// Returns how many GPUs idle more than before, as a sum of shares.
    pub(super) fn idle_gpus(&self) -> f64 {
        let idle = 1.0 - self.utilization / self.baseline.unwrap_or(1.0);
        idle.max(0.0) * self.low.len() as f64
    }

    /// Whether it is no more than a warning, whatever else shows it, in a job that is slower or not.
    fn never_pages(&self, judge: &JudgeState, is_slowed: bool) -> bool {
        // Its past does not tell what it costs, and another job may differ as well.
        let has_no_past = self.outlying.is_some();
        // It costs little.
        let goes_on = self.goes_on(is_slowed);
        // GPUs that wait for requests idle at times, whatever their host does.
        has_no_past || goes_on || !judge.gangs.of(self.group).is_steady(self.group)
    }

    /// Whether the rest of its job goes on as usual.
    fn goes_on(&self, is_slowed: bool) -> bool {
        self.group.nodes.len() > 1 && self.group.slowdown_ratio().is_some() && !is_slowed
    }

    /// Whether at most half of the node's GPUs in the job are low.
    fn is_minority(&self) -> bool {
        self.of > 1 && self.low.len() * 2 <= self.of
    }

    /// Returns the seconds for which it must starve. A node that wrote a checkpoint waited for the disk as well, and goes
    /// on; one rank that waits for the disk, or for what its host does not show, most likely writes one.
    fn hold_seconds(
        &self,
        judge: &JudgeState,
        io: bool,
        is_host_seen: bool,
        interval: SampleInterval,
    ) -> f64 {
        let limits = &judge.limits;
        if self.is_minority() && !is_host_seen {
            // Ranks that idle are known by at least two rounds of samples, during which they idled already.
            let round = interval.seconds().max(limits.average_seconds);
            let seen = if self.idle_ranks.is_some() { 2.0 * round } else { 0.0 };
            let left = limits.pause_settle_seconds - seen;
            return left.max(interval.two_sample_seconds(limits));
        }
        if self.idle_ranks == Some(true) {
            // A short pause of all ranks shows one node as idle for one sample, before the job is known to be slower.
            let is_shown = is_host_seen || judge.gangs.of(self.group).is_slower(self.group, limits);
            return if is_shown { 0.0 } else { interval.two_sample_seconds(limits) };
        }
        let hold = match io {
            true if self.is_minority() => limits.unexplained_seconds,
            true => limits.storage_seconds,
            false => limits.starved_seconds,
        };
        hold.max(interval.two_sample_seconds(limits))
    }
}
