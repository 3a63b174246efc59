//! GPUs whose clock is below those of their peers.

use gaunt_cluster::Cluster;
use gaunt_schema::{DeviceClass, Entity, Finding, FindingKind, catalogue::gpu};

use super::{
    JudgeState,
    gpu_signals::{GpuAverages, GpuSignals},
    peer_clocks::model_of,
    peer_gpus::{PeerGpus, StepPeers},
    robust_stats::{RobustStats, median},
};

/// Whether the clock of a GPU is below those of its peers, and what else sets it apart from them.
pub(super) struct BelowPeers {
    pub(super) is_below: bool,
    /// The clocks of the peers that it was compared with.
    pub(super) peers: Option<RobustStats>,
    /// The share of their lower quartile from which its clock is below theirs.
    pub(super) least: f64,
    /// The temperature from which it is hotter than its peers, if it is and reports no reason.
    pub(super) hotter_than: Option<f64>,
    /// Its activity / median of its peers, if they wait for it and its clock did not fall: it may always have been so, and
    /// by design.
    pub(super) awaited: Option<f64>,
}

impl BelowPeers {
    pub(super) fn of(
        judge: &JudgeState,
        cluster: &Cluster,
        step: &mut StepPeers,
        (row, clock): (u32, f64),
        signals: &GpuSignals,
    ) -> Self {
        let limits = &judge.limits;
        let peers = judge.job_groups.clocks_of_peers(&judge.gpus, cluster, limits, row);
        // Hysteresis: what is told stays so up to a higher clock and a lower temperature.
        let slack =
            if is_told(judge, cluster, row) { limits.leave_share.clamp(0.1, 1.0) } else { 1.0 };
        let least = 1.0 - (1.0 - limits.slow_clock_ratio) * slack;
        let none = Self { is_below: false, peers, least, hotter_than: None, awaited: None };
        let is_outlier = |peers: &RobustStats| {
            clock < peers.lower_quartile * least
                && peers.robust_score(clock, limits.noise_floor_ratio) < -limits.peer_score
        };
        let of_role = peers.filter(is_outlier);
        let averages = judge.gpus.get(row as usize).map(|gpu| &gpu.averages);
        let lowest = averages.and_then(GpuAverages::lowest_clock);
        let has_fallen = !works_more(judge, row, signals)
            && lowest.is_some_and(|it| clock < it * (1.0 - limits.drift_slack_ratio));
        let group = judge.job_groups.of(row);
        // A whole node that has fallen is half of the clocks of a job of two.
        let is_split =
            of_role.is_none() && has_fallen && group.is_some_and(|it| it.nodes.len() > 1);
        let others = is_split.then(|| step.peers_of(judge, cluster, row)).flatten();
        let power = averages.and_then(GpuAverages::usual_power);
        let of_others = others.and_then(|others| {
            others.clocks(judge, cluster).role_clocks(model_of(cluster, row), power)
        });
        let of_role = of_role.or(of_others.filter(is_outlier));
        // The GPUs of a slow node draw less power than the others, as if they had another role.
        let of_any = group.and_then(|group| group.peers.fastest_role(model_of(cluster, row)));
        let Some(below) = of_role.or(of_any.filter(is_outlier)) else { return none };
        let others = step.peers_of(judge, cluster, row).unwrap_or_default();
        let reports_reason = signals.hw_slowdown.is_some() || signals.sw_thermal.is_some();
        let temperature = |row: u32| cluster.current_value(gpu::TEMPERATURE, row);
        let hotter_than = others
            .temperature(cluster)
            .map(|usual| usual + HOTTER_KELVIN * slack)
            .filter(|hot| !reports_reason && temperature(row) >= Some(*hot));
        let awaited = awaited_activity(judge, cluster, signals, &others);
        let found = Self { is_below: true, peers: Some(below), least, hotter_than, awaited };
        if of_role.is_some() && has_fallen {
            return Self { awaited: None, ..found };
        }
        // Without a past, a node whose GPUs are all alike is slower by design.
        let differs =
            of_role.is_some() && lowest.is_none() && differs_from_node(judge, cluster, row, clock);
        if awaited.is_some() || hotter_than.is_some() || differs { found } else { none }
    }
}

/// Boards that do the same work differ by up to ten kelvin with their place in the air: so much more is no such
/// difference.
const HOTTER_KELVIN: f64 = 15.0;

/// Returns the activity of a GPU, as a multiple of its peers', if they wait for it: it computes for a larger share of the
/// time and draws less power than most of them. One with more work than they have draws more.
fn awaited_activity(
    judge: &JudgeState,
    cluster: &Cluster,
    own: &GpuSignals,
    peers: &PeerGpus,
) -> Option<f64> {
    let usual = peers.work(judge, cluster);
    let draws_less = own.power? < usual.power?;
    let activity = own.tensor? / usual.tensor.filter(|usual| *usual > 0.0)?;
    (draws_less && activity >= judge.limits.uneven_times).then_some(activity)
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

/// Whether a finding is open that this GPU, or most of its node, is slow.
pub(super) fn is_told(judge: &JudgeState, cluster: &Cluster, row: u32) -> bool {
    // Most GPUs are named by no finding at all.
    let Some(entry) =
        cluster.device_at(DeviceClass::Gpu, row).filter(|_| judge.frozen.has_gpu(row))
    else {
        return false;
    };
    let Some(node) = cluster.node_by_id(entry.node) else { return false };
    let index = entry.device.key.first().cloned().unwrap_or_default();
    let entities = [Entity::new_gpu(&node.name, &index), Entity::new_node(&node.name)];
    let is_open =
        |(kind, entity)| judge.tracker.open_one(&Finding::build_id(kind, entity)).is_some();
    let kinds = [FindingKind::Throttled, FindingKind::ComputeStraggler];
    kinds.into_iter().flat_map(|kind| entities.iter().map(move |it| (kind, it))).any(is_open)
}

/// Whether a GPU draws more than usual: it works more, and its clock yields to that.
pub(super) fn works_more(judge: &JudgeState, row: u32, signals: &GpuSignals) -> bool {
    let usual = judge.gpus.get(row as usize).and_then(|gpu| gpu.averages.usual_power());
    signals.power.zip(usual).is_some_and(|(power, usual)| power > usual)
}
