//! The owner in virtual time: simulated fleets through the real text, from page to answer.

use std::time::Duration;

use gaunt_schema::{
    Batch, Delivery, Failure, FindingKind, GpuState, Safe, Target, TargetId, UnixMs,
    text::{self, Limits},
};
use gaunt_sim::{Fleet, Scenario};

mod loss;

use super::{Options, Owner};
use crate::answer::{
    Answer, Finding, JobDetail, Overview, Question, Refusal, Subject, TargetState, When,
};

const START: UnixMs = UnixMs(1_700_000_000_000);

/// A simulated fleet that is read once a period.
struct Run {
    fleet: Fleet,
    owner: Owner,
    second: i64,
    period: u64,
    page: String,
}

impl Run {
    fn new(scenario: &str, nodes: usize, seed: u64) -> Self {
        Self::every(1, scenario, nodes, seed)
    }

    fn every(period: u64, scenario: &str, nodes: usize, seed: u64) -> Self {
        let fleet = Fleet::new(Scenario::named(scenario).unwrap(), nodes, seed, START);
        let options = Options {
            price_per_gpu_hour: Some(2.0),
            period: Duration::from_secs(period),
            ..Options::default()
        };
        let mut owner = Owner::new(options);
        owner.tick(START);
        let targets = (0..nodes).map(|node| Target {
            id: TargetId(node as u32),
            address: format!("127.1.0.{node}:9770").into(),
            node: None,
            origin: "test".into(),
        });
        owner.accept(Delivery::Targets(targets.collect()));
        Self { fleet, owner, second: 0, period, page: String::new() }
    }

    /// One period: every node's page is written, read and judged.
    fn step(&mut self) {
        self.second += self.period as i64;
        let now = START + Duration::from_secs(self.second as u64);
        self.fleet.advance(now);
        for node in 0..self.fleet.nodes() {
            self.page.clear();
            text::write(&self.fleet.report(node), &mut self.page);
            let outcome = text::decode(self.page.as_bytes(), &Limits::default());
            let target = TargetId(node as u32);
            self.owner.accept(Delivery::Batch(Batch {
                target,
                at: now,
                duration_ms: 1.0,
                outcome,
            }));
        }
        self.owner.tick(now);
    }

    fn overview(&mut self) -> std::sync::Arc<Overview> {
        match self.owner.answer(&Question::Overview) {
            Answer::Overview(overview) => overview,
            other => panic!("not an overview: {other:?}"),
        }
    }

    fn findings(&mut self) -> Vec<Finding> {
        match self.owner.answer(&Question::Findings) {
            Answer::Findings(list) => list.findings.clone(),
            other => panic!("not findings: {other:?}"),
        }
    }
}

#[test]
fn the_demonstration_shows_both_faults_in_time_and_nothing_else() {
    let mut run = Run::new("demo", 32, 7);
    let truths = run.fleet.truths().to_vec();
    let limits = [(FindingKind::PortDown, 5), (FindingKind::DataStarved, 30)];
    let mut opened = vec![None; truths.len()];
    for _ in 0..90 {
        run.step();
        for finding in run.findings() {
            let known =
                truths.iter().position(|t| t.kind == finding.kind && t.blamed == finding.entity);
            let known = known.unwrap_or_else(|| panic!("nothing is wrong there: {finding:?}"));
            opened[known].get_or_insert(run.second);
        }
    }
    for (truth, opened) in truths.iter().zip(opened) {
        let onset = truth.onset.since(START).as_secs() as i64;
        let limit = limits.iter().find(|(kind, _)| *kind == truth.kind).unwrap().1;
        let opened = opened.unwrap_or_else(|| panic!("not found: {truth:?}"));
        assert!((onset..=onset + limit).contains(&opened), "{truth:?} was found after {opened} s");
    }
    let starved = run.findings().into_iter().find(|f| f.kind == FindingKind::DataStarved).unwrap();
    let cost = starved.cost_gpu_hours_per_hour;
    assert!((40.0..=64.0).contains(&cost), "8 GPUs starve and 56 wait most of the time: {cost}");
    assert_eq!(run.overview().in_state(GpuState::Waiting), 56);
}

#[test]
fn a_fleet_that_is_read_every_ten_seconds_shows_the_same_faults() {
    let mut run = Run::every(10, "demo", 32, 7);
    for _ in 0..12 {
        run.step();
        let wrong = |finding: &Finding| {
            run.fleet.truths().iter().all(|t| t.kind != finding.kind || t.blamed != finding.entity)
        };
        let findings = run.owner.findings.findings.clone();
        assert!(!findings.iter().any(wrong), "second {}: {findings:?}", run.second);
    }
    assert_eq!(run.findings().len(), 2);
}

#[test]
fn a_healthy_fleet_gives_no_finding_in_ten_minutes() {
    let mut run = Run::new("healthy", 8, 3);
    for _ in 0..600 {
        run.step();
        let findings = run.findings();
        assert!(findings.is_empty(), "second {}: {findings:?}", run.second);
    }
    assert_eq!(run.overview().in_state(GpuState::Waiting), 0);
    assert_eq!(run.overview().in_state(GpuState::Unknown), 0);
}

#[test]
fn the_heat_map_the_nodes_and_the_counts_say_the_same() {
    let mut run = Run::new("demo", 32, 1);
    for _ in 0..60 {
        run.step();
    }
    let overview = run.overview();
    let Answer::Nodes(list) = run.owner.answer(&Question::Nodes) else { panic!("no list") };
    assert_eq!(list.nodes.len(), 32);
    assert_eq!(overview.nodes.live, 32);
    for (node, states) in overview.heat.rows() {
        let line = list.nodes.iter().find(|line| line.node == *node).unwrap();
        assert_eq!(line.gpu_states, states);
        assert_eq!(line.ports.1, 8);
    }
    for count in &overview.states {
        let code = count.state.code();
        assert_eq!(overview.heat.states.matches(code).count(), count.gpus as usize);
    }
    let summed: f64 = list.nodes.iter().map(|line| line.lost_gpus).sum();
    assert!((overview.lost.gpus - summed).abs() < 1e-6, "{} {summed}", overview.lost.gpus);
    assert_eq!(overview.lost.cost_per_hour, Some(2.0 * overview.lost.gpus));
    assert!(list.nodes.is_sorted_by(|a, b| a.lost_gpus >= b.lost_gpus), "worst first");
    assert_eq!(overview.worst[..], list.nodes[..overview.worst.len()]);
}

#[test]
fn one_node_shows_every_value_of_its_page() {
    let mut run = Run::new("healthy", 2, 1);
    for _ in 0..30 {
        run.step();
    }
    let report = run.fleet.report(0);
    let name = Safe::new(run.fleet.node_name(0));
    let Answer::Node(detail) = run.owner.answer(&Question::Node(name)) else { panic!("no node") };
    for sample in &report.samples {
        let device = &report.devices[sample.device as usize];
        let shown = detail.devices.iter().find(|d| d.name == device.to_string().as_str()).unwrap();
        let key = sample.metric.key();
        assert_eq!(shown.values.get(&key), Some(&sample.reading), "{key} of {device}");
        if sample.metric.row().history && sample.reading.value().is_some() {
            let past = shown.past(&key);
            assert_eq!(past.len(), 120);
            assert!(past[past.len() - 29..].iter().all(Option::is_some), "{key} of {device}");
        }
    }
    let names: Vec<_> = detail.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names[..3], ["node", "GPU 0", "GPU 1"]);
    let unknown = run.owner.answer(&Question::Node("nobody".into()));
    assert!(matches!(unknown, Answer::Refused(_)));
}

#[test]
fn every_target_is_read_or_flagged() {
    let mut owner = Owner::new(Options::default());
    let target = |id: u32, node: Option<&str>| Target {
        id: TargetId(id),
        address: format!("10.0.0.{id}:9770").into(),
        node: node.map(Safe::new),
        origin: "test".into(),
    };
    owner.accept(Delivery::Targets(vec![target(1, None), target(2, Some("gpu002"))]));
    owner.tick(START);
    let nodes = |owner: &mut Owner| match owner.answer(&Question::Overview) {
        Answer::Overview(overview) => overview.nodes,
        other => panic!("not an overview: {other:?}"),
    };
    assert_eq!((nodes(&mut owner).pending, nodes(&mut owner).down), (2, 0));
    for second in 1..=6 {
        owner.tick(START + Duration::from_secs(second));
    }
    let Answer::Targets(list) = owner.answer(&Question::Targets) else { panic!("no targets") };
    for line in &list.targets {
        assert_eq!(line.state, TargetState::Down);
        assert_eq!(line.missed, 4);
        let message = line.message.as_ref().unwrap();
        assert!(message.contains("no attempt to read it was reported"), "{message}");
    }
    assert_eq!(list.targets[1].node, Some("gpu002".into()));
    assert_eq!((nodes(&mut owner).pending, nodes(&mut owner).down), (1, 1));
    let outcome = Err(Failure::Timeout("connecting".into()));
    let at = START + Duration::from_secs(7);
    let batch =
        |id| Batch { target: TargetId(id), at, duration_ms: 800.0, outcome: outcome.clone() };
    owner.accept(Delivery::Batch(batch(1)));
    owner.accept(Delivery::Batch(batch(77)));
    owner.tick(at);
    let Answer::Targets(list) = owner.answer(&Question::Targets) else { panic!("no targets") };
    assert_eq!(list.totals.scrapes.get("timeout"), Some(&1), "77 was never announced");
    assert_eq!(list.totals.findings_opened[&FindingKind::TargetDown], 2);
    let message = list.targets[0].message.as_ref().unwrap();
    assert!(message.starts_with("10.0.0.1:9770: no answer in time while connecting."), "{message}");
}

#[tokio::test]
async fn the_loop_answers_and_ends_with_its_last_handle() {
    let handle = super::start(Options::default(), super::clock());
    let inbox = handle.inbox();
    let target = Target {
        id: TargetId(1),
        address: "10.0.0.1:9770".into(),
        node: None,
        origin: "test".into(),
    };
    inbox.send(Delivery::Targets(vec![target])).await.unwrap();
    // Questions go first, so that the list may be empty once or twice.
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        let Ok(Answer::Targets(list)) = handle.ask(Question::Targets).await else { panic!("gone") };
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
async fn long_questions_deliveries_and_short_questions_all_get_their_turn() {
    let clock = super::clock();
    let handle = super::start(Options::default(), clock.clone());
    let inbox = handle.inbox();
    let target = |id| Target {
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
                let outcome = Err(Failure::Status(500));
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
                    let question = Question::read_line(&line, &[]).unwrap();
                    let answer = handle.ask(question).await.unwrap();
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
        let Ok(Answer::Targets(list)) = handle.ask(Question::Targets).await else { panic!("gone") };
        if list.totals.scrapes.get("status") == Some(&u64::from(batches)) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{:?}", list.totals);
        tokio::task::yield_now().await;
    }
    drop(handle);
    inbox.closed().await;
}

/// A finding for tests that count them.
pub(super) fn finding() -> Finding {
    let entity = gaunt_schema::Entity::node(&"gpu001".into());
    Finding {
        id: "target_down/gpu001".into(),
        kind: FindingKind::TargetDown,
        severity: gaunt_schema::Severity::Warning,
        entity,
        since: START,
        confidence: 1.0,
        lost_gpus: 0.0,
        cost_gpu_hours_per_hour: 0.0,
        victims: Vec::new(),
        summary: String::new(),
        next: String::new(),
        evidence: Vec::new(),
        missing: Vec::new(),
        life: crate::answer::Life::default(),
        acknowledged: None,
    }
}

impl Run {
    fn then(&mut self, when: When, question: Question) -> Answer {
        self.owner.answer(&Question::Then(when, Box::new(question)))
    }

    fn job(&mut self, job: &str) -> std::sync::Arc<JobDetail> {
        match self.owner.answer(&Question::Job(job.into())) {
            Answer::Job(job) => job,
            other => panic!("not a job: {other:?}"),
        }
    }
}

#[test]
fn the_past_is_answered_as_it_was_and_the_present_is_not_disturbed() {
    let mut run = Run::new("port_down", 16, 7);
    let onset = run.fleet.truths()[0].onset;
    while START + Duration::from_secs(run.second as u64 + 2) < onset {
        run.step();
    }
    let (before, calm) = (run.second - 2, run.overview());
    assert_eq!(calm.findings_open, 0);
    for _ in 0..60 {
        run.step();
    }
    let now = run.overview();
    assert_eq!(now.findings_open, 1);
    let at = START + Duration::from_secs(before as u64);
    let ago = When::Ago(Duration::from_secs((run.second - before) as u64));
    for when in [When::At(at), ago] {
        let Answer::Overview(then) = run.then(when, Question::Overview) else { panic!("{when}") };
        assert_eq!((then.at, then.findings_open), (at, 0));
        assert_eq!(then.heat.nodes, now.heat.nodes);
        assert_eq!(then.nodes, calm.nodes);
    }
    let ports = crate::answer::Filter::parse(Subject::Ports, "state=down").unwrap();
    let down = |answer| match answer {
        Answer::Table(table) => table.matched,
        other => panic!("not a table: {other:?}"),
    };
    let table = Question::Table(ports);
    assert_eq!(down(run.owner.answer(&table)), 1);
    assert_eq!(down(run.then(When::At(at), table)), 0);
    let name = run.fleet.node_name(0).into();
    let Answer::Node(node) = run.then(When::At(at), Question::Node(name)) else { panic!() };
    assert_eq!(node.at, at);
    assert!(node.devices.iter().any(|d| d.value("gaunt_gpu_power_watts").is_some()));
    assert_eq!(run.overview(), now, "what is now is as before");
    let early = run.then(When::Ago(Duration::from_hours(1)), Question::Overview);
    assert!(matches!(early, Answer::Refused(Refusal::NotKept { .. })), "{early:?}");
}

#[test]
fn the_gpus_of_a_job_that_stand_out_come_first_and_its_loss_is_told_by_cause() {
    let mut run = Run::new("data_starved", 8, 3);
    let mut steps = 0;
    while steps < 90 || run.findings().is_empty() {
        run.step();
        steps += 1;
        assert!(steps < 240, "nothing is found");
    }
    let blamed = run.findings()[0].entity.node.clone().unwrap();
    let job = run.overview().worst.iter().find(|line| line.node == blamed).unwrap().jobs[0].clone();
    let past = run.job(&job).past.clone();
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
