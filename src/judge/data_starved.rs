//! Nodes whose GPUs wait for input that their host does not bring, and the peers that wait for them.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_schema::{
    Class, Entity, EntityKind, FindingKind, GpuState, Safe, Severity, UnixMs, unit::Unit,
};

use super::{
    Evidence, Finding, Host, Judge,
    finding::{MAX_VICTIMS, count, time_of_day},
    life::Seen,
    port_down::jobs,
};
use crate::cluster::{Cluster, Node, NodeId};

/// Nodes of one job from which a majority that starves together points at something that they share.
const SHARED_NODES: usize = 3;

/// Finds the hosts that starve their GPUs.
pub(super) fn find(judge: &Judge, cluster: &Cluster) -> Seen {
    let mut seen = Seen::default();
    let mut starving = Vec::new();
    for (id, node) in cluster.nodes() {
        match Starving::look(judge, cluster, id, node) {
            Look::Starves(starves) => starving.push(starves),
            Look::Unclear => seen.unclear.push(finding_id(node)),
            Look::Fine => {}
        }
    }
    let mut hosts_of: BTreeMap<Safe, usize> = BTreeMap::new();
    for job in starving.iter().flat_map(|starves| &starves.jobs) {
        *hosts_of.entry(job.clone()).or_default() += 1;
    }
    for starves in starving {
        let crowd = starves.jobs.iter().any(|job| {
            let nodes = nodes_of(cluster, job);
            nodes.len() >= SHARED_NODES && hosts_of[job] * 2 > nodes.len()
        });
        if !crowd {
            seen.findings.push(starves.finding(judge, cluster, &hosts_of));
        }
    }
    seen
}

enum Look<'a> {
    Fine,
    /// Its values are too old to say.
    Unclear,
    Starves(Starving<'a>),
}

struct Starving<'a> {
    node: &'a Node,
    jobs: Vec<Safe>,
    allocated: usize,
    starved: Vec<u32>,
    since: UnixMs,
    host: Host,
}

impl<'a> Starving<'a> {
    fn look(judge: &Judge, cluster: &Cluster, id: NodeId, node: &'a Node) -> Look<'a> {
        let (now, limits) = (cluster.now(), &judge.limits);
        let rows = node.rows(Class::Gpu);
        if !rows.is_empty() && rows.iter().all(|row| judge.state(*row) == GpuState::Stale) {
            return Look::Unclear;
        }
        let known =
            |row: &&u32| judge.gpus.get(**row as usize).is_some_and(|g| g.allocated == Some(true));
        let allocated: Vec<u32> = rows.iter().filter(known).copied().collect();
        let held = |row: u32| judge.gpus[row as usize].held;
        let long = |row: &u32| {
            let held = held(*row);
            held.state() == GpuState::DataStarved
                && now.since(held.since()).as_secs_f64() >= limits.starved_seconds
        };
        let starved: Vec<u32> = allocated.iter().filter(|row| long(row)).copied().collect();
        let share = starved.len() as f64 / allocated.len().max(1) as f64;
        let host = judge.hosts.get(&id).copied().unwrap_or_default();
        let since = starved.iter().map(|row| held(*row).since()).min();
        let Some(since) = since.filter(|_| share >= limits.starved_gpus_ratio) else {
            return Look::Fine;
        };
        let found = Self {
            node,
            jobs: jobs(cluster, node),
            allocated: allocated.len(),
            starved,
            since,
            host,
        };
        if found.host_evidence(judge, cluster).1 == 0 { Look::Fine } else { Look::Starves(found) }
    }

    /// The host's numbers, and how many of them passed their limits.
    fn host_evidence(&self, judge: &Judge, cluster: &Cluster) -> (Vec<Evidence>, usize) {
        let limits = &judge.limits;
        let numbers = [
            (
                "tasks of the host waiting for input or output",
                &self.host.io_pressure,
                limits.io_pressure_ratio,
            ),
            (
                "tasks of the host waiting for a CPU",
                &self.host.cpu_pressure,
                limits.cpu_pressure_ratio,
            ),
            ("busiest CPU of the host", &self.host.busiest_cpu, limits.busiest_cpu_ratio),
        ];
        let (mut evidence, mut kinds) = (Vec::new(), 0);
        for (what, average, limit) in numbers {
            let Some(value) = average.at(cluster.now(), cluster.fresh_for()) else { continue };
            let passed = value >= limit;
            kinds += usize::from(passed);
            let note = if passed { "" } else { "below its limit" };
            evidence.push(Evidence::new(what, Some(value), Unit::Ratio, Some(limit)).note(note));
        }
        (evidence, kinds)
    }

    fn finding(
        &self,
        judge: &Judge,
        cluster: &Cluster,
        hosts_of: &BTreeMap<Safe, usize>,
    ) -> Finding {
        let (host_evidence, kinds) = self.host_evidence(judge, cluster);
        let mut lost = self.starved.len() as f64;
        let (mut waiting, mut victims) = (0, Vec::new());
        for job in &self.jobs {
            let (gpus, nodes) = waiting_peers(judge, cluster, job, self.node);
            waiting += gpus;
            // Hosts that starve one job together share what their victims cost.
            lost += gpus as f64 / hosts_of.get(job).copied().unwrap_or(1).max(1) as f64;
            let job = Some(job.clone());
            victims.push(Entity { job: job.clone(), ..Entity::new(EntityKind::Job) });
            victims.extend(
                nodes.into_iter().map(|node| Entity { job: job.clone(), ..Entity::node(&node) }),
            );
        }
        victims.truncate(MAX_VICTIMS);
        let kinds = kinds + usize::from(waiting > 0);
        Finding {
            id: finding_id(self.node),
            kind: FindingKind::DataStarved,
            severity: if kinds >= 2 { Severity::Critical } else { Severity::Warning },
            entity: Entity::node(&self.node.name),
            since: self.since,
            confidence: match kinds {
                0 | 1 => 0.7,
                2 => 0.9,
                _ => 0.97,
            },
            lost_gpus: lost,
            victims,
            summary: self.summary(waiting),
            next: self.next(judge, cluster),
            evidence: self.gpu_evidence(judge, cluster, waiting).chain(host_evidence).collect(),
        }
    }

    fn summary(&self, waiting: usize) -> String {
        let mut text = format!(
            "{} starves {} of its {} since {}: input does not come in time",
            self.node.name,
            self.starved.len(),
            count(self.allocated, "allocated GPU"),
            time_of_day(self.since)
        );
        if waiting > 0 {
            text += "; ";
            text += &count(waiting, "GPU");
            text += " of the same job wait for it";
        }
        text.push('.');
        text
    }

    fn next(&self, judge: &Judge, cluster: &Cluster) -> String {
        let name = &self.node.name;
        let io = self.host.io_pressure.at(cluster.now(), cluster.fresh_for());
        if io.is_some_and(|io| io >= judge.limits.io_pressure_ratio) {
            return format!(
                "Look at what the data loader of {name} reads, and from which disk or mount."
            );
        }
        format!(
            "Look at the data loader's processes on {name}: their number, and what they do on the CPU."
        )
    }

    fn gpu_evidence(
        &self,
        judge: &Judge,
        cluster: &Cluster,
        waiting: usize,
    ) -> impl Iterator<Item = Evidence> {
        let limits = &judge.limits;
        let signals: Vec<_> = self
            .starved
            .iter()
            .map(|row| &judge.gpus[*row as usize].averages)
            .map(|averages| averages.signals(cluster.now(), cluster.fresh_for(), limits))
            .collect();
        let mean = |of: fn(&super::Signals) -> Option<f64>| {
            let values: Vec<f64> = signals.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let least = limits.starved_gpus_ratio * self.allocated as f64;
        let gpus = Evidence::new(
            "GPUs that starve",
            Some(self.starved.len() as f64),
            Unit::Count,
            Some(least),
        )
        .note(format!("of {} allocated", self.allocated));
        let busy = Evidence::new(
            "mean utilization of these GPUs",
            mean(|signals| signals.utilization),
            Unit::Ratio,
            Some(limits.utilization_starved_ratio),
        );
        let tensor = Evidence::new(
            "mean tensor activity of these GPUs",
            mean(|signals| signals.tensor),
            Unit::Ratio,
            Some(limits.tensor_low_ratio),
        );
        let peers = Evidence::new(
            "GPUs of the same job that wait",
            Some(waiting as f64),
            Unit::Count,
            None,
        );
        let below = |evidence: Evidence| evidence.note("the limit is an upper one");
        let known = |evidence: &Evidence| evidence.value.is_some();
        [gpus, below(busy), below(tensor), peers].into_iter().filter(known)
    }
}

fn finding_id(node: &Node) -> String {
    format!("{}/{}", FindingKind::DataStarved, node.name)
}

/// How many GPUs of a job wait on other nodes, and which nodes those are.
fn waiting_peers(
    judge: &Judge,
    cluster: &Cluster,
    job: &Safe,
    own: &Node,
) -> (usize, BTreeSet<Safe>) {
    let (mut gpus, mut nodes) = (0, BTreeSet::new());
    for row in cluster.jobs().get(job).into_iter().flatten() {
        let entry = cluster.device(Class::Gpu, *row);
        let Some(node) = entry.and_then(|entry| cluster.node(entry.node)) else { continue };
        if judge.state(*row) == GpuState::Waiting && node.name != own.name {
            gpus += 1;
            nodes.insert(node.name.clone());
        }
    }
    (gpus, nodes)
}

fn nodes_of(cluster: &Cluster, job: &Safe) -> BTreeSet<NodeId> {
    let gpus = cluster.jobs().get(job).into_iter().flatten();
    gpus.filter_map(|gpu| Some(cluster.device(Class::Gpu, *gpu)?.node)).collect()
}
