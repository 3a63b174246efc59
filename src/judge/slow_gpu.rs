//! GPUs that are slower than their peers: throttled by heat or power, or at a low clock without a reason.

use gaunt_schema::{Class, Entity, FindingKind, Safe, catalogue::gpu, unit::Unit};

use super::{
    Evidence, Judge, Thresholds,
    crowd::Crowd,
    drift::Drift,
    finding::{Suspicion, count, percent},
    gang::Gang,
    life::Seen,
    peers,
};
use crate::cluster::Cluster;

/// Adds every GPU that runs slower than it should.
pub(super) fn find(judge: &Judge, cluster: &Cluster, seen: &mut Seen) {
    for (_, node) in cluster.nodes() {
        for row in node.rows(Class::Gpu) {
            if let Some(slow) = Slow::look(judge, cluster, *row) {
                seen.suspicions.push(slow.suspicion(judge, cluster));
            }
        }
    }
}

/// One GPU that is slow, and the numbers that say so.
struct Slow<'a> {
    entity: Entity,
    node: crate::cluster::NodeId,
    gang: Option<&'a Gang>,
    /// Share of the time in which hardware holds the clock, or heat does.
    held: Option<f64>,
    temperature: Option<f64>,
    /// Clock beside the middle of its peers.
    clock: f64,
    peers: Option<Crowd>,
    is_held: bool,
    is_below: bool,
    /// Its clock beside its peers', now and usually, if it became lower little by little.
    declined: Option<(f64, f64)>,
}

impl<'a> Slow<'a> {
    fn look(judge: &'a Judge, cluster: &Cluster, row: u32) -> Option<Self> {
        let limits = &judge.limits;
        let (now, gap) = (cluster.now(), cluster.fresh_for());
        let own = judge.gpus.get(row as usize)?;
        let signals = own.averages.signals(now, gap, limits);
        if signals.utilization? < limits.utilization_launch_ratio {
            return None;
        }
        let held = [signals.hw_slowdown, signals.sw_thermal].into_iter().flatten().reduce(f64::max);
        let clock = own.averages.clock_hertz(now, limits)?;
        let is_held = held.is_some_and(|held| held >= limits.clock_event_ratio);
        let gang = judge.gangs.of(row);
        let crowd = peers::clocks(judge, cluster, row, gang);
        // A GPU that waits runs at a higher clock than one that computes: the lower quartile computes.
        let usual = own.averages.usual_clock();
        let is_below = crowd.is_some_and(|crowd| {
            clock < crowd.low * limits.clock_straggler_ratio
                && crowd.score(clock, limits.peer_floor_ratio) < -limits.peer_score
                && usual.is_none_or(|usual| clock < usual * limits.clock_straggler_ratio)
        });
        let declined =
            if is_held || is_below { None } else { Self::declined(judge, cluster, row, gang) };
        if !is_held && !is_below && declined.is_none() {
            return None;
        }
        let entry = cluster.device(Class::Gpu, row)?;
        let name = &cluster.node(entry.node)?.name;
        let entity = Entity::gpu(name, entry.device.key.first().unwrap_or(&Safe::default()));
        let temperature = cluster.value(gpu::TEMPERATURE, row);
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

    /// Its clock beside its peers' if that fell little by little. Where nobody names jobs, a node of which most GPUs did so
    /// has another job than it was taken to have.
    fn declined(
        judge: &Judge,
        cluster: &Cluster,
        row: u32,
        gang: Option<&Gang>,
    ) -> Option<(f64, f64)> {
        let declined = Drift::of(judge, cluster, row)?;
        let node = cluster.node(cluster.device(Class::Gpu, row)?.node)?;
        let rows = node.rows(Class::Gpu);
        let too = rows.iter().filter(|row| Drift::of(judge, cluster, **row).is_some()).count();
        let named = gang.is_some_and(|gang| gang.job.is_some());
        (named || rows.len() == 1 || too * 2 <= rows.len()).then_some(declined)
    }

    fn suspicion(&self, judge: &Judge, cluster: &Cluster) -> Suspicion {
        let limits = &judge.limits;
        let slowed =
            self.gang.and_then(Gang::slowed).filter(|slowed| *slowed >= limits.slowed_ratio);
        let waits = self.gang.map_or(0, Gang::waiting);
        let kind =
            if self.is_held { FindingKind::Throttled } else { FindingKind::ComputeStraggler };
        let kinds =
            usize::from(self.is_held) + usize::from(self.is_below) + usize::from(slowed.is_some());
        // A small decline is worth a look, and wakes nobody.
        let kinds = if self.declined.is_some() { 1 } else { kinds };
        // Heat is a fact; a clock is compared, and an exporter may tell it only now and then.
        let samples = if self.is_held { 0.0 } else { judge.two_samples(cluster) };
        let next = if self.is_held { COOL } else { EXCHANGE };
        let summary = self.summary(waits);
        let gang = self.gang;
        Suspicion::of(kind, self.entity.clone(), kinds, true)
            .hold(limits.slow_gpu_seconds.max(samples))
            .costs(
                gang.map_or(0.0, Gang::lost_gpus),
                gang.map(|gang| gang.victims(cluster, Some(self.node))).unwrap_or_default(),
            )
            .says(format!("{summary}."), next.to_owned())
            .on(self.numbers(limits, slowed, waits))
    }

    fn numbers(&self, limits: &Thresholds, slowed: Option<f64>, waits: usize) -> [Evidence; 7] {
        [
            Evidence::new(
                "share of the time in which heat or hardware held the clock",
                self.held,
                Unit::Ratio,
                Some(limits.clock_event_ratio),
            ),
            Evidence::new(
                "clock",
                Some(self.clock),
                Unit::Hertz,
                self.peers.map(|peers| peers.low * limits.clock_straggler_ratio),
            )
            .note("the limit is a lower one, from its peers"),
            Evidence::new(
                "clock over the middle of its peers",
                self.peers.map(|peers| self.clock / peers.middle),
                Unit::Ratio,
                None,
            ),
            Evidence::new(
                "clock beside its peers'",
                self.declined.map(|(now, _)| now),
                Unit::Ratio,
                self.declined.map(|(_, usual)| usual * (1.0 - limits.drift_slack_ratio)),
            )
            .note(self.declined.map_or_else(String::new, |(_, usual)| {
                format!("usually {}; the limit is a lower one, from its own past", percent(usual))
            })),
            Evidence::new(
                "GPUs of its job that wait",
                (waits > 0).then_some(waits as f64),
                Unit::Count,
                None,
            ),
            Evidence::new("temperature", self.temperature, Unit::Celsius, None),
            Evidence::new(
                "speed that its job has lost",
                slowed,
                Unit::Ratio,
                Some(limits.slowed_ratio),
            ),
        ]
    }

    fn summary(&self, waits: usize) -> String {
        let ratio = self.peers.map(|peers| self.clock / peers.middle);
        let below = ratio
            .map(|ratio| format!(", at {} of its peers' clock", percent(ratio)))
            .unwrap_or_default();
        let mut summary = if self.is_held {
            format!("{} is throttled by heat or power{below}", self.entity)
        } else if let Some((now, usual)) = self.declined {
            format!(
                "{} has grown slower little by little: its clock is {} of its peers', and was {}",
                self.entity,
                percent(now),
                percent(usual)
            )
        } else {
            format!("{} runs slower than its peers{below}, and nothing says why", self.entity)
        };
        if waits > 0 {
            summary += "; ";
            summary += &count(waits, "GPU");
            summary += " of its job wait";
        }
        summary
    }
}

const COOL: &str = "Look at its temperature, its cooling and its power supply.";
const EXCHANGE: &str = "Look at its clocks and limits (nvidia-smi -q -d CLOCK,PERFORMANCE), and let it be exchanged if they stay.";
