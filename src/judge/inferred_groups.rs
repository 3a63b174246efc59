//! Inferred groups: nodes without job labels that probably run one job, because they draw the same power and send as
//! much in calm times.

use std::collections::{BTreeMap, HashMap};

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{DeviceClass, SanitizedText};

use super::{
    Thresholds, gpu_tracker::GpuTracker, host_averages::HostAverages, node_table::NodeTable,
    robust_stats::median,
};

/// How far a member may move from its group, as a multiple of how much alike nodes must be to form one: baselines that
/// are still being learned do not split it.
const MEMBER_TIMES: f64 = 3.0;

/// The baselines of power and traffic of a node, by which nodes are alike.
#[derive(Clone, Copy, Debug)]
struct NodeLevel {
    power: f64,
    /// As a share of the line rate of the fastest node.
    traffic: f64,
}

impl NodeLevel {
    /// Whether two levels differ by at most `times` what nodes of one job may differ by.
    fn is_like(self, other: Self, times: f64, limits: &Thresholds) -> bool {
        let like = |a: f64, b: f64, share: f64| {
            (a - b).abs() <= times * share * a.max(b).max(limits.noise_floor_ratio)
        };
        like(self.power, other.power, limits.like_power_ratio)
            && like(self.traffic, other.traffic, limits.like_traffic_ratio)
    }

    /// Returns the median of these levels.
    fn median_of(levels: &[Self]) -> Option<Self> {
        let power = median(levels.iter().map(|level| level.power))?;
        Some(Self { power, traffic: median(levels.iter().map(|level| level.traffic))? })
    }
}

/// Nodes of one group, with their levels.
type Members = Vec<(NodeId, NodeLevel)>;

fn level_of_group(members: &Members) -> Option<NodeLevel> {
    let levels: Vec<NodeLevel> = members.iter().map(|(_, level)| *level).collect();
    NodeLevel::median_of(&levels)
}

/// Returns the GPUs of a node that somebody uses, or may.
pub(super) fn used_rows<'a>(
    cluster: &Cluster,
    trackers: &'a [GpuTracker],
    limits: &'a Thresholds,
    node: &'a Node,
) -> impl Iterator<Item = u32> + use<'a> {
    let (now, gap) = (cluster.now(), cluster.freshness_window());
    let is_unused = move |row: &u32| {
        trackers.get(*row as usize).is_some_and(|gpu| gpu.is_unused(now, gap, limits))
    };
    node.device_rows(DeviceClass::Gpu).iter().copied().filter(move |row| !is_unused(row))
}

/// Groups nodes without job labels on GPUs of one model, by the best line rates that were seen of their ports. Members of
/// an earlier group stay together while they are roughly alike.
pub(super) fn infer_groups(
    cluster: &Cluster,
    trackers: &[GpuTracker],
    hosts: &NodeTable<HostAverages>,
    best_rate: impl Fn(u32) -> Option<f64>,
    limits: &Thresholds,
    earlier: &[Vec<NodeId>],
) -> Vec<Vec<NodeId>> {
    let was_in: HashMap<NodeId, usize> = earlier
        .iter()
        .enumerate()
        .flat_map(|(at, ids)| ids.iter().map(move |id| (*id, at)))
        .collect();
    // Nodes of one job exchange as many bytes, also where the ports of one of them are slower.
    let line_rate = |node: &Node| {
        let ports = node.device_rows(DeviceClass::Port).iter();
        ports.filter_map(|row| best_rate(*row)).sum::<f64>()
    };
    let fastest = cluster.sorted_nodes().map(|(_, node)| line_rate(node)).fold(0.0, f64::max);
    let mut models: BTreeMap<SanitizedText, BTreeMap<usize, Members>> = BTreeMap::new();
    let mut next = earlier.len();
    for (id, node) in cluster.sorted_nodes() {
        let rows = node.device_rows(DeviceClass::Gpu);
        if rows.is_empty() || rows.iter().any(|row| cluster.job_of_gpu(*row).is_some()) {
            continue;
        }
        let used = used_rows(cluster, trackers, limits, node);
        let members = used.filter_map(|row| trackers.get(row as usize));
        let Some(power) = median(members.filter_map(|gpu| gpu.averages.usual_power())) else {
            continue;
        };
        let traffic = hosts.get(id).and_then(|host| host.compare_traffic(cluster)?.baseline);
        let rate = line_rate(node);
        let scale = if rate > 0.0 { rate / fastest } else { 1.0 };
        let level = NodeLevel { power, traffic: traffic.unwrap_or_default() * scale };
        let model = cluster.gpu_model(rows[0]).cloned().unwrap_or_default();
        let group = was_in.get(&id).copied().unwrap_or_else(|| {
            next += 1;
            next
        });
        models.entry(model).or_default().entry(group).or_default().push((id, level));
    }
    models.into_values().flat_map(|groups| regroup(groups.into_values(), limits)).collect()
}

/// Merges groups that are alike, after taking out the members that are not.
fn regroup(groups: impl Iterator<Item = Members>, limits: &Thresholds) -> Vec<Vec<NodeId>> {
    let mut kept: Vec<Members> = Vec::new();
    let mut loose: Vec<Members> = Vec::new();
    for members in groups {
        let Some(middle) = level_of_group(&members) else { continue };
        let (stay, leave): (Members, Members) =
            members.into_iter().partition(|(_, level)| level.is_like(middle, MEMBER_TIMES, limits));
        loose.extend(leave.into_iter().map(|member| vec![member]));
        match stay.len() {
            0 => {}
            1 => loose.push(stay),
            _ => kept.push(stay),
        }
    }
    // The largest groups attract the others.
    kept.sort_by_key(|members| std::cmp::Reverse(members.len()));
    let mut merged: Vec<(NodeLevel, Members)> = Vec::new();
    for members in kept.into_iter().chain(loose) {
        let Some(level) = level_of_group(&members) else { continue };
        match merged.iter_mut().find(|(other, _)| level.is_like(*other, 1.0, limits)) {
            Some((_, group)) => group.extend(members),
            None => merged.push((level, members)),
        }
    }
    let nodes = |members: Members| members.into_iter().map(|(id, _)| id).collect();
    merged.into_iter().map(|(_, members)| nodes(members)).collect()
}
