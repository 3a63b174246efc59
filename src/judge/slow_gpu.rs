//! Stragglers: GPUs slower than their peers, with thermal or power throttling or a low clock without a reported reason.

use gaunt_schema::{DeviceClass, Entity, FindingKind, SanitizedText, catalogue::gpu, unit::Unit};

use super::{
    FindingEvidence, Judge, Thresholds,
    clock_drift::ClockDrift,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    peer_clocks,
    pending_finding::{PendingFinding, format_count, format_percent},
    robust_stats::RobustStats,
};
use gaunt_cluster::Cluster;

/// Adds every GPU that runs slower than it should.
pub(super) fn detect_slow_gpus(judge: &Judge, cluster: &Cluster, seen: &mut DetectorOutcome) {
    for (_, node) in cluster.sorted_nodes() {
        for row in node.device_rows(DeviceClass::Gpu) {
            if let Some(slow) = SlowGpu::detect_gpu(judge, cluster, *row) {
                seen.suspicions.push(slow.pending_finding(judge, cluster));
            }
        }
    }
}

/// One slow GPU, with its evidence.
struct SlowGpu<'a> {
    entity: Entity,
    node: gaunt_cluster::NodeId,
    gang: Option<&'a JobGroup>,
    /// Share of the time in which a thermal or HW slowdown holds the clock down.
    held: Option<f64>,
    temperature: Option<f64>,
    /// SM clock / peer median.
    clock: f64,
    peers: Option<RobustStats>,
    is_held: bool,
    is_below: bool,
    /// Its clock / peer median, present and baseline, if it drifted.
    declined: Option<(f64, f64)>,
}

impl<'a> SlowGpu<'a> {
    fn detect_gpu(judge: &'a Judge, cluster: &Cluster, row: u32) -> Option<Self> {
        let limits = &judge.limits;
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let own = judge.gpus.get(row as usize)?;
        let signals = own.averages.signals_at(now, gap, limits);
        if signals.utilization? < limits.utilization_launch_ratio {
            return None;
        }
        let held = [signals.hw_slowdown, signals.sw_thermal].into_iter().flatten().reduce(f64::max);
        let clock = own.averages.clock_hertz(now, limits)?;
        let is_held = held.is_some_and(|held| held >= limits.clock_event_ratio);
        let gang = judge.job_groups.of(row);
        let crowd = peer_clocks::clocks_of_peers(judge, cluster, row, gang);
        // A waiting GPU has a higher clock than a computing one: the lower quartile computes.
        let usual = own.averages.usual_clock();
        let is_below = crowd.is_some_and(|crowd| {
            clock < crowd.lower_quartile * limits.clock_straggler_ratio
                && crowd.robust_score(clock, limits.peer_floor_ratio) < -limits.peer_score
                && usual.is_none_or(|usual| clock < usual * limits.clock_straggler_ratio)
        });
        let declined = if is_held || is_below {
            None
        } else {
            Self::declined_clock(judge, cluster, row, gang)
        };
        if !is_held && !is_below && declined.is_none() {
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
            gang,
            held,
            temperature,
            clock,
            peers: crowd,
            is_held,
            is_below,
            declined,
        })
    }

    /// Returns its clock / peer median if it drifted. Without job labels, a node on which most GPUs drifted runs
    /// another job than inferred.
    fn declined_clock(
        judge: &Judge,
        cluster: &Cluster,
        row: u32,
        gang: Option<&JobGroup>,
    ) -> Option<(f64, f64)> {
        let declined = ClockDrift::of(judge, cluster, row)?;
        let node = cluster.node_by_id(cluster.device_at(DeviceClass::Gpu, row)?.node)?;
        let rows = node.device_rows(DeviceClass::Gpu);
        let too = rows.iter().filter(|row| ClockDrift::of(judge, cluster, **row).is_some()).count();
        // When the others of its node wait, their clocks change slowly as well.
        let waits = judge.tracker.iter_open().any(|finding| {
            finding.kind == FindingKind::NvlinkDegraded
                && finding.entity.node.as_ref() == Some(&node.name)
        });
        if waits {
            return None;
        }
        let named = gang.is_some_and(|gang| gang.job.is_some());
        (named || rows.len() == 1 || too * 2 <= rows.len()).then_some(declined)
    }

    fn pending_finding(&self, judge: &Judge, cluster: &Cluster) -> PendingFinding {
        let limits = &judge.limits;
        let slowed = self
            .gang
            .and_then(JobGroup::slowdown_ratio)
            .filter(|slowed| *slowed >= limits.slowed_ratio);
        let waits = self.gang.map_or(0, JobGroup::waiting_gpus);
        let kind =
            if self.is_held { FindingKind::Throttled } else { FindingKind::ComputeStraggler };
        let kinds =
            usize::from(self.is_held) + usize::from(self.is_below) + usize::from(slowed.is_some());
        // A small decline is a warning, and does not page.
        let kinds = if self.declined.is_some() { 1 } else { kinds };
        // Thermal throttling is reported; a clock is compared, and an exporter may report it only now and then.
        let samples = if self.is_held { 0.0 } else { judge.two_sample_seconds(cluster) };
        let next = if self.is_held { COOL } else { EXCHANGE };
        let summary = self.render_summary(waits);
        let gang = self.gang;
        PendingFinding::of(kind, self.entity.clone(), kinds, true)
            .with_hold_seconds(limits.slow_gpu_seconds.max(samples))
            .with_cost(
                gang.map_or(0.0, JobGroup::lost_gpus),
                gang.map(|gang| gang.list_victims(cluster, Some(self.node))).unwrap_or_default(),
            )
            .with_summary(format!("{summary}."), next.to_owned())
            .with_evidence(self.collect_evidence(limits, slowed, waits))
    }

    fn collect_evidence(
        &self,
        limits: &Thresholds,
        slowed: Option<f64>,
        waits: usize,
    ) -> [FindingEvidence; 7] {
        [
            FindingEvidence::new(
                "share of the time in which heat or hardware held the clock",
                self.held,
                Unit::Ratio,
                Some(limits.clock_event_ratio),
            ),
            FindingEvidence::new(
                "clock",
                Some(self.clock),
                Unit::Hertz,
                self.peers.map(|peers| peers.lower_quartile * limits.clock_straggler_ratio),
            )
            .with_note("the limit is a lower one, from its peers"),
            FindingEvidence::new(
                "clock over the middle of its peers",
                self.peers.map(|peers| self.clock / peers.median),
                Unit::Ratio,
                None,
            ),
            FindingEvidence::new(
                "clock beside its peers'",
                self.declined.map(|(now, _)| now),
                Unit::Ratio,
                self.declined.map(|(_, usual)| usual * (1.0 - limits.drift_slack_ratio)),
            )
            .with_note(self.declined.map_or_else(String::new, |(_, usual)| {
                format!(
                    "usually {}; the limit is a lower one, from its own past",
                    format_percent(usual)
                )
            })),
            FindingEvidence::new(
                "GPUs of its job that wait",
                (waits > 0).then_some(waits as f64),
                Unit::Count,
                None,
            ),
            FindingEvidence::new("temperature", self.temperature, Unit::Celsius, None),
            FindingEvidence::new(
                "speed that its job has lost",
                slowed,
                Unit::Ratio,
                Some(limits.slowed_ratio),
            ),
        ]
    }

    fn render_summary(&self, waits: usize) -> String {
        let ratio = self.peers.map(|peers| self.clock / peers.median);
        let below = ratio
            .map(|ratio| format!(", at {} of its peers' clock", format_percent(ratio)))
            .unwrap_or_default();
        let mut summary = if self.is_held {
            format!("{} is throttled by heat or power{below}", self.entity)
        } else if let Some((now, usual)) = self.declined {
            format!(
                "{} has grown slower little by little: its clock is {} of its peers', and was {}",
                self.entity,
                format_percent(now),
                format_percent(usual)
            )
        } else {
            format!("{} runs slower than its peers{below}, and nothing says why", self.entity)
        };
        if waits > 0 {
            summary += "; ";
            summary += &format_count(waits, "GPU");
            summary += " of its job wait";
        }
        summary
    }
}

const COOL: &str = "Look at its temperature, its cooling and its power supply.";
const EXCHANGE: &str = "Look at its clocks and limits (nvidia-smi -q -d CLOCK,PERFORMANCE), and let it be exchanged if they stay.";
