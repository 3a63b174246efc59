//! Stragglers: GPUs slower than their peers, with thermal or power throttling or a low clock without a reported reason.

use std::collections::BTreeMap;

use gaunt_schema::{DeviceClass, Entity, EvidenceItem, FindingKind, SanitizedText, catalogue::gpu};

use super::{
    EvidenceRow, JudgeState, Thresholds,
    clock_decline::declined_clock,
    evidence_sum::LevelEvidence,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_count},
    robust_stats::{RobustStats, median},
    sample_interval::SampleInterval,
    slow_node,
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
    for (_, node) in cluster.sorted_nodes() {
        let mut found = Vec::new();
        for row in node.device_rows(DeviceClass::Gpu) {
            let Some(slow) = SlowGpu::detect_gpu(judge, cluster, *row) else { continue };
            let group = slow.group.zip(judge.job_groups.group_index(*row));
            let is_capped = group.is_some_and(|(group, index)| {
                *capped.entry(index).or_insert_with(|| is_capped(judge, cluster, group))
            });
            if slow.is_throttled || !is_capped {
                found.push(slow.pending_finding(judge, cluster));
            }
        }
        slow_node::add_slow_gpus(judge, node, found, outcome);
    }
}

/// Whether the clocks of several whole nodes of a job have fallen: their power or clocks were limited, on purpose or by
/// what feeds them. That is no fault of one GPU.
fn is_capped(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> bool {
    let limits = &judge.limits;
    let mut nodes: BTreeMap<NodeId, (usize, usize)> = BTreeMap::new();
    for row in &group.gpus {
        let Some(entry) = cluster.device_at(DeviceClass::Gpu, *row) else { continue };
        let has_fallen =
            clock_fall(judge, cluster, *row).is_some_and(|fall| fall > limits.as_ever_ratio);
        let (fallen, all) = nodes.entry(entry.node).or_default();
        *fallen += usize::from(has_fallen);
        *all += 1;
    }
    let whole = nodes.values().filter(|(fallen, all)| *all > 1 && fallen * 2 > *all).count();
    whole >= 2
}

/// Returns by which share a GPU's clock is below the lowest of its past.
fn clock_fall(judge: &JudgeState, cluster: &Cluster, row: u32) -> Option<f64> {
    let averages = &judge.gpus.get(row as usize)?.averages;
    Some(1.0 - averages.clock_hertz(cluster.now(), &judge.limits)? / averages.lowest_clock()?)
}

/// Whether the clocks of most other GPUs of its job have fallen half as far as this one's: all of them are capped, and
/// boards differ in what a cap leaves them.
fn falls_with_others(judge: &JudgeState, cluster: &Cluster, row: u32, group: &JobGroup) -> bool {
    let Some(own) = clock_fall(judge, cluster, row) else { return false };
    let others = group.gpus.iter().filter(|other| **other != row);
    let others = median(others.filter_map(|other| clock_fall(judge, cluster, *other)));
    others.is_some_and(|others| others > judge.limits.as_ever_ratio && others * 2.0 > own)
}

/// Whether a GPU's clock is far below that of most other GPUs of its node.
fn differs_from_node(judge: &JudgeState, cluster: &Cluster, row: u32, clock: f64) -> bool {
    let limits = &judge.limits;
    let node =
        cluster.device_at(DeviceClass::Gpu, row).and_then(|entry| cluster.node_by_id(entry.node));
    let rows = node.map(|node| node.device_rows(DeviceClass::Gpu)).unwrap_or_default();
    let others = rows.iter().filter(|other| **other != row);
    let clock_of =
        |row: &u32| judge.gpus.get(*row as usize)?.averages.clock_hertz(cluster.now(), limits);
    median(others.filter_map(clock_of))
        .is_some_and(|others| clock < others * limits.slow_clock_ratio)
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

/// One slow GPU, with its evidence.
struct SlowGpu<'a> {
    entity: Entity,
    node: NodeId,
    interval: SampleInterval,
    group: Option<&'a JobGroup>,
    /// Share of the time in which a thermal or HW slowdown holds the clock down.
    throttled: Option<f64>,
    temperature: Option<f64>,
    /// SM clock / peer median.
    clock: f64,
    peers: Option<RobustStats>,
    is_throttled: bool,
    is_below: bool,
    /// The least clock of its past, of which many samples show that it is below.
    fallen_below: Option<f64>,
    /// Its clock / peer median, present and baseline, if it drifted.
    declined: Option<(f64, f64)>,
}

impl<'a> SlowGpu<'a> {
    fn detect_gpu(judge: &'a JudgeState, cluster: &Cluster, row: u32) -> Option<Self> {
        let limits = &judge.limits;
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let tracker = judge.gpus.get(row as usize)?;
        let signals = tracker.averages.signals_at(now, gap, limits);
        // The clock of a GPU that has become idle is no clock under load.
        let is_busy = |share: f64| share >= limits.utilization_launch_ratio;
        if !is_busy(signals.utilization?)
            || !tracker.averages.utilization_now().is_some_and(is_busy)
        {
            return None;
        }
        let throttled =
            [signals.hw_slowdown, signals.sw_thermal].into_iter().flatten().reduce(f64::max);
        let clock = tracker.averages.clock_hertz(now, limits)?;
        let is_throttled = throttled.is_some_and(|throttled| throttled >= limits.clock_event_ratio);
        let group = judge.job_groups.of(row);
        let peer_clocks = judge.job_groups.clocks_of_peers(&judge.gpus, cluster, limits, row);
        // A waiting GPU has a higher clock than a computing one: the lower quartile computes.
        let baseline = tracker.averages.lowest_clock();
        let is_below = peer_clocks.is_some_and(|peer_clocks| {
            clock < peer_clocks.lower_quartile * limits.slow_clock_ratio
                && peer_clocks.robust_score(clock, limits.peer_floor_ratio) < -limits.peer_score
                && match baseline {
                    Some(baseline) => clock < baseline * (1.0 - limits.drift_slack_ratio),
                    // Without a past, a node whose GPUs are all alike is slower by design.
                    None => differs_from_node(judge, cluster, row, clock),
                }
        });
        let fallen_below =
            baseline.map(|lowest| lowest * (1.0 - limits.drift_slack_ratio)).filter(|least| {
                !is_below && clock < *least && is_clearly_slower(judge, cluster, row, group)
            });
        let is_capped = (is_below || fallen_below.is_some())
            && group.is_some_and(|group| falls_with_others(judge, cluster, row, group));
        let fallen_below = fallen_below.filter(|_| !is_capped);
        let is_below = !is_capped && (is_below || fallen_below.is_some());
        let declined = if is_throttled || is_below {
            None
        } else {
            Self::declined_clock(judge, cluster, row, group)
        };
        if !is_throttled && !is_below && declined.is_none() {
            return None;
        }
        let entry = cluster.device_at(DeviceClass::Gpu, row)?;
        let name = &cluster.node_by_id(entry.node)?.name;
        let entity =
            Entity::new_gpu(name, entry.device.key.first().unwrap_or(&SanitizedText::default()));
        let temperature = cluster.current_value(gpu::TEMPERATURE, row);
        Some(Self {
            entity,
            node: entry.node,
            interval: SampleInterval::of_gpus(cluster, cluster.node_by_id(entry.node)?),
            group,
            throttled,
            temperature,
            clock,
            peers: peer_clocks,
            is_throttled,
            is_below,
            fallen_below,
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
        let waits = self.group.map_or(0, JobGroup::waiting_gpus);
        let kind =
            if self.is_throttled { FindingKind::Throttled } else { FindingKind::ComputeStraggler };
        let kinds = usize::from(self.is_throttled)
            + usize::from(self.is_below)
            + usize::from(slowed.is_some());
        // A small decline is a warning, and does not page.
        let kinds = if self.declined.is_some() { 1 } else { kinds };
        // Thermal throttling is reported; a clock is compared, and an exporter may report it only now and then.
        let samples =
            if self.is_throttled { 0.0 } else { self.interval.two_sample_seconds(limits) };
        let next = if self.is_throttled { COOL } else { EXCHANGE };
        let summary = self.render_summary(waits);
        let group = self.group;
        PendingFinding::of(kind, self.entity.clone(), kinds, true)
            .with_hold_seconds(if self.fallen_below.is_some() {
                0.0
            } else {
                limits.slow_gpu_seconds.max(samples)
            })
            .with_interval(if self.is_throttled {
                SampleInterval::default()
            } else {
                self.interval
            })
            .with_cost(
                group.map_or(0.0, JobGroup::lost_gpus),
                group.map(|group| group.list_victims(cluster, Some(self.node))).unwrap_or_default(),
            )
            .with_summary(format!("{summary}."), next.to_owned())
            .with_evidence(self.collect_evidence(limits, slowed, waits))
    }

    fn collect_evidence(
        &self,
        limits: &Thresholds,
        slowed: Option<f64>,
        waits: usize,
    ) -> [EvidenceItem; 7] {
        [
            EvidenceRow::Slowdown
                .to_evidence(self.throttled, Some(limits.clock_event_ratio))
                .or_context(),
            EvidenceRow::SmClock
                .to_evidence(
                    Some(self.clock),
                    self.fallen_below.or_else(|| {
                        let peers = self.peers.filter(|_| self.is_below)?;
                        Some(peers.lower_quartile * limits.slow_clock_ratio)
                    }),
                )
                .with_note(match (self.fallen_below, self.is_below) {
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
            EvidenceRow::Temperature.to_evidence(self.temperature, None),
            EvidenceRow::JobSlowdown.to_evidence(slowed, Some(limits.slowed_ratio)),
        ]
    }

    fn render_summary(&self, waits: usize) -> String {
        let ratio = self.peers.map(|peers| self.clock / peers.median);
        let below =
            ratio.map(|ratio| format!("SM clock {ratio:.2} × peer median, ")).unwrap_or_default();
        let mut summary = if self.is_throttled {
            format!("{} is throttled: {below}thermal or HW slowdown", self.entity)
        } else if let Some((now, baseline)) = self.declined {
            format!(
                "{} is a straggler: SM clock fell to {now:.2} × peer median, baseline {baseline:.2}",
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

const COOL: &str = "Check its temperature, cooling and power supply.";
const EXCHANGE: &str = "Check its clocks and limits (nvidia-smi -q -d CLOCK,PERFORMANCE); replace it (RMA) if they persist.";
