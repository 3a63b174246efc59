//! The simulated fleet: all nodes and job groups of one run, advanced through time together.

use std::time::Duration;

use gaunt_schema::{Dialect, Report, SanitizedText, UnixMs, catalogue::port};

use crate::{
    GroundTruth, Scenario, SimFault,
    fleet_shape::FleetShape,
    ground_truth::TruthContext,
    job_workload::{JobPace, JobWorkload},
    noise_key::NoiseKey,
    report_template::{NodeReportTemplate, ReportWindow, ReportedContent},
    scrape_behaviour::ScrapeBehaviour,
    sim_fault::{FaultScope, ScheduledFault, WARM_UP},
    sim_job::SimJob,
    sim_job_group::SimJobGroup,
    sim_machine::{NodeRole, SimMachine},
};

mod pair_bandwidth;

/// Minimum number of digits in a node name.
const NAME_DIGITS: usize = 3;

/// A simulated fleet.
#[derive(Debug)]
pub struct SimFleet {
    scenario: Scenario,
    origin: UnixMs,
    now: UnixMs,
    window: ReportWindow,
    job_groups: Vec<SimJobGroup>,
    machines: Vec<SimMachine>,
    templates: Vec<NodeReportTemplate>,
    truths: Vec<GroundTruth>,
    content: ReportedContent,
    scrape_behaviour: ScrapeBehaviour,
}

impl SimFleet {
    /// A fleet of `nodes` nodes at the instant `start`, when the scenario's clock begins. The same seed gives the same
    /// fleet, however often it is sampled.
    pub fn new(scenario: Scenario, nodes: usize, seed: u64, start: UnixMs) -> Self {
        Self::with_dialect(Dialect::Gaunt, scenario, nodes, seed, start)
    }

    /// The same fleet with its [pages](Self::scraped_pages) in these exporters' format.
    pub fn with_dialect(
        dialect: Dialect,
        scenario: Scenario,
        nodes: usize,
        seed: u64,
        start: UnixMs,
    ) -> Self {
        let shape = FleetShape::new_usual(nodes);
        let noise = NoiseKey::new(seed).child_key(0);
        let paces = (0..shape.jobs.len())
            .map(|job| JobPace::new_brisk(noise.child_key(job as u64)))
            .collect();
        let plan = FleetPlan {
            scenario,
            shape,
            paces,
            content: ReportedContent { dialect, ..ReportedContent::ALL },
            has_saturated_counters: false,
        };
        Self::of(plan, seed, start)
    }

    /// The fleet of a plan.
    pub(crate) fn of(plan: FleetPlan, seed: u64, start: UnixMs) -> Self {
        let truths = plan.ground_truths(start);
        let FleetPlan { scenario, shape, paces, content, has_saturated_counters } = plan;
        let noise = NoiseKey::new(seed);
        let names = node_names(shape.nodes);
        let (mut machines, pages) = build_machines(&shape, &names, noise.child_key(1));
        if has_saturated_counters {
            saturate_counters(&mut machines, noise.child_key(4));
        }
        let mut job_groups = Vec::new();
        for (position, (job, pace)) in shape.jobs.iter().zip(paces).enumerate() {
            let faults = scenario.faults.iter();
            let faults =
                faults.filter_map(|fault| schedule_fault(fault, position, &shape)).collect();
            let noise = noise.child_key(0).child_key(position as u64);
            let group = SimJobGroup::new(noise, job.nodes.clone(), &machines, pace, faults);
            group.schedule_failures(&mut machines);
            job_groups.push(group);
        }
        let origin = start - WARM_UP;
        let scrapes = ScrapeBehaviour::new(noise.child_key(3), &scenario, &shape, content.dialect);
        let mut fleet = Self {
            scenario,
            origin,
            now: origin,
            window: ReportWindow { noise: noise.child_key(2), now: 0.0, span: 0.0 },
            job_groups,
            machines,
            templates: pages,
            truths,
            content,
            scrape_behaviour: scrapes,
        };
        fleet.advance_to(start - Duration::from_secs(1));
        fleet.advance_to(start);
        fleet
    }

    /// Advances time to `now`. Time never goes back: an earlier instant changes nothing.
    pub fn advance_to(&mut self, now: UnixMs) {
        if now <= self.now {
            return;
        }
        self.window.span = now.duration_since(self.now).as_secs_f64();
        self.now = now;
        self.window.now = now.duration_since(self.origin).as_secs_f64();
        for gpu in self.machines.iter_mut().flat_map(|machine| &mut machine.gpus) {
            gpu.before = gpu.shown;
        }
        for group in &mut self.job_groups {
            group.advance_to(self.window.now, &mut self.machines);
        }
        for machine in &mut self.machines {
            if matches!(machine.role, NodeRole::Free | NodeRole::Held) {
                machine.idle_until(self.window.now);
            }
        }
        self.store_repeated_pages();
    }

    /// Stores the pages that will be served again later. A collection of dcgm-exporter has the means of its profiling
    /// counters since the collection before.
    fn store_repeated_pages(&mut self) {
        for node in 0..self.machines.len() {
            if !self.scrape_behaviour.is_store_due(node, self.window.now) {
                continue;
            }
            let mut report = self.node_report(node);
            let machine = &mut self.machines[node];
            let collected = std::mem::replace(&mut machine.collected, self.window.now);
            for gpu in &mut machine.gpus {
                gpu.before = std::mem::replace(&mut gpu.collected, gpu.shown);
            }
            let window = ReportWindow { span: self.window.now - collected, ..self.window };
            let means = self.templates[node].build_report(&self.machines[node], &window, self.now);
            for (sample, mean) in report.samples.iter_mut().zip(means.samples) {
                if ReportedContent::is_collected_mean(sample.metric) {
                    sample.reading = mean.reading;
                }
            }
            let pages = self.render_pages(node, report);
            self.scrape_behaviour.store_pages(node, self.window.now, pages);
        }
    }

    /// The instant that the fleet was last advanced to.
    pub fn current_time(&self) -> UnixMs {
        self.now
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.machines.len()
    }

    /// The name of a node, counted from 0.
    pub fn node_name(&self, node: usize) -> &str {
        self.templates[node].name()
    }

    /// The report of a node's exporter at the instant that the fleet was last advanced to. Activity ratios are averages
    /// since the advance before.
    pub fn node_report(&self, node: usize) -> Report {
        self.templates[node].build_report(&self.machines[node], &self.window, self.now)
    }

    /// The pages of a node's targets, each in the format of its exporter: one of gaunt-node, or one of dcgm-exporter
    /// and one of node_exporter. A target that is missing here does not answer.
    pub fn scraped_pages(&self, node: usize) -> Vec<(Dialect, String)> {
        self.scrape_behaviour.scraped_pages(node, self.window.now, || self.fresh_pages(node))
    }

    /// The report that a scraper reads from a node in gaunt's format, without encoding it; none for foreign formats, or
    /// where the scraper does not receive current data.
    pub fn scraped_report(&self, node: usize) -> Option<Report> {
        let is_live = self.scrape_behaviour.is_live(node, self.window.now);
        is_live.then(|| self.prepare_report(node, self.node_report(node)))
    }

    /// The pages of a node's exporters if all answered at once.
    fn fresh_pages(&self, node: usize) -> Vec<(Dialect, String)> {
        self.render_pages(node, self.node_report(node))
    }

    fn render_pages(&self, node: usize, report: Report) -> Vec<(Dialect, String)> {
        self.content.render_pages(&self.prepare_report(node, report))
    }

    /// The report with the node's own clock, and without metrics that it does not report.
    fn prepare_report(&self, node: usize, mut report: Report) -> Report {
        report.node_time =
            report.node_time.map(|time| self.scrape_behaviour.node_clock(node, time));
        let profiled = self.machines[node].gpus[0].variation.model.profiled;
        self.content.remove_unreported(&mut report, profiled);
        report
    }

    /// The actual faults of this run, in the order of the scenario.
    pub fn ground_truths(&self) -> &[GroundTruth] {
        &self.truths
    }

    /// The scenario of this run.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The nodes of each job group, the largest first: positions as in [`SimFleet::node_report`].
    pub fn job_groups(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        self.job_groups.iter().map(SimJobGroup::node_range)
    }
}

/// All parameters of a run, except its seed.
#[derive(Debug)]
pub(crate) struct FleetPlan {
    pub(crate) scenario: Scenario,
    pub(crate) shape: FleetShape,
    /// The step timing of each job of the shape.
    pub(crate) paces: Vec<JobPace>,
    pub(crate) content: ReportedContent,
    /// Whether port counters are saturated or about to wrap.
    pub(crate) has_saturated_counters: bool,
}

impl FleetPlan {
    /// The actual faults of this run.
    pub(crate) fn ground_truths(&self, start: UnixMs) -> Vec<GroundTruth> {
        let names = node_names(self.shape.nodes);
        let faults = self.scenario.faults.as_slice();
        let context = TruthContext {
            shape: &self.shape,
            names: &names,
            content: self.content,
            start,
            faults,
        };
        faults.iter().filter_map(|fault| context.truth_of_fault(fault)).collect()
    }
}

/// The names of so many nodes.
pub(crate) fn node_names(nodes: usize) -> Vec<SanitizedText> {
    let digits = nodes.to_string().len().max(NAME_DIGITS);
    (1..=nodes).map(|number| SanitizedText::from(format!("gpu{number:0digits$}"))).collect()
}

/// The machines of a shape and their report templates.
fn build_machines(
    shape: &FleetShape,
    names: &[SanitizedText],
    noise: NoiseKey,
) -> (Vec<SimMachine>, Vec<NodeReportTemplate>) {
    let mut roles = vec![(NodeRole::Free, JobWorkload::Train); shape.nodes];
    for (job_index, job) in shape.jobs.iter().enumerate() {
        for (member, node) in job.nodes.clone().enumerate() {
            roles[node] = (NodeRole::JobMember { job_index, member }, job.work);
        }
    }
    roles[shape.held.clone()].fill((NodeRole::Held, JobWorkload::Train));
    let mut machines = Vec::with_capacity(shape.nodes);
    let mut pages = Vec::with_capacity(shape.nodes);
    for (node, (role, work)) in roles.into_iter().enumerate() {
        let model = shape.gpu_model(node);
        let noise = noise.child_key(node as u64);
        machines.push(SimMachine::new(noise, role, shape.gpus, shape.rails, model));
        let job = SimJob::of(role, node, shape.gpus, work);
        pages.push(NodeReportTemplate::new(names[node].clone(), node, job, shape, &model));
    }
    (machines, pages)
}

/// Moves port counters to their limits: one is saturated at its maximum, another is about to wrap.
fn saturate_counters(machines: &mut [SimMachine], noise: NoiseKey) {
    for (index, port) in machines.iter_mut().flat_map(|machine| &mut machine.ports).enumerate() {
        let noise = noise.child_key(index as u64);
        match noise.child_key(0).random_below(4) {
            0 => port.set_initial_count(port::SYMBOL_ERRORS, 65_535.0),
            1 => port.set_initial_count(port::TRANSMIT_WAIT, 4_294_967_295.0),
            2 => port.set_initial_count(port::OUT_OF_SEQUENCE, 4_294_967_290.0),
            _ => port.set_initial_count(port::RECEIVE_ERRORS, 65_530.0),
        }
    }
}

/// A fault as it affects the job group at position `group`, if it does.
fn schedule_fault(fault: &SimFault, group: usize, shape: &FleetShape) -> Option<ScheduledFault> {
    let job_index = fault.gang.checked_rem(shape.jobs.len())?;
    if job_index != group && !fault.effect.is_fleet_effect() {
        return None;
    }
    let affected = &shape.jobs[job_index].nodes;
    let node = affected.start + fault.member % affected.len();
    let from = WARM_UP.as_secs_f64() + fault.onset_s;
    Some(ScheduledFault {
        node,
        scope: match fault.effect {
            crate::FaultEffect::LeafCongested { .. } => {
                FaultScope::Nodes(shape.nodes_below_leaf(node))
            }
            crate::FaultEffect::NvlinkSlow { .. } => FaultScope::Nodes(shape.domain_of(node)),
            effect if effect.is_job_effect() => FaultScope::All,
            _ => FaultScope::Node(node),
        },
        // A condition present from the start was also present before it.
        from: if fault.onset_s > 0.0 { from } else { f64::NEG_INFINITY },
        until: fault.lasts_s.map_or(f64::INFINITY, |duration| from + duration),
        effect: fault.effect,
    })
}

#[cfg(test)]
mod tests;
