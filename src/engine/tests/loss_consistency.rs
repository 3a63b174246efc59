//! Tests that lost GPUs are one number: in the overview, findings, nodes, jobs, GPUs, usage and the past, at every
//! tick of every scenario.

use gaunt_schema::Dialect;
use gaunt_sim::{ScenarioRun, scenario_run, suite::FaultLevel};

use super::*;
use gaunt_api::{AnswerTable, Filter, LostGpuTime};

/// A tenth of the smallest share that is counted.
const SAME: f64 = 1e-6;

/// A fleet of any scenario, with all its exporters scraped once a period.
struct ScenarioTestRun {
    fleet: SimFleet,
    engine: Engine,
    now: UnixMs,
    period: Duration,
    dialects: &'static [Dialect],
    templates: text::TemplateCache,
    /// One for each target.
    states: Vec<text::TemplateState>,
}

impl ScenarioTestRun {
    fn new(scenario: &ScenarioRun, period: u64) -> Self {
        let fleet = scenario.build_fleet(START).unwrap();
        let period = Duration::from_secs(period);
        let mut engine = Engine::new(EngineOptions { period, ..EngineOptions::default() });
        let dialects: &[Dialect] = match scenario.dialect {
            Dialect::Gaunt => &[Dialect::Gaunt],
            _ => &[Dialect::Dcgm, Dialect::NodeExporter],
        };
        engine.run_tick(START);
        let target_count = fleet.node_count() * dialects.len();
        let targets = (0..target_count).map(|id| ScrapeTarget {
            id: TargetId(id as u32),
            address: format!("{}:{}", fleet.node_name(id / dialects.len()), 9_000 + id).into(),
            node: Some(SanitizedText::new(fleet.node_name(id / dialects.len()))),
            origin: "test".into(),
        });
        engine.ingest_delivery(Delivery::Targets(targets.collect()));
        let templates = text::TemplateCache::default();
        let states = (0..target_count).map(|_| text::TemplateState::default()).collect();
        Self { fleet, engine, now: START, period, dialects, templates, states }
    }

    fn step_period(&mut self) {
        self.now = self.now + self.period;
        self.fleet.advance_to(self.now);
        for node in 0..self.fleet.node_count() {
            for (at, outcome) in self.scrape_node(node).into_iter().enumerate() {
                let target = TargetId((node * self.dialects.len() + at) as u32);
                let batch = Batch { target, at: self.now, duration_ms: 1.0, outcome };
                self.engine.ingest_delivery(Delivery::Batch(batch));
            }
        }
        self.engine.run_tick(self.now);
    }

    /// The outcome of each exporter of a node. A report in gaunt's own format need not become text.
    fn scrape_node(&mut self, node: usize) -> Vec<Result<ScrapedPage, ScrapeFailure>> {
        if let Some(report) = self.fleet.scraped_report(node) {
            let (dialect, rejected) = (Dialect::Gaunt, RejectionCounts::default());
            return vec![Ok(ScrapedPage { report, dialect, bytes: 0, rejected })];
        }
        let pages = self.fleet.scraped_pages(node);
        let states = &mut self.states[node * self.dialects.len()..];
        let decode_page_of = |(dialect, state): (&Dialect, &mut text::TemplateState)| {
            let page = pages.iter().find(|(speaks, _)| speaks == dialect);
            let refused = ScrapeFailure::Connect("connection refused".into());
            let (_, page) = page.ok_or(refused)?;
            self.templates.decode_page(state, page.as_bytes(), &PageLimits::default())
        };
        self.dialects.iter().zip(states).map(decode_page_of).collect()
    }

    fn ask_at(&self, question: &Question, then: Option<TimeParam>) -> Answer {
        let then = then.map(|when| Question::AtTime(when, Box::new(question.clone())));
        self.engine.answer_question(then.as_ref().unwrap_or(question))
    }

    fn sum_of_rows(&self, subject: Subject, then: Option<TimeParam>) -> f64 {
        let filter = Filter::parse(subject, "limit 100000 columns lost").unwrap();
        match self.ask_at(&Question::Table(filter), then) {
            Answer::Table(table) => sum_column(&table),
            other => panic!("no table: {other:?}"),
        }
    }

    /// The loss, which all published data agree on.
    fn check_published(&self, then: Option<TimeParam>) -> LostGpuTime {
        let Answer::Overview(overview) = self.ask_at(&Question::Overview, then) else { panic!() };
        let Answer::Findings(open) = self.ask_at(&Question::Findings, then) else { panic!() };
        let Answer::Nodes(nodes) = self.ask_at(&Question::Nodes, then) else { panic!() };
        let lost = overview.lost.clone();
        let context =
            format!("{} at {:?}, {then:?}: {lost:?}", self.fleet.scenario().name, self.now);
        let same = |what: &str, sum: f64, all: f64| {
            assert!((sum - all).abs() < SAME, "{what}: {sum} beside {all}, {context}");
        };
        let causes = lost.findings_gpus + lost.idle_gpus + lost.unexplained_gpus;
        same("causes", causes, lost.gpus);
        same("findings", open.findings.iter().map(|f| f.lost_gpus).sum(), lost.findings_gpus);
        same("nodes", nodes.nodes.iter().map(|line| line.lost_gpus).sum(), lost.gpus);
        let unknown =
            [GpuState::Stale, GpuState::Unknown].map(|state| overview.gpus_in_state(state));
        assert_eq!(lost.unknown_gpus, unknown.iter().sum::<u32>(), "{context}");
        lost
    }

    /// The loss, which the rows of all subjects agree on.
    fn check_rows(&self, then: Option<TimeParam>) -> LostGpuTime {
        let lost = self.check_published(then);
        let context =
            format!("{} at {:?}, {then:?}: {lost:?}", self.fleet.scenario().name, self.now);
        let same = |what: &str, sum: f64, all: f64| {
            assert!((sum - all).abs() < SAME, "{what}: {sum} beside {all}, {context}");
        };
        same("rows of GPUs", self.sum_of_rows(Subject::Gpus, then), lost.gpus);
        same("rows of nodes", self.sum_of_rows(Subject::Nodes, then), lost.gpus);
        same("rows of findings", self.sum_of_rows(Subject::Findings, then), lost.findings_gpus);
        let nobody = Filter::parse(Subject::Gpus, "not has job limit 100000 columns lost").unwrap();
        let Answer::Table(nobody) = self.ask_at(&Question::Table(nobody), then) else { panic!() };
        let jobs = self.sum_of_rows(Subject::Jobs, then) + sum_column(&nobody);
        same("jobs, and GPUs of which nobody names one", jobs, lost.gpus);
        if then.is_none() {
            let Answer::GpuTime(time) = self.ask_at(&Question::GpuTime, None) else { panic!() };
            let jobs: f64 = time.jobs.iter().map(|job| job.lost_gpus).sum();
            same("GPU time of jobs", jobs + sum_column(&nobody), lost.gpus);
        }
        lost
    }

    /// Runs the scenario to its end with a check at every tick; returns the last losses.
    fn play_and_check(&mut self, seconds: u64) -> LostGpuTime {
        let (mut seen, mut last) = (0.0, LostGpuTime::default());
        for step in 1..=seconds / self.period.as_secs() {
            self.step_period();
            last = if step % 4 == 0 { self.check_rows(None) } else { self.check_published(None) };
            // A longer time between two ticks is not counted.
            seen += last.gpus * self.period.as_secs_f64();
            if step == 12 {
                self.check_rows(Some(TimeParam::At(UnixMs(self.now.0 - 50_000))));
            }
        }
        let span = Duration::from_secs(seconds + 60);
        let Answer::Usage(usage) = self.engine.answer_question(&Question::Usage(span)) else {
            panic!()
        };
        let used: f64 = usage.rows.iter().map(|row| row.lost_gpu_seconds).sum();
        assert!((used - seen).abs() < SAME * seen.max(1.0), "usage {used}, at ticks {seen}");
        assert!(usage.rows.iter().all(|row| (row.lost_gpu_seconds > 0.0) == row.cause.is_some()));
        let spent: f64 =
            self.engine.usage.lost_totals.sorted_rows().iter().map(|row| row.gpu_seconds).sum();
        assert!((spent - seen).abs() < SAME * seen.max(1.0), "counters {spent}, at ticks {seen}");
        last
    }
}

fn sum_column(table: &AnswerTable) -> f64 {
    let gaunt_api::AnswerCells::Numbers { values, .. } = &table.columns[0].cells else {
        panic!("no numbers: {:?}", table.columns)
    };
    values.iter().flatten().sum()
}

fn scenario_named(name: &str, dialect: Dialect) -> ScenarioRun {
    ScenarioRun { name: name.to_owned(), nodes: None, seed: 1, level: FaultLevel::Hard, dialect }
}

/// Every chosen scenario, every other one with other exporter formats, scraped every ten seconds: the longest time
/// between two ticks that is counted.
fn check_scenarios(is_chosen: impl Fn(&str) -> bool) {
    let names = scenario_run::list_names().map(|(name, _)| name).enumerate();
    for (at, name) in names.filter(|(_, name)| is_chosen(name)) {
        let dialect = if at % 2 == 0 { Dialect::Gaunt } else { Dialect::Dcgm };
        let scenario = scenario_named(name, dialect);
        let seconds = scenario.run_timing().unwrap().look.as_secs().min(180);
        let lost = ScenarioTestRun::new(&scenario, 10).play_and_check(seconds);
        println!(
            "{name:<12} {dialect:<6?} {seconds:>4} s  lost {:>7.1} = findings {:.1} + idle {:.1} + unexplained {:.1}, unknown {}",
            lost.gpus, lost.findings_gpus, lost.idle_gpus, lost.unexplained_gpus, lost.unknown_gpus
        );
    }
}

// Three tests, so that they run at the same time.
const FAULT_CASE: char = 'F';
const HARMLESS_CASE: char = 'H';

#[test]
fn lost_gpus_are_one_number_in_every_fault_case() {
    check_scenarios(|name| name.starts_with(FAULT_CASE));
}

#[test]
fn lost_gpus_are_one_number_in_every_harmless_case() {
    check_scenarios(|name| name.starts_with(HARMLESS_CASE));
}

#[test]
fn lost_gpus_are_one_number_in_every_demo_scenario() {
    check_scenarios(|name| !name.starts_with([FAULT_CASE, HARMLESS_CASE]));
}

#[test]
fn node_that_waits_has_the_finding_of_its_loss() {
    let nodes = &super::demo_answers().nodes.nodes;
    let losing = nodes.iter().filter(|line| line.lost_gpus > 1.0);
    let kinds: Vec<_> = losing.filter_map(|line| line.finding).collect();
    assert_eq!(
        kinds,
        [gaunt_schema::FindingKind::DataStarved; 8],
        "its own, and those of seven nodes that wait"
    );
}
