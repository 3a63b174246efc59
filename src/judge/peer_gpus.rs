//! The GPUs of a job that one of its GPUs is compared with, and the medians of what they do: found once for all GPUs that have
//! the same peers. When a whole job is slower, each of its GPUs asks for them.

use std::{cell::OnceCell, collections::HashMap, rc::Rc};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{DeviceClass, catalogue::gpu};

use super::{
    JudgeState,
    gpu_signals::GpuSignals,
    job_group::JobGroup,
    peer_clocks::PeerClocks,
    robust_stats::{median, sorted_finite},
};

/// So many peers are as good as all of a large job.
const MOST_PEERS: usize = 512;

/// The GPUs of a job on other nodes, or the other ones of its node if it has only that.
#[derive(Debug, Default)]
pub(super) struct PeerGpus {
    rows: Vec<u32>,
    clocks: OnceCell<PeerClocks>,
    temperature: OnceCell<Option<f64>>,
    work: OnceCell<PeerWork>,
}

/// The medians of what peers do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeerWork {
    pub(super) power: Option<f64>,
    /// Tensor activity.
    pub(super) tensor: Option<f64>,
}

/// The peers of one step, and by how much the clocks of whole jobs have fallen.
#[derive(Debug, Default)]
pub(super) struct StepPeers {
    /// Those of the nodes that are not among the first of a job, by the job's index.
    of_jobs: HashMap<usize, Rc<PeerGpus>>,
    /// The node that was asked for last, with the index of its job.
    last: Option<((usize, NodeId), Rc<PeerGpus>)>,
    falls: HashMap<usize, Vec<f64>>,
}

impl StepPeers {
    /// Returns the peers of a GPU; none without a job.
    pub(super) fn peers_of(
        &mut self,
        judge: &JudgeState,
        cluster: &Cluster,
        row: u32,
    ) -> Option<Rc<PeerGpus>> {
        let index = judge.job_groups.group_index(row)?;
        let group = judge.job_groups.of(row)?;
        let node = node_of(cluster, row)?;
        if group.nodes.len() == 1 {
            let others = group.gpus.iter().copied().filter(|other| *other != row);
            return Some(Rc::new(PeerGpus::of(others.take(MOST_PEERS).collect())));
        }
        if let Some((key, peers)) = &self.last
            && *key == (index, node)
        {
            return Some(peers.clone());
        }
        let first = group.gpus.iter().take(MOST_PEERS);
        let peers = if first.clone().any(|other| node_of(cluster, *other) == Some(node)) {
            let elsewhere = |other: &u32| node_of(cluster, *other) != Some(node);
            let rows = group.gpus.iter().copied().filter(elsewhere).take(MOST_PEERS);
            Rc::new(PeerGpus::of(rows.collect()))
        } else {
            let shared = || Rc::new(PeerGpus::of(first.copied().collect()));
            self.of_jobs.entry(index).or_insert_with(shared).clone()
        };
        self.last = Some(((index, node), peers.clone()));
        Some(peers)
    }

    /// Returns the median fall of the clocks of all other GPUs of a job, by its index.
    pub(super) fn median_fall_of_others(
        &mut self,
        (index, group): (usize, &JobGroup),
        own: f64,
        fall_of: impl Fn(u32) -> Option<f64>,
    ) -> Option<f64> {
        let falls = self
            .falls
            .entry(index)
            .or_insert_with(|| sorted_finite(group.gpus.iter().filter_map(|row| fall_of(*row))));
        let others = falls.len().checked_sub(2)?;
        let at = falls.partition_point(|fall| *fall < own);
        let middle = others / 2;
        Some(falls[if middle < at { middle } else { middle + 1 }])
    }
}

impl PeerGpus {
    fn of(rows: Vec<u32>) -> Self {
        Self { rows, ..Self::default() }
    }

    /// Returns their clocks, by model and role.
    pub(super) fn clocks(&self, judge: &JudgeState, cluster: &Cluster) -> &PeerClocks {
        self.clocks.get_or_init(|| PeerClocks::of(cluster, &judge.gpus, &judge.limits, &self.rows))
    }

    /// Returns their median temperature.
    pub(super) fn temperature(&self, cluster: &Cluster) -> Option<f64> {
        let of = |row: &u32| cluster.current_value(gpu::TEMPERATURE, *row);
        *self.temperature.get_or_init(|| median(self.rows.iter().filter_map(of)))
    }

    /// Returns the medians of their power and activity.
    pub(super) fn work(&self, judge: &JudgeState, cluster: &Cluster) -> PeerWork {
        *self.work.get_or_init(|| {
            let (now, gap) = (cluster.now(), cluster.freshness_window());
            let trackers = self.rows.iter().filter_map(|row| judge.gpus.get(*row as usize));
            let peers: Vec<GpuSignals> =
                trackers.map(|gpu| gpu.averages.signals_at(now, gap, &judge.limits)).collect();
            let usual = |of: fn(&GpuSignals) -> Option<f64>| median(peers.iter().filter_map(of));
            PeerWork { power: usual(|peer| peer.power), tensor: usual(|peer| peer.tensor) }
        })
    }
}

fn node_of(cluster: &Cluster, row: u32) -> Option<NodeId> {
    Some(cluster.device_at(DeviceClass::Gpu, row)?.node)
}
