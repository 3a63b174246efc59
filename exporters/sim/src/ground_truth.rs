//! Ground truth: the actual faults of a run, visible only to the simulator and the scorer.

use std::time::Duration;

use gaunt_schema::{Dialect, Entity, EntityKind, FindingKind, SanitizedText, UnixMs};

use crate::{
    FaultEffect, SimFault,
    fleet_shape::{FleetShape, JobShape, JobWorkload},
    report_template::ReportedContent,
    scrape_behaviour::COLLECT_S,
    sim_job,
};

/// An actual fault: the finding that a judge should produce.
#[derive(Clone, Debug, PartialEq)]
pub struct GroundTruth {
    /// The finding kind.
    pub kind: FindingKind,
    /// The entity to blame.
    pub blamed: Entity,
    /// Other entities that may be blamed equally, because the signals cannot tell them apart.
    pub also: Vec<Entity>,
    /// Other kinds that are equally correct.
    pub kinds: Vec<FindingKind>,
    /// Consequences that are also true: reporting them is neither right nor wrong.
    pub follows: Vec<(FindingKind, Entity)>,
    /// When it begins.
    pub onset: UnixMs,
    /// When it ends, if ever.
    pub ends: Option<UnixMs>,
    /// Time limit for detection after the onset. Where GPU metrics come from dcgm-exporter, which collects every 30 s,
    /// this is longer by as much for faults that only GPU metrics show.
    pub limit: Duration,
    /// The victims: the other nodes of the jobs that it slows.
    pub victims: Vec<Entity>,
}

/// What the ground truth of a fault depends on besides the fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TruthContext<'a> {
    pub(crate) shape: &'a FleetShape,
    pub(crate) names: &'a [SanitizedText],
    pub(crate) content: ReportedContent,
    pub(crate) start: UnixMs,
    pub(crate) faults: &'a [SimFault],
}

/// What is wrong, which entity is to blame, and how fast that can be detected.
struct FaultVerdict {
    kind: FindingKind,
    blamed: Entity,
    also: Vec<Entity>,
    kinds: Vec<FindingKind>,
    limit_s: f64,
    /// Whether only GPU metrics show it.
    on_gpus: bool,
}

/// The entity of a job group.
fn job_entity(job_index: usize) -> Entity {
    Entity {
        job: Some(SanitizedText::from(sim_job::job_id(job_index))),
        ..Entity::new(EntityKind::Job)
    }
}

/// Whether the fault stops a job permanently.
fn is_job_stopped(effect: FaultEffect, shape: &FleetShape, job: &JobShape) -> bool {
    match effect {
        FaultEffect::GpuLost { .. } => true,
        FaultEffect::PortDown { .. } => shape.rails == 1 && job.nodes.len() > 1,
        _ => false,
    }
}

impl TruthContext<'_> {
    /// The ground truth of a fault; none for a harmless look-alike.
    pub(crate) fn truth_of_fault(&self, fault: &SimFault) -> Option<GroundTruth> {
        // A condition present from the start is normal for the job.
        let job_index =
            fault.gang.checked_rem(self.shape.jobs.len()).filter(|_| fault.onset_s > 0.0)?;
        let job = &self.shape.jobs[job_index];
        let node = job.nodes.start + fault.member % job.nodes.len();
        let verdict = self
            .gpu_verdict(fault.effect, node)
            .or_else(|| self.fabric_verdict(fault.effect, node, job.nodes.len() > 1))
            .or_else(|| self.job_verdict(fault.effect, job_index, job, node))?;
        let is_delayed = verdict.on_gpus && self.content.dialect == Dialect::Dcgm;
        let mut limit_s = verdict.limit_s + if is_delayed { COLLECT_S } else { 0.0 };
        if verdict.on_gpus {
            limit_s += self.checkpoint_seconds(fault, limit_s);
        }
        let after = |seconds: f64| self.start + Duration::from_secs_f64(seconds);
        let ends = fault.lasts_s.filter(|duration| duration.is_finite());
        let stops = is_job_stopped(fault.effect, self.shape, job);
        // Another port carries the traffic of a port that is down, if there is one.
        let slows = verdict.kind != FindingKind::PortDown || stops;
        let hang = (FindingKind::CollectiveHang, job_entity(job_index));
        let blamed = verdict.blamed.node.as_ref();
        let victims = self.names[job.nodes.clone()].iter();
        let victims = victims.filter(|name| slows && Some(*name) != blamed);
        Some(GroundTruth {
            victims: victims.map(Entity::new_node).collect(),
            kind: verdict.kind,
            blamed: verdict.blamed,
            also: verdict.also,
            kinds: verdict.kinds,
            follows: if stops { vec![hang] } else { vec![] },
            onset: after(fault.onset_s),
            ends: ends.map(|duration| after(fault.onset_s + duration)),
            limit: Duration::from_secs_f64(limit_s),
        })
    }

    /// Seconds of checkpoints of the job that begin or last within so many seconds of a fault: meanwhile nothing shows it.
    fn checkpoint_seconds(&self, fault: &SimFault, limit_s: f64) -> f64 {
        let until = fault.onset_s + limit_s;
        let checkpoints = self.faults.iter().filter(|other| {
            other.gang == fault.gang && matches!(other.effect, FaultEffect::Checkpoint { .. })
        });
        let lasts = checkpoints.filter(|other| other.onset_s < until).map(|other| {
            let ends = other.onset_s + other.lasts_s.unwrap_or(0.0);
            (ends - other.onset_s.max(fault.onset_s)).max(0.0)
        });
        lasts.sum()
    }

    /// Faults of a GPU or of its host.
    fn gpu_verdict(&self, effect: FaultEffect, node: usize) -> Option<FaultVerdict> {
        use FindingKind as Kind;
        let host = Entity::new_node(&self.names[node]);
        let gpu_entity =
            |gpu: usize| Entity::new_gpu(&self.names[node], &SanitizedText::from(gpu.to_string()));
        let verdict = |kind, blamed, also, kinds, limit_s| {
            Some(FaultVerdict { kind, blamed, also, kinds, limit_s, on_gpus: true })
        };
        match effect {
            // From outside, slow data loading and slow kernel launches on the CPU cannot be told apart.
            FaultEffect::DataStarved { by_cpu: true, .. } => {
                verdict(Kind::DataStarved, host, vec![], vec![Kind::HostBound], 30.0)
            }
            FaultEffect::DataStarved { .. } => {
                verdict(Kind::DataStarved, host, vec![], vec![], 30.0)
            }
            FaultEffect::SlowGpu { gpu, .. } => verdict(
                Kind::ComputeStraggler,
                gpu_entity(gpu),
                vec![],
                vec![Kind::Throttled],
                30.0,
            ),
            FaultEffect::Throttled { gpu, .. } => {
                verdict(Kind::Throttled, gpu_entity(gpu), vec![], vec![], 15.0)
            }
            FaultEffect::LaunchBound { gpu: None, .. } => {
                verdict(Kind::HostBound, host, vec![], vec![], 30.0)
            }
            FaultEffect::LaunchBound { gpu: Some(gpu), .. } => {
                verdict(Kind::HostBound, host, vec![gpu_entity(gpu)], vec![], 30.0)
            }
            FaultEffect::PcieSlow { gpu, replays, .. } => {
                // The link itself reports reduced width.
                let limit_s = if replays { 60.0 } else { 15.0 };
                verdict(Kind::PcieDegraded, gpu_entity(gpu), vec![], vec![], limit_s)
            }
            FaultEffect::NvlinkSlow { gpu, .. } => {
                let pair = Entity { kind: EntityKind::GpuPair, ..gpu_entity(gpu) };
                let domain = self.shape.domain_of(node).map(|node| {
                    let node = Entity::new_node(&self.names[node]);
                    Entity { kind: EntityKind::NvlinkDomain, ..node }
                });
                let also = [host, pair].into_iter().chain(domain).collect();
                verdict(Kind::NvlinkDegraded, gpu_entity(gpu), also, vec![], 30.0)
            }
            FaultEffect::GpuLost { gpu, .. } => {
                verdict(Kind::GpuFailed, gpu_entity(gpu), vec![], vec![], 5.0)
            }
            _ => None,
        }
    }

    /// Faults of ports, cables and switches, which port metrics show. A job on a single node does not notice what only
    /// slows the fabric down.
    fn fabric_verdict(
        &self,
        effect: FaultEffect,
        node: usize,
        spans_nodes: bool,
    ) -> Option<FaultVerdict> {
        use FindingKind as Kind;
        let host = Entity::new_node(&self.names[node]);
        let port = |rail: usize| {
            let device = SanitizedText::from(format!("mlx5_{rail}"));
            Entity::new_port(&self.names[node], &device, &SanitizedText::new("1"))
        };
        let new_verdict = |kind, blamed, also, limit_s| {
            Some(FaultVerdict { kind, blamed, also, kinds: vec![], limit_s, on_gpus: false })
        };
        // Without metrics that name leaf switches and rails, the two cannot be told apart.
        let is_leaf_unknown = self.content.dialect == Dialect::Dcgm;
        match effect {
            FaultEffect::PortDown { rail } => new_verdict(Kind::PortDown, port(rail), vec![], 5.0),
            FaultEffect::RateLow { rail, .. } => {
                new_verdict(Kind::PortRateLow, port(rail), vec![], 10.0)
            }
            FaultEffect::LinkErrors { rail, .. } => {
                new_verdict(Kind::LinkErrors, port(rail), vec![], 60.0)
            }
            _ if !spans_nodes => None,
            FaultEffect::LeafCongested { rail, .. } => {
                let name = SanitizedText::from(self.shape.leaf_name(node, rail));
                let leaf = Entity { leaf: Some(name), ..Entity::new(EntityKind::Leaf) };
                let number = Some(SanitizedText::from(rail.to_string()));
                let mut also = vec![Entity { rail: number.clone(), ..leaf.clone() }];
                // With a single leaf switch in the fleet, or no page that names any, the leaf is equivalent to its
                // rail.
                let has_one_leaf = self.shape.nodes <= self.shape.leaf_nodes;
                let is_ambiguous = has_one_leaf || is_leaf_unknown;
                if is_ambiguous {
                    also.push(Entity { rail: number, ..Entity::new(EntityKind::Rail) });
                }
                let verdict = new_verdict(Kind::LeafCongested, leaf, also, 30.0)?;
                let kinds = if is_ambiguous { vec![Kind::RailSlow] } else { vec![] };
                Some(FaultVerdict { kinds, ..verdict })
            }
            FaultEffect::RailSlow { rail, .. } => {
                let number = Some(SanitizedText::from(rail.to_string()));
                let plane = Entity { rail: number, ..Entity::new(EntityKind::Rail) };
                new_verdict(Kind::RailSlow, plane, vec![], 30.0)
            }
            FaultEffect::HostBlocks { .. } => {
                new_verdict(Kind::HostBlocksNetwork, host, vec![], 30.0)
            }
            _ => None,
        }
    }

    /// Faults of a whole job.
    fn job_verdict(
        &self,
        effect: FaultEffect,
        job_index: usize,
        shape: &JobShape,
        node: usize,
    ) -> Option<FaultVerdict> {
        use FindingKind as Kind;
        let job = job_entity(job_index);
        // Without job labels the judge may use any job name: such an entity has no job.
        let unnamed = (!self.content.has_jobs).then(|| Entity::new(EntityKind::Job));
        let verdict = |kind, blamed, mut also: Vec<Entity>, kinds, limit_s| {
            also.extend(unnamed.clone());
            Some(FaultVerdict { kind, blamed, also, kinds, limit_s, on_gpus: true })
        };
        match effect {
            FaultEffect::StorageSlow { .. } => {
                let storage = Entity::new(EntityKind::Storage);
                // It slows every job that reads from it.
                let is_training =
                    |job_index: &usize| self.shape.jobs[*job_index].work == JobWorkload::Train;
                let jobs = (0..self.shape.jobs.len()).filter(is_training).map(job_entity).collect();
                verdict(Kind::StorageSlow, storage, jobs, vec![], 60.0)
            }
            FaultEffect::Hang { odd } => {
                let name = &self.names[node];
                let rank =
                    [Entity::new_node(name), Entity::new_gpu(name, &SanitizedText::new("0"))];
                let also = if odd { rank.to_vec() } else { vec![] };
                verdict(Kind::CollectiveHang, job, also, vec![], 90.0)
            }
            FaultEffect::Idle => verdict(Kind::IdleAllocated, job, vec![], vec![], 600.0),
            FaultEffect::CrashLoop { every_s, .. } => {
                verdict(Kind::CrashLoop, job, vec![], vec![], every_s * 3.0)
            }
            FaultEffect::StageImbalance { .. } => {
                let stage = Entity { kind: EntityKind::Stage, ..job.clone() };
                verdict(Kind::StageImbalance, stage, vec![job], vec![], 120.0)
            }
            FaultEffect::Skew { .. } if shape.nodes.len() > 1 => {
                verdict(Kind::DataSkew, job, vec![], vec![], 120.0)
            }
            _ => None,
        }
    }
}
