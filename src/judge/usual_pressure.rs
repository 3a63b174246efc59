//! Usual pressure: how far the pressure of hosts rises above their past by chance.

use gaunt_cluster::Cluster;
use serde::{Deserialize, Serialize};

use super::{
    Thresholds,
    evidence_sum::EVEN_CHANCE,
    frozen_baselines::FrozenBaselines,
    host_averages::{BaselineComparison, HostAverages},
    host_evidence::{HeldRises, PressureSource, SOURCES},
    node_table::NodeTable,
    residual_histogram::ResidualHistogram,
};

/// Returns the pressure from a source with its baseline.
pub(super) fn compare_pressure(
    source: PressureSource,
    host: &HostAverages,
    cluster: &Cluster,
) -> Option<BaselineComparison> {
    match source {
        PressureSource::Io => host.compare_io_pressure(cluster),
        PressureSource::Cpu => host.compare_cpu_pressure(cluster),
        PressureSource::BusiestCpu => host.compare_busiest_cpu(cluster),
        PressureSource::Storage => host.compare_response_time(cluster),
    }
}

/// Share of rounds from which a rise is common: a chore explains it.
const COMMON: f64 = 0.02;

/// How far the pressure of hosts usually rises above their past: chores on any host are part of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct UsualPressure([ResidualHistogram; SOURCES.len()]);

impl UsualPressure {
    /// Whether pressure from this source is known to rise by so much on any host now and then.
    pub(super) fn is_common(&self, source: PressureSource, rise: f64) -> bool {
        let usual = &self.0[source as usize];
        usual.is_known() && usual.probability(rise) > COMMON
    }

    /// Adds a round of every host that has new averages.
    pub(super) fn observe_hosts(
        &mut self,
        cluster: &Cluster,
        hosts: &mut NodeTable<HostAverages>,
        frozen: &FrozenBaselines,
        limits: &Thresholds,
    ) {
        let round_s = limits.average_seconds.max(cluster.scrape_period().as_secs_f64());
        for (id, host) in hosts.iter_mut() {
            let Some(at) = host.last_sampled() else { continue };
            let last = host.evidence.last_round;
            if last.is_set() && at.seconds_since(last) < round_s {
                continue;
            }
            host.evidence.last_round = at;
            for source in SOURCES {
                let Some(now) = compare_pressure(source, host, cluster) else { continue };
                let Some(baseline) = now.baseline else { continue };
                let (usual, rise) = (&mut self.0[source as usize], source.rise(now.now, baseline));
                let evidence = &mut host.evidence;
                let (sum, held) =
                    (&mut evidence.sums[source as usize], &mut evidence.held[source as usize]);
                let probability = usual.probability(rise);
                sum.add_probability(probability);
                if sum.is_likely() || frozen.has_node(id) {
                    *held = HeldRises::default();
                } else if probability < EVEN_CHANCE {
                    held.hold_rise(rise);
                } else {
                    usual.count(rise);
                    if !sum.is_suspected() {
                        held.count_into(usual);
                    }
                }
            }
        }
    }
}
