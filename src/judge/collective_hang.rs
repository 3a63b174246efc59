//! Collective hangs: jobs that stand still in a collective that never ends, and jobs that hold GPUs without using them.

use std::fmt::Write;

use gaunt_schema::{DeviceClass, Entity, EvidenceItem, FindingKind, GpuState, Severity};

use super::{
    EvidenceRow, JudgeState, Thresholds,
    finding_lifecycle::DetectorOutcome,
    gpu_ratings::is_share_of_limit,
    gpu_signals,
    gpu_tracker::GpuTracker,
    host_averages::HostAverages,
    host_pressure::HostPressure,
    job_group::JobGroup,
    lost_workers::detect_lost_workers,
    pending_finding::{PendingFinding, format_count},
    robust_stats::median,
    starved_node::checkpoint_seconds,
    still_gpu::{has_fallen_silent, is_still, most_waiting_power},
};
use gaunt_cluster::{Cluster, NodeId};

/// Traffic / usual traffic from which a job on a single node is the one that sends or receives.
const MORE_THAN_USUAL: f64 = 1.5;

/// How many times as long as others ranks must do nothing where only the silence of their GPUs and of a disk shows it.
const ALONE_TIMES: f64 = 1.5;

/// Adds hung jobs, and jobs that hold GPUs without using them.
pub(super) fn detect_hung_jobs(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    for group in judge.job_groups.all_groups().iter().filter(|group| group.gpus.len() > 1) {
        let hang = detect_collective_hang(judge, cluster, group);
        // A job that does nothing may hang; once it has done nothing for long it may also be forgotten.
        if hang.as_ref().is_none_or(|hang| hang.finding.severity == Severity::Warning) {
            let lost = detect_lost_workers(judge, cluster, group);
            outcome
                .suspicions
                .extend(lost.or_else(|| detect_idle_allocation(judge, cluster, group)));
        }
        outcome.suspicions.extend(hang);
    }
}

/// Detects a collective hang: no rank computes, nothing is sent, no host reads or writes. Ranks that busy-wait are in a
/// collective; ranks that do not may wait for somebody instead, which pages nobody.
fn detect_collective_hang(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    let silent = has_fallen_silent(group, limits);
    let is_still_one = |gpu: &GpuTracker| is_still(judge, cluster, gpu, silent) == Some(true);
    let nodes = nodes_where(judge, cluster, group, is_still_one);
    let ranks = RankActivity::of(judge, cluster, group, &nodes, is_still_one);
    // One rank may be missing from the collective: the others wait for it.
    let least = (limits.hung_gpus_ratio * ranks.known as f64).min(ranks.known as f64 - 1.0);
    let spins = ranks.busy_waiting as f64 >= least;
    let stands = ranks.still as f64 >= least && ranks.busy_waiting <= 1;
    // Some busy-wait for others that do nothing at all.
    let await_idle = ranks.still as f64 >= least && !spins && !stands;
    // A job that never did anything is starting; one of two ranks that draws little for itself is throttled.
    let has_worked = ranks.still * 2 >= ranks.known && ranks.still > 1;
    // A single one that does nothing is no collective.
    let is_alone = stands && !spins && ranks.still < limits.hung_ranks as usize;
    let is_hung = (spins || stands || await_idle) && !is_alone;
    if ranks.known < limits.hung_ranks as usize || !is_hung || !has_worked {
        return None;
    }
    let is_profiled = group.is_profiled(&judge.gpus, cluster.now(), cluster.freshness_window());
    let hosts = SilentHosts::of(judge, cluster, group, &nodes, is_profiled)?;
    // What never worked has no past to fall short of: that no data moves between nodes must show that it should have begun.
    let in_start = ranks.never_worked * 2 >= ranks.known;
    if in_start && (group.nodes.len() < 2 || hosts.traffic.is_none()) {
        return None;
    }
    let silent_kinds =
        usize::from(hosts.traffic.is_some()) + usize::from(hosts.io.is_some() && !hosts.wait);
    let finding = if spins || await_idle {
        let busy_waiting = format_count(ranks.busy_waiting, "GPU");
        let mut what = format!("{busy_waiting} busy-wait in a collective without progress");
        if await_idle {
            let _ = write!(what, ", {} do nothing", ranks.known - ranks.busy_waiting);
        }
        if in_start {
            what += " and have done no work since their processes began";
        }
        // Ranks of which only the silence shows that they stand still may do other work, for which they exchange nothing.
        let is_sure = group.job.is_some() && (is_profiled || ranks.show_a_stop());
        let page_delay = if is_sure { 0.0 } else { limits.inferred_hang_seconds };
        // Where nothing shows that the hosts are silent, ranks may wait for one that writes a checkpoint: not for long.
        let warning_delay = if silent_kinds == 0 { limits.inferred_hang_seconds } else { 0.0 };
        // Those may load, or write a checkpoint.
        let may_write = hosts.wait || await_idle;
        let checkpoint = if may_write { checkpoint_seconds(group.interval, limits) } else { 0.0 };
        PendingFinding::of(FindingKind::CollectiveHang, group.to_entity(), 1 + silent_kinds, true)
            .with_hold_seconds(limits.hung_seconds.max(checkpoint))
            .with_page_delay(page_delay)
            .with_warning_delay(warning_delay)
            .with_summary(ranks.render_hang(group, &what), ranks.next_step())
            .with_evidence([EvidenceRow::BusyWaitingGpus
                .to_evidence(Some(ranks.busy_waiting as f64), Some(least.ceil()))
                .context_if(await_idle)
                .with_note(format!("limit: share of {} GPUs", ranks.known))])
    } else {
        idle_hang(judge, cluster, group, &ranks, &hosts, least)?
    };
    let mut finding = finding
        .with_cost(ranks.known as f64, list_victims(cluster, group, &nodes))
        .with_evidence(ranks.collect_evidence(limits, is_profiled))
        .with_evidence(hosts.collect_evidence(limits));
    // Whether a job works at all is known once it has.
    let has_worked =
        |row: &u32| judge.gpus.get(*row as usize).is_some_and(|gpu| gpu.start.has_worked);
    if in_start && !group.gpus.iter().any(has_worked) {
        finding.cap_severity();
    }
    Some(finding)
}

/// Returns the finding that all ranks of a job do nothing, unless that is how it is used; it may wait for somebody.
fn idle_hang(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
    ranks: &RankActivity,
    hosts: &SilentHosts,
    least: f64,
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    // One that comes and goes on a single node, such as a notebook, waits for its user.
    let evidence = judge.gangs.of(group);
    let works_steadily = evidence.is_learned() && evidence.is_steady(group);
    let is_alone = group.nodes.len() < 2 && (evidence.has_paused() || !works_steadily);
    if group.job.is_none()
        || is_alone
        || hosts.serve
        || hosts.wait
        || !is_held(cluster, group, limits)
    {
        return None;
    }
    let hold = limits.pause_settle_seconds * hosts.silent_times?;
    let idle = format_count(ranks.still, "GPU");
    let verb = if ranks.still == 1 { "does" } else { "do" };
    let what = format!("{idle} {verb} nothing, nothing is sent, and no host reads or writes");
    Some(
        PendingFinding::of(FindingKind::CollectiveHang, group.to_entity(), 1, true)
            .with_hold_seconds(hold)
            .with_summary(ranks.render_hang(group, &what), ranks.next_step())
            .with_evidence([EvidenceRow::IdleGpus
                .to_evidence(Some(ranks.still as f64), Some(least))
                .with_note(format!("limit: share of {} GPUs", ranks.known))]),
    )
}

/// Whether processes still hold most GPUs of a job: its label may outlast it.
fn is_held(cluster: &Cluster, group: &JobGroup, limits: &Thresholds) -> bool {
    let held = |row: &&u32| gpu_signals::is_held(cluster, **row, limits) == Some(true);
    group.gpus.iter().filter(held).count() * 2 > group.gpus.len()
}

/// The hosts of a job of which none sends much.
struct SilentHosts {
    /// The largest values, as far as known.
    traffic: Option<f64>,
    io: Option<f64>,
    /// The IO pressure from which one would read or write.
    most_io: Option<f64>,
    /// The traffic from which one would send.
    silent_below: f64,
    /// For how many times a pause they must be silent to show that nobody works; none where they do not show it.
    silent_times: Option<f64>,
    /// Whether one of them serves requests, and whether one of them waits for IO, so that it may write a checkpoint.
    serve: bool,
    wait: bool,
}

impl SilentHosts {
    /// Returns these hosts; none if one of them sends.
    fn of(
        judge: &JudgeState,
        cluster: &Cluster,
        group: &JobGroup,
        nodes: &[NodeId],
        is_profiled: bool,
    ) -> Option<Self> {
        let limits = &judge.limits;
        // What a node sends that several jobs share may be of another one.
        let is_shared = |id: &&NodeId| {
            let rows = cluster.node_by_id(**id).map(|node| node.device_rows(DeviceClass::Gpu));
            let mut groups =
                rows.unwrap_or_default().iter().filter_map(|row| judge.job_groups.of(*row));
            groups.any(|other| !std::ptr::eq(other, group))
        };
        let own: Vec<NodeId> = nodes.iter().filter(|id| !is_shared(id)).copied().collect();
        let nodes = if own.is_empty() { nodes } else { &own };
        let hosts = || nodes.iter().filter_map(|id| judge.hosts.get(*id));
        // Ports carry other traffic besides, and hosts have chores: only what is much by a host's own past is progress,
        // or a checkpoint.
        let usual = |host: &HostAverages| host.compare_traffic(cluster)?.baseline;
        // Ranks of one node that are known to compute nothing do not need the network: only more than usual, such as a
        // checkpoint, is theirs.
        let is_local = group.nodes.len() == 1 && is_profiled;
        let share = if is_local { MORE_THAN_USUAL } else { limits.standstill_ratio };
        let sends_from = |host: &HostAverages| {
            limits.silent_network_ratio.max(usual(host).unwrap_or_default() * share)
        };
        let traffic = |host: &HostAverages| host.busier_traffic(cluster);
        if hosts().any(|host| traffic(host).is_some_and(|now| now >= sends_from(host))) {
            return None;
        }
        let sends = |host: &HostAverages| {
            usual(host).is_some_and(|usual| usual >= limits.silent_network_ratio)
        };
        // The ranks of one node need no network; then its disks and mounts must be known to be silent as well.
        let silent_times = match group.nodes.len() {
            _ if hosts().all(sends) => Some(1.0),
            1 if hosts().all(|host| host.transfers_little(cluster)) => Some(ALONE_TIMES),
            _ => None,
        };
        Some(Self {
            traffic: hosts().filter_map(traffic).reduce(f64::max),
            io: hosts()
                .filter_map(|host| Some(host.compare_io_pressure(cluster)?.now))
                .reduce(f64::max),
            most_io: hosts()
                .filter_map(|host| host.compare_io_pressure(cluster))
                .map(|io| io.limit_beside_baseline(limits.io_pressure_ratio, limits))
                .reduce(f64::max),
            silent_below: hosts().map(sends_from).fold(limits.silent_network_ratio, f64::max),
            silent_times,
            serve: hosts().any(|host| host.queue.is_some()),
            wait: hosts().any(|host| HostPressure::of(judge, cluster, host).io),
        })
    }

    fn collect_evidence(&self, limits: &Thresholds) -> [EvidenceItem; 2] {
        let is_raised = self.most_io.is_some_and(|limit| limit > limits.io_pressure_ratio);
        let note = if is_raised { "limit: pressure_times its baseline" } else { "" };
        [
            EvidenceRow::PortTraffic
                .to_evidence(self.traffic, Some(self.silent_below))
                .with_note("limit: beside the baseline"),
            EvidenceRow::IoPressure
                .to_evidence(self.io, self.most_io)
                .ruling_out()
                .context_if(self.wait)
                .with_note(note)
                .or_context(),
        ]
    }
}

/// The activity of the ranks of a job group that may hang.
struct RankActivity {
    known: usize,
    busy_waiting: usize,
    still: usize,
    /// Those that have never worked since their processes began, too long ago for a start.
    never_worked: usize,
    pace: Option<f64>,
    power: Option<f64>,
    /// The power below which they may busy-wait.
    most_power: Option<f64>,
    memory: Option<f64>,
    /// The memory activity below which their work has stopped.
    most_memory: Option<f64>,
    /// The rank that does not busy-wait, if there is a single one.
    outlier: Option<Entity>,
}

impl RankActivity {
    fn of(
        judge: &JudgeState,
        cluster: &Cluster,
        group: &JobGroup,
        nodes: &[NodeId],
        is_still: impl Fn(&GpuTracker) -> bool,
    ) -> Self {
        let limits = &judge.limits;
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let (mut paces, mut powers, mut most_powers) = (Vec::new(), Vec::new(), Vec::new());
        let mut memory = Vec::new();
        let mut outliers = Vec::new();
        let (mut known, mut busy_waiting, mut still, mut never_worked) = (0, 0, 0, 0);
        for row in &group.gpus {
            let Some(entry) = cluster.device_at(DeviceClass::Gpu, *row) else { continue };
            let Some(gpu) = judge.gpus.get(*row as usize) else { continue };
            let Some(busy) = gpu.averages.utilization_at(now, gap) else { continue };
            if nodes.binary_search(&entry.node).is_err() {
                continue;
            }
            known += 1;
            if busy >= limits.utilization_spinning_ratio {
                busy_waiting += 1;
            } else {
                outliers.push(entry);
            }
            still += usize::from(is_still(gpu));
            never_worked += usize::from(gpu.start.has_never_worked(now));
            paces.extend(gpu.averages.activity_ratio(now, gap, &judge.limits));
            powers.extend(gpu.averages.power_at(now, gap));
            most_powers.push(most_waiting_power(gpu, limits));
            memory.extend(gpu.averages.memory_activity(now, gap, limits));
        }
        let outlier = match outliers.as_slice() {
            [entry] => cluster
                .node_by_id(entry.node)
                .zip(entry.device.key.first())
                .map(|(node, gpu)| Entity::new_gpu(&node.name, gpu)),
            _ => None,
        };
        Self {
            known,
            busy_waiting,
            still,
            never_worked,
            pace: median(paces),
            power: median(powers),
            most_power: median(most_powers),
            memory: median(memory.iter().map(|(activity, _)| *activity)),
            most_memory: median(memory.iter().map(|(_, most)| most * limits.standstill_ratio)),
            outlier,
        }
    }

    /// Whether they draw as little as ranks that busy-wait do, or no longer use their memory.
    fn show_a_stop(&self) -> bool {
        let is_below = |(value, limit)| value < limit;
        self.power.zip(self.most_power).is_some_and(is_below)
            || self.memory.zip(self.most_memory).is_some_and(is_below)
    }

    /// Returns the summary; it names the rank that is missing from the collective if there is a single one.
    fn render_hang(&self, group: &JobGroup, what: &str) -> String {
        let missing = self.missing_rank().map(|rank| format!("; {rank} does not busy-wait"));
        format!("{} hangs: {what}{}.", group.render_title(), missing.unwrap_or_default())
    }

    fn next_step(&self) -> String {
        let target = self.missing_rank().map_or("the ranks".to_owned(), ToString::to_string);
        format!(
            "Find the rank that is missing from the collective (NCCL RAS, py-spy on {target}), then restart the job."
        )
    }

    fn missing_rank(&self) -> Option<&Entity> {
        self.outlier.as_ref().filter(|_| self.busy_waiting > 1)
    }

    /// Returns how little they do: power and memory count only without profiling counters, where the activity is inferred
    /// from power.
    fn collect_evidence(&self, limits: &Thresholds, is_profiled: bool) -> [EvidenceItem; 3] {
        let (least, key) = if is_profiled {
            (limits.hung_pace_ratio, "hung_pace_ratio")
        } else {
            (limits.hung_power_pace_ratio, "hung_power_pace_ratio")
        };
        let activity = EvidenceRow::Activity.to_evidence(self.pace, Some(least));
        let is_raised = self.most_power > Some(limits.power_waiting_ratio);
        let note = if is_raised { "limit: beside its usual power" } else { "" };
        let power = self.power.filter(|power| is_share_of_limit(*power));
        let power = EvidenceRow::Power.to_evidence(power, self.most_power).with_note(note);
        let memory = EvidenceRow::MemoryActivity
            .to_evidence(self.memory, self.most_memory)
            .with_note("limit: share of the highest of this work");
        // One rank may still do something.
        [
            activity.with_threshold(key).or_context(),
            power.context_if(is_profiled).or_context(),
            memory.context_if(is_profiled).or_context(),
        ]
    }
}

/// Returns the nodes that may hang together, sorted by number: all of a labelled job; without job labels two jobs may
/// have been grouped as one, so only nodes on which most GPUs match.
fn nodes_where(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
    is: impl Fn(&GpuTracker) -> bool,
) -> Vec<NodeId> {
    if group.job.is_some() {
        return group.nodes.clone();
    }
    let wanted = |id: &&NodeId| {
        let rows = cluster
            .node_by_id(**id)
            .map(|node| node.device_rows(DeviceClass::Gpu))
            .unwrap_or_default();
        let are = rows.iter().filter_map(|row| judge.gpus.get(*row as usize)).filter(|gpu| is(gpu));
        are.count() * 2 > rows.len()
    };
    group.nodes.iter().filter(wanted).copied().collect()
}

/// Lists the job and its nodes that hang.
fn list_victims(cluster: &Cluster, group: &JobGroup, nodes: &[NodeId]) -> Vec<Entity> {
    let on = |victim: &Entity| {
        let node = victim.node.as_ref().and_then(|node| cluster.node_by_name(node));
        victim.node.is_none() || node.is_some_and(|(id, _)| nodes.binary_search(&id).is_ok())
    };
    group.list_victims(cluster, None).into_iter().filter(on).collect()
}

/// Reports a job that holds its GPUs and uses none of them: an informational finding, which never pages.
fn detect_idle_allocation(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
) -> Option<PendingFinding> {
    let is = |gpu: &GpuTracker| gpu.hysteresis.current_state() == GpuState::IdleAllocated;
    let nodes = nodes_where(judge, cluster, group, is);
    let on = |row: &&u32| {
        cluster
            .device_at(DeviceClass::Gpu, **row)
            .is_some_and(|entry| nodes.binary_search(&entry.node).is_ok())
    };
    let gpus: Vec<u32> = group.gpus.iter().filter(on).copied().collect();
    // Those that cannot be read say nothing: most must be known.
    let states = gpus.iter().map(|row| judge.gpu_state(*row));
    let known: Vec<GpuState> =
        states.filter(|state| !matches!(state, GpuState::Unknown | GpuState::Stale)).collect();
    let idle = known.iter().filter(|state| **state == GpuState::IdleAllocated).count();
    if idle * 2 <= gpus.len() || idle < known.len() {
        return None;
    }
    let serves =
        nodes.iter().any(|id| judge.hosts.get(*id).is_some_and(|host| host.queue.is_some()));
    let seconds =
        if serves { judge.limits.serving_idle_seconds } else { judge.limits.idle_seconds };
    Some(
        PendingFinding::of(FindingKind::IdleAllocated, group.to_entity(), 1, false)
            .with_hold_seconds(seconds)
            .with_cost(idle as f64, list_victims(cluster, group, &nodes))
            .with_summary(
                format!(
                    "{} holds {} and uses none of them.",
                    group.render_title(),
                    format_count(idle, "GPU")
                ),
                "Ask its owner whether the job still needs them.".to_owned(),
            )
            .with_evidence([EvidenceRow::IdleGpus.to_evidence(Some(idle as f64), None)]),
    )
}
