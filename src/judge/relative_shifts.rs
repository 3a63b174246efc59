//! Relative shifts: how far each GPU of a job changed beyond the rest of it.

use std::collections::BTreeMap;

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::DeviceClass;

use super::{gpu_tracker::GpuTracker, job_group::JobGroup, robust_stats::median};

/// Below this number of nodes a node is left out of the median that it is compared with.
const FEW_NODES: usize = 4;

/// The change of one GPU relative to the rest of its job.
#[derive(Clone, Copy, Debug)]
pub(super) struct RelativeShift {
    pub(super) row: u32,
    node: NodeId,
    pub(super) shift: f64,
}

/// Returns the change of each GPU less the median change of the other nodes of its job, or of the other GPUs of its
/// node where the job has no other node.
pub(super) fn relative_shifts(
    cluster: &Cluster,
    group: &JobGroup,
    gpus: &[GpuTracker],
    shift_of: impl Fn(&GpuTracker) -> Option<f64>,
) -> Vec<RelativeShift> {
    let own = |row: &u32| {
        let node = cluster.device_at(DeviceClass::Gpu, *row)?.node;
        Some(RelativeShift { row: *row, node, shift: shift_of(gpus.get(*row as usize)?)? })
    };
    let mut shifts: Vec<RelativeShift> = group.gpus.iter().filter_map(own).collect();
    let mut nodes: BTreeMap<NodeId, Vec<f64>> = BTreeMap::new();
    for shifted in &shifts {
        nodes.entry(shifted.node).or_default().push(shifted.shift);
    }
    if nodes.len() < 2 {
        let all: Vec<f64> = shifts.iter().map(|shifted| shifted.shift).collect();
        let Some(middle) = median(all).filter(|_| shifts.len() >= FEW_NODES) else {
            return Vec::new();
        };
        for shifted in &mut shifts {
            shifted.shift -= middle;
        }
        return shifts;
    }
    let means: BTreeMap<NodeId, f64> = nodes
        .into_iter()
        .map(|(id, shifts)| (id, shifts.iter().sum::<f64>() / shifts.len() as f64))
        .collect();
    let all = median(means.values().copied());
    let rest = |node: NodeId| match means.len() {
        // Of a few nodes one moves the median.
        0..FEW_NODES => median(means.iter().filter(|(id, _)| **id != node).map(|(_, mean)| *mean)),
        _ => all,
    };
    let rests: BTreeMap<NodeId, f64> =
        means.keys().filter_map(|id| Some((*id, rest(*id)?))).collect();
    shifts.retain_mut(|shifted| {
        let Some(rest) = rests.get(&shifted.node) else { return false };
        shifted.shift -= rest;
        true
    });
    shifts
}
