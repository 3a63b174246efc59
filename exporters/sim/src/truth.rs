//! The truth: what is really wrong in a run, which only the simulator and the scorer ever see.

use std::time::Duration;

use gaunt_schema::{Dialect, Entity, EntityKind, FindingKind, Safe, UnixMs};

use crate::{
    Effect, Fault, job,
    page::Told,
    scrape::COLLECT_S,
    shape::{JobShape, Shape, Work},
};

/// What is really wrong: the answer that a judge should come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// What happened.
    pub kind: FindingKind,
    /// The thing to blame.
    pub blamed: Entity,
    /// Other things that may be blamed as rightly, because the signals cannot tell them apart.
    pub also: Vec<Entity>,
    /// Other kinds that say the same as rightly.
    pub kinds: Vec<FindingKind>,
    /// What is as true besides, because it follows: saying so is neither right nor wrong.
    pub follows: Vec<(FindingKind, Entity)>,
    /// When it began.
    pub onset: UnixMs,
    /// When it is over, if ever.
    pub ends: Option<UnixMs>,
    /// How long after its onset it should have been found. Where the GPUs' page comes from dcgm-exporter, which asks
    /// them every 30 s, this is longer by as much for what only a GPU shows.
    pub limit: Duration,
    /// Who suffers: the other nodes of the jobs that it slows.
    pub victims: Vec<Entity>,
}

/// What the truth about a fault depends on beside the fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) names: &'a [Safe],
    pub(crate) told: Told,
    pub(crate) start: UnixMs,
}

/// What is wrong, who is to blame, and how fast that can be known.
struct Verdict {
    kind: FindingKind,
    blamed: Entity,
    also: Vec<Entity>,
    kinds: Vec<FindingKind>,
    limit_s: f64,
    /// Whether only the GPUs show it.
    on_gpus: bool,
}

/// The job that a gang is.
fn job_of(gang: usize) -> Entity {
    Entity { job: Some(Safe::from(job::id(gang))), ..Entity::new(EntityKind::Job) }
}

/// A job stands still for ever because of it.
fn stops(effect: Effect, shape: &Shape, job: &JobShape) -> bool {
    match effect {
        Effect::GpuLost { .. } => true,
        Effect::PortDown { .. } => shape.rails == 1 && job.nodes.len() > 1,
        _ => false,
    }
}

impl Setting<'_> {
    /// The truth about a fault; none about what only looks like one.
    pub(crate) fn truth(&self, fault: &Fault) -> Option<Truth> {
        // What was never otherwise is how a job is.
        let gang = fault.gang.checked_rem(self.shape.jobs.len()).filter(|_| fault.onset_s > 0.0)?;
        let job = &self.shape.jobs[gang];
        let node = job.nodes.start + fault.member % job.nodes.len();
        let verdict = self
            .of_a_gpu(fault.effect, node)
            .or_else(|| self.of_the_fabric(fault.effect, node, job.nodes.len() > 1))
            .or_else(|| self.of_a_job(fault.effect, gang, job, node))?;
        let waits = verdict.on_gpus && self.told.dialect == Dialect::Dcgm;
        let limit_s = verdict.limit_s + if waits { COLLECT_S } else { 0.0 };
        let after = |seconds: f64| self.start + Duration::from_secs_f64(seconds);
        let ends = fault.lasts_s.filter(|lasts| lasts.is_finite());
        let stops = stops(fault.effect, self.shape, job);
        // Somebody else carries what a port that is down does not, if there is another.
        let slows = verdict.kind != FindingKind::PortDown || stops;
        let hang = (FindingKind::CollectiveHang, job_of(gang));
        let blamed = verdict.blamed.node.as_ref();
        let others = self.names[job.nodes.clone()].iter();
        let others = others.filter(|name| slows && Some(*name) != blamed);
        Some(Truth {
            victims: others.map(Entity::node).collect(),
            kind: verdict.kind,
            blamed: verdict.blamed,
            also: verdict.also,
            kinds: verdict.kinds,
            follows: if stops { vec![hang] } else { vec![] },
            onset: after(fault.onset_s),
            ends: ends.map(|lasts| after(fault.onset_s + lasts)),
            limit: Duration::from_secs_f64(limit_s),
        })
    }

    /// Faults of a GPU or of its host.
    fn of_a_gpu(&self, effect: Effect, node: usize) -> Option<Verdict> {
        use FindingKind as Kind;
        let host = Entity::node(&self.names[node]);
        let board = |gpu: usize| Entity::gpu(&self.names[node], &Safe::from(gpu.to_string()));
        let of = |kind, blamed, also, kinds, limit_s| {
            Some(Verdict { kind, blamed, also, kinds, limit_s, on_gpus: true })
        };
        match effect {
            // Whether processors that are too slow load or launch, nobody can tell from outside.
            Effect::DataStarved { by_cpu: true, .. } => {
                of(Kind::DataStarved, host, vec![], vec![Kind::HostBound], 30.0)
            }
            Effect::DataStarved { .. } => of(Kind::DataStarved, host, vec![], vec![], 30.0),
            Effect::SlowGpu { gpu, .. } => {
                of(Kind::ComputeStraggler, board(gpu), vec![], vec![Kind::Throttled], 30.0)
            }
            Effect::Throttled { gpu, .. } => of(Kind::Throttled, board(gpu), vec![], vec![], 15.0),
            Effect::LaunchBound { gpu: None, .. } => {
                of(Kind::HostBound, host, vec![], vec![], 30.0)
            }
            Effect::LaunchBound { gpu: Some(gpu), .. } => {
                of(Kind::HostBound, host, vec![board(gpu)], vec![], 30.0)
            }
            Effect::PcieSlow { gpu, replays, .. } => {
                // Lanes that are gone are said by the link itself.
                let limit_s = if replays { 60.0 } else { 15.0 };
                of(Kind::PcieDegraded, board(gpu), vec![], vec![], limit_s)
            }
            Effect::NvlinkSlow { gpu, .. } => {
                let pair = Entity { kind: EntityKind::GpuPair, ..board(gpu) };
                let domain = self.shape.domain_of(node).map(|node| {
                    let node = Entity::node(&self.names[node]);
                    Entity { kind: EntityKind::NvlinkDomain, ..node }
                });
                let also = [host, pair].into_iter().chain(domain).collect();
                of(Kind::NvlinkDegraded, board(gpu), also, vec![], 30.0)
            }
            Effect::GpuLost { gpu, .. } => of(Kind::GpuFailed, board(gpu), vec![], vec![], 5.0),
            _ => None,
        }
    }

    /// Faults of ports, cables and switches, which the ports show.
    /// A job of a single node never notices what only slows the fabric down.
    fn of_the_fabric(&self, effect: Effect, node: usize, notices: bool) -> Option<Verdict> {
        use FindingKind as Kind;
        let host = Entity::node(&self.names[node]);
        let port = |rail: usize| {
            let device = Safe::from(format!("mlx5_{rail}"));
            Entity::port(&self.names[node], &device, &Safe::new("1"))
        };
        let of = |kind, blamed, also, limit_s| {
            Some(Verdict { kind, blamed, also, kinds: vec![], limit_s, on_gpus: false })
        };
        // Without a page that names leaves and rails, nobody can tell the one from the other.
        let nameless = self.told.dialect == Dialect::Dcgm;
        match effect {
            Effect::PortDown { rail } => of(Kind::PortDown, port(rail), vec![], 5.0),
            Effect::RateLow { rail, .. } => of(Kind::PortRateLow, port(rail), vec![], 10.0),
            Effect::LinkErrors { rail, .. } => of(Kind::LinkErrors, port(rail), vec![], 60.0),
            _ if !notices => None,
            Effect::LeafCongested { rail, .. } => {
                let name = Safe::from(self.shape.leaf(node, rail));
                let leaf = Entity { leaf: Some(name), ..Entity::new(EntityKind::Leaf) };
                let number = Some(Safe::from(rail.to_string()));
                let mut also = vec![Entity { rail: number.clone(), ..leaf.clone() }];
                // With a single leaf in the fleet, or no page that names any, the leaf is as good as its rail.
                let one = self.shape.nodes <= self.shape.leaf_nodes;
                let either = one || nameless;
                if either {
                    also.push(Entity { rail: number, ..Entity::new(EntityKind::Rail) });
                }
                let verdict = of(Kind::LeafCongested, leaf, also, 30.0)?;
                let kinds = if either { vec![Kind::RailSlow] } else { vec![] };
                Some(Verdict { kinds, ..verdict })
            }
            Effect::RailSlow { rail, .. } => {
                let number = Some(Safe::from(rail.to_string()));
                let plane = Entity { rail: number, ..Entity::new(EntityKind::Rail) };
                of(Kind::RailSlow, plane, vec![], 30.0)
            }
            Effect::HostBlocks { .. } => of(Kind::HostBlocksNetwork, host, vec![], 30.0),
            _ => None,
        }
    }

    /// Faults of a whole job.
    fn of_a_job(
        &self,
        effect: Effect,
        gang: usize,
        shape: &JobShape,
        node: usize,
    ) -> Option<Verdict> {
        use FindingKind as Kind;
        let job = job_of(gang);
        // Who does not know the job's name may name it as he likes: such an entity has no job.
        let unnamed = (!self.told.labels).then(|| Entity::new(EntityKind::Job));
        let of = |kind, blamed, mut also: Vec<Entity>, kinds, limit_s| {
            also.extend(unnamed.clone());
            Some(Verdict { kind, blamed, also, kinds, limit_s, on_gpus: true })
        };
        match effect {
            Effect::StorageSlow { .. } => {
                let storage = Entity::new(EntityKind::Storage);
                // It slows every job that reads from it.
                let trains = |gang: &usize| self.shape.jobs[*gang].work == Work::Train;
                let jobs = (0..self.shape.jobs.len()).filter(trains).map(job_of).collect();
                of(Kind::StorageSlow, storage, jobs, vec![], 60.0)
            }
            Effect::Hang { odd } => {
                let name = &self.names[node];
                let rank = [Entity::node(name), Entity::gpu(name, &Safe::new("0"))];
                let also = if odd { rank.to_vec() } else { vec![] };
                of(Kind::CollectiveHang, job, also, vec![], 90.0)
            }
            Effect::Idle => of(Kind::IdleAllocated, job, vec![], vec![], 600.0),
            Effect::StageImbalance { .. } => {
                let stage = Entity { kind: EntityKind::Stage, ..job.clone() };
                of(Kind::StageImbalance, stage, vec![job], vec![], 120.0)
            }
            Effect::Skew { .. } if shape.nodes.len() > 1 => {
                of(Kind::DataSkew, job, vec![], vec![], 120.0)
            }
            _ => None,
        }
    }
}
