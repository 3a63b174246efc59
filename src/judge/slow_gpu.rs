//! Stragglers: GPUs slower than their peers, with thermal or power throttling or a low clock without a reported reason.

use std::collections::BTreeMap;

use gaunt_schema::{DeviceClass, Entity, EvidenceItem, FindingKind, catalogue::gpu};

use super::{
    EvidenceRow, JudgeState, Thresholds,
    below_peers::{BelowPeers, is_told, works_more},
    clock_decline::declined_clock,
    evidence_sum::LevelEvidence,
    finding_lifecycle::DetectorOutcome,
    gpu_signals::{GpuSignals, LIGHT_LOAD_RATIO},
    job_group::JobGroup,
    lingering_gpus::LingeringGpu,
    lone_clock::{HeldDown, fallen_alone, held_down},
    peer_gpus::StepPeers,
    pending_finding::{PendingFinding, format_count},
    robust_stats::RobustStats,
    sample_interval::SampleInterval,
    slow_node,
    starved_node::is_host_told,
};
use gaunt_cluster::{Cluster, NodeId};

/// Adds every GPU that runs slower than it should.
pub(super) fn detect_slow_gpus(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    // Whether each job with a slow GPU is capped: one look at a job is enough for all of its GPUs.
    let mut capped: BTreeMap<usize, bool> = BTreeMap::new();
    let mut peers = StepPeers::default();
    for (_, node) in cluster.sorted_nodes() {
        let mut found = Vec::new();
        for row in node.device_rows(DeviceClass::Gpu) {
            let Some(slow) = SlowGpu::detect_gpu(judge, cluster, &mut peers, *row) else {
                continue;
            };
            let group = slow.group.zip(judge.job_groups.group_index(*row));
            let is_capped = group.is_some_and(|(group, index)| {
                *capped.entry(index).or_insert_with(|| is_capped(judge, cluster, group))
            });
            // What it takes longer than the others shows in more than its clock.
            let is_told = slow.lingers.is_some() && is_told(judge, cluster, *row);
            // No cap makes it hotter.
            if slow.is_throttled || slow.hotter_than.is_some() || is_told || !is_capped {
                found.push(slow.pending_finding(judge, cluster));
            }
        }
        slow_node::add_gpus_or_node(judge, node, slow_node::SLOW_KINDS, found, outcome);
    }
}

/// Whether the clocks of several whole nodes of a job have fallen: their power or clocks were limited, on purpose or by
/// what feeds them. That is no fault of one GPU. But where they have fallen far, and on few nodes, the rest of the job waits
/// for these, whoever limited them.
fn is_capped(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> bool {
    let limits = &judge.limits;
    let mut nodes: BTreeMap<NodeId, Vec<f64>> = BTreeMap::new();
    for row in &group.gpus {
        let Some(entry) = cluster.device_at(DeviceClass::Gpu, *row) else { continue };
        // After a restart, not all of them are known at once.
        let Some(fall) = clock_fall(judge, cluster, *row) else { continue };
        nodes.entry(entry.node).or_default().push(fall);
    }
    let is_whole = |falls: &&Vec<f64>, least: f64| {
        falls.len() > 1 && falls.iter().filter(|fall| **fall > least).count() * 2 > falls.len()
    };
    let fallen = nodes.values().filter(|falls| is_whole(falls, limits.as_ever_ratio)).count();
    let far = 1.0 - limits.slow_clock_ratio;
    let fallen_far = nodes.values().filter(|falls| is_whole(falls, far)).count();
    fallen >= 2 && (fallen * 2 > nodes.len() || fallen_far < fallen)
}

/// Returns by which share a GPU's clock is below the lowest of its past.
fn clock_fall(judge: &JudgeState, cluster: &Cluster, row: u32) -> Option<f64> {
    let averages = &judge.gpus.get(row as usize)?.averages;
    Some(1.0 - averages.clock_hertz(cluster.now(), &judge.limits)? / averages.lowest_clock()?)
}

/// Whether the clocks of most other GPUs of its job have fallen half as far as this one's: all of them are capped, and
/// boards differ in what a cap leaves them.
fn falls_with_others(
    judge: &JudgeState,
    cluster: &Cluster,
    peers: &mut StepPeers,
    (row, group): (u32, &JobGroup),
) -> bool {
    let own = clock_fall(judge, cluster, row).filter(|own| own.is_finite());
    let Some((own, index)) = own.zip(judge.job_groups.group_index(row)) else { return false };
    let fall_of = |row| clock_fall(judge, cluster, row);
    let others = peers.median_fall_of_others((index, group), own, fall_of);
    others.is_some_and(|others| others > judge.limits.as_ever_ratio && others * 2.0 > own)
}

/// Whether the clock of a GPU has clearly fallen behind the rest of its job: with most of its node, or alone while the
/// job is slower.
fn is_clearly_slower(
    judge: &JudgeState,
    cluster: &Cluster,
    row: u32,
    group: Option<&JobGroup>,
) -> bool {
    let evidence = |row: u32| judge.gpus.get(row as usize).map(|gpu| gpu.slower_clock);
    let Some(own) = evidence(row).filter(|own| own.is_likely()) else { return false };
    let node =
        cluster.device_at(DeviceClass::Gpu, row).and_then(|entry| cluster.node_by_id(entry.node));
    let rows = node.map(|node| node.device_rows(DeviceClass::Gpu)).unwrap_or_default();
    let too =
        rows.iter().filter(|row| evidence(**row).is_some_and(LevelEvidence::is_likely)).count();
    let costs =
        group.is_some_and(|group| judge.gangs.of(group).may_be_slower(group, &judge.limits));
    (too > 1 && too * 2 > rows.len()) || (own.is_likely_alone() && costs)
}

/// What a GPU reports about why its clock is low.
#[derive(Clone, Copy, Debug)]
struct ClockReasons {
    /// Share of the time in which a thermal or HW slowdown holds the clock down.
    throttled: Option<f64>,
    /// Whether its power cap does now (1) or not (0). That is no fault by itself: it may be set on purpose, and under load
    /// any GPU may be at its cap.
    power_cap: Option<f64>,
}

impl ClockReasons {
    fn of(cluster: &Cluster, row: u32, signals: &GpuSignals) -> Self {
        let throttled = [signals.hw_slowdown, signals.sw_thermal].into_iter().flatten();
        Self {
            throttled: throttled.reduce(f64::max),
            power_cap: cluster.current_value(gpu::CLOCK_EVENT_SW_POWER_CAP, row),
        }
    }

    fn is_capped(self) -> bool {
        self.power_cap.is_some_and(|active| active > 0.0)
    }
}

/// One slow GPU, with its evidence.
struct SlowGpu<'a> {
    entity: Entity,
    node: NodeId,
    interval: SampleInterval,
    group: Option<&'a JobGroup>,
    reasons: ClockReasons,
    temperature: Option<f64>,
    /// The temperature from which heat explains its clock, if it is as hot and reports no reason: from its peers, or where
    /// it has none, from what boards stand.
    hotter_than: Option<f64>,
    /// Its activity / median of its peers, which wait for it, if its clock did not fall.
    awaited: Option<f64>,
    /// How much longer than the others of its job it takes, if it does.
    lingers: Option<LingeringGpu>,
    /// Its SM clock in hertz.
    clock: f64,
    /// The clocks of its peers, and the share of their lower quartile from which it is below them.
    peers: Option<RobustStats>,
    least_of_peers: f64,
    is_throttled: bool,
    is_below: bool,
    /// The clock from which it is below the lowest of its past, if many samples show that it is, and its clock / lowest.
    fallen: Option<(f64, f64)>,
    /// Whether only its own past shows that.
    is_alone: bool,
    /// How far its clock is below what its model reaches, if nothing else shows that it is low.
    held_down: Option<HeldDown>,
    /// Its clock / peer median, present and baseline, if it drifted.
    declined: Option<(f64, f64)>,
}

/// Returns how the GPU at a row goes on while the others of its job do less.
fn find_lingering(judge: &JudgeState, group: &JobGroup, row: u32) -> Option<LingeringGpu> {
    group.lingering_gpu(row).or_else(|| judge.standouts.of_gpu(group, row))
}

impl<'a> SlowGpu<'a> {
    fn detect_gpu(
        judge: &'a JudgeState,
        cluster: &Cluster,
        peers: &mut StepPeers,
        row: u32,
    ) -> Option<Self> {
        let limits = &judge.limits;
        let now = cluster.now();
        let tracker = judge.gpus.get(row as usize)?;
        let signals = tracker.averages.signals_at(now, cluster.freshness_window(), limits);
        // The clock of a GPU that has become idle is no clock under load.
        let is_busy = |share: f64| share >= LIGHT_LOAD_RATIO;
        if !is_busy(signals.utilization?)
            || !tracker.averages.utilization_now().is_some_and(is_busy)
        {
            return None;
        }
        let reasons = ClockReasons::of(cluster, row, &signals);
        let clock = tracker.averages.clock_hertz(now, limits)?;
        let is_throttled = reasons.throttled.is_some_and(|share| share >= limits.clock_event_ratio);
        let group = judge.job_groups.of(row);
        // A waiting GPU has a higher clock than a computing one: the lower quartile computes.
        let baseline = tracker.averages.lowest_clock();
        let BelowPeers { is_below, peers: peer_clocks, least, hotter_than, awaited } =
            BelowPeers::of(judge, cluster, peers, (row, clock), &signals);
        let fallen_below =
            baseline.map(|lowest| lowest * (1.0 - limits.drift_slack_ratio)).filter(|least| {
                !is_below
                    && !works_more(judge, row, &signals)
                    && clock < *least
                    && is_clearly_slower(judge, cluster, row, group)
            });
        let is_capped = (is_below || fallen_below.is_some())
            && group.is_some_and(|group| falls_with_others(judge, cluster, peers, (row, group)));
        let fallen = || fallen_alone(judge, cluster, row, group, &signals);
        let alone = if is_below && !is_capped { None } else { fallen() };
        let is_capped = is_capped && alone.is_none();
        let least_alone = alone.map(|alone| alone.least);
        let fallen_below = least_alone.or(fallen_below.filter(|_| !is_capped));
        let is_below = !is_capped && (is_below || fallen_below.is_some());
        let is_plain = !is_below && !is_throttled;
        let held_down = is_plain.then(|| held_down(judge, cluster, row, clock, &signals)).flatten();
        let is_below = is_below || held_down.is_some();
        let is_plain = is_plain && !is_below;
        let declined = is_plain.then(|| Self::declined_clock(judge, cluster, row, group)).flatten();
        let entry = cluster.device_at(DeviceClass::Gpu, row)?;
        let name = &cluster.node_by_id(entry.node)?.name;
        // One that its host holds up goes on as well.
        let is_free = is_plain && !is_host_told(judge, name);
        let lingers = group.filter(|_| is_free).and_then(|group| find_lingering(judge, group, row));
        if !is_throttled && !is_below && declined.is_none() && lingers.is_none() {
            return None;
        }
        let index = entry.device.key.first().cloned().unwrap_or_default();
        Some(Self {
            entity: Entity::new_gpu(name, &index),
            node: entry.node,
            interval: SampleInterval::of_gpus(cluster, cluster.node_by_id(entry.node)?),
            group,
            reasons,
            temperature: cluster.current_value(gpu::TEMPERATURE, row),
            hotter_than: match (alone, held_down) {
                (Some(alone), _) => alone.hot_from,
                (None, Some(held)) => held.hot_from,
                (None, None) => hotter_than.filter(|_| is_below),
            },
            awaited: awaited.filter(|_| is_below),
            lingers,
            clock,
            peers: peer_clocks,
            least_of_peers: least,
            is_throttled,
            is_below,
            is_alone: alone.is_some(),
            held_down,
            fallen: fallen_below.zip(baseline).map(|(least, lowest)| (least, clock / lowest)),
            declined,
        })
    }

    /// Returns its clock / peer median if it drifted. Without job labels, a node on which most GPUs drifted runs
    /// another job than inferred.
    fn declined_clock(
        judge: &JudgeState,
        cluster: &Cluster,
        row: u32,
        group: Option<&JobGroup>,
    ) -> Option<(f64, f64)> {
        let declined = declined_clock(judge, cluster, row)?;
        let node = cluster.node_by_id(cluster.device_at(DeviceClass::Gpu, row)?.node)?;
        let rows = node.device_rows(DeviceClass::Gpu);
        let too = rows.iter().filter(|row| declined_clock(judge, cluster, **row).is_some()).count();
        // When the others of its node wait, their clocks change slowly as well.
        let waits = judge.tracker.iter_open().any(|finding| {
            finding.kind == FindingKind::NvlinkDegraded
                && finding.entity.node.as_ref() == Some(&node.name)
        });
        if waits {
            return None;
        }
        let named = group.is_some_and(|group| group.job.is_some());
        (named || rows.len() == 1 || too * 2 <= rows.len()).then_some(declined)
    }

    fn pending_finding(&self, judge: &JudgeState, cluster: &Cluster) -> PendingFinding {
        let limits = &judge.limits;
        let slowed = self.group.and_then(|group| group.confirmed_slowdown(limits.slowed_ratio));
        let slowed = slowed.filter(|slowed| self.may_explain(*slowed));
        let waits = self.group.map_or(0, JobGroup::waiting_gpus);
        let is_throttled = self.is_throttled || self.hotter_than.is_some();
        let kind =
            if is_throttled { FindingKind::Throttled } else { FindingKind::ComputeStraggler };
        let kinds =
            usize::from(is_throttled) + usize::from(self.is_below) + usize::from(slowed.is_some());
        // No comparison with others or a past can be wrong about it. Where jobs are named and none uses it, nobody loses
        // anything.
        let is_used =
            cluster.gpus_by_job().is_empty() || self.group.is_some_and(|group| group.job.is_some());
        let kinds = kinds + usize::from(self.held_down.is_some() && is_used);
        // A small decline is a warning, and does not page. So is a clock that may be as low by design.
        let is_certain = self.declined.is_none()
            && self.awaited.is_none()
            && self.lingers.is_none()
            && !self.is_alone;
        let kinds = if is_certain { kinds } else { 1 };
        // Thermal throttling is reported; a clock is compared, and an exporter may report it only now and then.
        let samples =
            if self.is_throttled { 0.0 } else { self.interval.two_sample_seconds(limits) };
        let next = match is_throttled {
            true => COOL,
            false if self.reasons.is_capped() => CHECK_CAP,
            false => EXCHANGE,
        };
        let summary = self.render_summary(waits);
        let group = self.group;
        // A power cap that costs its job nothing is no more than information: it may be set on purpose. Peers that wait
        // for it lose time.
        let is_harmless =
            !is_throttled && self.reasons.is_capped() && slowed.is_none() && self.awaited.is_none();
        PendingFinding::of(kind, self.entity.clone(), kinds, !is_harmless)
            .with_hold_seconds(if self.fallen.is_some() && !self.is_alone {
                0.0
            } else if self.lingers.is_some_and(|gpu| !gpu.is_of_whole_slowdown())
                || self.is_alone && self.hotter_than.is_none()
            {
                limits.unexplained_seconds.max(samples)
            } else {
                limits.slow_gpu_seconds.max(samples)
            })
            .with_interval(if self.is_throttled {
                SampleInterval::default()
            } else {
                self.interval
            })
            .with_cost(
                group.map_or(0.0, JobGroup::lost_gpus).max(self.held_back()),
                group.map(|group| group.list_victims(cluster, Some(self.node))).unwrap_or_default(),
            )
            .with_summary(format!("{summary}."), next.to_owned())
            .with_evidence(self.collect_evidence(limits, slowed, waits))
    }

    /// Whether a job may have lost so much of its speed for its clock, as far as that is known: it computes longer by as much
    /// as its clock is lower.
    fn may_explain(&self, slowed: f64) -> bool {
        let of_peers = self.peers.map(|peers| self.clock / peers.median);
        let share = self.fallen.map(|(_, share)| share).into_iter().chain(of_peers);
        let lowest = share.reduce(f64::min).filter(|_| self.is_below && !self.is_throttled);
        lowest.is_none_or(|share| (1.0 - share) * MOST_TIMES >= slowed)
    }

    fn collect_evidence(
        &self,
        limits: &Thresholds,
        slowed: Option<f64>,
        waits: usize,
    ) -> [EvidenceItem; 10] {
        [
            EvidenceRow::Slowdown
                .to_evidence(self.reasons.throttled, Some(limits.clock_event_ratio))
                .or_context(),
            EvidenceRow::SmClock
                .to_evidence(
                    Some(self.clock),
                    self.held_down.map(|held| held.least).or(self.fallen.map(|it| it.0)).or_else(
                        || {
                            let peers = self.peers.filter(|_| self.is_below)?;
                            Some(peers.lower_quartile * self.least_of_peers)
                        },
                    ),
                )
                .with_note(match (self.fallen, self.is_below) {
                    _ if self.held_down.is_some() => "limit: from the highest of its model",
                    (Some(_), _) => "limit: from its own past",
                    (None, true) => "limit: from its peers",
                    (None, false) => "",
                }),
            EvidenceRow::ClockOfPeers
                .to_evidence(self.peers.map(|peers| self.clock / peers.median), None),
            EvidenceRow::ClockDrift
                .to_evidence(
                    self.declined.map(|(now, _)| now),
                    self.declined.map(|(_, baseline)| baseline * (1.0 - limits.drift_slack_ratio)),
                )
                .with_note(self.declined.map_or_else(String::new, |(_, baseline)| {
                    format!("baseline {baseline:.2}; limit: from its past")
                })),
            EvidenceRow::WaitingGpus.to_evidence((waits > 0).then_some(waits as f64), None),
            EvidenceRow::Temperature.to_evidence(self.temperature, self.hotter_than).with_note(
                match (self.hotter_than, self.is_alone || self.held_down.is_some()) {
                    (None, _) => "",
                    (_, true) => "limit: from its maximum",
                    (_, false) => "limit: from its peers",
                },
            ),
            EvidenceRow::JobSlowdown.to_evidence(slowed, Some(limits.slowed_ratio)),
            self.lingers
                .map_or(EvidenceRow::LingeringGpu, LingeringGpu::evidence_row)
                .to_evidence(self.lingers.map(|gpu| gpu.times), None),
            EvidenceRow::PowerCap
                .to_evidence(self.reasons.power_cap, None)
                .with_note(if self.reasons.is_capped() { "active" } else { "not active" }),
            EvidenceRow::PeerActivity.to_evidence(self.awaited, Some(limits.uneven_times)),
        ]
    }

    /// Returns the share of itself that a GPU loses whose clock is held down.
    fn held_back(&self) -> f64 {
        self.held_down.map_or(0.0, |held| 1.0 - self.clock / held.highest)
    }

    fn render_summary(&self, waits: usize) -> String {
        let below = match (self.fallen, self.peers) {
            _ if self.held_down.is_some() => {
                format!("SM clock {:.0} MHz, far below what its model reaches, ", self.clock / 1e6)
            }
            (Some((_, ratio)), _) => format!("SM clock {ratio:.2} × the lowest of its past, "),
            (None, Some(peers)) => {
                format!("SM clock {:.2} × peer median, ", self.clock / peers.median)
            }
            (None, None) => String::new(),
        };
        let mut summary = if self.is_throttled {
            format!("{} is throttled: {below}thermal or HW slowdown", self.entity)
        } else if self.hotter_than.is_some() {
            let hot = self.temperature.unwrap_or_default();
            let is_absolute = self.is_alone || self.held_down.is_some();
            let why = if is_absolute { "near its maximum" } else { "far hotter than its peers" };
            format!("{} is throttled: {below}{hot:.0} °C, {why}", self.entity)
        } else if let Some(activity) = self.awaited {
            format!(
                "{} is a straggler: {below}its activity {activity:.2} × theirs, which wait for it",
                self.entity
            )
        } else if let Some(lingers) = self.lingers {
            format!("{} is a straggler: {}", self.entity, lingers.words())
        } else if let Some((now, baseline)) = self.declined {
            format!(
                "{} is a straggler: SM clock fell to {now:.2} × peer median, baseline {baseline:.2}",
                self.entity
            )
        } else if self.reasons.is_capped() {
            format!(
                "{} is a straggler: {below}no throttle reason reported but its power cap",
                self.entity
            )
        } else {
            format!("{} is a straggler: {below}no throttle reason reported", self.entity)
        };
        if waits > 0 {
            summary += "; ";
            summary += &format_count(waits, "GPU");
            summary += " of its job wait";
        }
        summary
    }
}

/// How many times as much as its clock fell its job may lose for it: averages of a clock that falls now and then show less.
const MOST_TIMES: f64 = 4.0;

const COOL: &str = "Check its temperature, cooling and power supply.";
const CHECK_CAP: &str = "Check its clocks and its power limit, which may be set on purpose (nvidia-smi -q -d CLOCK,POWER,PERFORMANCE); replace it (RMA) if they persist.";
const EXCHANGE: &str = "Check its clocks and limits (nvidia-smi -q -d CLOCK,PERFORMANCE); replace it (RMA) if they persist.";
