//! Whether a cluster can have a fault, and how severe it must be for a given loss of pace.

use super::{
    activity::JobHabits,
    gang::{Conditions, GangModel, Scratch},
    gpus::GpuRun,
    impairment::{Impairment, SizedFault},
    wiring::{Wiring, rail_of},
};
use crate::{
    cluster_plan::{ClusterPlan, PortPlan, PortRole},
    fault_plan::{FaultKind, FaultPlan},
    job_plan::JobKind,
};

/// The lowest severity that is sought.
const LOWEST_SEVERITY: f64 = 1e-5;
/// The highest severity that is sought.
const HIGHEST_SEVERITY: f64 = 400.0;

/// What is needed to size faults.
pub(super) struct Sizer<'a> {
    /// The plan.
    pub(super) plan: &'a ClusterPlan,
    /// Its numbers.
    pub(super) wiring: &'a Wiring,
    /// Its gangs.
    pub(super) models: &'a [GangModel],
    /// Its GPUs.
    pub(super) gpus: &'a [GpuRun],
    /// How its jobs are.
    pub(super) habits: &'a [JobHabits],
}

/// Whether the severity of a kind is chosen for a loss.
pub(super) const fn is_sized(kind: FaultKind) -> bool {
    !matches!(
        kind,
        FaultKind::PortDown
            | FaultKind::PortFlap
            | FaultKind::PortRateLow
            | FaultKind::Hang
            | FaultKind::GpuLost
            | FaultKind::GpuMemoryErrors
            | FaultKind::IdleAllocated
            | FaultKind::ExporterDown
            | FaultKind::DriverHung
    )
}

/// Whether a kind of fault is one of the network.
pub(super) const fn is_of_network(kind: FaultKind) -> bool {
    matches!(
        kind,
        FaultKind::LeafCongested
            | FaultKind::RailSlow
            | FaultKind::Incast
            | FaultKind::SlowReceiver
            | FaultKind::LinkErrors
    )
}

impl Sizer<'_> {
    /// A fault with the severity that costs its loss.
    pub(super) fn size(&self, fault: &FaultPlan, form: f64) -> Result<SizedFault, String> {
        self.check_places(fault)?;
        let mut sized = SizedFault {
            plan: fault.clone(),
            severity: 0.0,
            resistance: None,
            form,
            shown_s: None,
        };
        let is_harmless = fault.kind == FaultKind::LinkErrors && fault.loss <= 0.0;
        if !is_sized(fault.kind) || is_harmless {
            return self.check_unsized(fault).map(|()| sized);
        }
        let job = self.check_job(fault)?;
        self.check_network(fault, job)?;
        let loss_at = |severity: f64, sized: &mut SizedFault| {
            sized.severity = severity;
            self.loss(job, sized)
        };
        let most = loss_at(HIGHEST_SEVERITY, &mut sized);
        if most < fault.loss {
            let kind = fault.kind;
            return Err(format!("{kind:?} costs at most {most:.3} of this job's pace"));
        }
        let (mut low, mut high) = (LOWEST_SEVERITY, HIGHEST_SEVERITY);
        for _ in 0..50 {
            let middle = (low * high).sqrt();
            if loss_at(middle, &mut sized) < fault.loss {
                low = middle;
            } else {
                high = middle;
            }
        }
        sized.severity = high;
        Ok(sized)
    }

    /// The loss of the gang of a job that suffers most.
    fn loss(&self, job: usize, fault: &SizedFault) -> f64 {
        let losses = self.wiring.gangs_of(job).map(|gang| {
            let sound = self.steady_pace(gang, None);
            1.0 - self.steady_pace(gang, Some(fault)) / sound
        });
        losses.fold(0.0, f64::max)
    }

    /// Steps per second of a gang after a long time.
    pub(super) fn steady_pace(&self, gang: usize, fault: Option<&SizedFault>) -> f64 {
        let mut impairment = Impairment::new(self.plan, self.wiring);
        if let Some(fault) = fault {
            impairment.add(fault, (1.0, 1.0), self.plan, self.wiring);
        }
        let model = &self.models[gang];
        let clocks: Vec<f64> = self
            .gpus
            .iter()
            .zip(&impairment.gpus)
            .map(|(gpu, impairment)| gpu.compute_clock(impairment))
            .collect();
        let slow_hosts = vec![0.0; self.plan.nodes.len()];
        let conditions = Conditions {
            clocks: &clocks,
            impairment: &impairment,
            work: 1.0,
            slow_hosts: &slow_hosts,
        };
        let step = model.solve(conditions, self.wiring, &mut Scratch::default());
        let supplies = (0..model.gang.nodes.len())
            .map(|slot| supply(model, &self.habits[model.gang.job], &impairment, slot));
        supplies.fold(1.0 / step.total_s, f64::min)
    }

    /// Numbers that must exist.
    fn check_places(&self, fault: &FaultPlan) -> Result<(), String> {
        let Some(node) = self.plan.nodes.get(fault.node) else {
            return Err(format!("there is no node {}", fault.node));
        };
        if fault.job.is_some_and(|job| job >= self.plan.jobs.len()) {
            return Err("there is no such job".into());
        }
        let is_of_gpu = matches!(
            fault.kind,
            FaultKind::GpuClockLow
                | FaultKind::GpuThermal
                | FaultKind::LaunchBound
                | FaultKind::PcieDegraded
                | FaultKind::NvlinkErrors
                | FaultKind::GpuLost
                | FaultKind::GpuMemoryErrors
        );
        if is_of_gpu && fault.gpu >= node.gpus.len() {
            return Err(format!("node {} has no GPU {}", fault.node, fault.gpu));
        }
        let is_of_link = matches!(fault.kind, FaultKind::NvlinkErrors | FaultKind::NvswitchSlow);
        if is_of_link && !node.has_nvlink {
            return Err(format!("node {} has no NVLink", fault.node));
        }
        let is_of_port = matches!(
            fault.kind,
            FaultKind::PortDown
                | FaultKind::PortFlap
                | FaultKind::PortRateLow
                | FaultKind::LinkErrors
                | FaultKind::Incast
        );
        let port = node.ports.get(fault.port);
        let is_used = |port: &PortPlan| !port.is_never_up && port.role != PortRole::Unused;
        if is_of_port && !port.is_some_and(is_used) {
            return Err(format!("node {} has no port {} that is up", fault.node, fault.port));
        }
        Ok(())
    }

    fn check_unsized(&self, fault: &FaultPlan) -> Result<(), String> {
        let needs_job = matches!(fault.kind, FaultKind::Hang | FaultKind::IdleAllocated);
        let kind = fault.job.map(|job| self.plan.jobs[job].kind);
        match (needs_job, kind) {
            (true, None) => Err(format!("{:?} needs a job", fault.kind)),
            (true, Some(JobKind::Idle)) => Err("the job is idle anyway".into()),
            _ => Ok(()),
        }
    }

    /// The job of a sized fault.
    fn check_job(&self, fault: &FaultPlan) -> Result<usize, String> {
        let kind = fault.kind;
        let job = fault.job.ok_or_else(|| format!("{kind:?} needs a job"))?;
        let plan = &self.plan.jobs[job];
        if !matches!(plan.kind, JobKind::Train | JobKind::Alternate) {
            return Err(format!("{kind:?} needs a synchronous job"));
        }
        let is_of_storage =
            matches!(kind, FaultKind::StorageSlowForJob | FaultKind::StorageSlowForAll);
        if is_of_storage && plan.step.read_bytes_per_s <= 0.0 {
            return Err("the job reads nothing from shared storage".into());
        }
        if kind == FaultKind::StageImbalance && plan.step.pipeline_stages < 2 {
            return Err("the job has no pipeline".into());
        }
        let mut gangs = self.wiring.gangs_of(job).map(|gang| &self.wiring.gangs[gang]);
        if kind == FaultKind::DataSkew && gangs.any(|gang| gang.groups < 2) {
            return Err("the job has a single group of ranks".into());
        }
        Ok(job)
    }

    /// A fault of the network must be where the job's traffic is.
    fn check_network(&self, fault: &FaultPlan, job: usize) -> Result<(), String> {
        if !is_of_network(fault.kind) {
            return Ok(());
        }
        let gangs = self.wiring.gangs_of(job).map(|gang| &self.models[gang]);
        let networked = gangs.filter(|model| model.has_network());
        let mut ports = networked
            .flat_map(|model| &model.gang.ranks)
            .filter_map(|rank| Some((rank.node, rank.port?)));
        let plan_of = |(node, port): (usize, usize)| {
            &self.plan.nodes[node].ports[port - self.wiring.first_port[node]]
        };
        let wanted = fault.port;
        let is_met = match fault.kind {
            FaultKind::LeafCongested => ports.any(|at| plan_of(at).leaf == Some(fault.leaf)),
            FaultKind::RailSlow => ports.any(|at| rail_of(plan_of(at)) == Some(fault.rail)),
            FaultKind::SlowReceiver => ports.any(|(node, _)| node == fault.node),
            _ => ports.any(|(node, port)| {
                node == fault.node && port - self.wiring.first_port[node] == wanted
            }),
        };
        if is_met { Ok(()) } else { Err("the job sends nothing there".into()) }
    }
}

/// Batches per second, in steps, that reach a node of a gang.
pub(super) fn supply(
    model: &GangModel,
    habits: &JobHabits,
    impairment: &Impairment,
    slot: usize,
) -> f64 {
    let job = model.gang.job;
    let loader = &impairment.loaders[model.gang.nodes[slot]];
    let delay = if loader.job == job { loader.slow } else { 0.0 };
    // The first slowdown only uses up what a healthy loader has to spare.
    let own = habits.loader_headroom / (1.0 + delay);
    let storage = habits.storage_headroom / (1.0 + impairment.jobs[job].storage);
    own.min(storage) / model.step_s
}
