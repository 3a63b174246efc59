//! Hosts that starve their GPUs: slow input, slow launches, or storage that a whole job waits for.

use std::collections::BTreeSet;

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{Entity, EntityKind, FindingKind, SanitizedText, Severity};

use super::{
    EvidenceRow, JudgeState, checkpoint_pause,
    finding_lifecycle::DetectorOutcome,
    host_evidence::PressureSource,
    host_pressure::only_pressed,
    idle_ranks::IdleRanks,
    job_group::JobGroup,
    loaded_ports::is_congested_alone,
    pending_finding::{PendingFinding, format_count, format_percent},
    robust_stats::median,
    sample_interval::SampleInterval,
    shared_storage::{LoneWaiter, split_waiters},
    starved_job::CpuWaiters,
    starved_node::{StarvedNode, checkpoint_seconds},
    starved_rounds::{RareVerdict, detect_from_rounds, find_held_up},
};

/// IO pressure of at least so many times its limit is no chore that all hosts begin at the same minute.
const MUCH_TIMES: f64 = 2.0;

/// A slowdown is small below so many times the least one that counts.
const SMALL_TIMES: f64 = 2.0;

/// Adds hosts that starve their GPUs, and storage that starves many.
pub(super) fn detect_starved_nodes(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let mut found = StarvedNodes {
        judge,
        cluster,
        reported: BTreeSet::new(),
        storage: Vec::new(),
        lone: Vec::new(),
    };
    for group in judge.job_groups.all_groups() {
        checkpoint_pause::refute_starvation(judge, cluster, group, outcome);
        found.add_group(group, outcome);
    }
    found.add_storage(outcome);
}

/// What is found in all jobs.
struct StarvedNodes<'a> {
    judge: &'a JudgeState,
    cluster: &'a Cluster,
    /// The nodes of which something is told.
    reported: BTreeSet<NodeId>,
    /// The jobs that wait for storage, with those of their nodes that show it.
    storage: Vec<(&'a JobGroup, Vec<StarvedNode<'a>>)>,
    /// The jobs on one node each whose hosts wait for IO.
    lone: Vec<LoneWaiter<'a>>,
}

impl<'a> StarvedNodes<'a> {
    /// Adds what keeps the GPUs of one job waiting.
    fn add_group(&mut self, group: &'a JobGroup, outcome: &mut DetectorOutcome) {
        let (judge, cluster) = (self.judge, self.cluster);
        // A job that stops, or nearly does, most likely writes a checkpoint or has ended, until that has outlasted a pause.
        // What costs hardly more than counts as a slowdown at all may be chance: nobody is paged for a moment of it.
        let waits = group.may_pause || loses_little(judge, group);
        let page_delay = if waits { judge.limits.pause_settle_seconds } else { 0.0 };
        let before = outcome.suspicions.len();
        if let Some(starved) = find_storage_waiters(judge, cluster, group) {
            self.storage.push((group, starved));
            return;
        }
        // No node is to blame while most hosts of the job are short of CPUs: the job is.
        let cpu_waiters = CpuWaiters::find(judge, cluster, group);
        let waits_for_cpus =
            |id: NodeId| cpu_waiters.as_ref().is_some_and(|waiters| waiters.has_node(id));
        let idle = IdleRanks::find(judge, cluster, group);
        let is_rare = group.nodes.len() > 1 && group.interval.is_slow(&judge.limits);
        if is_rare && judge.gangs.of(group).knows_its_ranks() {
            let verdict = idle.and_then(|idle| detect_from_rounds(judge, cluster, group, &idle));
            match verdict.or_else(|| find_held_up(judge, cluster, group)) {
                Some(RareVerdict::Storage(starved)) => self.storage.push((group, starved)),
                Some(RareVerdict::Nodes(starved)) => {
                    for starved in starved.iter().filter(|it| !waits_for_cpus(it.id)) {
                        self.add_node(starved, page_delay, outcome);
                    }
                }
                None => {}
            }
            add_only_pressed(judge, cluster, group, before, outcome);
            return;
        }
        let starved: Vec<StarvedNode<'_>> = group
            .nodes
            .iter()
            .filter_map(|id| StarvedNode::detect_node(judge, cluster, group, idle.as_ref(), *id))
            .collect();
        let by_storage =
            starved.iter().filter(|starved| starved.waits_for_io(judge, cluster)).count();
        // GPU activity is often known from single instants, so that not every starved GPU shows at each sample; IO
        // pressure of the hosts is counted all the time. A node that sends nothing meanwhile writes a checkpoint.
        let wait = |id: &&NodeId| {
            let Some(host) = judge.hosts.get(**id) else { return false };
            let limits = &judge.limits;
            host.excess_io_pressure(cluster, limits).is_some()
                && host.is_pausing(cluster, limits) != Some(true)
        };
        let most = group.nodes.iter().filter(wait).count().max(by_storage);
        let shared =
            by_storage as f64 >= judge.limits.sharing_members && most * 2 > group.nodes.len();
        if shared {
            self.storage.push((group, starved));
            return;
        }
        if starved.is_empty() {
            self.lone.extend(LoneWaiter::find_pressed(judge, cluster, group));
        }
        // While most hosts wait for input no single one is to blame, however few were sampled as starved by now.
        let together = group.nodes.len() > 1 && most * 2 > group.nodes.len();
        let mut is_lone = false;
        for starved in starved {
            let waits_for_io = starved.excess_io_pressure(judge, cluster).is_some();
            match (waits_for_io, group.nodes.len()) {
                (true, 1) => {
                    is_lone = true;
                    self.lone.push(LoneWaiter { group, starved, is_shown: true, page_delay });
                }
                (true, _) if together => {}
                _ if waits_for_cpus(starved.id) => {}
                _ => self.add_node(&starved, page_delay, outcome),
            }
        }
        if !is_lone {
            add_only_pressed(judge, cluster, group, before, outcome);
        }
    }

    fn add_node(
        &mut self,
        starved: &StarvedNode<'_>,
        page_delay: f64,
        outcome: &mut DetectorOutcome,
    ) {
        if self.reported.insert(starved.id) {
            let pending = starved.pending_finding(self.judge, self.cluster);
            outcome.suspicions.extend(pending.map(|pending| pending.with_page_delay(page_delay)));
        }
    }

    /// Adds the storage for which jobs wait, and the nodes of those jobs on one node that do not share it.
    fn add_storage(mut self, outcome: &mut DetectorOutcome) {
        let (judge, cluster) = (self.judge, self.cluster);
        let paused = |waiter: &LoneWaiter<'_>| contains_a_pause(judge, cluster, waiter.group);
        let (mut own, lone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.lone).into_iter().partition(paused);
        let (shared, rest) = split_waiters(judge, cluster, lone);
        own.extend(rest);
        for waiter in own.into_iter().filter(|waiter| waiter.is_shown) {
            self.add_node(&waiter.starved, waiter.page_delay, outcome);
        }
        let shared = shared.into_iter().map(|waiter| (waiter.group, vec![waiter.starved]));
        self.storage.extend(shared);
        self.storage.retain(|(group, _)| !contains_a_pause(judge, cluster, group));
        if !self.storage.is_empty() {
            outcome.suspicions.extend(storage_slow_finding(judge, cluster, &self.storage));
        }
    }
}

/// Whether a job is known to lose hardly more than counts as a slowdown at all.
fn loses_little(judge: &JudgeState, group: &JobGroup) -> bool {
    let least = judge.limits.slowed_ratio * SMALL_TIMES;
    group.slowdown_ratio().is_some_and(|lost| lost < least)
}

/// Whether averages of a job contain its last checkpoint, in which its hosts waited for IO and its GPUs for the checkpoint,
/// and do not show whether it is slower beside that. Where samples are rare, the last few may all be of it.
fn contains_a_pause(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> bool {
    let limits = &judge.limits;
    group.may_pause
        || (judge.pauses.distort_averages(group, cluster.now(), limits)
            && !judge.gangs.of(group).is_slower(group, limits))
}

/// Adds the only pressed host of a slower job in which nobody is known to starve, as of `before` in the outcome: where its
/// GPUs wait too shortly for samples to show, the pressure is all that differs. It never pages: the pressure may be a
/// chore, and the cause another one.
fn add_only_pressed(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
    before: usize,
    outcome: &mut DetectorOutcome,
) {
    if outcome.suspicions.len() > before || group.may_pause {
        return;
    }
    let Some(id) = only_pressed(judge, cluster, group) else { return };
    // A host whose tasks wait for a shorter time than the job lost is not what the job waits for.
    let waits = judge.hosts.get(id).map_or(0.0, |host| host.risen_pressure(cluster));
    if group.slowdown_ratio().is_some_and(|slowed| waits < slowed) {
        return;
    }
    // The job may as well wait for its network: what is unusual there is said of the slowdown.
    if is_congested_alone(judge, cluster, group, id) {
        return;
    }
    let starved = StarvedNode::of_idle_rows(judge, cluster, group, id, None, false);
    let pending = starved.and_then(|starved| starved.pending_finding(judge, cluster));
    // A chore that costs next to nothing is over before it is worth a word.
    let settles = if loses_little(judge, group) { judge.limits.pause_settle_seconds } else { 0.0 };
    outcome.suspicions.extend(pending.map(|mut pending| {
        pending.finding.severity = Severity::Warning;
        pending.with_warning_delay(settles)
    }));
}

/// Finds the nodes of a slower job that wait for storage, if most of its nodes do: their network file systems answer late,
/// or their tasks wait for IO far longer than before.
fn find_storage_waiters<'a>(
    judge: &'a JudgeState,
    cluster: &'a Cluster,
    group: &'a JobGroup,
) -> Option<Vec<StarvedNode<'a>>> {
    let (limits, evidence) = (&judge.limits, judge.gangs.of(group));
    if group.nodes.len() < 2 {
        return None;
    }
    let is_slower = evidence.is_slower(group, limits);
    // All of them at once by chance is less likely than a pace that varies.
    let may_be_slower = evidence.is_learned()
        && !judge.pauses.distort_averages(group, cluster.now(), limits)
        && group.slowdown_ratio().is_some_and(|slowed| slowed >= limits.slowed_ratio);
    let waits = |id: &&NodeId| {
        judge.hosts.get(**id).is_some_and(|host| {
            let is_late = is_slower && host.slow_response(cluster, limits).is_some();
            let is_pressed = may_be_slower
                && host.evidence.is_likely(PressureSource::Io)
                && host.excess_io_pressure(cluster, limits).is_some();
            is_late || is_pressed
        })
    };
    let waiting: Vec<&NodeId> = group.nodes.iter().filter(waits).collect();
    let starved = |id: &NodeId| StarvedNode::of_idle_rows(judge, cluster, group, *id, None, false);
    (waiting.len() * 2 > group.nodes.len())
        .then(|| waiting.into_iter().filter_map(starved).collect::<Vec<_>>())
        .filter(|starved| !starved.is_empty())
}

/// Whether GPUs show that a job waits: it is slower by more than chance, or they are less busy than before. GPUs that wait
/// for requests are at times, whatever else happens.
fn is_shown_by_gpus(judge: &JudgeState, groups: &[(&JobGroup, Vec<StarvedNode<'_>>)]) -> bool {
    let is_low = |starved: &StarvedNode<'_>| starved.is_below_baseline(&judge.limits);
    groups.iter().any(|(group, starved)| {
        let evidence = judge.gangs.of(group);
        evidence.is_slower(group, &judge.limits)
            || (evidence.is_steady(group) && starved.iter().any(is_low))
    })
}

/// Returns the seconds before storage pages. Before the pauses and the pace of a job are known, what looks like slow storage
/// may be its first checkpoint; so may a job that does nothing at all.
fn storage_page_delay(judge: &JudgeState, groups: &[(&JobGroup, Vec<StarvedNode<'_>>)]) -> f64 {
    let is_known = |group: &JobGroup| judge.gangs.of(group).is_learned() && group.is_progressing();
    let is_any_known = groups.iter().any(|(group, _)| is_known(group));
    if is_any_known { 0.0 } else { judge.limits.unexplained_seconds }
}

fn storage_slow_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    groups: &[(&JobGroup, Vec<StarvedNode<'_>>)],
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    let interval = groups.iter().map(|(group, _)| group.interval);
    let interval = interval.fold(SampleInterval::default(), SampleInterval::longer);
    let starved = || groups.iter().flat_map(|(_, starved)| starved);
    let nodes = starved().count();
    // What one host of many waits for is not what they wait for together.
    let of_most = |values: Vec<f64>| (values.len() * 2 > nodes).then(|| median(values)).flatten();
    let pressed =
        starved().filter_map(|starved| Some(starved.excess_io_pressure(judge, cluster)?.now));
    let io = of_most(pressed.collect());
    let pressure = io.map(|io| format!("IO pressure {}", format_percent(io)));
    let responses = || starved().filter_map(|starved| starved.slow_response(judge, cluster));
    let response = of_most(responses().map(|response| response.now).collect());
    let usual_response =
        median(responses().filter(|_| response.is_some()).filter_map(|response| response.baseline));
    let answers = response.zip(usual_response).map(|(now, usual)| {
        format!("NFS response time {:.1} ms, baseline {:.1} ms", now * 1e3, usual * 1e3)
    });
    let shown = pressure.into_iter().chain(answers).collect::<Vec<_>>().join(", ");
    // Where no host shows what it waits for, storage is one of several things that keep all ranks from working.
    if io.is_none() && response.is_none() {
        return None;
    }
    let busy = median(starved().map(|starved| starved.utilization));
    let baseline = median(starved().filter_map(|starved| starved.baseline));
    let slowed = groups.iter().filter_map(|(group, _)| group.slowdown_ratio()).reduce(f64::max);
    let kinds = 2 + usize::from(slowed.is_some_and(|slowed| slowed >= limits.slowed_ratio));
    let jobs: Vec<SanitizedText> =
        groups.iter().filter_map(|(group, _)| group.job.clone()).collect();
    let of = if jobs.is_empty() {
        String::new()
    } else {
        let noun = if jobs.len() == 1 { "job" } else { "jobs" };
        let names: Vec<&str> = jobs.iter().map(SanitizedText::as_str).collect();
        format!(" of {noun} {}", names.join(", "))
    };
    let lost = starved().map(StarvedNode::idle_gpus).sum();
    let storage = Entity::new(EntityKind::Storage);
    let pending = PendingFinding::of(FindingKind::StorageSlow, storage, kinds, true);
    let writers = starved().filter(|starved| starved.mostly_writes(cluster)).count();
    // A little IO pressure may be that of a checkpoint. Late answers alone may have a harmless reason: the server is busy,
    // and nobody waits for it.
    let is_much = io.is_some_and(|io| io >= limits.io_pressure_ratio * MUCH_TIMES);
    let checkpoint = if writers * 2 > nodes { checkpoint_seconds(interval, limits) } else { 0.0 };
    let delay = storage_page_delay(judge, groups);
    let mut pending = pending.with_warning_delay(checkpoint).with_page_delay(delay);
    // Several jobs on one node each wait together now and then by chance.
    let are_lone = groups.iter().all(|(group, _)| group.nodes.len() == 1);
    if !is_much || !is_shown_by_gpus(judge, groups) {
        pending.cap_severity();
    }
    let pending = pending.with_cost(
        lost,
        groups
            .iter()
            .flat_map(|(group, _)| group.list_victims(cluster, None))
            .take(super::pending_finding::MAX_VICTIMS)
            .collect(),
    );
    let pending = if are_lone { pending.delay_small_loss(judge.gpus.len()) } else { pending };
    Some(pending
        .with_hold_seconds(limits.shared_storage_seconds)
        .with_interval(interval)
        .with_members(groups.iter().map(|(group, _)| group.group_key()))
        .with_slowed_jobs(groups.iter().map(|(group, _)| group.group_key()))
        .with_summary(
            format!("{}{of} {} ({shown}): shared storage is slow.", format_count(nodes, "node"), if nodes == 1 { "waits for IO" } else { "wait for IO together" }),
            "Check the file system that these nodes share: its servers, its network, and its other clients.".to_owned(),
        )
        .with_possible_evidence([
            EvidenceRow::StarvedNodes.to_evidence(Some(nodes as f64), None),
            EvidenceRow::IoPressure.to_evidence(io, Some(limits.io_pressure_ratio)),
            EvidenceRow::StorageResponse.to_evidence(response, usual_response.map(|usual| usual * limits.slow_response_times)),
            EvidenceRow::StarvedUtilization.to_evidence(busy, baseline.map(|baseline| baseline * limits.hungry_ratio)).with_note("limit: share of the baseline"),
        ]))
}
