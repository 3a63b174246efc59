//! Tests of the engine in virtual time: simulated fleets, from report or page to answer.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use gaunt_schema::{
    Batch, Delivery, Dialect, FindingKind, GpuState, RejectionCounts, SanitizedText, ScrapeFailure,
    ScrapeTarget, ScrapedPage, TargetId, UnixMs,
    text::{self, PageLimits},
};
use gaunt_sim::{GroundTruth, Scenario, SimFleet};

mod blamed_parts;
mod field_coverage;
mod installation_coverage;
mod loss_consistency;
mod nearby_changes;
mod peer_exchange;
mod several_nodes_page;
mod slow_periods;
mod unknown_telemetry;

use super::{Engine, EngineOptions};
use gaunt_api::{
    Answer, Finding, JobDetail, NodeList, Overview, Question, Refusal, Subject, TargetState,
    TimeParam,
};

const START: UnixMs = UnixMs(1_700_000_000_000);

/// A simulated fleet that is scraped once a period.
struct EngineTestRun {
    fleet: SimFleet,
    engine: Engine,
    second: i64,
    period: u64,
}

/// The targets of a fleet.
fn targets_of(nodes: usize) -> Delivery {
    let targets = (0..nodes).map(|node| {
        let address = format!("127.1.0.{node}:9770").into();
        ScrapeTarget { id: TargetId(node as u32), address, node: None, origin: "test".into() }
    });
    Delivery::Targets(targets.collect())
}

impl EngineTestRun {
    fn new(scenario: &str, nodes: usize, seed: u64) -> Self {
        Self::with_period(1, scenario, nodes, seed)
    }

    fn with_period(period: u64, scenario: &str, nodes: usize, seed: u64) -> Self {
        Self::of_scenario(period, Scenario::from_name(scenario).unwrap(), nodes, seed)
    }

    fn of_scenario(period: u64, scenario: Scenario, nodes: usize, seed: u64) -> Self {
        let fleet = SimFleet::new(scenario, nodes, seed, START);
        let options = EngineOptions {
            price_per_gpu_hour: Some(2.0),
            period: Duration::from_secs(period),
            ..EngineOptions::default()
        };
        let mut engine = Engine::new(options);
        engine.run_tick(START);
        engine.ingest_delivery(targets_of(nodes));
        Self { fleet, engine, second: 0, period }
    }

    /// One period: every node's report is ingested and judged.
    fn step_period(&mut self) {
        self.step_with(|fleet, node| {
            let (report, rejected) = (fleet.node_report(node), RejectionCounts::default());
            Ok(ScrapedPage { report, dialect: Dialect::Gaunt, bytes: 0, rejected })
        });
    }

    /// The same over text: every node's page is rendered and decoded.
    fn step_period_as_text(&mut self) {
        self.step_with(|fleet, node| {
            let mut page = String::new();
            text::write_text(&fleet.node_report(node), &mut page);
            text::decode_page(page.as_bytes(), &PageLimits::default())
        });
    }

    fn step_with(
        &mut self,
        scrape: impl Fn(&SimFleet, usize) -> Result<ScrapedPage, ScrapeFailure>,
    ) {
        self.second += self.period as i64;
        let now = START + Duration::from_secs(self.second as u64);
        self.fleet.advance_to(now);
        for node in 0..self.fleet.node_count() {
            self.engine.ingest_delivery(Delivery::Batch(Batch {
                target: TargetId(node as u32),
                at: now,
                duration_ms: 1.0,
                outcome: scrape(&self.fleet, node),
            }));
        }
        self.engine.run_tick(now);
    }

    fn fetch_overview(&mut self) -> Arc<Overview> {
        match self.engine.answer_question(&Question::Overview) {
            Answer::Overview(overview) => overview,
            other => panic!("not an overview: {other:?}"),
        }
    }

    fn open_findings(&mut self) -> Vec<Finding> {
        match self.engine.answer_question(&Question::Findings) {
            Answer::Findings(list) => list.findings.clone(),
            other => panic!("not findings: {other:?}"),
        }
    }
}

/// A demo fleet of 32 nodes, simulated once for the tests that check it.
struct DemoAnswers {
    truths: Vec<GroundTruth>,
    /// Open findings after each second.
    findings: Vec<(i64, Vec<Finding>)>,
    /// The overview and the nodes after the last second.
    overview: Arc<Overview>,
    nodes: Arc<NodeList>,
}

fn demo_answers() -> &'static DemoAnswers {
    static ANSWERS: OnceLock<DemoAnswers> = OnceLock::new();
    ANSWERS.get_or_init(|| {
        let mut run = EngineTestRun::new("demo", 32, 7);
        let mut findings = Vec::new();
        for _ in 0..90 {
            run.step_period();
            findings.push((run.second, run.open_findings()));
        }
        let Answer::Nodes(nodes) = run.engine.answer_question(&Question::Nodes) else {
            panic!("no list")
        };
        let truths = run.fleet.ground_truths().to_vec();
        DemoAnswers { truths, findings, overview: run.fetch_overview(), nodes }
    })
}

#[test]
fn demo_shows_both_faults_in_time_and_nothing_else() {
    let DemoAnswers { truths, findings, overview, .. } = demo_answers();
    let limits = [(FindingKind::PortDown, 5), (FindingKind::DataStarved, 30)];
    let mut opened = vec![None; truths.len()];
    for (second, open) in findings {
        for finding in open {
            let known =
                truths.iter().position(|t| t.kind == finding.kind && t.blamed == finding.entity);
            let known = known.unwrap_or_else(|| panic!("nothing is wrong there: {finding:?}"));
            opened[known].get_or_insert(*second);
        }
    }
    for (truth, opened) in truths.iter().zip(opened) {
        let onset = truth.onset.duration_since(START).as_secs() as i64;
        let limit = limits.iter().find(|(kind, _)| *kind == truth.kind).unwrap().1;
        let opened = opened.unwrap_or_else(|| panic!("not found: {truth:?}"));
        assert!((onset..=onset + limit).contains(&opened), "{truth:?} was found after {opened} s");
    }
    let (_, last) = findings.last().unwrap();
    let starved = last.iter().find(|f| f.kind == FindingKind::DataStarved).unwrap();
    let cost = starved.cost_gpu_hours_per_hour;
    assert!((40.0..=64.0).contains(&cost), "8 GPUs starve and 56 wait most of the time: {cost}");
    assert_eq!(overview.gpus_in_state(GpuState::Waiting), 56);
}

#[test]
fn fleet_read_every_ten_seconds_shows_the_same_faults() {
    let mut run = EngineTestRun::with_period(10, "demo", 32, 7);
    for _ in 0..12 {
        run.step_period();
        let wrong = |finding: &Finding| {
            run.fleet
                .ground_truths()
                .iter()
                .all(|t| t.kind != finding.kind || t.blamed != finding.entity)
        };
        let findings = run.engine.findings.findings.clone();
        assert!(!findings.iter().any(wrong), "second {}: {findings:?}", run.second);
    }
    assert_eq!(run.open_findings().len(), 2);
}

/// The port went down before the usual pace of its job was known.
#[test]
fn demo_shows_the_same_faults_and_costs_after_ten_minutes() {
    let mut run = EngineTestRun::new("demo", 32, 7);
    let mut costs: BTreeMap<FindingKind, Vec<f64>> = BTreeMap::new();
    (0..120).for_each(|_| run.step_period());
    while run.second < 600 {
        run.step_period();
        for finding in run.open_findings() {
            costs.entry(finding.kind).or_default().push(finding.lost_gpus);
        }
    }
    // One job of the demo holds GPUs that it does not use.
    costs.remove(&FindingKind::IdleAllocated);
    assert_eq!(costs.len(), 2, "nothing else is found: {:?}", costs.keys());
    for (kind, costs) in costs {
        let mean = |costs: &[f64]| costs.iter().sum::<f64>() / costs.len() as f64;
        let (first, last) = (mean(&costs[..60]), mean(&costs[costs.len() - 60..]));
        assert!(first > 5.0, "{kind} costs {first}");
        assert!((first - last).abs() < first * 0.3, "{kind} costs {first} and then {last}");
    }
}

#[test]
fn healthy_fleet_has_no_finding_in_ten_minutes() {
    let mut run = EngineTestRun::new("healthy", 8, 3);
    for _ in 0..600 {
        run.step_period();
        let findings = run.open_findings();
        assert!(findings.is_empty(), "second {}: {findings:?}", run.second);
    }
    assert_eq!(run.fetch_overview().gpus_in_state(GpuState::Waiting), 0);
    assert_eq!(run.fetch_overview().gpus_in_state(GpuState::Unknown), 0);
}

#[test]
fn heat_map_nodes_and_counts_agree() {
    let DemoAnswers { overview, nodes: list, .. } = demo_answers();
    assert_eq!(list.nodes.len(), 32);
    assert_eq!(overview.nodes.live, 32);
    for (node, states) in overview.heat.node_rows() {
        let line = list.nodes.iter().find(|line| line.node == *node).unwrap();
        assert_eq!(line.gpu_states, states);
        assert_eq!(line.ports.1, 8);
    }
    for count in &overview.states {
        let code = count.state.letter_code();
        assert_eq!(overview.heat.states.matches(code).count(), count.gpus as usize);
    }
    let summed: f64 = list.nodes.iter().map(|line| line.lost_gpus).sum();
    assert!((overview.lost.gpus - summed).abs() < 1e-6, "{} {summed}", overview.lost.gpus);
    assert_eq!(overview.lost.cost_per_hour, Some(2.0 * overview.lost.gpus));
    assert!(list.nodes.is_sorted_by(|a, b| a.lost_gpus + 0.1 > b.lost_gpus), "worst first");
    assert_eq!(overview.worst[..], list.nodes[..overview.worst.len()]);
}

#[test]
fn target_is_read_or_flagged() {
    let mut engine = Engine::new(EngineOptions::default());
    let target = |id: u32, node: Option<&str>| ScrapeTarget {
        id: TargetId(id),
        address: format!("10.0.0.{id}:9770").into(),
        node: node.map(SanitizedText::new),
        origin: "test".into(),
    };
    engine.ingest_delivery(Delivery::Targets(vec![target(1, None), target(2, Some("gpu002"))]));
    engine.run_tick(START);
    let nodes = |engine: &mut Engine| match engine.answer_question(&Question::Overview) {
        Answer::Overview(overview) => overview.nodes,
        other => panic!("not an overview: {other:?}"),
    };
    assert_eq!((nodes(&mut engine).pending, nodes(&mut engine).down), (2, 0));
    for second in 1..=6 {
        engine.run_tick(START + Duration::from_secs(second));
    }
    let Answer::Targets(list) = engine.answer_question(&Question::Targets) else {
        panic!("no targets")
    };
    for line in &list.targets {
        assert_eq!(line.state, TargetState::Down);
        assert_eq!(line.missed, 4);
        let message = line.message.as_ref().unwrap();
        assert!(message.contains("no scrape was attempted in time"), "{message}");
    }
    assert_eq!(list.targets[1].node, Some("gpu002".into()));
    assert_eq!((nodes(&mut engine).pending, nodes(&mut engine).down), (0, 2));
    let outcome = Err(ScrapeFailure::Timeout("connecting".into()));
    let at = START + Duration::from_secs(7);
    let batch =
        |id| Batch { target: TargetId(id), at, duration_ms: 800.0, outcome: outcome.clone() };
    engine.ingest_delivery(Delivery::Batch(batch(1)));
    engine.ingest_delivery(Delivery::Batch(batch(77)));
    engine.run_tick(at);
    let Answer::Targets(list) = engine.answer_question(&Question::Targets) else {
        panic!("no targets")
    };
    assert_eq!(list.totals.scrapes.get("timeout"), Some(&1), "77 was never announced");
    assert_eq!(list.totals.findings_opened[&FindingKind::TargetDown], 2);
    let message = list.targets[0].message.as_ref().unwrap();
    assert!(message.starts_with("10.0.0.1:9770: timeout while connecting."), "{message}");
}

#[tokio::test]
async fn loop_answers_and_ends_with_its_last_handle() {
    let handle = super::spawn_new(EngineOptions::default(), super::monotonic_clock());
    let inbox = handle.delivery_sender();
    let target = ScrapeTarget {
        id: TargetId(1),
        address: "10.0.0.1:9770".into(),
        node: None,
        origin: "test".into(),
    };
    inbox.send(Delivery::Targets(vec![target])).await.unwrap();
    // Queries go first, so that the list may be empty once or twice.
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        let Ok(Answer::Targets(list)) = handle.ask_question(Question::Targets).await else {
            panic!("gone")
        };
        if list.targets.len() == 1 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "the delivery is never taken");
        tokio::task::yield_now().await;
    }
    drop(handle);
    inbox.closed().await;
}

#[tokio::test]
async fn long_questions_deliveries_and_short_questions_are_all_served() {
    let clock = super::monotonic_clock();
    let handle = super::spawn_new(EngineOptions::default(), clock.clone());
    let inbox = handle.delivery_sender();
    let target = |id| ScrapeTarget {
        id: TargetId(id),
        address: format!("10.0.0.{id}:9770").into(),
        node: None,
        origin: "test".into(),
    };
    let batches = 2_000;
    let sending = tokio::spawn({
        let (inbox, clock) = (inbox.clone(), clock.clone());
        async move {
            inbox.send(Delivery::Targets((0..4).map(target).collect())).await.unwrap();
            for number in 0..batches {
                let outcome = Err(ScrapeFailure::Status(500));
                let (target, at) = (TargetId(number % 4), clock());
                let batch = Batch { target, at, duration_ms: 1.0, outcome };
                inbox.send(Delivery::Batch(batch)).await.unwrap();
            }
        }
    });
    let asking: Vec<_> = (0..64)
        .map(|number| {
            let handle = handle.clone();
            tokio::spawn(async move {
                let long = format!("fabric?filter=symbol_errors<{number}");
                let short = format!("gpus?filter=node=a and power>{number}");
                for line in [long, short] {
                    let question = Question::parse_line(&line, &[]).unwrap();
                    let answer = handle.ask_question(question).await.unwrap();
                    assert!(!matches!(answer, Answer::Refused(_)), "{line}: {answer:?}");
                }
            })
        })
        .collect();
    for asked in asking {
        asked.await.unwrap();
    }
    sending.await.unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let Ok(Answer::Targets(list)) = handle.ask_question(Question::Targets).await else {
            panic!("gone")
        };
        if list.totals.scrapes.get("status") == Some(&u64::from(batches)) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{:?}", list.totals);
        tokio::task::yield_now().await;
    }
    drop(handle);
    inbox.closed().await;
}

/// A finding for tests that count findings.
pub(super) fn sample_finding() -> Finding {
    let entity = gaunt_schema::Entity::new_node(&"gpu001".into());
    Finding {
        since: START,
        confidence: 1.0,
        ..Finding::new(FindingKind::TargetDown, gaunt_schema::Severity::Warning, entity)
    }
}

impl EngineTestRun {
    fn ask_past(&mut self, when: TimeParam, question: Question) -> Answer {
        self.engine.answer_question(&Question::AtTime(when, Box::new(question)))
    }

    fn fetch_job(&mut self, job: &str) -> Arc<JobDetail> {
        match self.engine.answer_question(&Question::Job(job.into())) {
            Answer::Job(job) => job,
            other => panic!("not a job: {other:?}"),
        }
    }
}

#[test]
fn past_is_answered_as_it_was_and_leaves_the_present_unchanged() {
    let mut run = EngineTestRun::new("port_down", 16, 7);
    let onset = run.fleet.ground_truths()[0].onset;
    while START + Duration::from_secs(run.second as u64 + 2) < onset {
        run.step_period();
    }
    let (before, calm) = (run.second - 2, run.fetch_overview());
    assert_eq!(calm.findings_open, 0);
    for _ in 0..60 {
        run.step_period();
    }
    let now = run.fetch_overview();
    assert_eq!(now.findings_open, 1);
    let at = START + Duration::from_secs(before as u64);
    let ago = TimeParam::Ago(Duration::from_secs((run.second - before) as u64));
    for when in [TimeParam::At(at), ago] {
        let Answer::Overview(then) = run.ask_past(when, Question::Overview) else {
            panic!("{when}")
        };
        assert_eq!((then.at, then.findings_open), (at, 0));
        assert_eq!(then.heat.nodes, now.heat.nodes);
        assert_eq!(then.nodes, calm.nodes);
    }
    let ports = gaunt_api::Filter::parse(Subject::Ports, "state=down").unwrap();
    let down = |answer| match answer {
        Answer::Table(table) => table.matched,
        other => panic!("not a table: {other:?}"),
    };
    let table = Question::Table(ports);
    assert_eq!(down(run.engine.answer_question(&table)), 1);
    assert_eq!(down(run.ask_past(TimeParam::At(at), table)), 0);
    let name = run.fleet.node_name(0).into();
    let Answer::Node(node) = run.ask_past(TimeParam::At(at), Question::Node(name)) else {
        panic!()
    };
    assert_eq!(node.at, at);
    assert!(node.devices.iter().any(|d| d.last_value("gaunt_gpu_power_watts").is_some()));
    assert_eq!(run.fetch_overview(), now, "what is now is as before");
    let early = run.ask_past(TimeParam::Ago(Duration::from_hours(1)), Question::Overview);
    let Answer::Refused(Refusal::NotKept { oldest: Some(oldest), .. }) = early else {
        panic!("{early:?}")
    };
    for (start, kept) in [(oldest, true), (UnixMs(oldest.0 - 1), false)] {
        let answer = run.ask_past(TimeParam::At(start), Question::Overview);
        assert_eq!(matches!(answer, Answer::Overview(_)), kept, "{answer:?}");
    }
}

#[test]
fn job_answer_lists_outlier_gpus_first_and_splits_loss_by_cause() {
    let mut run = EngineTestRun::new("data_starved", 8, 3);
    let mut steps = 0;
    while steps < 90 || run.open_findings().is_empty() {
        run.step_period();
        steps += 1;
        assert!(steps < 240, "nothing is found");
    }
    let blamed = run.open_findings()[0].entity.node.clone().unwrap();
    let job =
        run.fetch_overview().worst.iter().find(|line| line.node == blamed).unwrap().jobs[0].clone();
    let past = run.fetch_job(&job).past.clone();
    assert_eq!(past.step_ms, 1_000);
    assert_eq!(past.strips[0].node, blamed, "{:?}", past.strips[0]);
    assert!(past.strips.iter().all(|strip| strip.states.len() == past.most.len()));
    assert!(past.strips.is_sorted_by(|a, b| a.odd_ratio >= b.odd_ratio));
    let starved = past.lost.iter().find(|time| time.state == GpuState::DataStarved).unwrap();
    assert!(
        starved.gpu_hours > 0.0 && starved.gpu_hours < 8.0 * f64::from(steps) / 3_600.0,
        "{starved:?}"
    );
}
