//! Host pressure: pressure on a host that is evidence that its GPUs wait for it.

use gaunt_cluster::Cluster;

use super::{
    JudgeState, Thresholds, host_averages::HostAverages, host_evidence::PressureSource,
    usual_pressure::compare_pressure,
};

/// Pressure on the CPUs of a host that launch kernels and load data.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuPressure {
    /// Tasks wait for a CPU.
    pub(super) pressed: bool,
    /// Tasks wait for a CPU a little.
    pub(super) crowded: bool,
    /// One CPU is saturated, and was not in its baseline.
    pub(super) pegged: bool,
    /// The busy share of the busiest one.
    pub(super) busiest: Option<f64>,
}

impl CpuPressure {
    /// Returns the pressure on this host now.
    pub(super) fn of(host: &HostAverages, cluster: &Cluster, limits: &Thresholds) -> Self {
        let (cpu, busiest) =
            (host.compare_cpu_pressure(cluster), host.compare_busiest_cpu(cluster));
        let waits = |limit: f64| cpu.is_some_and(|cpu| cpu.exceeds_limit(limit, limits));
        let pegged = busiest.is_some_and(|busiest| {
            // Where one CPU always spins, its load is no evidence.
            let before =
                busiest.baseline.is_none_or(|baseline| baseline < limits.busiest_cpu_before_ratio);
            busiest.now >= limits.busiest_cpu_ratio && before
        });
        Self {
            pressed: waits(limits.cpu_pressure_ratio),
            crowded: waits(limits.cpu_crowded_ratio),
            pegged,
            busiest: busiest.map(|busiest| busiest.now),
        }
    }

    /// Whether any of it is unusual.
    pub(super) fn is_any_unusual(self) -> bool {
        self.pressed || self.crowded || self.pegged
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
    /// One CPU is saturated.
    pub(super) pegged: bool,
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
            let now = compare_pressure(source, host, cluster).map(|it| it.now);
            let risen = exceeds || host.evidence.is_likely(source);
            now.is_some_and(|now| now >= limit) && risen && !is_chore(source)
        };
        let io = host.compare_io_pressure(cluster);
        let io_exceeds = io.is_some_and(|io| io.exceeds_limit(limits.io_pressure_ratio, limits));
        let cpu = CpuPressure::of(host, cluster, limits);
        let of_cpu = |limit, exceeds| is_over(PressureSource::Cpu, limit, exceeds);
        Self {
            io: is_over(PressureSource::Io, limits.io_pressure_ratio, io_exceeds),
            pressed: of_cpu(limits.cpu_pressure_ratio, cpu.pressed),
            crowded: of_cpu(limits.cpu_crowded_ratio, cpu.crowded),
            pegged: is_over(PressureSource::BusiestCpu, limits.busiest_cpu_ratio, cpu.pegged),
        }
    }

    /// Whether tasks wait, for whatever it is.
    pub(super) fn is_any(self) -> bool {
        self.io || self.pressed || self.crowded
    }

    /// Whether tasks wait, and more than hosts do by chance.
    pub(super) fn is_clear(self, host: &HostAverages) -> bool {
        let is_likely = |source| host.evidence.is_likely(source);
        (self.io && is_likely(PressureSource::Io))
            || (self.pressed && is_likely(PressureSource::Cpu))
    }
}
