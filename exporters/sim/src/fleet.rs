//! The fleet: all nodes and gangs of one run, moved through time together.

use std::time::Duration;

use gaunt_schema::{Dialect, Entity, FindingKind, Report, Safe, UnixMs};

use crate::{
    Effect, Fault, Scenario, Truth,
    fault::Affliction,
    gang::Gang,
    host::Use,
    machine::{Machine, Role},
    noise::Noise,
    page::{Job, Page, Told, Window},
    placement::Placement,
};

/// A fleet has run for this long when it is first seen, so that sensors and rhythms have settled.
const WARM_UP: Duration = Duration::from_secs(30);

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
}

impl Fleet {
    /// A fleet of `nodes` nodes at the instant `start`, when the scenario's clock begins. The same seed gives the same
    /// fleet, however often it is looked at on the way.
    pub fn new(scenario: Scenario, nodes: usize, seed: u64, start: UnixMs) -> Self {
        let noise = Noise::new(seed);
        let placement = Placement::of(nodes);
        let digits = nodes.to_string().len().max(NAME_DIGITS);
        let names: Vec<Safe> =
            (1..=nodes).map(|number| Safe::from(format!("gpu{number:0digits$}"))).collect();

        let mut afflictions = vec![Vec::new(); placement.gangs.len()];
        let mut truths = Vec::new();
        for fault in &scenario.faults {
            let Some(gang) = fault.gang.checked_rem(placement.gangs.len()) else { continue };
            let range = placement.gangs[gang].clone();
            let member = fault.member % range.len();
            afflictions[gang].push(affliction(fault, member));
            truths.push(truth(fault, &names[range], member, start));
        }
        let gangs: Vec<Gang> = placement
            .gangs
            .iter()
            .cloned()
            .zip(afflictions)
            .enumerate()
            .map(|(at, (range, faults))| Gang::new(noise.child(0).child(at as u64), range, faults))
            .collect();

        let mut roles = vec![Role::Free; nodes];
        for (gang, range) in placement.gangs.iter().enumerate() {
            for (member, node) in range.clone().enumerate() {
                roles[node] = Role::Member { gang, member };
            }
        }
        roles[placement.held].fill(Role::Held);
        let mut machines: Vec<Machine> = roles
            .iter()
            .enumerate()
            .map(|(node, &role)| {
                let first = match role {
                    Role::Member { gang, member } => gangs[gang].used(member, 0.0),
                    Role::Free | Role::Held => Use::Idle,
                };
                Machine::new(noise.child(1).child(node as u64), role, first)
            })
            .collect();
        for gang in &gangs {
            gang.strike_ports(&mut machines);
        }
        let pages = names
            .into_iter()
            .zip(&roles)
            .enumerate()
            .map(|(node, (name, &role))| Page::new(name, node, Job::of(role, node)))
            .collect();

        let origin = start - WARM_UP;
        let window = Window { noise: noise.child(2), now: 0.0, span: 0.0 };
        let mut fleet = Self {
            scenario,
            origin,
            now: origin,
            window,
            gangs,
            machines,
            pages,
            truths,
            told: Told::ALL,
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
        let mut report = self.report(node);
        self.told.cut(&mut report);
        self.told.pages(&report)
    }

    /// The same fleet, told of in these words, with or without profiling counters and jobs.
    pub(crate) fn told(mut self, gpm: bool, labels: bool, dialect: Dialect) -> Self {
        self.told = Told { gpm, labels, dialect };
        self
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

fn affliction(fault: &Fault, member: usize) -> Affliction {
    let from = WARM_UP.as_secs_f64() + fault.onset_s;
    let until = fault.lasts_s.map_or(f64::INFINITY, |lasts| from + lasts);
    Affliction { member, from, until, effect: fault.effect }
}

fn truth(fault: &Fault, nodes: &[Safe], member: usize, start: UnixMs) -> Truth {
    let after = |seconds: f64| start + Duration::from_secs_f64(seconds);
    let node = &nodes[member];
    let (kind, blamed, limit_s, hurts) = match fault.effect {
        Effect::PortDown { rail } => {
            let device = Safe::from(format!("mlx5_{rail}"));
            (FindingKind::PortDown, Entity::port(node, &device, &Safe::new("1")), 5, false)
        }
        Effect::DataStarved { .. } => (FindingKind::DataStarved, Entity::node(node), 30, true),
    };
    let ends = fault.lasts_s.filter(|lasts| lasts.is_finite());
    let others = nodes.iter().filter(|other| hurts && *other != node);
    Truth {
        kind,
        blamed,
        also: Vec::new(),
        kinds: Vec::new(),
        onset: after(fault.onset_s),
        ends: ends.map(|lasts| after(fault.onset_s + lasts)),
        limit: Duration::from_secs(limit_s),
        victims: others.map(Entity::node).collect(),
    }
}

#[cfg(test)]
mod tests;
