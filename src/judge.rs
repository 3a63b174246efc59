//! The judge: what the numbers mean. Pure: no input or output, no clock.

use std::collections::{BTreeMap, HashMap, HashSet};

use gaunt_schema::{Absent, Class, FindingKind, GpuState, Safe, UnixMs, catalogue::gpu};

use crate::cluster::{Cluster, Node, NodeId};

mod accepted;
mod aggregator_late;
mod average;
mod balance;
mod baseline;
mod blind;
mod boards;
mod chain;
mod cover;
mod crowd;
mod drift;
mod fabric;
mod finding;
mod frozen;
mod gang;
mod gpu_failed;
mod grounds;
mod health;
mod held;
mod holder;
mod host;
mod life;
mod link_quality;
mod links;
mod loss;
mod node_names;
mod nvlink_degraded;
mod pause;
mod pcie_degraded;
mod peers;
mod port_down;
mod probed;
mod recovered;
mod resumed;
mod serving;
mod signals;
mod slow_gpu;
mod source_unread;
mod standstill;
mod starved;
mod state;
mod switches;
mod target_down;
#[cfg(test)]
mod tests;
mod thresholds;
mod together;
mod usual;

pub use accepted::is_acceptable;
use average::Average;
use balance::Shares;
pub use chain::{Alternative, Chain, Signal};
use drift::Drift;
pub use finding::{Evidence, Finding};
use frozen::Frozen;
use gang::Gangs;
pub use grounds::{Ground, ground, limit, rule, sure};
use health::Health;
use held::Held;
use holder::Holder;
use host::Host;
use life::{Life, Seen};
pub use life::{Lived, Past, Told, Turned};
use links::Links;
pub use loss::{Cause, GpuLoss, Loss, LossTotals, gpus as gpus_of_parts};
use node_names::{Gone, NodeNames, Whereabouts};
use nvlink_degraded::Nvlinks;
use pause::Pauses;
use port_down::Ports;
pub use port_down::is_active;
pub use probed::Measured;
use signals::{Averages, Signals};
use switches::Switches;
pub use target_down::{next_step, trouble};
pub use thresholds::{ImpossibleThreshold, Thresholds};
use together::Together;
pub use usual::Usual;

/// All that is judged, and the averages and waiting times behind it.
#[derive(Debug)]
pub struct Judge {
    limits: Thresholds,
    gpus: Vec<Gpu>,
    hosts: HashMap<NodeId, Host>,
    hangs: BTreeMap<Safe, UnixMs>,
    /// The same from before a restart, of jobs that were not seen since.
    hangs_before: BTreeMap<Safe, UnixMs>,
    ports: Ports,
    links: Links,
    switches: Switches,
    nvlinks: Nvlinks,
    health: Health,
    /// The page of each node whose health was last looked at.
    seen: HashMap<NodeId, UnixMs>,
    gangs: Gangs,
    pauses: Pauses,
    shares: Shares,
    together: Together,
    life: Life,
    /// What open findings name.
    frozen: Frozen,
    /// What was usual before a restart, of what was not seen since.
    before: Usual,
    /// The GPUs of each node that were known before a restart, by the node's name.
    boards: HashMap<Safe, HashSet<Safe>>,
    /// As which node each target reports, and did before a restart.
    node_names: NodeNames,
    /// When it first looked.
    began: Option<UnixMs>,
    /// What probes between nodes say.
    measured: Vec<Measured>,
    /// What is lost as of the last step.
    loss: Loss,
}

/// What is remembered of one GPU, at its row.
#[derive(Debug, Default)]
struct Gpu {
    /// The node that it is on: a row may be given to another.
    node: Option<Safe>,
    averages: Averages,
    allocated: Option<bool>,
    held: Held,
    holder: Holder,
    drift: Drift,
    /// The last sample that was looked at.
    looked: Option<UnixMs>,
}

/// Every detector, those last that look for what nothing else explains.
const DETECTORS: [fn(&Judge, &Cluster, &mut Seen); 15] = [
    gpu_failed::find,
    slow_gpu::find,
    pcie_degraded::find,
    nvlink_degraded::find,
    standstill::find,
    starved::find,
    serving::find,
    fabric::find,
    link_quality::find,
    port_down::find,
    target_down::find,
    source_unread::find,
    aggregator_late::find,
    blind::find,
    balance::find,
];

impl Judge {
    /// A judge with these limits that has seen nothing yet.
    pub fn new(limits: Thresholds) -> Self {
        Self {
            limits,
            gpus: Vec::new(),
            hosts: HashMap::new(),
            hangs: BTreeMap::new(),
            hangs_before: BTreeMap::new(),
            ports: Ports::default(),
            links: Links::default(),
            switches: Switches::default(),
            nvlinks: Nvlinks::default(),
            health: Health::default(),
            seen: HashMap::new(),
            gangs: Gangs::default(),
            pauses: Pauses::default(),
            shares: Shares::default(),
            together: Together::default(),
            life: Life::default(),
            frozen: Frozen::default(),
            before: Usual::default(),
            boards: HashMap::new(),
            node_names: NodeNames::default(),
            began: None,
            measured: Vec::new(),
            loss: Loss::default(),
        }
    }

    /// The same, that goes on where another one ended.
    #[must_use]
    pub fn resume(self, past: Past) -> Self {
        let (hangs, past) = past.into_hangs();
        Self { life: Life::resume(past), hangs_before: hangs, ..self }
    }

    /// The same, that knows what was usual before.
    #[must_use]
    pub fn recalling(self, usual: Usual) -> Self {
        let node_names = NodeNames::recalled(usual.addresses());
        Self { boards: usual.boards(), node_names, before: usual, ..self }
    }

    /// Hears what probes between nodes say now.
    pub fn hear(&mut self, measured: Vec<Measured>) {
        self.measured = measured;
    }

    /// What is usual, of everything that is known.
    pub fn usual(&self, cluster: &Cluster) -> Usual {
        Usual::of(self, cluster)
    }

    /// What outlives a restart.
    pub fn past(&self) -> Past {
        self.life.past().with_hangs(&self.hangs)
    }

    /// Looks at what is known now, and updates states and findings.
    pub fn step(&mut self, cluster: &Cluster) {
        let began = *self.began.get_or_insert(cluster.now());
        if cluster.now().since(began).as_secs_f64() >= self.limits.resume_seconds {
            self.hangs_before.clear();
        }
        self.gpus.resize_with(cluster.rows(Class::Gpu), Gpu::default);
        self.hosts.retain(|id, _| cluster.node(*id).is_some());
        self.seen.retain(|id, _| cluster.node(*id).is_some());
        Usual::recall(self, cluster);
        self.node_names.look(cluster);
        self.frozen = Frozen::of(self, cluster);
        for (id, node) in cluster.nodes() {
            let frozen = self.frozen.has_node(id);
            self.hosts.entry(id).or_default().look(cluster, node, frozen, &self.limits);
            self.look_at_health(cluster, id, node);
            let host = self.hosts.get(&id).copied().unwrap_or_default();
            let (mut held, mut of_new_jobs) = (0, 0);
            for row in node.rows(Class::Gpu) {
                of_new_jobs += usize::from(self.look_at_gpu(cluster, node, &host, *row));
                held += usize::from(cluster.job(*row).is_some());
            }
            if of_new_jobs > 0 && of_new_jobs >= held {
                self.forget_usual_of(id, node);
            }
        }
        self.look_for_hangs(cluster);
        self.ports.look(cluster, &self.limits);
        self.links.look(cluster, &self.frozen, &self.limits);
        self.switches.look(cluster, &self.limits);
        self.nvlinks.look(cluster, &self.limits);
        Gangs::look(self, cluster);
        Pauses::look(self, cluster);
        Shares::look(self, cluster);
        Together::look(self, cluster);
        Drift::look(self, cluster);
        let mut seen = Seen::default();
        for find in DETECTORS {
            find(self, cluster, &mut seen);
        }
        self.leave_out_renamed(cluster, &mut seen);
        cover::hide(&mut seen);
        probed::add(self, cluster, &mut seen);
        seen.unclear.extend(self.unclear(cluster));
        seen.looks = resumed::looks(self, cluster);
        self.life.step(cluster.now(), cluster.period(), &self.limits, seen);
        Loss::look(self, cluster);
        for finding in self.life.just_closed(cluster.now()) {
            let signal = recovered::signal(self, cluster, &finding);
            self.life.say_recovered(&finding.id, &signal);
        }
        for finding in self.life.due(cluster.now()) {
            let chain = chain::look(self, cluster, &finding);
            self.life.attach(&finding.id, chain);
        }
    }

    /// Leaves out what is seen of nodes that report under another name now: their last values stand for a while.
    fn leave_out_renamed(&self, cluster: &Cluster, seen: &mut Seen) {
        let nodes = Whereabouts::of(self, cluster);
        let is_here = |finding: &Finding| {
            let gone = finding.entity.node.as_ref().and_then(|name| nodes.gone(name));
            !matches!(gone, Some(Gone::Renamed(_)))
        };
        seen.findings.retain(&is_here);
        seen.suspicions.retain(|held| is_here(&held.finding));
        seen.unclear.retain(|id| self.life.open_one(id).is_none_or(is_here));
    }

    /// Open findings of which nothing new can be said: what was true of a node that is silent stays, and what was true of
    /// a job that pauses.
    fn unclear(&self, cluster: &Cluster) -> Vec<String> {
        let nodes = Whereabouts::of(self, cluster);
        self.life.ids(|finding| {
            if pause::is_unclear(self, cluster, finding) {
                return true;
            }
            let Some(name) = finding.entity.node.as_ref() else { return false };
            let silent = cluster
                .named(name)
                .is_some_and(|(_, node)| resumed::is_silent(cluster, node, finding.kind));
            silent && nodes.gone(name).is_none()
        })
    }

    /// What every GPU does and loses, as of the last step; it is given away, and the place of an earlier one taken back.
    pub fn swap_loss(&mut self, earlier: Loss) -> Loss {
        std::mem::replace(&mut self.loss, earlier)
    }

    /// The state of the GPU at this row.
    pub fn state(&self, gpu: u32) -> GpuState {
        self.gpus.get(gpu as usize).map_or(GpuState::Unknown, |gpu| gpu.held.state())
    }

    /// Every open finding, worst first.
    pub fn findings(&self) -> Vec<&Finding> {
        self.life.open().into_iter().map(|told| &told.finding).collect()
    }

    /// The same with what became of each.
    pub fn open(&self) -> Vec<&Told> {
        self.life.open()
    }

    /// Findings that closed and are remembered, newest first.
    pub fn closed(&self) -> Vec<&Told> {
        self.life.closed()
    }

    /// Changes whenever a finding closes, opens again or is forgotten.
    pub fn closed_revision(&self) -> u64 {
        self.life.revision()
    }

    /// Findings whose evidence is there and for which there is no place, by kind.
    pub fn without_place(&self) -> &BTreeMap<FindingKind, u32> {
        self.life.without_place()
    }

    /// Findings that were opened since the start.
    pub fn opened(&self) -> &BTreeMap<FindingKind, u64> {
        self.life.opened()
    }

    /// Seconds that hold two samples of what an exporter collects only now and then; at a short period every page has
    /// new ones.
    fn two_samples(&self, cluster: &Cluster) -> f64 {
        if self.is_slow(cluster) {
            2.0 * cluster.period().as_secs_f64() + self.limits.sample_slack_seconds
        } else {
            0.0
        }
    }

    /// Seconds that hold two samples of each of several nodes, which are read at different moments of a period: what all
    /// of them did once, such as a checkpoint, is told by one or another of them for a period longer.
    fn two_samples_of_all(&self, cluster: &Cluster) -> f64 {
        let spread = if self.is_slow(cluster) { cluster.period().as_secs_f64() } else { 0.0 };
        self.two_samples(cluster) + spread
    }

    /// Seconds that hold two looks of an exporter at its boards, however often it is asked: two numbers of one page may
    /// be of two instants.
    fn two_collections(&self, cluster: &Cluster) -> f64 {
        let all = 2.0 * self.limits.collected_seconds + self.two_samples(cluster) / 2.0;
        if self.is_slow(cluster) { all.max(self.two_samples(cluster)) } else { 0.0 }
    }

    /// Whether pages come so seldom that they may repeat what an exporter collected before.
    fn is_slow(&self, cluster: &Cluster) -> bool {
        cluster.period().as_secs_f64() >= self.limits.slow_period_seconds
    }

    fn look_at_health(&mut self, cluster: &Cluster, id: NodeId, node: &Node) {
        let Some(at) = node.fed(Class::Gpu) else { return };
        match self.seen.insert(id, at) {
            Some(before) if before == at => {}
            before => self.health.look(cluster, node, at, before.is_none(), &self.limits),
        }
    }

    /// Takes in the newest sample of a GPU; says whether another job began on it.
    fn look_at_gpu(&mut self, cluster: &Cluster, node: &Node, host: &Host, row: u32) -> bool {
        if cluster.device(Class::Gpu, row).is_none() {
            return false;
        }
        let gpu = &mut self.gpus[row as usize];
        if gpu.node.as_ref() != Some(&node.name) {
            *gpu = Gpu { node: Some(node.name.clone()), ..Gpu::default() };
        }
        let silent = node.fed(Class::Gpu).is_none_or(|at| cluster.is_old(at));
        if silent || cluster.is_unseen(Class::Gpu, row) {
            gpu.held.set(GpuState::Stale);
            return false;
        }
        let gone = cluster.reading(gpu::UTILIZATION, row) == Some(Absent::Lost.into());
        if gone || cluster.value(gpu::PRESENT, row) == Some(0.0) {
            gpu.held.set(GpuState::Lost);
            return false;
        }
        let Some(at) = node.fed(Class::Gpu).filter(|at| gpu.looked.is_none_or(|last| last < *at))
        else {
            return false;
        };
        gpu.looked = Some(at);
        let tick = &mut average::Tick::new(at, self.limits.average_seconds, cluster.fresh_for());
        gpu.averages.add(cluster, row, at, tick, &self.limits);
        gpu.allocated = signals::allocated(cluster, row, &self.limits);
        let begins = self.begins_job(cluster, row, at);
        let (frozen, gap) = (self.frozen.has_gpu(row), cluster.fresh_for());
        let gpu = &mut self.gpus[row as usize];
        gpu.averages.learn(at, gap, frozen, &self.limits);
        self.health.works(
            row,
            at,
            gpu.averages.works_as_usual(at, gap, &self.limits),
            &self.limits,
        );
        let signals = self.signals(cluster, row, host, at);
        let gpu = &mut self.gpus[row as usize];
        let verdict = state::classify(&signals, gpu.held.state(), &self.limits);
        gpu.held.see(verdict, at, &self.limits);
        begins
    }

    fn signals(&self, cluster: &Cluster, row: u32, host: &Host, at: UnixMs) -> Signals {
        let gpu = &self.gpus[row as usize];
        let mut signals = gpu.averages.signals(at, cluster.fresh_for(), &self.limits);
        let of = |average: &Average| average.at(at, cluster.fresh_for());
        signals.allocated = gpu.allocated;
        signals.io_pressure = of(&host.io_pressure);
        signals.cpu_pressure = of(&host.cpu_pressure);
        signals.busiest_cpu = of(&host.busiest_cpu);
        signals.queue = host.queue.map(|queue| queue.waiting);
        signals.comm = match (signals.comm, of(&host.network)) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        signals.gang = cluster.job_size(row).is_none_or(|gpus| gpus > 1);
        let least = self.limits.clock_event_ratio;
        if signals.sw_thermal.is_some_and(|share| share >= least) {
            let peers = peers::clocks(self, cluster, row, self.gangs.of(row));
            let own = gpu.averages.clock_hertz(at, &self.limits);
            signals.clock_in_job = own.zip(peers).map(|(clock, peers)| clock / peers.middle);
        }
        signals
    }

    /// A job of which every GPU waits while the network is silent is hung once that lasted long enough.
    fn look_for_hangs(&mut self, cluster: &Cluster) {
        let now = cluster.now();
        self.hangs.retain(|job, _| cluster.jobs().contains_key(job));
        for (job, gpus) in cluster.jobs() {
            let still = gpus.iter().all(|row| {
                let waits = matches!(self.state(*row), GpuState::Waiting | GpuState::Hung);
                let node = cluster.device(Class::Gpu, *row).map(|entry| entry.node);
                let host = node.and_then(|node| self.hosts.get(&node));
                let network = host.and_then(|host| host.network.at(now, cluster.fresh_for()));
                waits && network.is_none_or(|share| share < self.limits.silent_network_ratio)
            });
            if !still || gpus.len() < 2 {
                self.hangs.remove(job);
                continue;
            }
            let before = self.hangs_before.remove(job).unwrap_or(now).min(now);
            let since = *self.hangs.entry(job.clone()).or_insert(before);
            if now.since(since).as_secs_f64() >= self.limits.hung_seconds {
                for row in gpus {
                    self.gpus[*row as usize].held.set(GpuState::Hung);
                }
            }
        }
    }
}
