//! Where each kind of fault can strike in a cluster, such that its job notices it or a device states it.

use std::collections::BTreeMap;

use crate::{
    cluster_plan::{ClusterPlan, LinkLayer, PortRole},
    fault_plan::FaultKind,
    job_plan::{JobKind, JobPlan},
};

/// Every kind of fault.
pub const FAULT_KINDS: [FaultKind; 27] = [
    FaultKind::LoaderSlowLoud,
    FaultKind::LoaderSlowSilent,
    FaultKind::StorageSlowForJob,
    FaultKind::StorageSlowForAll,
    FaultKind::GpuClockLow,
    FaultKind::GpuThermal,
    FaultKind::PowerBrake,
    FaultKind::LaunchBound,
    FaultKind::PcieDegraded,
    FaultKind::NvlinkErrors,
    FaultKind::NvswitchSlow,
    FaultKind::PortDown,
    FaultKind::PortFlap,
    FaultKind::PortRateLow,
    FaultKind::LinkErrors,
    FaultKind::LeafCongested,
    FaultKind::RailSlow,
    FaultKind::Incast,
    FaultKind::SlowReceiver,
    FaultKind::Hang,
    FaultKind::GpuLost,
    FaultKind::GpuMemoryErrors,
    FaultKind::IdleAllocated,
    FaultKind::StageImbalance,
    FaultKind::DataSkew,
    FaultKind::ExporterDown,
    FaultKind::DriverHung,
];

/// Where a fault strikes; numbers that do not matter for its kind are those of the first thing of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FaultPlace {
    pub(super) job: Option<usize>,
    pub(super) node: usize,
    pub(super) gpu: usize,
    pub(super) port: usize,
    pub(super) leaf: usize,
    pub(super) rail: usize,
}

/// Whether a job trains, all through the run.
pub(super) fn is_steady(job: &JobPlan) -> bool {
    let trains = matches!(job.kind, JobKind::Train | JobKind::Alternate);
    trains && job.runs_s.start < 0.0 && job.runs_s.end >= super::jobs::LONG_AFTER_S
}

/// Number of rails of a cluster.
pub(super) fn rail_count(cluster: &ClusterPlan) -> usize {
    let ports = cluster.nodes.iter().flat_map(|node| &node.ports);
    let rails = ports.filter_map(|port| match port.role {
        PortRole::Collective { rail } => Some(rail + 1),
        _ => None,
    });
    rails.max().unwrap_or(0)
}

/// Ports that carry collectives, as (node, port, rail, leaf).
pub(super) fn collective_ports(
    cluster: &ClusterPlan,
) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    (0..cluster.nodes.len()).flat_map(|node| node_ports(cluster, node))
}

/// Ports of one node that carry collectives, as (node, port, rail, leaf).
fn node_ports(
    cluster: &ClusterPlan,
    node: usize,
) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    let ports = cluster.nodes[node].ports.iter().enumerate();
    ports.filter_map(move |(slot, port)| match port.role {
        PortRole::Collective { rail } => Some((node, slot, rail, port.leaf?)),
        _ => None,
    })
}

/// Every place where a fault of this kind can strike.
pub(super) fn list_places(
    cluster: &ClusterPlan,
    kind: FaultKind,
    collect_s: f64,
) -> Vec<FaultPlace> {
    match kind {
        FaultKind::PortDown
        | FaultKind::PortFlap
        | FaultKind::PortRateLow
        | FaultKind::LinkErrors => port_places(cluster),
        FaultKind::LeafCongested | FaultKind::RailSlow => shared_places(cluster, kind),
        FaultKind::Incast => incast_places(cluster),
        FaultKind::ExporterDown => {
            (0..cluster.nodes.len()).map(|n| new_place(cluster, n)).collect()
        }
        _ => {
            let jobs = cluster.jobs.iter().enumerate().filter(|(_, job)| is_steady(job));
            jobs.filter(|(_, job)| job_allows(cluster, kind, job, collect_s))
                .flat_map(|(index, job)| job_places(cluster, kind, index, job))
                .collect()
        }
    }
}

fn new_place(cluster: &ClusterPlan, node: usize) -> FaultPlace {
    let first = node_ports(cluster, node).next();
    let (_, port, rail, leaf) = first.unwrap_or((node, 0, 0, 0));
    let job = cluster.jobs.iter().position(|job| job.nodes.contains(&node) && is_steady(job));
    let gpu = job.map_or(0, |job| cluster.jobs[job].gpus.start);
    FaultPlace { job, node, gpu, port, leaf, rail }
}

/// Whether a job can suffer from a kind of fault.
fn job_allows(cluster: &ClusterPlan, kind: FaultKind, job: &JobPlan, collect_s: f64) -> bool {
    let ranks = job.nodes.len() * job.gpus.len();
    match kind {
        FaultKind::NvlinkErrors | FaultKind::NvswitchSlow => {
            let has_nvlink = job.nodes.iter().all(|node| cluster.nodes[*node].has_nvlink);
            has_nvlink && job.gpus.len() > 1 && job.step.node_collective > 0.0
        }
        FaultKind::StorageSlowForJob | FaultKind::StorageSlowForAll => {
            job.step.read_bytes_per_s > 0.0
        }
        FaultKind::SlowReceiver => {
            cluster.fabric.link_layer == LinkLayer::Ethernet && uses_network(job)
        }
        FaultKind::Hang => ranks > 1,
        FaultKind::StageImbalance => job.kind == JobKind::Train && job.step.pipeline_stages > 1,
        // The mean of many steps does not show which rank was the slowest of each.
        FaultKind::DataSkew => {
            job.kind == JobKind::Train
                && job.nodes.len() >= 3
                && job.step.pipeline_stages == 1
                && job.step_s >= 0.2 * collect_s
        }
        FaultKind::IdleAllocated => job.kind == JobKind::Train,
        _ => true,
    }
}

pub(super) fn uses_network(job: &JobPlan) -> bool {
    job.nodes.len() > 1 && job.step.network_collective > 0.0
}

fn job_places(
    cluster: &ClusterPlan,
    kind: FaultKind,
    index: usize,
    job: &JobPlan,
) -> Vec<FaultPlace> {
    let place =
        |node: usize, gpu: usize| FaultPlace { job: Some(index), gpu, ..new_place(cluster, node) };
    let is_of_job = matches!(
        kind,
        FaultKind::StorageSlowForJob
            | FaultKind::StorageSlowForAll
            | FaultKind::Hang
            | FaultKind::IdleAllocated
            | FaultKind::DataSkew
    );
    if is_of_job {
        return vec![place(job.nodes[0], job.gpus.start)];
    }
    let is_of_gpu = matches!(
        kind,
        FaultKind::GpuClockLow
            | FaultKind::GpuThermal
            | FaultKind::LaunchBound
            | FaultKind::PcieDegraded
            | FaultKind::NvlinkErrors
            | FaultKind::GpuLost
            | FaultKind::GpuMemoryErrors
    );
    let gpus = if is_of_gpu { job.gpus.clone() } else { job.gpus.start..job.gpus.start + 1 };
    job.nodes.iter().flat_map(|node| gpus.clone().map(|gpu| place(*node, gpu))).collect()
}

/// Ports that carry collectives, of any machine.
fn port_places(cluster: &ClusterPlan) -> Vec<FaultPlace> {
    let place =
        |(node, port, rail, leaf)| FaultPlace { port, leaf, rail, ..new_place(cluster, node) };
    let all: Vec<FaultPlace> = collective_ports(cluster).map(place).collect();
    // A port that is used shows more than one that is not: mostly such a port.
    let is_used =
        |place: &FaultPlace| place.job.is_some_and(|job| uses_network(&cluster.jobs[job]));
    let used: Vec<FaultPlace> = all.iter().copied().filter(is_used).collect();
    if used.is_empty() { all } else { used.iter().chain(&used).chain(&all).copied().collect() }
}

/// Leaf switches and rails that a job uses with at least three ports of at least two machines.
fn shared_places(cluster: &ClusterPlan, kind: FaultKind) -> Vec<FaultPlace> {
    let is_leaf = kind == FaultKind::LeafCongested;
    if !is_leaf && rail_count(cluster) < 2 {
        return Vec::new();
    }
    let mut places = Vec::new();
    let steady = |(_, job): &(usize, &JobPlan)| is_steady(job) && uses_network(job);
    for (index, job) in cluster.jobs.iter().enumerate().filter(steady) {
        let mut members: BTreeMap<usize, Vec<(usize, usize, usize, usize)>> = BTreeMap::new();
        for entry in job.nodes.iter().flat_map(|node| node_ports(cluster, *node)) {
            members.entry(if is_leaf { entry.3 } else { entry.2 }).or_default().push(entry);
        }
        for ports in members.values() {
            let (node, port, rail, leaf) = ports[0];
            let has_others = ports.iter().any(|(other, ..)| *other != node);
            if ports.len() >= 3 && has_others {
                let gpu = job.gpus.start;
                places.push(FaultPlace { job: Some(index), node, gpu, port, leaf, rail });
            }
        }
    }
    places
}

/// Ports that at least two other machines of the job send to.
fn incast_places(cluster: &ClusterPlan) -> Vec<FaultPlace> {
    let steady = |job: &&JobPlan| is_steady(job) && uses_network(job) && job.nodes.len() >= 3;
    let mut places = Vec::new();
    for (node, port, rail, leaf) in collective_ports(cluster) {
        let job = cluster.jobs.iter().position(|job| job.nodes.contains(&node) && steady(&job));
        if let Some(job) = job {
            let gpu = cluster.jobs[job].gpus.start;
            places.push(FaultPlace { job: Some(job), node, gpu, port, leaf, rail });
        }
    }
    places
}
