//! The NVLinks of every GPU: how many are active, and their errors.

use gaunt_cluster::{Cluster, Node};
use gaunt_schema::{DeviceClass, UnixMs, catalogue::gpu_parts as parts};

use super::{
    Thresholds,
    frozen_baselines::FrozenBaselines,
    moving_average::{CompactTimestamp, MovingAverage, SampleTiming},
    rare_events::{PeerEvents, RareEvents},
};

/// The NVLinks of each GPU, by its row.
#[derive(Debug, Default)]
pub(super) struct NvlinkTable {
    gpus: Vec<GpuNvlinks>,
}

/// The sum of the NVLinks of one GPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GpuNvlinks {
    last_sampled: CompactTimestamp,
    pub(super) errors: MovingAverage,
    pub(super) error_events: RareEvents,
    /// Active ones now, and the most that ever were.
    pub(super) up: Option<u16>,
    pub(super) most: u16,
}

impl NvlinkTable {
    /// Ingests the newest sample of every NVLink.
    pub(super) fn observe_nvlinks(
        &mut self,
        cluster: &Cluster,
        frozen: &FrozenBaselines,
        limits: &Thresholds,
    ) {
        self.gpus.resize(cluster.row_count(DeviceClass::Gpu), GpuNvlinks::default());
        for (row, links) in (0..).zip(&mut self.gpus) {
            if links.last_sampled.is_set() && cluster.device_at(DeviceClass::Gpu, row).is_none() {
                *links = GpuNvlinks::default();
            }
        }
        for (_, node) in cluster.sorted_nodes() {
            let Some(at) = node.last_fed(DeviceClass::Nvlink) else { continue };
            self.observe_node(cluster, node, at, (frozen, limits));
        }
    }

    /// Returns the most links that a GPU was seen to have, if any was reported.
    pub(super) fn max_links(&self, gpu: u32) -> Option<u16> {
        self.of(gpu).map(|links| links.most).filter(|most| *most > 0)
    }

    /// Restores the number of links of a GPU from before a restart.
    pub(super) fn restore_max_links(&mut self, gpu: u32, most: u16) {
        if self.gpus.len() <= gpu as usize {
            self.gpus.resize(gpu as usize + 1, GpuNvlinks::default());
        }
        self.gpus[gpu as usize].most = most;
    }

    /// Returns the links of a GPU, if any was reported.
    pub(super) fn of(&self, gpu: u32) -> Option<&GpuNvlinks> {
        self.gpus.get(gpu as usize).filter(|links| links.last_sampled.is_set())
    }

    /// Returns the recent errors of all GPUs.
    pub(super) fn peer_errors(&self) -> PeerEvents {
        PeerEvents::of(self.gpus.iter().map(|links| links.error_events))
    }

    /// Returns the errors of a GPU's links per second.
    pub(super) fn error_rate(&self, gpu: u32, cluster: &Cluster) -> Option<f64> {
        self.of(gpu)?.errors.value_at(cluster.now(), cluster.freshness_window())
    }

    /// Returns the number of a GPU's active links.
    pub(super) fn active_links(&self, gpu: u32) -> Option<f64> {
        self.of(gpu)?.up.map(f64::from)
    }

    /// Ingests the links of a node.
    fn observe_node(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        at: UnixMs,
        (frozen, limits): (&FrozenBaselines, &Thresholds),
    ) {
        let gpus = node.device_rows(DeviceClass::Gpu);
        let stamp = CompactTimestamp::of(at);
        if gpus.iter().any(|gpu| self.of(*gpu).is_some_and(|links| links.last_sampled == stamp)) {
            return;
        }
        let mut sums: Vec<(u32, NvlinkTotals)> =
            gpus.iter().map(|gpu| (*gpu, NvlinkTotals::default())).collect();
        let topology = cluster.topology();
        for row in node.device_rows(DeviceClass::Nvlink) {
            let Some(gpu) = topology.gpu_of_nvlink(*row) else { continue };
            if let Some((_, sum)) = sums.iter_mut().find(|(other, _)| *other == gpu) {
                sum.add_link(cluster, *row);
            }
        }
        let tick = &mut SampleTiming::new(at, limits.average_seconds, cluster.freshness_window());
        for (gpu, sum) in sums {
            let Some(links) = self.gpus.get_mut(gpu as usize) else { continue };
            links.last_sampled = stamp;
            links.errors.add_sample(sum.errors, tick);
            links.error_events.add_rate(sum.errors, stamp, !frozen.has_gpu(gpu));
            links.up = sum.has_state.then_some(sum.up);
            links.most = links.most.max(sum.up);
        }
    }
}

/// The values of one GPU's links on one page.
#[derive(Clone, Copy, Debug, Default)]
struct NvlinkTotals {
    errors: Option<f64>,
    up: u16,
    has_state: bool,
}

impl NvlinkTotals {
    fn add_link(&mut self, cluster: &Cluster, row: u32) {
        for metric in [parts::NVLINK_REPLAY, parts::NVLINK_RECOVERY, parts::NVLINK_CRC] {
            if let Some(rate) = cluster.current_rate(metric, row) {
                *self.errors.get_or_insert(0.0) += rate;
            }
        }
        if let Some(state) = cluster.current_value(parts::NVLINK_UP, row) {
            self.has_state = true;
            self.up += u16::from(state > 0.0);
        }
    }
}
