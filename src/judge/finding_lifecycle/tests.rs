//! Tests of findings that open, change, come back, flap, close, are dropped and persist over a restart.

use gaunt_schema::{Entity, FindingEvent, LifeState, Severity};

use super::*;

const PERIOD: Duration = Duration::from_secs(1);

/// A lifecycle that runs second by second.
#[derive(Default)]
struct LifecycleRun {
    tracker: FindingTracker,
    limits: Thresholds,
    now: i64,
}

fn node_finding(node: &str, severity: Severity, lost_gpus: f64) -> Finding {
    let entity = Entity::new_node(&node.into());
    let kinds = if severity == Severity::Critical { 2 } else { 1 };
    let made = PendingFinding::of(FindingKind::HostBound, entity, kinds, true);
    made.with_cost(lost_gpus, Vec::new()).finding
}

impl LifecycleRun {
    fn run_step(&mut self, findings: Vec<Finding>) {
        self.now += 1;
        let costs: Vec<_> = findings.iter().map(|f| (f.id.clone(), f.lost_gpus)).collect();
        let outcome = DetectorOutcome { findings, ..DetectorOutcome::default() };
        let now = UnixMs(self.now * 1_000);
        self.tracker.apply_outcome(now, PERIOD, &self.limits, outcome);
        self.tracker.set_costs(now, costs.iter().map(|(id, cost)| ((id, *cost), Vec::new())));
    }

    /// Runs so many seconds in which the evidence of one finding is present.
    fn with_evidence(&mut self, seconds: i64) -> &mut Self {
        for _ in 0..seconds {
            self.run_step(vec![node_finding("a", Severity::Warning, 1.0)]);
        }
        self
    }

    /// Runs so many seconds in which it is not.
    fn without_evidence(&mut self, seconds: i64) -> &mut Self {
        for _ in 0..seconds {
            self.run_step(Vec::new());
        }
        self
    }

    fn only_record(&self) -> &FindingRecord {
        let records: Vec<_> = self.tracker.known.values().collect();
        assert_eq!(records.len(), 1);
        &records[0].record
    }

    fn change_events(&self) -> Vec<(i64, FindingEvent)> {
        let changes = self.only_record().finding.life.changes.iter();
        changes.map(|change| (change.at.0 / 1_000, change.what)).collect()
    }
}

#[test]
fn finding_closes_after_ten_seconds_and_is_remembered() {
    let mut run = LifecycleRun::default();
    run.with_evidence(5).without_evidence(9);
    assert_eq!(
        (run.tracker.open_records().len(), run.only_record().finding.life.state),
        (1, LifeState::Open)
    );
    run.without_evidence(1);
    assert_eq!((run.tracker.open_records().len(), run.tracker.closed_records().len()), (0, 1));
    let life = &run.only_record().finding.life;
    assert_eq!((life.state, life.opened.0, life.seen.0), (LifeState::Closed, 1_000, 5_000));
    assert_eq!(life.closed, Some(UnixMs(15_000)));
    assert_eq!(run.change_events(), [(1, FindingEvent::Opened), (15, FindingEvent::Closed)]);
}

#[test]
fn finding_that_recurs_soon_is_the_same_and_later_another() {
    let mut run = LifecycleRun::default();
    run.with_evidence(5).without_evidence(10).with_evidence(1);
    assert_eq!(
        run.change_events(),
        [(1, FindingEvent::Opened), (15, FindingEvent::Closed), (16, FindingEvent::Reopened)]
    );
    assert_eq!(run.only_record().finding.life.opened, UnixMs(1_000), "it is the same finding");
    run.without_evidence(10 + 1_801).with_evidence(1);
    assert_eq!(
        run.change_events(),
        [(run.now, FindingEvent::Opened)],
        "after half an hour it is another one"
    );
    assert_eq!(run.tracker.opened_counts()[&FindingKind::HostBound], 3);
}

#[test]
fn findings_of_about_equal_cost_keep_their_order() {
    let mut run = LifecycleRun::default();
    let order = |run: &LifecycleRun| -> Vec<String> {
        let records = run.tracker.open_records();
        records.iter().map(|record| record.finding.entity.to_string()).collect()
    };
    let mut step = |one: f64, other: f64| {
        let findings = [("a", one), ("b", other), ("c", 0.2)];
        let made = findings.map(|(node, cost)| node_finding(node, Severity::Warning, cost));
        run.run_step(made.into());
        order(&run)
    };
    for (one, other) in [(10.0, 9.9), (9.2, 10.8), (8.0, 11.9), (10.5, 9.0)] {
        assert_eq!(step(one, other), ["a", "b", "c"], "{one} {other}");
    }
    assert_eq!(step(10.0, 14.0), ["b", "a", "c"], "a cost that rises moves it at once");
    assert_eq!(step(10.0, 11.0), ["b", "a", "c"]);
    assert_eq!(step(10.0, 0.0), ["a", "c", "b"]);
}

#[test]
fn finding_that_comes_and_goes_is_one_flapping_finding() {
    let mut run = LifecycleRun::default();
    for _ in 0..10 {
        run.with_evidence(3).without_evidence(20);
    }
    let life = &run.only_record().finding.life;
    assert_eq!((life.state, life.openings), (LifeState::Flapping, 10));
    assert_eq!(run.tracker.opened_counts()[&FindingKind::HostBound], 3, "then it stayed open");
    let flapping =
        run.change_events().into_iter().filter(|(_, what)| *what == FindingEvent::Flapping);
    assert_eq!(flapping.collect::<Vec<_>>(), [(47, FindingEvent::Flapping)]);
    run.without_evidence(579);
    assert_eq!(run.tracker.open_records().len(), 1, "it is waited for longer");
    run.without_evidence(1);
    assert_eq!(run.only_record().finding.life.state, LifeState::Closed);
}

#[test]
fn finding_that_comes_again_after_long_pauses_stays_open_over_them() {
    let mut run = LifecycleRun::default();
    for _ in 0..12 {
        run.with_evidence(40).without_evidence(800);
    }
    let closed = run.change_events();
    let closed = closed.iter().filter(|(_, what)| *what == FindingEvent::Closed);
    assert_eq!(closed.count(), 2, "from the third time on it would come again");
    assert_eq!(run.only_record().finding.life.state, LifeState::Flapping);
    run.without_evidence(400);
    assert_eq!(run.only_record().finding.life.state, LifeState::Flapping);
    run.without_evidence(100);
    assert_eq!(run.only_record().finding.life.state, LifeState::Closed, "840 s × 1.5");
}

#[test]
fn finding_that_lasts_stops_flapping() {
    let mut run = LifecycleRun::default();
    run.with_evidence(1)
        .without_evidence(10)
        .with_evidence(1)
        .without_evidence(10)
        .with_evidence(1);
    assert_eq!(run.only_record().finding.life.state, LifeState::Flapping);
    run.with_evidence(1_800);
    assert_eq!(run.only_record().finding.life.state, LifeState::Open);
}

#[test]
fn severity_rises_at_once_and_falls_late() {
    let mut run = LifecycleRun::default();
    run.with_evidence(1);
    run.run_step(vec![node_finding("a", Severity::Critical, 1.0)]);
    assert_eq!(run.only_record().finding.severity, Severity::Critical);
    assert_eq!(run.only_record().finding.life.state, LifeState::Changing);
    run.with_evidence(10);
    assert_eq!(run.only_record().finding.severity, Severity::Critical, "not yet");
    run.with_evidence(1);
    assert_eq!(run.only_record().finding.severity, Severity::Warning);
    let changes: Vec<_> = run.only_record().finding.life.changes[1..].iter().collect();
    let transitions: Vec<_> = changes.iter().map(|c| (c.at.0, &*c.from, &*c.to)).collect();
    assert_eq!(transitions, [(2_000, "warning", "critical"), (13_000, "critical", "warning")]);
    run.with_evidence(60);
    assert_eq!(run.only_record().finding.life.state, LifeState::Open);
}

#[test]
fn severity_falls_after_evidence_that_was_weaker_all_the_time() {
    let mut run = LifecycleRun::default();
    run.run_step(vec![node_finding("a", Severity::Critical, 1.0)]);
    run.with_evidence(5).without_evidence(8).with_evidence(5);
    assert_eq!(run.only_record().finding.severity, Severity::Critical, "weaker for 5 s");
    run.with_evidence(10);
    assert_eq!(run.only_record().finding.severity, Severity::Warning);
}

#[test]
fn cost_changes_are_recorded_rarely_and_bounded() {
    let mut run = LifecycleRun::default();
    for second in 0..3_600_u32 {
        let cost = if second % 60 < 30 { 1.0 } else { 100.0 };
        run.run_step(vec![node_finding("a", Severity::Warning, cost)]);
    }
    let life = &run.only_record().finding.life;
    assert_eq!((life.changes.len(), life.changes[0].what), (24, FindingEvent::Opened));
    let (last, first) = (&life.changes[23], &life.changes[1]);
    assert!(
        last.at.duration_since(first.at) > Duration::from_mins(10),
        "far apart: {first:?} {last:?}"
    );
}

#[test]
fn findings_are_bounded_and_closed_ones_expire() {
    let mut run = LifecycleRun::default();
    let many = |from: usize| -> Vec<_> {
        let nodes = (from..from + 1_100).map(|node| format!("node{node}"));
        nodes.map(|node| node_finding(&node, Severity::Warning, 1.0)).collect()
    };
    run.run_step(many(0));
    // Of one kind: the others have quotas of their own.
    let open = run.tracker.open_records().len();
    assert!((MAX_OPEN / 2..MAX_OPEN).contains(&open), "{open}");
    let revision = run.tracker.closed_revision();
    run.without_evidence(20);
    assert_eq!((run.tracker.open_records().len(), run.tracker.closed_records().len()), (0, open));
    assert!(run.tracker.closed_revision() > revision);
    run.run_step(many(5_000));
    run.without_evidence(10);
    assert_eq!(
        (run.tracker.known.len(), run.tracker.closed_records().len()),
        (MAX_CLOSED, MAX_CLOSED)
    );
    assert!(run.tracker.closed_records()[0].finding.id.contains("node5"), "the newest stay");
    run.now += 24 * 3_600;
    run.without_evidence(1);
    assert!(run.tracker.known.is_empty());
}

impl LifecycleRun {
    /// Continues in another tracker after so many seconds with the saved state.
    fn after_restart(&self, gap: i64) -> Self {
        let past = serde_json::to_string(&self.tracker.to_snapshot()).unwrap();
        let tracker = FindingTracker::from_snapshot(serde_json::from_str(&past).unwrap());
        Self { tracker, now: self.now + gap, ..Self::default() }
    }

    /// Runs so many seconds without its evidence, and with this coverage.
    fn run_with_coverage(&mut self, seconds: i64, coverage: &EvidenceCoverage) -> &mut Self {
        for _ in 0..seconds {
            self.now += 1;
            let unsettled = self
                .tracker
                .unsettled_findings()
                .map(|finding| (finding.id.clone(), coverage.clone()));
            let outcome =
                DetectorOutcome { coverage: unsettled.collect(), ..DetectorOutcome::default() };
            self.tracker.apply_outcome(UnixMs(self.now * 1_000), PERIOD, &self.limits, outcome);
        }
        self
    }
}

#[test]
fn finding_outlives_a_restart_until_all_its_evidence_was_read() {
    let mut run = LifecycleRun::default();
    run.with_evidence(30);
    let mut next = run.after_restart(300);
    next.run_with_coverage(5_000, &EvidenceCoverage::Unread);
    assert_eq!(
        next.only_record().finding.life.changes,
        run.only_record().finding.life.changes,
        "nothing happened to it"
    );
    next.run_with_coverage(50, &EvidenceCoverage::ReadFor(60.0))
        .run_with_coverage(1, &EvidenceCoverage::Unread)
        .run_with_coverage(60, &EvidenceCoverage::ReadFor(60.0));
    assert_eq!(
        next.tracker.unsettled_findings().count(),
        1,
        "it was looked at, but not all the time"
    );
    next.run_with_coverage(10, &EvidenceCoverage::ReadFor(60.0));
    assert_eq!(
        (next.tracker.unsettled_findings().count(), next.tracker.open_records().len()),
        (0, 1)
    );
    next.run_with_coverage(1, &EvidenceCoverage::ReadFor(60.0));
    assert_eq!(
        next.tracker.closed_records().len(),
        1,
        "then its evidence was gone for ten seconds"
    );
    let mut restarted = run.after_restart(300);
    restarted.run_with_coverage(50, &EvidenceCoverage::Unread).with_evidence(1);
    let life = &restarted.only_record().finding.life;
    assert_eq!((life.opened, life.openings), (UnixMs(1_000), 1));
    assert_eq!(
        restarted.tracker.opened_counts()[&FindingKind::HostBound],
        1,
        "and not opened anew"
    );
}

#[test]
fn finding_that_cannot_recur_is_closed_with_a_reason() {
    let mut run = LifecycleRun::default();
    run.with_evidence(30);
    let mut next = run.after_restart(60);
    next.run_with_coverage(1, &EvidenceCoverage::NeverRead("its node is gone".into()));
    let last = next.only_record().finding.life.changes.last().unwrap();
    assert_eq!((last.what, last.to.as_str()), (FindingEvent::Closed, "its node is gone"));
}

#[test]
fn severity_does_not_fall_while_averages_restart() {
    let mut run = LifecycleRun::default();
    run.run_step(vec![node_finding("a", Severity::Critical, 1.0)]);
    let mut next = run.after_restart(5);
    let step = |next: &mut LifecycleRun, coverage: EvidenceCoverage| {
        next.now += 1;
        let findings = vec![node_finding("a", Severity::Warning, 1.0)];
        let coverages = next
            .tracker
            .unsettled_findings()
            .map(|finding| (finding.id.clone(), coverage.clone()))
            .collect();
        let outcome =
            DetectorOutcome { findings, coverage: coverages, ..DetectorOutcome::default() };
        next.tracker.apply_outcome(UnixMs(next.now * 1_000), PERIOD, &next.limits, outcome);
        next.only_record().finding.severity
    };
    assert!(
        (0..100).all(|_| step(&mut next, EvidenceCoverage::ReadFor(100.0)) == Severity::Critical)
    );
    let after: Vec<_> =
        (0..12).map(|_| step(&mut next, EvidenceCoverage::ReadFor(100.0))).collect();
    assert_eq!(after[11], Severity::Warning);
}

#[test]
fn pending_finding_continues_over_a_restart_without_the_gap() {
    let suspect = |run: &mut LifecycleRun, seconds: i64, hold: f64| {
        (0..seconds).all(|_| {
            let entity = Entity::new_node(&"a".into());
            let pending = PendingFinding::of(FindingKind::IdleAllocated, entity, 1, true)
                .with_hold_seconds(hold);
            run.now += 1;
            let outcome =
                DetectorOutcome { suspicions: vec![pending], ..DetectorOutcome::default() };
            run.tracker.apply_outcome(UnixMs(run.now * 1_000), PERIOD, &run.limits, outcome);
            run.tracker.open_records().is_empty()
        })
    };
    let mut run = LifecycleRun::default();
    assert!(suspect(&mut run, 500, 540.0));
    let mut next = run.after_restart(200);
    assert!(suspect(&mut next, 41, 540.0), "500 s were seen, and 200 s were not");
    assert!(!suspect(&mut next, 1, 540.0));
    assert_eq!(next.only_record().finding.since, UnixMs(1_000));
    let mut soon = run.after_restart(2);
    assert!(suspect(&mut soon, 10, 501.0), "the first samples are no averages");
    assert!(!suspect(&mut soon, 1, 501.0));
    let mut late = run.after_restart(700);
    assert!(suspect(&mut late, 540, 540.0), "who was away for long begins anew");
}

#[test]
fn pending_finding_restarts_when_all_members_change() {
    let mut run = LifecycleRun::default();
    let step = |run: &mut LifecycleRun, members: &[&str]| {
        let entity = Entity::new(gaunt_schema::EntityKind::Storage);
        let pending =
            PendingFinding::of(FindingKind::StorageSlow, entity, 2, true).with_hold_seconds(10.0);
        let pending = pending.with_members(members.iter().map(ToString::to_string));
        run.now += 1;
        let outcome = DetectorOutcome { suspicions: vec![pending], ..DetectorOutcome::default() };
        run.tracker.apply_outcome(UnixMs(run.now * 1_000), PERIOD, &run.limits, outcome);
        run.tracker.open_records().len()
    };
    // One job writes its checkpoint after the other.
    assert!((0..8).all(|_| step(&mut run, &["a"]) == 0));
    assert!((0..8).all(|_| step(&mut run, &["b"]) == 0));
    // Both wait, and one of them did all the time.
    assert!((0..2).all(|_| step(&mut run, &["a", "b"]) == 0));
    assert_eq!(step(&mut run, &["b"]), 1);
}

/// The state and the openings of a finding of this kind after each step of 15 s with (`true`) or without its evidence.
fn read_seldom(kind: FindingKind, evidence: &[bool]) -> Vec<Option<(LifeState, u32)>> {
    let mut run = LifecycleRun::default();
    let mut step = |outcome: &bool| {
        run.now += 15;
        let finding = PendingFinding::of(kind, Entity::new_node(&"a".into()), 1, true).finding;
        let findings = if *outcome { vec![finding] } else { Vec::new() };
        let outcome = DetectorOutcome { findings, ..DetectorOutcome::default() };
        run.tracker.apply_outcome(
            UnixMs(run.now * 1_000),
            Duration::from_secs(15),
            &run.limits,
            outcome,
        );
        let record = run.tracker.open_records().first().map(|record| record.finding.life.clone());
        record.map(|life| (life.state, life.openings))
    };
    evidence.iter().map(&mut step).collect()
}

#[test]
fn finding_read_rarely_does_not_flap_and_closes_after_two_pages_without_evidence() {
    let mut evidence = [true; 130].to_vec();
    evidence.extend([false, true, false]);
    let open = Some((LifeState::Open, 1));
    assert!(read_seldom(FindingKind::PortDown, &evidence).iter().all(|state| *state == open));
    evidence.push(false);
    assert_eq!(read_seldom(FindingKind::PortDown, &evidence).pop(), Some(None));
}

#[test]
fn finding_about_work_stays_open_until_a_pause_of_its_job_would_be_seen() {
    let mut evidence = [true, true, false, false].to_vec();
    assert!(read_seldom(FindingKind::HostBound, &evidence).pop().is_some_and(|it| it.is_some()));
    evidence.push(false);
    assert_eq!(read_seldom(FindingKind::HostBound, &evidence).pop(), Some(None));
}
