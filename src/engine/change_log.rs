//! Changes of the fleet that stand beside a fault: jobs, deploys, reboots, drivers and kernels, as the pages show them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use gaunt_schema::{
    DeviceClass, SanitizedText, UnixMs,
    catalogue::{gpu, host},
    dialect::pod_template_hash,
};

use gaunt_api::{FleetChange, FleetChangeKind, NAMED_NODES};
use gaunt_cluster::{Cluster, Node, NodeId};

/// The shortest time between two comparisons: a change is known this late at most.
const EVERY: Duration = Duration::from_secs(5);

/// How long a node must be known before its jobs count as started: what a new target shows is not a change.
const SETTLED: Duration = Duration::from_secs(30);

/// A job that the scheduler started longer ago than this did not start now, but was found now.
const RECENT: Duration = Duration::from_mins(15);

/// Maximum number of changes that are kept: above it, the oldest are dropped.
const KEPT: usize = 512;

/// Maximum number of nodes that are kept for one change.
const KEPT_NODES: usize = 4_096;

/// How long a pod template must be absent from all pages of its job before it counts as gone: a return of it within this
/// time is no deploy, since pages may miss meanwhile.
const TEMPLATE_GONE: Duration = Duration::from_mins(2);

/// Maximum number of pod templates that are known of one job: the oldest is dropped.
const KEPT_TEMPLATES: usize = 4;

/// CPU time that must be counted before its fall means a reboot, in seconds.
const COUNTED: f64 = 60.0;

/// One change with all of its nodes.
#[derive(Clone, Debug)]
struct LoggedChange {
    change: FleetChange,
    nodes: Vec<NodeId>,
}

/// What is compared of a node.
#[derive(Clone, Debug)]
struct KnownNode {
    /// Its name: the id of a forgotten node may be that of another one later.
    name: SanitizedText,
    since: UnixMs,
    driver: Option<SanitizedText>,
    kernel: Option<SanitizedText>,
    busy_seconds: Option<f64>,
}

/// The recent changes of the fleet, and what the next comparison needs.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangeLog {
    changes: VecDeque<LoggedChange>,
    nodes: HashMap<NodeId, KnownNode>,
    /// Pod templates of each job, the newest last, with the time when each was last seen.
    jobs: BTreeMap<SanitizedText, Vec<(SanitizedText, UnixMs)>>,
    compared: Option<UnixMs>,
}

impl ChangeLog {
    /// Compares the fleet with what was known of it, at most every few seconds.
    pub(super) fn compare_fleet(&mut self, cluster: &Cluster) {
        let now = cluster.now();
        if self.compared.is_some_and(|at| now.duration_since(at) < EVERY && at <= now) {
            return;
        }
        self.compared = Some(now);
        self.compare_jobs(cluster, now);
        self.compare_nodes(cluster, now);
    }

    /// The changes of a span up to a time, oldest first, at most `most` of the newest.
    pub(super) fn changes_within(
        &self,
        from: UnixMs,
        until: UnixMs,
        most: usize,
    ) -> Vec<FleetChange> {
        let within = |logged: &&LoggedChange| (from..=until).contains(&logged.change.at);
        let mut changes: Vec<_> =
            self.changes.iter().filter(within).map(|logged| logged.change.clone()).collect();
        changes.sort_by_key(|change| change.at);
        changes.drain(..changes.len().saturating_sub(most));
        changes
    }

    /// The changes of these nodes and jobs in a span, nearest to `since` first.
    pub(super) fn changes_near(
        &self,
        since: UnixMs,
        (from, until): (UnixMs, UnixMs),
        concerns: impl Fn(Option<&SanitizedText>, &[NodeId]) -> bool,
        most: usize,
    ) -> Vec<FleetChange> {
        let within = |logged: &&LoggedChange| {
            (from..=until).contains(&logged.change.at)
                && concerns(logged.change.job.as_ref(), &logged.nodes)
        };
        let mut changes: Vec<_> =
            self.changes.iter().filter(within).map(|logged| logged.change.clone()).collect();
        changes.sort_by_key(|change| (change.at.0 - since.0).abs());
        changes.truncate(most);
        changes
    }

    fn add_change(&mut self, change: FleetChange, nodes: Vec<NodeId>) {
        self.changes.push_back(LoggedChange { change, nodes });
        if self.changes.len() > KEPT {
            self.changes.pop_front();
        }
    }

    fn compare_jobs(&mut self, cluster: &Cluster, now: UnixMs) {
        let present = cluster.gpus_by_job();
        let ended: Vec<_> =
            self.jobs.keys().filter(|job| !present.contains_key(*job)).cloned().collect();
        for job in ended {
            self.jobs.remove(&job);
            self.add_change(job_change(now, FleetChangeKind::JobEnded, job, 0), Vec::new());
        }
        for (job, gpus) in present {
            let templates = pod_templates(cluster, gpus);
            if let Some(known) = self.jobs.get_mut(job) {
                let deploys = renew_templates(known, templates, now);
                for (what, nodes) in deploys {
                    let change = job_change(now, FleetChangeKind::JobStarted, job.clone(), nodes);
                    self.add_change(FleetChange { what, ..change }, Vec::new());
                }
                continue;
            }
            let known = templates.into_keys().map(|hash| (SanitizedText::new(hash), now));
            self.jobs.insert(job.clone(), known.take(KEPT_TEMPLATES).collect());
            let nodes: BTreeSet<NodeId> = gpus
                .iter()
                .filter_map(|row| Some(cluster.device_at(DeviceClass::Gpu, *row)?.node))
                .collect();
            let scheduled = cluster.job_attributes(job).and_then(|attributes| attributes.started);
            let is_settled = |node: &NodeId| {
                let known = self.nodes.get(node);
                known.is_some_and(|known| now.duration_since(known.since) >= SETTLED)
            };
            let begin = match scheduled {
                Some(at) if now.duration_since(at) < RECENT => Some(at.min(now)),
                Some(_) => None,
                None => nodes.iter().any(is_settled).then_some(now),
            };
            if let Some(at) = begin {
                let count = nodes.len() as u32;
                let change = job_change(at, FleetChangeKind::JobStarted, job.clone(), count);
                self.add_change(change, Vec::new());
            }
        }
    }

    /// Compares each node with what was known of it. The same change of many nodes is one.
    fn compare_nodes(&mut self, cluster: &Cluster, now: UnixMs) {
        let mut found: BTreeMap<(FleetChangeKind, SanitizedText), Vec<(NodeId, SanitizedText)>> =
            BTreeMap::new();
        let mut nodes = HashMap::with_capacity(self.nodes.len());
        for (id, node) in cluster.sorted_nodes() {
            let mut current = observe_node(cluster, node, now);
            let known = self.nodes.remove(&id).filter(|known| known.name == node.name);
            if let Some(known) = known {
                for (kind, what) in known.find_changes(&current) {
                    found.entry((kind, what)).or_default().push((id, node.name.clone()));
                }
                current.keep_known(known);
            }
            nodes.insert(id, current);
        }
        self.nodes = nodes;
        for ((kind, what), changed) in found {
            let (ids, names): (Vec<_>, Vec<_>) = changed.into_iter().unzip();
            let change = FleetChange {
                at: now,
                kind,
                job: None,
                node_count: names.len() as u32,
                nodes: names.into_iter().take(NAMED_NODES).collect(),
                what,
            };
            self.add_change(change, ids.into_iter().take(KEPT_NODES).collect());
        }
    }
}

/// Returns the pod templates of these GPUs, each with the nodes of its pods.
fn pod_templates<'a>(cluster: &'a Cluster, gpus: &[u32]) -> BTreeMap<&'a str, BTreeSet<NodeId>> {
    let mut templates: BTreeMap<&str, BTreeSet<NodeId>> = BTreeMap::new();
    for row in gpus {
        let Some(entry) = cluster.device_at(DeviceClass::Gpu, *row) else { continue };
        let pod = entry.info_label(gpu::JOB_INFO, "pod");
        if let Some(hash) = pod.and_then(|pod| pod_template_hash(pod)) {
            templates.entry(hash).or_default().insert(entry.node);
        }
    }
    templates
}

/// Notes which templates a job has now, and returns those that are new beside or after others: the old and the new one,
/// and the number of nodes that have it.
fn renew_templates(
    known: &mut Vec<(SanitizedText, UnixMs)>,
    present: BTreeMap<&str, BTreeSet<NodeId>>,
    now: UnixMs,
) -> Vec<(SanitizedText, u32)> {
    let mut deploys = Vec::new();
    known.retain(|(hash, seen)| {
        present.contains_key(&**hash) || now.duration_since(*seen) < TEMPLATE_GONE
    });
    for (hash, nodes) in present {
        if let Some((_, seen)) = known.iter_mut().find(|(known, _)| **known == *hash) {
            *seen = now;
            continue;
        }
        if let Some((before, _)) = known.last() {
            let what = SanitizedText::new(&format!("pod template {before} → {hash}"));
            deploys.push((what, nodes.len() as u32));
        }
        known.push((SanitizedText::new(hash), now));
        known.drain(..known.len().saturating_sub(KEPT_TEMPLATES));
    }
    deploys
}

fn job_change(at: UnixMs, kind: FleetChangeKind, job: SanitizedText, nodes: u32) -> FleetChange {
    let what = SanitizedText::default();
    FleetChange { at, kind, job: Some(job), nodes: Vec::new(), node_count: nodes, what }
}

fn observe_node(cluster: &Cluster, node: &Node, now: UnixMs) -> KnownNode {
    let gpu = node.device_rows(DeviceClass::Gpu).first();
    let gpu = gpu.and_then(|row| cluster.device_at(DeviceClass::Gpu, *row));
    let own = node.own_row();
    let entry = own.and_then(|row| cluster.device_at(DeviceClass::Node, row));
    KnownNode {
        name: node.name.clone(),
        since: now,
        driver: gpu.and_then(|entry| entry.info_label(gpu::INFO, "driver")).cloned(),
        kernel: entry.and_then(|entry| entry.info_label(host::NODE_INFO, "kernel")).cloned(),
        busy_seconds: own.and_then(|row| cluster.last_value(host::CPU_BUSY, row)),
    }
}

impl KnownNode {
    /// What changed since: kinds with the old and the new value.
    fn find_changes(&self, current: &Self) -> Vec<(FleetChangeKind, SanitizedText)> {
        let mut changes = Vec::new();
        let values = [
            (FleetChangeKind::DriverChanged, &self.driver, &current.driver),
            (FleetChangeKind::KernelChanged, &self.kernel, &current.kernel),
        ];
        for (kind, old, new) in values {
            if let (Some(old), Some(new)) = (old, new)
                && old != new
            {
                changes.push((kind, SanitizedText::new(&format!("{old} → {new}"))));
            }
        }
        if let (Some(old), Some(new)) = (self.busy_seconds, current.busy_seconds)
            && old >= COUNTED
            && new < old / 2.0
        {
            changes.push((FleetChangeKind::Rebooted, SanitizedText::default()));
        }
        changes
    }

    /// Keeps what the present page does not state: an absent value is not a change.
    fn keep_known(&mut self, known: Self) {
        self.since = known.since;
        self.driver = self.driver.take().or(known.driver);
        self.kernel = self.kernel.take().or(known.kernel);
        self.busy_seconds = self.busy_seconds.or(known.busy_seconds);
    }
}
