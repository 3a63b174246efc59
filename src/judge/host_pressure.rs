//! Host pressure: pressure on a host that is evidence that its GPUs wait for it.

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::EvidenceItem;

use super::{
    JudgeState, Thresholds,
    evidence_catalogue::EvidenceRow,
    host_averages::{BaselineComparison, HostAverages},
    host_evidence::PressureSource,
    job_group::JobGroup,
    pending_finding::format_percent,
    usual_pressure::compare_pressure,
};

/// Pressure on the CPUs of a host that launch kernels and load data.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuPressure {
    /// Tasks wait for a CPU.
    pub(super) pressed: bool,
    /// Tasks wait for a CPU a little.
    pub(super) crowded: bool,
    /// One CPU is saturated, or far busier than hosts become by chance.
    pub(super) pegged: bool,
    /// The busy share of the busiest one.
    busiest: Option<BaselineComparison>,
    /// The share from which that is evidence.
    busiest_limit: Option<f64>,
}

/// Returns the share from which the busiest CPU is evidence; None where one was saturated before: its load is none.
fn busiest_cpu_limit(
    busiest: BaselineComparison,
    is_likely: bool,
    limits: &Thresholds,
) -> Option<f64> {
    let Some(baseline) = busiest.baseline else { return Some(limits.busiest_cpu_ratio) };
    // Close to saturation, half of the idle time that was left must be gone.
    let saturated = limits.busiest_cpu_ratio.max(f64::midpoint(baseline, 1.0));
    let risen = if is_likely { baseline + limits.busiest_cpu_rise_ratio } else { saturated };
    (baseline < limits.busiest_cpu_ratio).then(|| saturated.min(risen))
}

impl CpuPressure {
    /// Returns the pressure on this host now.
    pub(super) fn of(host: &HostAverages, cluster: &Cluster, limits: &Thresholds) -> Self {
        let (cpu, busiest) =
            (host.compare_cpu_pressure(cluster), host.compare_busiest_cpu(cluster));
        let waits = |limit: f64| cpu.is_some_and(|cpu| cpu.exceeds_limit(limit, limits));
        let is_likely = host.evidence.is_likely(PressureSource::BusiestCpu);
        let busiest_limit =
            busiest.and_then(|busiest| busiest_cpu_limit(busiest, is_likely, limits));
        let pegged =
            busiest.zip(busiest_limit).is_some_and(|(busiest, limit)| busiest.now >= limit);
        Self {
            pressed: waits(limits.cpu_pressure_ratio),
            crowded: waits(limits.cpu_crowded_ratio),
            pegged,
            busiest,
            busiest_limit,
        }
    }

    /// Whether one CPU is saturated.
    fn is_saturated(&self, limits: &Thresholds) -> bool {
        self.busiest.is_some_and(|busiest| busiest.now >= limits.busiest_cpu_ratio)
    }

    /// Returns the busy share of the busiest CPU as evidence.
    pub(super) fn busiest_evidence(&self, limits: &Thresholds) -> EvidenceItem {
        let limit = self.busiest_limit.unwrap_or(limits.busiest_cpu_ratio);
        let now = self.busiest.map(|busiest| busiest.now);
        let item = EvidenceRow::BusiestCpu.to_evidence(now, Some(limit));
        let Some(baseline) = self.busiest.and_then(|busiest| busiest.baseline) else { return item };
        let baseline = format!("baseline {}", format_percent(baseline));
        if limit.total_cmp(&limits.busiest_cpu_ratio).is_eq() {
            return item.with_note(baseline);
        }
        item.with_threshold("busiest_cpu_rise_ratio")
            .with_note(format!("{baseline}, from which the limit follows"))
    }

    /// Whether any of it is unusual.
    pub(super) fn is_any_unusual(self) -> bool {
        self.pressed || self.crowded || self.pegged
    }
}

/// A host stands out if it waits so many times as long as any other of its job.
const OUTLIER_TIMES: f64 = 5.0;

/// The least other hosts of a job that one is compared with.
const LEAST_OTHERS: usize = 2;

/// Pressure that a host has and no other host of its job: evidence even if it is as old as the host is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutlyingPressure {
    pub(super) source: PressureSource,
    /// The share of time from which it stands out.
    pub(super) limit: f64,
}

impl OutlyingPressure {
    /// Returns that of a host, if it stands out; no search unless its pressure is over the limit.
    pub(super) fn of(
        judge: &JudgeState,
        cluster: &Cluster,
        group: &JobGroup,
        id: NodeId,
    ) -> Option<Self> {
        let limits = &judge.limits;
        let at_least = [
            (PressureSource::Io, limits.io_pressure_ratio),
            (PressureSource::Cpu, limits.cpu_pressure_ratio),
        ];
        at_least.into_iter().find_map(|(source, least)| {
            let of = |id: &NodeId| compare_pressure(source, judge.hosts.get(*id)?, cluster);
            let own = of(&id).filter(|own| own.now >= least && !own.accepted)?.now;
            let (mut others, mut most) = (0, 0.0_f64);
            for other in group.nodes.iter().filter(|other| **other != id) {
                let Some(other) = of(other) else { continue };
                (others, most) = (others + 1, most.max(other.now));
                if own < most * OUTLIER_TIMES {
                    return None;
                }
            }
            let limit = least.max(most * OUTLIER_TIMES);
            (others >= LEAST_OTHERS).then_some(Self { source, limit })
        })
    }
}

/// Pressure on a host that is evidence: over its limit, and further above the host's past than hosts usually rise.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a kind of evidence of its own")]
pub(super) struct HostPressure {
    /// Tasks wait for IO.
    pub(super) io: bool,
    /// Tasks wait for a CPU.
    pub(super) pressed: bool,
    /// Tasks wait for a CPU a little.
    pub(super) crowded: bool,
    /// One CPU is saturated, or far busier than before.
    pub(super) pegged: bool,
    /// One CPU is saturated: by itself, one that is only busier keeps nobody waiting.
    pub(super) saturated: bool,
}

impl HostPressure {
    /// Returns the pressure on this host now.
    pub(super) fn of(judge: &JudgeState, cluster: &Cluster, host: &HostAverages) -> Self {
        let limits = &judge.limits;
        // Where it is known how far pressure rises on any host, it must have risen further.
        let is_chore = |source: PressureSource| {
            compare_pressure(source, host, cluster).is_some_and(|pressure| {
                let rise = source.rise(pressure.now, pressure.baseline.unwrap_or_default());
                judge.usual_pressure.is_common(source, rise)
            }) && !host.evidence.is_suspected(source)
        };
        let is_over = |source: PressureSource, limit: f64, exceeds: bool| {
            compare_pressure(source, host, cluster).is_some_and(|pressure| {
                // What was there before keeps nobody waiting now: the rise alone must be as large.
                let rise = pressure.now - pressure.baseline.unwrap_or_default();
                let is_risen = exceeds || host.evidence.is_likely(source);
                rise >= limit && is_risen && !is_chore(source)
            })
        };
        let io_exceeds = host.excess_io_pressure(cluster, limits).is_some();
        let cpu = CpuPressure::of(host, cluster, limits);
        let of_cpu = |limit, exceeds| is_over(PressureSource::Cpu, limit, exceeds);
        let pegged = cpu.pegged && !is_chore(PressureSource::BusiestCpu);
        Self {
            io: is_over(PressureSource::Io, limits.io_pressure_ratio, io_exceeds)
                && (io_exceeds || !host.knows_only_iowait()),
            pressed: of_cpu(limits.cpu_pressure_ratio, cpu.pressed),
            crowded: of_cpu(limits.cpu_crowded_ratio, cpu.crowded),
            pegged,
            saturated: pegged && cpu.is_saturated(limits),
        }
    }

    /// Adds pressure that no other host of its job has.
    pub(super) fn with_outlying(mut self, outlying: Option<OutlyingPressure>) -> Self {
        match outlying.map(|outlying| outlying.source) {
            Some(PressureSource::Io) => self.io = true,
            Some(PressureSource::Cpu) => self.pressed = true,
            _ => {}
        }
        self
    }

    /// Whether tasks wait, for whatever it is.
    pub(super) fn is_any(self) -> bool {
        self.io || self.pressed || self.crowded || self.pegged
    }

    /// Whether tasks wait, and more than hosts do by chance.
    pub(super) fn is_clear(self, host: &HostAverages) -> bool {
        let is_likely = |source| host.evidence.is_likely(source);
        (self.io && is_likely(PressureSource::Io))
            || (self.pressed && is_likely(PressureSource::Cpu))
            || (self.saturated && is_likely(PressureSource::BusiestCpu))
    }
}

/// Finds the only host of a slower job that waits for CPU or IO more than hosts do by chance.
pub(super) fn only_pressed(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
) -> Option<NodeId> {
    if !judge.gangs.of(group).is_slower(group, &judge.limits) {
        return None;
    }
    let is_clear = |id: &&NodeId| {
        let host = judge.hosts.get(**id);
        host.is_some_and(|host| HostPressure::of(judge, cluster, host).is_clear(host))
    };
    let mut pressed = group.nodes.iter().filter(is_clear);
    pressed.next().filter(|_| pressed.next().is_none()).copied()
}
