//! Peers: GPUs that can be compared with each other, because they are of one model and have the same role in their job.
//!
//! No exporter reports the role of a GPU. Roles that differ steadily, such as the stages of a pipeline, usually draw
//! different power: where that leaves a gap with enough GPUs on both sides, they are two roles.

use std::collections::BTreeMap;

use gaunt_schema::SanitizedText;

use super::{
    Thresholds, gpu_signals::LIGHT_LOAD_RATIO, gpu_tracker::GpuTracker, robust_stats::RobustStats,
};
use gaunt_cluster::Cluster;

/// The clocks of busy peers, by model and role.
#[derive(Debug, Default)]
pub(super) struct PeerClocks(BTreeMap<SanitizedText, Vec<PeerRole>>);

/// GPUs of one role.
#[derive(Debug)]
struct PeerRole {
    /// The highest power baseline of them.
    most: f64,
    /// Statistics of their clocks; none if they are too few.
    clocks: Option<RobustStats>,
}

impl PeerClocks {
    /// Finds the peers among these GPUs.
    pub(super) fn of(
        cluster: &Cluster,
        trackers: &[GpuTracker],
        limits: &Thresholds,
        gpus: &[u32],
    ) -> Self {
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let busy = gpus.iter().filter_map(|row| {
            let averages = &trackers.get(*row as usize)?.averages;
            averages.utilization_at(now, gap).filter(|busy| *busy >= LIGHT_LOAD_RATIO)?;
            let clock = averages.clock_hertz(now, limits)?;
            let power = averages.usual_power().unwrap_or(f64::NAN);
            Some((model_of(cluster, *row), (power, clock)))
        });
        let busy: Vec<(&str, (f64, f64))> = busy.collect();
        // Nearly all are of one model.
        let mut models: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for alike in busy.chunk_by(|(one, _), (other, _)| one == other) {
            models.entry(alike[0].0).or_default().extend(alike.iter().map(|(_, gpu)| *gpu));
        }
        let models = models.into_iter();
        Self(
            models
                .map(|(model, of)| (SanitizedText::new(model), split_roles(of, limits)))
                .collect(),
        )
    }

    /// Returns the clocks of a GPU's peers.
    pub(super) fn role_clocks(&self, model: &str, usual_power: Option<f64>) -> Option<RobustStats> {
        let roles = self.0.get(model)?;
        let role = match (roles.as_slice(), usual_power) {
            ([only], _) => only,
            (many, Some(power)) => many.iter().find(|role| power <= role.most).or(many.last())?,
            _ => return None,
        };
        role.clocks
    }

    /// Returns the clocks of the fastest role of a model.
    pub(super) fn fastest_role(&self, model: &str) -> Option<RobustStats> {
        let clocks = self.0.get(model)?.iter().filter_map(|role| role.clocks);
        clocks.max_by(|a, b| a.lower_quartile.total_cmp(&b.lower_quartile))
    }

    /// Returns how many roles the GPUs of a model have.
    pub(super) fn count_roles(&self, model: &str) -> usize {
        self.0.get(model).map_or(0, Vec::len)
    }
}

/// Splits GPUs where their power baselines have a gap with enough of them on both sides.
fn split_roles(mut gpus: Vec<(f64, f64)>, limits: &Thresholds) -> Vec<PeerRole> {
    let least = limits.least_peers as usize;
    let role = |gpus: &[(f64, f64)]| {
        let clocks: Vec<f64> = gpus.iter().map(|(_, clock)| *clock).collect();
        let most = gpus.iter().map(|(power, _)| *power).fold(f64::MIN, f64::max);
        PeerRole { most, clocks: RobustStats::of(&clocks, least) }
    };
    if gpus.iter().any(|(power, _)| power.is_nan()) {
        return vec![role(&gpus)];
    }
    gpus.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut roles, mut from) = (Vec::new(), 0);
    for at in 1..gpus.len() {
        let gap = gpus[at].0 > gpus[at - 1].0 * (1.0 + limits.role_gap_ratio);
        if gap && at - from >= least && gpus.len() - at >= least {
            roles.push(role(&gpus[from..at]));
            from = at;
        }
    }
    roles.push(role(&gpus[from..]));
    roles
}

/// Returns the model of a GPU; empty if not reported.
pub(super) fn model_of(cluster: &Cluster, row: u32) -> &str {
    cluster.gpu_model(row).map(SanitizedText::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn medians_of_roles(gpus: &[(f64, f64)]) -> Vec<Option<f64>> {
        let roles = split_roles(gpus.to_vec(), &Thresholds::default());
        roles.into_iter().map(|role| role.clocks.map(|clocks| clocks.median)).collect()
    }

    #[test]
    fn roles_are_separated_by_a_gap_and_not_by_a_slope() {
        let stages = [(0.5, 1.9), (0.52, 1.9), (0.9, 1.4), (0.51, 1.9), (0.5, 1.9), (0.92, 1.4)];
        let stages: Vec<(f64, f64)> = stages.into_iter().chain([(0.91, 1.4), (0.9, 1.4)]).collect();
        assert_eq!(medians_of_roles(&stages), [Some(1.9), Some(1.4)]);
        let slope: Vec<(f64, f64)> = (0..12).map(|at| (0.5 + f64::from(at) * 0.04, 1.5)).collect();
        assert_eq!(medians_of_roles(&slope), [Some(1.5)]);
    }

    #[test]
    fn role_needs_several_gpus_with_a_baseline() {
        let odd = [(0.5, 1.9), (0.5, 1.9), (0.5, 1.9), (0.5, 1.9), (0.9, 1.0), (0.9, 1.0)];
        assert_eq!(medians_of_roles(&odd), [Some(1.9)], "two that draw more are two odd ones");
        let new = [(f64::NAN, 1.9), (0.9, 1.9), (0.5, 1.9), (0.5, 1.9)];
        assert_eq!(medians_of_roles(&new), [Some(1.9)]);
        assert_eq!(medians_of_roles(&new[..2]), [None]);
    }
}
