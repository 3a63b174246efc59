//! Tests of gaunt's own lateness in virtual time: no target is blamed for it, and what is left out is counted.

use std::time::Duration;

use gaunt_schema::{
    Batch, Delivery, Device, DeviceClass, Dialect, FindingKind, RejectionCounts, Report,
    SanitizedText, ScrapeFailure, ScrapeTarget, ScrapedPage, Severity, TargetId, UnixMs,
    catalogue::{gpu, port},
};

use super::{Engine, EngineOptions, INBOX, spawn_stepped};
use gaunt_api::{Answer, Finding, LimitOmissions, NodeState, Question, TargetList, TargetState};

const START: UnixMs = UnixMs(1_700_000_000_000);

struct LatenessTestRun {
    engine: Engine,
    second: u64,
}

impl LatenessTestRun {
    fn new(nodes: u32) -> Self {
        let options = EngineOptions { period: Duration::from_secs(1), ..EngineOptions::default() };
        let mut engine = Engine::new(options);
        engine.run_tick(START);
        let targets = (0..nodes).map(|node| ScrapeTarget {
            id: TargetId(node),
            address: format!("127.1.0.{node}:9770").into(),
            node: Some(format!("n{node}").into()),
            origin: "test".into(),
        });
        engine.ingest_delivery(Delivery::Targets(targets.collect()));
        Self { engine, second: 0 }
    }

    /// A second in which each target has this outcome, or none at all.
    fn step_second(&mut self, outcome: impl Fn(u32, u64) -> Option<Result<Report, ScrapeFailure>>) {
        self.second += 1;
        let at = START + Duration::from_secs(self.second);
        for target in
            self.engine.cluster.tracked_targets().iter().map(|it| it.target.id).collect::<Vec<_>>()
        {
            let page = |report| {
                let rejected = RejectionCounts::default();
                ScrapedPage { report, dialect: Dialect::Gaunt, bytes: 1, rejected }
            };
            if let Some(outcome) = outcome(target.0, self.second) {
                let outcome = outcome.map(page);
                self.engine.ingest_delivery(Delivery::Batch(Batch {
                    target,
                    at,
                    duration_ms: 1.0,
                    outcome,
                }));
            }
        }
        self.engine.run_tick(at);
    }

    /// Seconds in which the process does not run: the next tick is late by so much.
    fn stop_for(&mut self, seconds: u64) {
        self.second += seconds;
        self.engine.excuse_lateness(Duration::from_secs(seconds));
    }

    /// A second in which every target is scraped.
    fn read_all(&mut self) {
        self.step_second(|_, second| Some(Ok(build_page(second))));
    }

    fn open_findings(&self) -> Vec<Finding> {
        match self.engine.answer_question(&Question::Findings) {
            Answer::Findings(list) => list.findings.clone(),
            other => panic!("not findings: {other:?}"),
        }
    }

    fn finding_kinds(&self) -> Vec<FindingKind> {
        self.open_findings().iter().map(|finding| finding.kind).collect()
    }

    fn target_list(&self) -> std::sync::Arc<TargetList> {
        match self.engine.answer_question(&Question::Targets) {
            Answer::Targets(list) => list,
            other => panic!("not targets: {other:?}"),
        }
    }

    fn left_out(&self) -> LimitOmissions {
        self.target_list().left_out.clone()
    }
}

fn build_page(second: u64) -> Report {
    let mut report = Report::default();
    let node = report.ensure_device(Device::new_gpu(0));
    report.push(node, gpu::UTILIZATION, second as f64 % 7.0 / 10.0);
    report
}

#[test]
fn own_lateness_is_one_finding_of_gaunt_and_blames_no_target() {
    let mut run = LatenessTestRun::new(50);
    (0..10).for_each(|_| run.read_all());
    assert_eq!(run.finding_kinds(), []);
    for failure in [ScrapeFailure::OwnLateness(900), ScrapeFailure::Skipped] {
        for second in 0..30 {
            run.step_second(|_, _| Some(Err(failure.clone())));
            let kinds = run.finding_kinds();
            assert!(
                !kinds.contains(&FindingKind::TargetDown),
                "{failure:?}, second {second}: {kinds:?}"
            );
        }
        let findings = run.open_findings();
        let [late] = findings.as_slice() else { panic!("{findings:?}") };
        assert_eq!((late.kind, late.severity), (FindingKind::AggregatorLate, Severity::Warning));
        assert!(late.summary.contains("50 targets of 50 not scraped in time"), "{}", late.summary);
        assert_eq!(run.left_out().unjudged_targets, 50);
        let Answer::Nodes(nodes) = run.engine.answer_question(&Question::Nodes) else { panic!() };
        assert!(
            nodes.nodes.iter().all(|node| node.state != NodeState::Down),
            "stale, and not down"
        );
        (0..70).for_each(|_| run.read_all());
        assert_eq!(run.finding_kinds(), [], "it is over");
        assert_eq!(run.left_out().unjudged_targets, 0);
    }
}

/// A process that is stopped for 20 s of every 22 s, like one without CPU time: each target is skipped once and then
/// scraped.
#[test]
fn own_lateness_of_a_process_that_is_stopped_repeatedly_is_reported() {
    let mut run = LatenessTestRun::new(50);
    (0..10).for_each(|_| run.read_all());
    for cycle in 0..6 {
        run.stop_for(20);
        run.step_second(|_, _| Some(Err(ScrapeFailure::Skipped)));
        run.read_all();
        let late: &[FindingKind] = if cycle == 0 { &[] } else { &[FindingKind::AggregatorLate] };
        assert_eq!(run.finding_kinds(), late, "cycle {cycle}");
        assert!(run.engine.cluster.tracked_targets().iter().all(|target| target.missed == 0));
    }
    let findings = run.open_findings();
    assert!(findings[0].summary.contains("no ingest for"), "{}", findings[0].summary);
    (0..300).for_each(|_| run.read_all());
    assert_eq!(run.finding_kinds(), [], "it is over");
}

/// Half of the attempts are left out, never two in a row.
#[test]
fn own_lateness_of_every_other_attempt_is_reported() {
    let mut run = LatenessTestRun::new(50);
    (0..60).for_each(|_| run.read_all());
    for _ in 0..40 {
        run.step_second(|target, second| {
            let left_out = (u64::from(target) + second).is_multiple_of(2);
            Some(if left_out { Err(ScrapeFailure::Skipped) } else { Ok(build_page(second)) })
        });
    }
    assert_eq!(run.finding_kinds(), [FindingKind::AggregatorLate]);
    assert!(
        run.open_findings()[0].summary.contains("% of the scrapes"),
        "{:?}",
        run.open_findings()
    );
}

/// A machine that carries a third of its pages: each target is read every three seconds, and one result speaks for the
/// two periods in between.
#[test]
fn periods_that_one_result_leaves_out_are_all_counted() {
    let mut run = LatenessTestRun::new(30);
    (0..60).for_each(|_| run.read_all());
    let skipped =
        |run: &LatenessTestRun| run.engine.totals.scrapes.get("skipped").copied().unwrap_or(0);
    for _ in 0..20 {
        run.step_second(|target, second| match (u64::from(target) + second) % 3 {
            0 => Some(Ok(build_page(second))),
            1 => None,
            _ => Some(Err(ScrapeFailure::Skipped)),
        });
    }
    assert_eq!(run.finding_kinds(), [FindingKind::AggregatorLate]);
    assert!((380..=400).contains(&skipped(&run)), "{} of 400 periods", skipped(&run));
}

/// The loop ticks in time, but no scrape runs: nothing is reported for a minute.
#[test]
fn own_lateness_of_scrapes_that_never_run_takes_no_node_down() {
    let mut run = LatenessTestRun::new(50);
    (0..10).for_each(|_| run.read_all());
    run.step_second(|target, _| {
        (target == 7).then(|| Err(ScrapeFailure::Connect("refused".into())))
    });
    for _ in 0..60 {
        run.step_second(|_, _| None);
        assert!(
            !run.finding_kinds().contains(&FindingKind::TargetDown),
            "{:?}",
            run.finding_kinds()
        );
        let Answer::Overview(overview) = run.engine.answer_question(&Question::Overview) else {
            panic!()
        };
        assert!(overview.nodes.down <= 1, "{:?}", overview.nodes);
        let down =
            run.target_list().targets.iter().filter(|line| line.state == TargetState::Down).count();
        assert!(down <= 3, "{down} targets are blamed");
    }
    assert_eq!(run.finding_kinds(), [FindingKind::AggregatorLate]);
    let list = run.target_list();
    let down: Vec<_> = list.targets.iter().filter(|line| line.state == TargetState::Down).collect();
    assert_eq!(down.len(), 1, "the one that really failed");
    assert_eq!(down[0].node.as_deref(), Some("n7"));
}

#[test]
fn own_lateness_does_not_hide_a_target_that_fails() {
    let mut run = LatenessTestRun::new(50);
    (0..10).for_each(|_| run.read_all());
    for _ in 0..20 {
        run.step_second(|target, _| {
            let own = || ScrapeFailure::OwnLateness(900);
            Some(Err(if target == 7 { ScrapeFailure::Connect("refused".into()) } else { own() }))
        });
    }
    let findings = run.open_findings();
    let down = findings.iter().filter(|finding| finding.kind == FindingKind::TargetDown);
    let nodes: Vec<_> = down.filter_map(|finding| finding.entity.node.clone()).collect();
    assert_eq!(nodes, ["n7"]);
}

#[test]
fn own_lateness_of_the_tick_leaves_no_target_missed() {
    let mut run = LatenessTestRun::new(50);
    (0..10).for_each(|_| run.read_all());
    // The loop was blocked for a minute: the results of that time are still to be ingested.
    run.second += 60;
    run.engine.excuse_lateness(Duration::from_mins(1));
    run.engine.run_tick(START + Duration::from_secs(run.second));
    assert!(run.engine.cluster.tracked_targets().iter().all(|target| target.missed == 0));
    (0..3).for_each(|_| run.read_all());
    assert_eq!(run.finding_kinds(), []);
    // Targets that send nothing from then on count as missed as usual.
    (0..10).for_each(|_| {
        run.step_second(|target, second| (target != 3).then(|| Ok(build_page(second))));
    });
    assert_eq!(run.finding_kinds(), [FindingKind::TargetDown]);
}

#[test]
fn devices_beyond_the_limit_of_a_node_are_rejected_counted_and_reported() {
    let mut run = LatenessTestRun::new(2);
    let gpus = |round: u64| {
        let devices = (0..4_000).map(Device::new_gpu).collect();
        let mut report = Report { devices, ..Report::default() };
        for device in 0..4_000 {
            let driver = if device == 0 { format!("K{round}") } else { "K".to_owned() };
            let uuid = format!("GPU-{device}");
            report.add_info(device, gpu::INFO, &[("uuid", &uuid), ("driver", &driver)]);
            report.push(device, gpu::UTILIZATION, 0.5);
        }
        report
    };
    for _ in 0..3 {
        run.step_second(|target, second| {
            Some(Ok(if target == 0 { gpus(second) } else { build_page(second) }))
        });
    }
    assert_eq!(run.engine.cluster.row_count(DeviceClass::Gpu), 64 + 1);
    let targets = run.target_list();
    let messages: Vec<_> = targets.targets.iter().map(|line| line.message.clone()).collect();
    let first = messages[0].as_ref().unwrap();
    assert!(first.contains("3936 of class gpu (limit 64)"), "{first}");
    assert_eq!(messages[1], None);
    assert_eq!(targets.left_out.refused_devices[&SanitizedText::new("gpu")], 3_936);
    let (_, node) = run.engine.cluster.node_by_name("n0").unwrap();
    let row = node.device_rows(DeviceClass::Gpu)[0];
    assert_eq!(
        run.engine.cluster.current_value(gpu::UTILIZATION, row),
        Some(0.5),
        "the rest is taken"
    );
}

#[test]
fn findings_of_one_source_leave_capacity_for_a_port_that_is_down_elsewhere() {
    let mut run = LatenessTestRun::new(40);
    let ports = |count: u32, down: bool, second: u64| {
        let mut report = Report::default();
        for number in 0..count {
            let device = report.ensure_device(Device::new_port(&format!("mlx5_{number}"), "1"));
            let is_down = down && number > 0 && second > 10;
            report.push(device, port::STATE, if is_down { 1.0 } else { 4.0 });
            report.push(device, port::PHYSICAL_STATE, if is_down { 2.0 } else { 5.0 });
        }
        report
    };
    let outcome = |real: bool| {
        move |target: u32, second: u64| {
            Some(Ok(match target {
                0 => ports(1_000, true, second),
                1 => ports(2, real, second),
                _ => ports(2, false, second),
            }))
        }
    };
    (0..20).for_each(|_| run.step_second(outcome(false)));
    (0..10).for_each(|_| run.step_second(outcome(true)));
    let findings = run.open_findings();
    assert!(findings.len() <= 64 + 2, "{}", findings.len());
    let ids: Vec<&str> = findings.iter().map(|finding| finding.id.as_str()).collect();
    assert!(ids.iter().any(|id| id.starts_with("port_down/n1/")), "{ids:?}");
    assert!(ids.contains(&"findings_over_limit/n0"), "{ids:?}");
    let without = run.left_out().findings_without_place;
    assert!(without[&FindingKind::PortDown] > 900, "{without:?}");
    let Answer::Overview(overview) = run.engine.answer_question(&Question::Overview) else {
        panic!()
    };
    assert_eq!(overview.findings_without_place, without.values().sum::<u32>());
    assert!(
        overview.trouble.iter().any(|trouble| trouble.contains("not listed")),
        "{:?}",
        overview.trouble
    );
}

#[test]
fn dropped_batches_are_counted_by_reason() {
    let mut run = LatenessTestRun::new(2);
    (0..5).for_each(|_| run.read_all());
    let batch = |target: u32, second: u64| Batch {
        target: TargetId(target),
        at: START + Duration::from_secs(second),
        duration_ms: 1.0,
        outcome: Err(ScrapeFailure::Connect("refused".into())),
    };
    run.engine.ingest_delivery(Delivery::Batch(batch(9, 6)));
    run.engine.ingest_delivery(Delivery::Batch(batch(1, 2)));
    run.engine.ingest_delivery(Delivery::Batch(batch(1, 3)));
    let dropped = run.left_out().dropped_batches;
    assert_eq!(dropped[&SanitizedText::new("unannounced")], 1);
    assert_eq!(dropped[&SanitizedText::new("overtaken")], 2);
}

/// One noisy target is named by its row and by its finding, and no other one is.
#[test]
fn dropped_batches_are_counted_by_target() {
    let mut run = LatenessTestRun::new(4);
    (0..5).for_each(|_| run.read_all());
    let old = |second: u64| Batch {
        target: TargetId(2),
        at: START + Duration::from_secs(second),
        duration_ms: 1.0,
        outcome: Err(ScrapeFailure::Connect("refused".into())),
    };
    (0..1_000).for_each(|nth| run.engine.ingest_delivery(Delivery::Batch(old(nth % 4))));
    let dropped = |run: &LatenessTestRun| -> Vec<u64> {
        run.target_list().targets.iter().map(|line| line.dropped_batches).collect()
    };
    assert_eq!(dropped(&run), [0, 0, 1_000, 0]);
    let messages: Vec<_> =
        run.target_list().targets.iter().map(|line| line.message.clone()).collect();
    let message = messages[2].as_ref().unwrap();
    assert!(message.contains("127.1.0.2:9770: 1000 results"), "{message}");
    assert!([0, 1, 3].iter().all(|at| messages[*at].is_none()), "{messages:?}");
    // From now on it only has old results: its state is unknown, and its finding contains the reason.
    for _ in 0..10 {
        run.engine.ingest_delivery(Delivery::Batch(old(3)));
        run.step_second(|target, second| (target != 2).then(|| Ok(build_page(second))));
    }
    let findings = run.open_findings();
    let [down] = findings.as_slice() else { panic!("{findings:?}") };
    assert_eq!((down.kind, down.entity.node.as_deref()), (FindingKind::TargetDown, Some("n2")));
    let row = down.evidence.iter().find(|row| row.what.starts_with("late results discarded of"));
    assert_eq!(row.and_then(|row| row.value), Some(1_010.0), "{:?}", down.evidence);
    // Long after the last one its row no longer shows them; the count stays.
    for _ in 0..15 * 60 {
        run.read_all();
    }
    assert_eq!(run.target_list().targets[2].message, None);
    assert_eq!(dropped(&run), [0, 0, 1_010, 0]);
}

/// The inbox has a fixed capacity; senders wait when it is full, and nothing that was accepted is lost.
#[tokio::test]
async fn inbox_is_bounded_and_delivers_all_queued_batches() {
    let options = EngineOptions { period: Duration::from_secs(1), ..EngineOptions::default() };
    let (handle, ticks) = spawn_stepped(Engine::new(options), START);
    let inbox = handle.delivery_sender();
    let target =
        ScrapeTarget { id: TargetId(0), address: "a:1".into(), node: None, origin: "test".into() };
    inbox.send(Delivery::Targets(vec![target])).await.unwrap();
    ticks.send(START + Duration::from_secs(1)).await.unwrap();
    handle.wait_for_tick(START).await.unwrap();
    let batch = |nth: u64| Batch {
        target: TargetId(0),
        at: START + Duration::from_secs(2) + Duration::from_millis(nth),
        duration_ms: 1.0,
        outcome: Err(ScrapeFailure::Skipped),
    };
    // The engine's task runs on this thread, which does not yield meanwhile.
    let queued = (0..2 * INBOX as u64)
        .take_while(|nth| inbox.try_send(Delivery::Batch(batch(*nth))).is_ok())
        .count();
    assert_eq!(queued, INBOX);
    let end = START + Duration::from_secs(20);
    ticks.send(end).await.unwrap();
    handle.wait_for_tick(START + Duration::from_secs(1)).await.unwrap();
    let Answer::Targets(list) = handle.ask_question(Question::Targets).await.unwrap() else {
        panic!()
    };
    assert_eq!(list.totals.scrapes[&SanitizedText::new("skipped")], INBOX as u64);
    assert_eq!(list.left_out.dropped_batches.len(), 0);
}
