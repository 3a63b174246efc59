//! The fleet: all nodes and gangs of one run, moved through time together.

use std::time::Duration;

use gaunt_schema::{Dialect, Report, Safe, UnixMs, catalogue::port};

use crate::{
    Fault, Scenario, Truth,
    fault::{Affliction, Struck, WARM_UP},
    gang::Gang,
    job::Job,
    machine::{Machine, Role},
    noise::Noise,
    page::{Page, Told, Window},
    scrape::Scrapes,
    shape::Shape,
    truth::Setting,
    work::{Pace, Work},
};

/// Names have at least this many digits.
const NAME_DIGITS: usize = 3;

/// A simulated fleet.
#[derive(Debug)]
pub struct Fleet {
    scenario: Scenario,
    origin: UnixMs,
    now: UnixMs,
    window: Window,
    gangs: Vec<Gang>,
    machines: Vec<Machine>,
    pages: Vec<Page>,
    truths: Vec<Truth>,
    told: Told,
    scrapes: Scrapes,
}

impl Fleet {
    /// A fleet of `nodes` nodes at the instant `start`, when the scenario's clock begins. The same seed gives the same
    /// fleet, however often it is looked at on the way.
    pub fn new(scenario: Scenario, nodes: usize, seed: u64, start: UnixMs) -> Self {
        Self::speaking(Dialect::Gaunt, scenario, nodes, seed, start)
    }

    /// The same fleet with its [pages](Self::pages) in the words of these exporters.
    pub fn speaking(
        dialect: Dialect,
        scenario: Scenario,
        nodes: usize,
        seed: u64,
        start: UnixMs,
    ) -> Self {
        let shape = Shape::usual(nodes);
        let noise = Noise::new(seed).child(0);
        let paces = (0..shape.jobs.len()).map(|at| Pace::brisk(noise.child(at as u64))).collect();
        let plan =
            Plan { scenario, shape, paces, told: Told { dialect, ..Told::ALL }, worn: false };
        Self::of(plan, seed, start)
    }

    /// The fleet of a plan.
    pub(crate) fn of(plan: Plan, seed: u64, start: UnixMs) -> Self {
        let truths = plan.truths(start);
        let Plan { scenario, shape, paces, told, worn } = plan;
        let noise = Noise::new(seed);
        let names = names(shape.nodes);
        let (mut machines, pages) = build(&shape, &names, noise.child(1));
        if worn {
            wear_out(&mut machines, noise.child(4));
        }
        let mut gangs = Vec::new();
        for (at, (job, pace)) in shape.jobs.iter().zip(paces).enumerate() {
            let faults = scenario.faults.iter();
            let faults = faults.filter_map(|fault| affliction(fault, at, &shape)).collect();
            let noise = noise.child(0).child(at as u64);
            let gang = Gang::new(noise, job.nodes.clone(), &machines, pace, faults);
            gang.strike(&mut machines);
            gangs.push(gang);
        }
        let origin = start - WARM_UP;
        let scrapes = Scrapes::new(noise.child(3), &scenario, &shape, told.dialect);
        let mut fleet = Self {
            scenario,
            origin,
            now: origin,
            window: Window { noise: noise.child(2), now: 0.0, span: 0.0 },
            gangs,
            machines,
            pages,
            truths,
            told,
            scrapes,
        };
        fleet.advance(start - Duration::from_secs(1));
        fleet.advance(start);
        fleet
    }

    /// Lets time pass until `now`. Time never goes back: an earlier instant changes nothing.
    pub fn advance(&mut self, now: UnixMs) {
        if now <= self.now {
            return;
        }
        self.window.span = now.since(self.now).as_secs_f64();
        self.now = now;
        self.window.now = now.since(self.origin).as_secs_f64();
        for gpu in self.machines.iter_mut().flat_map(|machine| &mut machine.gpus) {
            gpu.before = gpu.shown;
        }
        for gang in &mut self.gangs {
            gang.advance(self.window.now, &mut self.machines);
        }
        for machine in &mut self.machines {
            if matches!(machine.role, Role::Free | Role::Held) {
                machine.rest(self.window.now);
            }
        }
        self.keep_pages();
    }

    /// Keeps the pages that will be told again later. A collection of dcgm-exporter has the means of its profiling
    /// counters since the one before.
    fn keep_pages(&mut self) {
        for node in 0..self.machines.len() {
            if !self.scrapes.wants(node, self.window.now) {
                continue;
            }
            let mut report = self.report(node);
            let machine = &mut self.machines[node];
            let since = std::mem::replace(&mut machine.collected, self.window.now);
            for gpu in &mut machine.gpus {
                gpu.before = std::mem::replace(&mut gpu.collected, gpu.shown);
            }
            let window = Window { span: self.window.now - since, ..self.window };
            let means = self.pages[node].report(&self.machines[node], &window, self.now);
            for (sample, mean) in report.samples.iter_mut().zip(means.samples) {
                if Told::is_collected_mean(sample.metric) {
                    sample.reading = mean.reading;
                }
            }
            let pages = self.tell(node, report);
            self.scrapes.keep(node, self.window.now, pages);
        }
    }

    /// The instant that the fleet was last advanced to.
    pub fn now(&self) -> UnixMs {
        self.now
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.machines.len()
    }

    /// The name of a node, counted from 0.
    pub fn node_name(&self, node: usize) -> &str {
        self.pages[node].name()
    }

    /// What a node's exporter says at the instant that the fleet was last advanced to. Activity ratios are averages
    /// since the advance before.
    pub fn report(&self, node: usize) -> Report {
        self.pages[node].report(&self.machines[node], &self.window, self.now)
    }

    /// The pages of a node's targets, each in the words of its exporter: one in gaunt's own, or one of dcgm-exporter
    /// and one of node_exporter. A target that is missing here does not answer.
    pub fn pages(&self, node: usize) -> Vec<(Dialect, String)> {
        self.scrapes.pages(node, self.window.now, || self.told_pages(node))
    }

    /// What a scraper reads from a node that speaks gaunt's own words, without its having been written down; nothing
    /// where other words are spoken, or where what is read is not what is.
    pub fn told_report(&self, node: usize) -> Option<Report> {
        let as_it_is = self.scrapes.tells_what_is(node, self.window.now);
        as_it_is.then(|| self.prepared(node, self.report(node)))
    }

    /// What a node's exporters would say if they were asked now and answered at once.
    fn told_pages(&self, node: usize) -> Vec<(Dialect, String)> {
        self.tell(node, self.report(node))
    }

    fn tell(&self, node: usize, report: Report) -> Vec<(Dialect, String)> {
        self.told.pages(&self.prepared(node, report))
    }

    /// The report with the node's own clock, and without what it does not tell.
    fn prepared(&self, node: usize, mut report: Report) -> Report {
        report.node_time = report.node_time.map(|time| self.scrapes.clock(node, time));
        let profiled = self.machines[node].gpus[0].board.model.profiled;
        self.told.cut(&mut report, profiled);
        report
    }

    /// What is really wrong in this run, in the order of the scenario.
    pub fn truths(&self) -> &[Truth] {
        &self.truths
    }

    /// What happens in this run.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The nodes of each gang, the largest first: positions as in [`Fleet::report`].
    pub fn gangs(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        self.gangs.iter().map(Gang::nodes)
    }
}

/// All that makes a run, beside its seed.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) shape: Shape,
    /// How each job of the shape works.
    pub(crate) paces: Vec<Pace>,
    pub(crate) told: Told,
    /// Whether the counters of its ports are at their ends, or near them.
    pub(crate) worn: bool,
}

impl Plan {
    /// What is really wrong in this run.
    pub(crate) fn truths(&self, start: UnixMs) -> Vec<Truth> {
        let names = names(self.shape.nodes);
        let setting = Setting { shape: &self.shape, names: &names, told: self.told, start };
        self.scenario.faults.iter().filter_map(|fault| setting.truth(fault)).collect()
    }
}

/// The names of so many nodes.
pub(crate) fn names(nodes: usize) -> Vec<Safe> {
    let digits = nodes.to_string().len().max(NAME_DIGITS);
    (1..=nodes).map(|number| Safe::from(format!("gpu{number:0digits$}"))).collect()
}

/// The machines of a shape and their pages.
fn build(shape: &Shape, names: &[Safe], noise: Noise) -> (Vec<Machine>, Vec<Page>) {
    let mut roles = vec![(Role::Free, Work::Train); shape.nodes];
    for (gang, job) in shape.jobs.iter().enumerate() {
        for (member, node) in job.nodes.clone().enumerate() {
            roles[node] = (Role::Member { gang, member }, job.work);
        }
    }
    roles[shape.held.clone()].fill((Role::Held, Work::Train));
    let mut machines = Vec::with_capacity(shape.nodes);
    let mut pages = Vec::with_capacity(shape.nodes);
    for (node, (role, work)) in roles.into_iter().enumerate() {
        let model = shape.model(node);
        let noise = noise.child(node as u64);
        machines.push(Machine::new(noise, role, shape.gpus, shape.rails, model));
        let job = Job::of(role, node, shape.gpus, work);
        pages.push(Page::new(names[node].clone(), node, job, shape, &model));
    }
    (machines, pages)
}

/// Brings counters of ports to their ends: one stands still at its maximum, another is about to wrap.
fn wear_out(machines: &mut [Machine], noise: Noise) {
    for (at, port) in machines.iter_mut().flat_map(|machine| &mut machine.ports).enumerate() {
        let noise = noise.child(at as u64);
        match noise.child(0).below(4) {
            0 => port.began_with(port::SYMBOL_ERRORS, 65_535.0),
            1 => port.began_with(port::TRANSMIT_WAIT, 4_294_967_295.0),
            2 => port.began_with(port::OUT_OF_SEQUENCE, 4_294_967_290.0),
            _ => port.began_with(port::RECEIVE_ERRORS, 65_530.0),
        }
    }
}

/// A fault as the gang at position `at` feels it, if it does.
fn affliction(fault: &Fault, at: usize, shape: &Shape) -> Option<Affliction> {
    let gang = fault.gang.checked_rem(shape.jobs.len())?;
    if gang != at && !fault.effect.is_everywhere() {
        return None;
    }
    let struck = &shape.jobs[gang].nodes;
    let node = struck.start + fault.member % struck.len();
    let from = WARM_UP.as_secs_f64() + fault.onset_s;
    Some(Affliction {
        node,
        struck: match fault.effect {
            crate::Effect::LeafCongested { .. } => Struck::Nodes(shape.below_leaf_of(node)),
            crate::Effect::NvlinkSlow { .. } => Struck::Nodes(shape.domain_of(node)),
            effect if effect.is_of_job() => Struck::All,
            _ => Struck::Node(node),
        },
        // What is there from the start was there before it.
        from: if fault.onset_s > 0.0 { from } else { f64::NEG_INFINITY },
        until: fault.lasts_s.map_or(f64::INFINITY, |lasts| from + lasts),
        effect: fault.effect,
    })
}

#[cfg(test)]
mod tests;
