//! Which rank uses which GPU and port, and who sends to whom: numbers that never change during a run.

use crate::{
    cluster_plan::{ClusterPlan, LinkLayer, PortPlan, PortRole},
    job_plan::{JobKind, JobPlan},
};

/// Ranks that meet in every step: a job, or one half of an alternating one.
#[derive(Clone, Debug)]
pub(super) struct Gang {
    /// Its job.
    pub(super) job: usize,
    /// Which half of an alternating job: 0 or 1.
    pub(super) half: usize,
    /// Its nodes.
    pub(super) nodes: Vec<usize>,
    /// Its ranks, node by node.
    pub(super) ranks: Vec<Rank>,
    /// Number of tensor groups.
    pub(super) groups: usize,
}

/// One rank of a gang.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    /// Its GPU, over all nodes.
    pub(super) gpu: usize,
    /// Its node.
    pub(super) node: usize,
    /// Which of the gang's nodes that is.
    pub(super) slot: usize,
    /// Pipeline stage.
    pub(super) stage: usize,
    /// Tensor group.
    pub(super) group: usize,
    /// Its port over all nodes, while that is up.
    pub(super) port: Option<usize>,
}

/// Numbers of GPUs and ports over all nodes, and the ways between them.
#[derive(Clone, Debug)]
pub(super) struct Wiring {
    /// The first GPU of each node.
    pub(super) first_gpu: Vec<usize>,
    /// The first port of each node.
    pub(super) first_port: Vec<usize>,
    /// The node of each GPU.
    pub(super) node_of_gpu: Vec<usize>,
    /// The node of each port.
    pub(super) node_of_port: Vec<usize>,
    /// Ports of each node that carry collectives, by rail.
    pub(super) rails: Vec<Vec<usize>>,
    /// The port that sends to each port in the ring of its job.
    pub(super) upstream: Vec<Option<usize>>,
    /// The job of each port, if it carries collectives of one.
    pub(super) job_of_port: Vec<Option<usize>>,
    /// The gangs.
    pub(super) gangs: Vec<Gang>,
    /// Rate of each port in bytes per second.
    pub(super) rate: Vec<f64>,
    /// What the jobs may use of it.
    pub(super) capacity: Vec<f64>,
    /// Whether ports are of InfiniBand.
    pub(super) is_infiniband: bool,
}

/// The rail of a port, if it carries collectives.
pub(super) const fn rail_of(port: &PortPlan) -> Option<usize> {
    if let PortRole::Collective { rail } = port.role { Some(rail) } else { None }
}

impl Wiring {
    /// Numbers everything in a plan.
    pub(super) fn new(plan: &ClusterPlan) -> Self {
        let mut wiring = Self {
            first_gpu: vec![],
            first_port: vec![],
            node_of_gpu: vec![],
            node_of_port: vec![],
            rails: vec![],
            upstream: vec![],
            job_of_port: vec![],
            gangs: vec![],
            rate: vec![],
            capacity: vec![],
            is_infiniband: plan.fabric.link_layer == LinkLayer::InfiniBand,
        };
        for (node, machine) in plan.nodes.iter().enumerate() {
            let first_port = wiring.node_of_port.len();
            wiring.first_gpu.push(wiring.node_of_gpu.len());
            wiring.first_port.push(first_port);
            wiring.node_of_gpu.extend(machine.gpus.iter().map(|_| node));
            wiring.node_of_port.extend(machine.ports.iter().map(|_| node));
            for port in &machine.ports {
                let rate = (port.rate_gbps * 0.125e9).max(1e6);
                wiring.rate.push(rate);
                let free = 0.95 * rate - port.background_bytes_per_s;
                wiring.capacity.push(free.max(0.2 * rate));
            }
            let ports = machine.ports.iter().enumerate();
            let mut rails: Vec<(usize, usize)> = ports
                .filter(|(_, port)| !port.is_never_up)
                .filter_map(|(index, port)| Some((rail_of(port)?, first_port + index)))
                .collect();
            rails.sort_unstable();
            wiring.rails.push(rails.into_iter().map(|(_, port)| port).collect());
        }
        wiring.upstream = vec![None; wiring.node_of_port.len()];
        wiring.job_of_port = vec![None; wiring.node_of_port.len()];
        for (index, job) in plan.jobs.iter().enumerate() {
            for (half, nodes) in halves_of(job).into_iter().enumerate() {
                let gang = wiring.new_gang(plan, index, half, nodes);
                wiring.connect(&gang);
                wiring.gangs.push(gang);
            }
        }
        wiring
    }

    fn new_gang(&self, plan: &ClusterPlan, index: usize, half: usize, nodes: Vec<usize>) -> Gang {
        let job = &plan.jobs[index];
        let stages = job.step.pipeline_stages.clamp(1, nodes.len().max(1));
        let mut ranks = Vec::new();
        for (slot, &node) in nodes.iter().enumerate() {
            let gpus = plan.nodes[node].gpus.len();
            for gpu in job.gpus.start..job.gpus.end.min(gpus) {
                let rails = &self.rails[node];
                ranks.push(Rank {
                    gpu: self.first_gpu[node] + gpu,
                    node,
                    slot,
                    stage: slot * stages / nodes.len(),
                    group: ranks.len() / job.step.tensor_group.max(1),
                    port: rails.get(gpu * rails.len() / gpus.max(1)).copied(),
                });
            }
        }
        let groups = ranks.last().map_or(0, |rank| rank.group + 1);
        Gang { job: index, half, nodes, ranks, groups }
    }

    /// Joins the ports of a gang to rings.
    fn connect(&mut self, gang: &Gang) {
        if gang.nodes.len() < 2 {
            return;
        }
        let count = gang.nodes.len();
        for rank in &gang.ranks {
            let Some(port) = rank.port else { continue };
            let before = gang.nodes[(rank.slot + count - 1) % count];
            let place = self.rails[rank.node].iter().position(|other| *other == port);
            let senders = &self.rails[before];
            let sender = place.and_then(|place| senders.get(place.min(senders.len().max(1) - 1)));
            self.upstream[port] = sender.copied();
            self.job_of_port[port] = Some(gang.job);
        }
    }

    /// The gangs of a job.
    pub(super) fn gangs_of(&self, job: usize) -> impl Iterator<Item = usize> {
        let gangs = self.gangs.iter().enumerate();
        gangs.filter(move |(_, gang)| gang.job == job).map(|(index, _)| index)
    }
}

/// The nodes of each gang of a job.
fn halves_of(job: &JobPlan) -> Vec<Vec<usize>> {
    if job.kind == JobKind::Alternate && job.nodes.len() > 1 {
        let (first, second) = job.nodes.split_at(job.nodes.len() / 2);
        vec![first.to_vec(), second.to_vec()]
    } else {
        vec![job.nodes.clone()]
    }
}
