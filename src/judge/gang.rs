//! Gangs: GPUs that step together, what most of them do, and how much slower they are than usual.
//!
//! A job's label makes a gang. Where nobody names jobs, nodes that are equally busy in calm times are taken for one.

use std::collections::BTreeMap;

use gaunt_schema::{Class, Entity, EntityKind, GpuState, Safe, UnixMs};

use super::{
    Judge,
    crowd::median,
    finding::{MAX_VICTIMS, count},
    loss,
    peers::Peers,
};
use crate::cluster::{Cluster, NodeId};

/// Every gang, and which one each GPU belongs to.
#[derive(Debug, Default)]
pub(super) struct Gangs {
    all: Vec<Gang>,
    /// The gang of each GPU by row: its place in `all` and one, 0 without one.
    of_gpu: Vec<u32>,
    /// Nodes without named jobs, by the gang that they were taken for, and when that was.
    unnamed: Vec<Vec<NodeId>>,
    regrouped: Option<UnixMs>,
}

/// GPUs that step together.
#[derive(Debug, Default)]
pub(super) struct Gang {
    /// The job, if somebody names it.
    pub(super) job: Option<Safe>,
    /// Where nobody names it, the node by which it is known.
    pub(super) place: Option<Safe>,
    /// Its GPUs by row.
    pub(super) gpus: Vec<u32>,
    /// Its nodes.
    pub(super) nodes: Vec<NodeId>,
    /// The middle of its GPUs' utilization.
    pub(super) utilization: Option<f64>,
    /// How fast its middle GPU works, against what is usual for it: 1 is as usual.
    pub(super) pace: Option<f64>,
    /// Whether it goes on, however slowly.
    goes_on: bool,
    /// Whether it is below its usual speed by enough to count as lost time.
    is_slowed: bool,
    /// GPUs of its that spin in a collective: each GPU that is slow tells how many.
    waiting: usize,
    /// The clocks of its busy GPUs, by model and role.
    pub(super) peers: Peers,
}

impl Gangs {
    /// Puts gangs together, and looks at what their members do.
    pub(super) fn look(judge: &mut Judge, cluster: &Cluster) {
        let mut gangs = std::mem::take(&mut judge.gangs);
        let due = gangs
            .regrouped
            .is_none_or(|at| cluster.now().since(at).as_secs_f64() >= judge.limits.regroup_seconds);
        if due {
            gangs.unnamed = alike(judge, cluster);
            gangs.regrouped = Some(cluster.now());
        }
        let named = cluster.jobs().iter().map(|(job, gpus)| (Some(job.clone()), gpus.clone()));
        let of_nodes = |nodes: &Vec<NodeId>| {
            let nodes = nodes.iter().filter_map(|id| cluster.node(*id));
            nodes.flat_map(|node| node.rows(Class::Gpu).to_vec()).collect::<Vec<u32>>()
        };
        let unnamed = gangs.unnamed.iter().map(|nodes| (None, of_nodes(nodes)));
        let mut all: Vec<Gang> =
            named.chain(unnamed).map(|(job, gpus)| Gang::of(judge, cluster, job, gpus)).collect();
        for gang in &mut all {
            let before = gang.gpus.first().and_then(|row| gangs.of(*row));
            let before = before.is_some_and(|before| before.is_slowed);
            gang.is_slowed = loss::is_slowed(gang.slowed(), before, &judge.limits);
        }
        gangs.all = all;
        gangs.of_gpu.clear();
        gangs.of_gpu.resize(cluster.rows(Class::Gpu), 0);
        for (at, gang) in gangs.all.iter().enumerate() {
            for row in &gang.gpus {
                gangs.of_gpu[*row as usize] = at as u32 + 1;
            }
        }
        judge.gangs = gangs;
    }

    /// Every gang.
    pub(super) fn all(&self) -> &[Gang] {
        &self.all
    }

    /// The gang of a GPU.
    pub(super) fn of(&self, gpu: u32) -> Option<&Gang> {
        self.all.get(self.position(gpu)?)
    }

    /// The position of a GPU's gang in [`Self::all`].
    pub(super) fn position(&self, gpu: u32) -> Option<usize> {
        self.of_gpu.get(gpu as usize)?.checked_sub(1).map(|place| place as usize)
    }

    /// Every gang that has GPUs on a node.
    pub(super) fn on<'a>(&'a self, gpus: &'a [u32]) -> Vec<&'a Gang> {
        let mut gangs: Vec<&Gang> = gpus.iter().filter_map(|row| self.of(*row)).collect();
        gangs.dedup_by(|a, b| std::ptr::eq(*a, *b));
        gangs
    }

    /// The gang with GPUs among these that has lost most of its speed, if that is at least `least`, and how much.
    pub(super) fn slowed_on(&self, gpus: &[u32], least: f64) -> Option<(&Gang, f64)> {
        let gangs = gpus.iter().filter_map(|row| self.of(*row));
        let slowed = gangs.filter_map(|gang| Some((gang, gang.slowed()?)));
        slowed.filter(|(_, slowed)| *slowed >= least).max_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

impl Gang {
    fn of(judge: &Judge, cluster: &Cluster, job: Option<Safe>, gpus: Vec<u32>) -> Self {
        let mut nodes: Vec<NodeId> =
            gpus.iter().filter_map(|row| Some(cluster.device(Class::Gpu, *row)?.node)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let known = || gpus.iter().filter_map(|row| judge.gpus.get(*row as usize));
        let (now, gap) = (cluster.now(), cluster.fresh_for());
        let utilization = median(known().filter_map(|gpu| gpu.averages.utilization_at(now, gap)));
        let pace = median(known().filter_map(|gpu| gpu.averages.pace(now, gap, &judge.limits)));
        let peers = Peers::of(judge, cluster, &gpus);
        let first = nodes.first().filter(|_| job.is_none());
        let first = first.and_then(|id| Some(cluster.node(*id)?.name.clone()));
        let goes_on = pace.is_none_or(|pace| pace >= judge.limits.standstill_ratio);
        let waits = |row: &&u32| judge.state(**row) == GpuState::Waiting;
        let waiting = gpus.iter().filter(waits).count();
        Self {
            job,
            place: first,
            gpus,
            nodes,
            utilization,
            pace,
            goes_on,
            is_slowed: false,
            waiting,
            peers,
        }
    }

    /// Whether a node is one of its nodes, which lie in the order of their numbers.
    pub(super) fn has_node(&self, id: NodeId) -> bool {
        self.nodes.binary_search(&id).is_ok()
    }

    /// The share of its usual speed that it has lost; none if that is not known.
    pub(super) fn slowed(&self) -> Option<f64> {
        self.pace.map(|pace| (1.0 - pace).max(0.0))
    }

    /// Whether it goes on, however slowly.
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Whether most of its GPUs tell profiling counters.
    pub(super) fn is_profiled(&self, judge: &Judge, now: UnixMs, gap: std::time::Duration) -> bool {
        let known = self.gpus.iter().filter_map(|row| judge.gpus.get(*row as usize));
        known.filter(|gpu| gpu.averages.is_profiled(now, gap)).count() * 2 > self.gpus.len()
    }

    /// The share of its usual speed that counts as lost time: none below the limit, where noise is as large; none where
    /// no usual speed is known.
    pub(super) fn lost_share(&self) -> Option<f64> {
        self.slowed().map(|slowed| if self.is_slowed { slowed } else { 0.0 })
    }

    /// An estimate for suspicions, before they open: the whole gang's slowdown. What an open finding costs is the sum of
    /// the shares that are attributed to it ([`loss`]).
    pub(super) fn lost_gpus(&self) -> f64 {
        self.slowed().unwrap_or_default() * self.gpus.len() as f64
    }

    /// The gang itself as something that can be blamed or suffers.
    pub(super) fn entity(&self) -> Entity {
        Entity { job: self.job.clone(), node: self.place.clone(), ..Entity::new(EntityKind::Job) }
    }

    /// By what it is known from step to step.
    pub(super) fn name(&self) -> String {
        self.job.as_ref().map_or_else(
            || format!("on {}", self.place.as_deref().unwrap_or_default()),
            ToString::to_string,
        )
    }

    /// The gang as the subject of a sentence.
    pub(super) fn title(&self) -> String {
        match (&self.job, &self.place, self.nodes.len()) {
            (Some(job), ..) => format!("Job {job}"),
            (None, Some(place), 0 | 1) => format!("A job without a name on {place}"),
            (None, Some(place), nodes) => {
                format!("A job without a name on {place} and {}", count(nodes - 1, "node"))
            }
            _ => "A job without a name".to_owned(),
        }
    }

    /// Who suffers when one of its nodes is to blame.
    pub(super) fn victims(&self, cluster: &Cluster, but: Option<NodeId>) -> Vec<Entity> {
        let job = self.job.as_ref().map(|_| self.entity());
        let nodes = self.nodes.iter().filter(|id| Some(**id) != but);
        let nodes = nodes.filter_map(|id| {
            Some(Entity { job: self.job.clone(), ..Entity::node(&cluster.node(*id)?.name) })
        });
        job.into_iter().chain(nodes).take(MAX_VICTIMS).collect()
    }

    /// GPUs of its that spin in a collective.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }
}

/// Nodes on which nobody names a job, put together by what they usually do: power and traffic, on boards of a model.
fn alike(judge: &Judge, cluster: &Cluster) -> Vec<Vec<NodeId>> {
    let limits = &judge.limits;
    let mut groups: BTreeMap<Safe, Vec<(f64, f64, Vec<NodeId>)>> = BTreeMap::new();
    for (id, node) in cluster.nodes() {
        let rows = node.rows(Class::Gpu);
        if rows.is_empty() || rows.iter().any(|row| cluster.job(*row).is_some()) {
            continue;
        }
        let known = rows.iter().filter_map(|row| judge.gpus.get(*row as usize));
        let Some(power) = median(known.filter_map(|gpu| gpu.averages.usual_power())) else {
            continue;
        };
        let traffic = judge.hosts.get(&id).and_then(|host| host.traffic(cluster)?.usual);
        let traffic = traffic.unwrap_or_default();
        let model = cluster.model(rows[0]);
        let groups = groups.entry(model.cloned().unwrap_or_default()).or_default();
        let like = |a: f64, b: f64, share: f64| {
            (a - b).abs() <= share * a.max(b).max(limits.like_floor_ratio)
        };
        match groups.iter_mut().find(|(p, t, _)| {
            like(*p, power, limits.like_power_ratio) && like(*t, traffic, limits.like_traffic_ratio)
        }) {
            Some((_, _, nodes)) => nodes.push(id),
            None => groups.push((power, traffic, vec![id])),
        }
    }
    groups.into_values().flatten().map(|(_, _, nodes)| nodes).collect()
}
