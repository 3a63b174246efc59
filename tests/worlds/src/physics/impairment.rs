//! What the faults do to each machine at an instant.

use super::wiring::{Wiring, rail_of};
use crate::{
    cluster_plan::ClusterPlan,
    fault_plan::{FaultKind, FaultPlan},
};

/// A fault with its severity.
#[derive(Clone, Debug)]
pub(super) struct SizedFault {
    /// The plan.
    pub(super) plan: FaultPlan,
    /// By how much more than 1 the time that the broken part needs is multiplied.
    pub(super) severity: f64,
    /// Thermal resistance in K/W of a GPU that is too hot; none while its severity is sought.
    pub(super) resistance: Option<f64>,
    /// A random number from 0 to 1 that decides between forms of the same fault.
    pub(super) form: f64,
    /// When it first showed.
    pub(super) shown_s: Option<f64>,
}

/// What is broken in a GPU for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GpuDamage {
    /// It fell off the bus.
    Lost,
    /// Its memory has uncorrectable errors.
    Memory,
}

/// What is wrong with one GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct GpuImpairment {
    /// Highest relative clock.
    pub(super) clock: f64,
    /// Whether the power brake limits it.
    pub(super) is_braked: bool,
    /// Thermal resistance of a broken cooler.
    pub(super) resistance: Option<f64>,
    /// Time of copies, as a multiple.
    pub(super) copy: f64,
    /// Whether the PCIe link replays packets instead of having fewer lanes.
    pub(super) replays: bool,
    /// Time of collectives inside the node, as a multiple.
    pub(super) collective: f64,
    /// Whether its links count errors.
    pub(super) has_link_errors: bool,
    /// Additional time for launches, as a share of the step without a fault.
    pub(super) launch: f64,
    /// What is broken for good.
    pub(super) damage: Option<GpuDamage>,
}

/// What is wrong with one port: additional time for its traffic, as multiples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PortImpairment {
    /// Queues of its leaf switch or rail.
    pub(super) queue: f64,
    /// Many senders to it.
    pub(super) incast: f64,
    /// Its host receives slowly.
    pub(super) slow_receiver: f64,
    /// Retransmissions.
    pub(super) errors: f64,
    /// Whether its cable is dirty.
    pub(super) is_dirty: bool,
    /// Whether it is down.
    pub(super) is_down: bool,
    /// Lost share of the rate.
    pub(super) lost_rate: f64,
}

impl PortImpairment {
    /// The time of its traffic as a multiple.
    pub(super) fn slowdown(&self) -> f64 {
        (1.0 + self.queue) * (1.0 + self.incast) * (1.0 + self.slow_receiver) * (1.0 + self.errors)
    }
}

/// What is wrong with the data loader of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoaderImpairment {
    /// Additional time of a batch, as a multiple.
    pub(super) slow: f64,
    /// Load of the processors that goes with it, 0 to 1.
    pub(super) cpu: f64,
    /// Load of the disks that goes with it, 0 to 1.
    pub(super) io: f64,
    /// The job whose loader it is.
    pub(super) job: usize,
}

/// Why a job stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standstill {
    /// All ranks wait in a collective.
    Hang,
    /// Nothing runs any more.
    Idle,
}

/// What is wrong with one job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JobImpairment {
    /// A pipeline stage and its additional work.
    pub(super) stage: Option<(usize, f64)>,
    /// Additional work of another rank in each step.
    pub(super) skew: f64,
    /// Additional time of its storage.
    pub(super) storage: f64,
    /// Whether it stands still.
    pub(super) standstill: Option<Standstill>,
}

/// What is wrong everywhere.
#[derive(Clone, Debug)]
pub(super) struct Impairment {
    /// GPUs over all nodes.
    pub(super) gpus: Vec<GpuImpairment>,
    /// Ports over all nodes.
    pub(super) ports: Vec<PortImpairment>,
    /// Loaders by node.
    pub(super) loaders: Vec<LoaderImpairment>,
    /// Jobs.
    pub(super) jobs: Vec<JobImpairment>,
}

const SOUND_GPU: GpuImpairment = GpuImpairment {
    clock: 1.0,
    is_braked: false,
    resistance: None,
    copy: 1.0,
    replays: false,
    collective: 1.0,
    has_link_errors: false,
    launch: 0.0,
    damage: None,
};

impl Impairment {
    /// Nothing is wrong.
    pub(super) fn new(plan: &ClusterPlan, wiring: &Wiring) -> Self {
        Self {
            gpus: vec![SOUND_GPU; wiring.node_of_gpu.len()],
            ports: vec![PortImpairment::default(); wiring.node_of_port.len()],
            loaders: vec![LoaderImpairment::default(); plan.nodes.len()],
            jobs: vec![JobImpairment::default(); plan.jobs.len()],
        }
    }

    /// Repairs everything.
    pub(super) fn clear(&mut self) {
        self.gpus.fill(SOUND_GPU);
        self.ports.fill(PortImpairment::default());
        self.loaders.fill(LoaderImpairment::default());
        self.jobs.fill(JobImpairment::default());
    }

    /// Adds a fault of some share of its full size, so long after its onset.
    pub(super) fn add(
        &mut self,
        fault: &SizedFault,
        (size, since_s): (f64, f64),
        plan: &ClusterPlan,
        wiring: &Wiring,
    ) {
        if size > 0.0 {
            self.add_to_node(fault, size, plan, wiring);
            self.add_to_ports(fault, size, since_s, plan, wiring);
            self.add_to_job(fault, size, plan, wiring);
        }
    }

    fn add_to_node(&mut self, fault: &SizedFault, size: f64, plan: &ClusterPlan, wiring: &Wiring) {
        let slow = fault.severity * size;
        let node = fault.plan.node;
        let mut all = wiring.first_gpu[node]..wiring.first_gpu[node] + plan.nodes[node].gpus.len();
        let first = all.start;
        let one = (first + fault.plan.gpu).min(all.end.max(1) - 1);
        let gpu = &mut self.gpus[one];
        match fault.plan.kind {
            FaultKind::GpuClockLow => gpu.clock = gpu.clock.min(1.0 / (1.0 + slow)),
            FaultKind::GpuThermal => match fault.resistance {
                Some(resistance) => gpu.resistance = Some(resistance * size),
                None => gpu.clock = gpu.clock.min(1.0 / (1.0 + slow)),
            },
            FaultKind::PowerBrake => {
                for gpu in &mut self.gpus[all] {
                    gpu.clock = gpu.clock.min(1.0 / (1.0 + slow));
                    gpu.is_braked = true;
                }
            }
            FaultKind::LaunchBound => gpu.launch += slow,
            FaultKind::PcieDegraded => {
                gpu.copy *= 1.0 + slow;
                gpu.replays = fault.form < 0.4;
            }
            FaultKind::NvlinkErrors => {
                gpu.collective *= 1.0 + slow;
                gpu.has_link_errors = true;
            }
            FaultKind::NvswitchSlow => {
                all.by_ref().for_each(|index| self.gpus[index].collective *= 1.0 + slow);
            }
            FaultKind::GpuLost => gpu.damage = Some(GpuDamage::Lost),
            FaultKind::GpuMemoryErrors => gpu.damage = Some(GpuDamage::Memory),
            FaultKind::LoaderSlowLoud | FaultKind::LoaderSlowSilent => {
                let is_loud = fault.plan.kind == FaultKind::LoaderSlowLoud;
                let load = if is_loud { size * slow / (0.3 + slow) } else { 0.0 };
                let is_cpu = fault.form < 0.55;
                self.loaders[node] = LoaderImpairment {
                    slow,
                    cpu: if is_cpu { load } else { 0.15 * load },
                    io: if is_cpu { 0.1 * load } else { load },
                    job: fault.plan.job.unwrap_or(0),
                };
            }
            _ => {}
        }
    }

    fn add_to_ports(
        &mut self,
        fault: &SizedFault,
        size: f64,
        since_s: f64,
        plan: &ClusterPlan,
        wiring: &Wiring,
    ) {
        let slow = fault.severity * size;
        let node = fault.plan.node;
        let ports = plan.nodes.iter().flat_map(|node| &node.ports).zip(&mut self.ports);
        match fault.plan.kind {
            FaultKind::LeafCongested => ports
                .filter(|(port, _)| port.leaf == Some(fault.plan.leaf) && rail_of(port).is_some())
                .for_each(|(_, state)| state.queue += slow),
            FaultKind::RailSlow => ports
                .filter(|(port, _)| rail_of(port) == Some(fault.plan.rail))
                .for_each(|(_, state)| state.queue += slow),
            FaultKind::SlowReceiver => {
                for port in &wiring.rails[node] {
                    self.ports[*port].slow_receiver += slow;
                }
            }
            _ => {
                let count = plan.nodes[node].ports.len();
                if count == 0 {
                    return;
                }
                let port =
                    &mut self.ports[wiring.first_port[node] + fault.plan.port.min(count - 1)];
                match fault.plan.kind {
                    FaultKind::PortDown => port.is_down = true,
                    FaultKind::PortFlap => port.is_down = is_flap_down(since_s, fault.form),
                    FaultKind::PortRateLow => {
                        port.lost_rate = if fault.form < 0.6 { 0.5 } else { 0.75 };
                    }
                    FaultKind::LinkErrors => {
                        port.errors += slow;
                        port.is_dirty = true;
                    }
                    FaultKind::Incast => port.incast += slow,
                    _ => {}
                }
            }
        }
    }

    fn add_to_job(&mut self, fault: &SizedFault, size: f64, plan: &ClusterPlan, wiring: &Wiring) {
        let slow = fault.severity * size;
        if fault.plan.kind == FaultKind::StorageSlowForAll {
            self.jobs.iter_mut().for_each(|job| job.storage += slow);
        }
        let Some(index) = fault.plan.job else { return };
        let job = &mut self.jobs[index];
        match fault.plan.kind {
            FaultKind::StorageSlowForJob => job.storage += slow,
            FaultKind::StageImbalance => {
                let gangs = wiring.gangs_of(index).map(|gang| &wiring.gangs[gang]);
                let stage = gangs
                    .flat_map(|gang| &gang.ranks)
                    .find_map(|rank| (rank.node == fault.plan.node).then_some(rank.stage));
                job.stage = Some((stage.unwrap_or(0), slow));
            }
            FaultKind::DataSkew => job.skew += slow,
            FaultKind::Hang => job.standstill = Some(Standstill::Hang),
            FaultKind::IdleAllocated => job.standstill = Some(Standstill::Idle),
            FaultKind::GpuLost if plan.jobs[index].nodes.contains(&fault.plan.node) => {
                job.standstill = Some(Standstill::Hang);
            }
            _ => {}
        }
    }
}

/// Whether a flapping port is down: 2 to 8 s of every 20 to 90 s.
pub(super) fn is_flap_down(since_s: f64, form: f64) -> bool {
    let every_s = 20.0 + 70.0 * form;
    since_s.rem_euclid(every_s) < 2.0 + 6.0 * (1.0 - form)
}
