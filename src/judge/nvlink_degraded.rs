//! GPUs that lost NVLinks, or whose NVLinks send packets again.

use gaunt_schema::{
    Class, Entity, FindingKind, Safe, UnixMs, catalogue::gpu_parts as parts, unit::Unit,
};

use super::{
    Evidence, Judge, Thresholds,
    average::{Average, Stamp, Tick},
    finding::Suspicion,
    gang::Gang,
    life::Seen,
};
use crate::cluster::{Cluster, Node};

/// What is remembered of the NVLinks of each GPU, by its row.
#[derive(Debug, Default)]
pub(super) struct Nvlinks {
    gpus: Vec<Links>,
}

/// The NVLinks of one GPU together.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    looked: Stamp,
    errors: Average,
    /// Active ones now, and the most that ever were.
    up: Option<u16>,
    most: u16,
}

impl Nvlinks {
    /// Takes in the newest sample of every NVLink.
    pub(super) fn look(&mut self, cluster: &Cluster, limits: &Thresholds) {
        self.gpus.resize(cluster.rows(Class::Gpu), Links::default());
        for (row, links) in (0..).zip(&mut self.gpus) {
            if links.looked.is_set() && cluster.device(Class::Gpu, row).is_none() {
                *links = Links::default();
            }
        }
        for (_, node) in cluster.nodes() {
            let Some(at) = node.fed(Class::Nvlink) else { continue };
            self.look_at(cluster, node, at, limits);
        }
    }

    /// The links of a GPU, if any was told.
    fn of(&self, gpu: u32) -> Option<&Links> {
        self.gpus.get(gpu as usize).filter(|links| links.looked.is_set())
    }

    /// Errors of a GPU's links in a second.
    pub(super) fn errors(&self, gpu: u32, cluster: &Cluster) -> Option<f64> {
        self.of(gpu)?.errors.at(cluster.now(), cluster.fresh_for())
    }

    /// A GPU's links that are active.
    pub(super) fn active(&self, gpu: u32) -> Option<f64> {
        self.of(gpu)?.up.map(f64::from)
    }

    /// The links of a node stand in the order of their GPUs' names: they are gone through once.
    fn look_at(&mut self, cluster: &Cluster, node: &Node, at: UnixMs, limits: &Thresholds) {
        let name = |class, row| cluster.device(class, row).and_then(|it| it.device.key.first());
        let gpus = node.rows(Class::Gpu);
        let stamp = Stamp::of(at);
        if gpus.iter().any(|gpu| self.of(*gpu).is_some_and(|links| links.looked == stamp)) {
            return;
        }
        let mut sums: Vec<(u32, Sum)> = gpus.iter().map(|gpu| (*gpu, Sum::default())).collect();
        let mut place = 0;
        for row in node.rows(Class::Nvlink) {
            let of = name(Class::Nvlink, *row);
            if sums.get(place).is_none_or(|(gpu, _)| name(Class::Gpu, *gpu) != of) {
                let found = sums.iter().position(|(gpu, _)| name(Class::Gpu, *gpu) == of);
                let Some(found) = found else { continue };
                place = found;
            }
            sums[place].1.add(cluster, *row);
        }
        let tick = &mut Tick::new(at, limits.average_seconds, cluster.fresh_for());
        for (gpu, sum) in sums {
            let Some(links) = self.gpus.get_mut(gpu as usize) else { continue };
            links.looked = stamp;
            links.errors.add(sum.errors, tick);
            links.up = sum.told.then_some(sum.up);
            links.most = links.most.max(sum.up);
        }
    }
}

/// What the links of one GPU say on one page.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    errors: Option<f64>,
    up: u16,
    told: bool,
}

impl Sum {
    fn add(&mut self, cluster: &Cluster, row: u32) {
        for metric in [parts::NVLINK_REPLAY, parts::NVLINK_RECOVERY, parts::NVLINK_CRC] {
            if let Some(rate) = cluster.rate(metric, row) {
                *self.errors.get_or_insert(0.0) += rate;
            }
        }
        if let Some(state) = cluster.value(parts::NVLINK_UP, row) {
            self.told = true;
            self.up += u16::from(state > 0.0);
        }
    }
}

/// Adds every GPU whose NVLinks are not what they were.
pub(super) fn find(judge: &Judge, cluster: &Cluster, seen: &mut Seen) {
    let limits = &judge.limits;
    for (id, node) in cluster.nodes() {
        for row in node.rows(Class::Gpu) {
            let Some(links) = judge.nvlinks.of(*row) else { continue };
            let errors = links.errors.at(cluster.now(), cluster.fresh_for());
            let errs = errors.is_some_and(|rate| rate >= limits.nvlink_errors_per_second);
            // Boards in one machine have equally many; one that never had them all lacks some as well.
            let others = node.rows(Class::Gpu).iter().filter_map(|other| judge.nvlinks.of(*other));
            let most = others.map(|links| links.most).max().unwrap_or_default();
            let lost = links.up.is_some_and(|up| up < most && judge.health.of(*row).gone.is_none());
            if !errs && !lost {
                continue;
            }
            let Some(entry) = cluster.device(Class::Gpu, *row) else { continue };
            let entity =
                Entity::gpu(&node.name, entry.device.key.first().unwrap_or(&Safe::default()));
            let gang = judge.gangs.of(*row);
            let slowed =
                gang.and_then(Gang::slowed).filter(|slowed| *slowed >= limits.slowed_ratio);
            let kinds = [errs, lost, slowed.is_some()].into_iter().filter(|kind| *kind).count();
            let how = match links.up.filter(|_| lost) {
                Some(up) => format!("has {up} of {most} NVLinks"),
                None => format!("has {:.1} NVLink errors a second", errors.unwrap_or_default()),
            };
            let suspicion = Suspicion::of(FindingKind::NvlinkDegraded, entity.clone(), kinds, true)
                .hold(limits.nvlink_seconds)
                .costs(
                    gang.map_or(0.0, Gang::lost_gpus),
                    gang.map(|gang| gang.victims(cluster, Some(id))).unwrap_or_default(),
                )
                .says(
                    format!("{entity} {how}."),
                    "Drain the node and reset its GPUs; let the board or the switch be inspected if it stays so (nvidia-smi nvlink -e).".to_owned(),
                )
                .on([
                    Evidence::new("active NVLinks", links.up.map(f64::from), Unit::Count, Some(f64::from(most))).note("the limit is what its neighbours have"),
                    Evidence::new("NVLink errors in a second", errors, Unit::Count, Some(limits.nvlink_errors_per_second)),
                    Evidence::new("speed that its job has lost", slowed, Unit::Ratio, Some(limits.slowed_ratio)),
                ]);
            seen.suspicions.push(suspicion);
        }
    }
}
