//! Host evidence: hosts whose pressure has risen above their own past by more than hosts usually do.

use std::collections::HashMap;

use gaunt_cluster::{Cluster, NodeId};

use super::{
    Thresholds,
    evidence_sum::EvidenceSum,
    frozen_baselines::FrozenBaselines,
    host_averages::{BaselineComparison, HostAverages},
    moving_average::CompactTimestamp,
    residual_histogram::ResidualHistogram,
};

/// What the pressure of a host comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PressureSource {
    /// Tasks wait for IO.
    Io,
    /// Tasks wait for a CPU.
    Cpu,
    /// One CPU is busy all the time.
    BusiestCpu,
}

const SOURCES: [PressureSource; 3] =
    [PressureSource::Io, PressureSource::Cpu, PressureSource::BusiestCpu];

impl PressureSource {
    pub(super) fn compare(
        self,
        host: &HostAverages,
        cluster: &Cluster,
    ) -> Option<BaselineComparison> {
        match self {
            Self::Io => host.compare_io_pressure(cluster),
            Self::Cpu => host.compare_cpu_pressure(cluster),
            Self::BusiestCpu => host.compare_busiest_cpu(cluster),
        }
    }
}

/// The evidence about one host, by source of pressure.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostEvidence {
    sums: [EvidenceSum; SOURCES.len()],
    last_round: CompactTimestamp,
}

impl HostEvidence {
    /// Whether pressure from this source has likely risen.
    pub(super) fn is_likely(&self, source: PressureSource) -> bool {
        self.sums[source as usize].is_likely()
    }

    /// Whether pressure from this source may have risen.
    pub(super) fn is_suspected(&self, source: PressureSource) -> bool {
        self.sums[source as usize].is_suspected()
    }

    /// Whether any pressure has likely risen.
    pub(super) fn is_any_likely(&self) -> bool {
        self.sums.iter().any(|sum| sum.is_likely())
    }
}

/// How far the pressure of hosts usually rises above their past: chores on any host are part of it.
#[derive(Debug, Default)]
pub(super) struct UsualPressure([ResidualHistogram; SOURCES.len()]);

impl UsualPressure {
    /// Whether it is known how far pressure from this source usually rises.
    pub(super) fn is_known(&self, source: PressureSource) -> bool {
        self.0[source as usize].is_known()
    }

    /// Adds a round of every host that has new averages.
    pub(super) fn observe_hosts(
        &mut self,
        cluster: &Cluster,
        hosts: &mut HashMap<NodeId, HostAverages>,
        frozen: &FrozenBaselines,
        limits: &Thresholds,
    ) {
        let round_s = limits.average_seconds.max(cluster.scrape_period().as_secs_f64());
        for (id, host) in hosts {
            let Some(at) = host.last_sampled().map(CompactTimestamp::of) else { continue };
            let last = host.evidence.last_round;
            if last.is_set() && at.seconds_since(last) < round_s {
                continue;
            }
            host.evidence.last_round = at;
            for source in SOURCES {
                let Some(now) = source.compare(host, cluster) else { continue };
                let Some(baseline) = now.baseline else { continue };
                let (usual, rise) = (&mut self.0[source as usize], now.now - baseline);
                let sum = &mut host.evidence.sums[source as usize];
                sum.add_probability(usual.probability(rise));
                if !sum.is_likely() && !frozen.has_node(*id) {
                    usual.count(rise);
                }
            }
        }
    }
}
