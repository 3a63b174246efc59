//! Tests of findings that open, change, come back, flap, close, are dropped and persist over a restart.

use gaunt_schema::{Entity, FindingEvent, LifeState, Severity};

use super::*;

const PERIOD: Duration = Duration::from_secs(1);

/// A lifecycle that runs second by second.
#[derive(Default)]
struct LifecycleRun {
    life: FindingTracker,
    limits: Thresholds,
    now: i64,
}

fn node_finding(place: &str, severity: Severity, lost_gpus: f64) -> Finding {
    let entity = Entity::new_node(&place.into());
    let kinds = if severity == Severity::Critical { 2 } else { 1 };
    let made = PendingFinding::of(FindingKind::HostBound, entity, kinds, true);
    made.with_cost(lost_gpus, Vec::new()).finding
}

impl LifecycleRun {
    fn run_step(&mut self, findings: Vec<Finding>) {
        self.now += 1;
        let costs: Vec<_> = findings.iter().map(|f| (f.id.clone(), f.lost_gpus)).collect();
        let seen = DetectorOutcome { findings, ..DetectorOutcome::default() };
        let now = UnixMs(self.now * 1_000);
        self.life.apply_outcome(now, PERIOD, &self.limits, seen);
        self.life.set_costs(now, costs.iter().map(|(id, cost)| (id, *cost)));
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
        let all: Vec<_> = self.life.known.values().collect();
        assert_eq!(all.len(), 1);
        &all[0].record
    }

    fn change_events(&self) -> Vec<(i64, FindingEvent)> {
        let turns = self.only_record().finding.life.changes.iter();
        turns.map(|turn| (turn.at.0 / 1_000, turn.what)).collect()
    }
}

#[test]
fn a_finding_closes_after_a_while_and_is_remembered() {
    let mut led = LifecycleRun::default();
    led.with_evidence(5).without_evidence(9);
    assert_eq!(
        (led.life.open_records().len(), led.only_record().finding.life.state),
        (1, LifeState::Open)
    );
    led.without_evidence(1);
    assert_eq!((led.life.open_records().len(), led.life.closed_records().len()), (0, 1));
    let life = &led.only_record().finding.life;
    assert_eq!((life.state, life.opened.0, life.seen.0), (LifeState::Closed, 1_000, 5_000));
    assert_eq!(life.closed, Some(UnixMs(15_000)));
    assert_eq!(led.change_events(), [(1, FindingEvent::Opened), (15, FindingEvent::Closed)]);
}

#[test]
fn one_that_comes_back_soon_is_the_same_and_later_another() {
    let mut led = LifecycleRun::default();
    led.with_evidence(5).without_evidence(10).with_evidence(1);
    assert_eq!(
        led.change_events(),
        [(1, FindingEvent::Opened), (15, FindingEvent::Closed), (16, FindingEvent::Reopened)]
    );
    assert_eq!(led.only_record().finding.life.opened, UnixMs(1_000), "it is the same finding");
    led.without_evidence(10 + 601).with_evidence(1);
    assert_eq!(
        led.change_events(),
        [(led.now, FindingEvent::Opened)],
        "after ten minutes it is another one"
    );
    assert_eq!(led.life.opened_counts()[&FindingKind::HostBound], 3);
}

#[test]
fn one_that_comes_and_goes_is_one_flapping_finding() {
    let mut led = LifecycleRun::default();
    for _ in 0..10 {
        led.with_evidence(3).without_evidence(20);
    }
    let life = &led.only_record().finding.life;
    assert_eq!((life.state, life.openings), (LifeState::Flapping, 10));
    assert_eq!(led.life.opened_counts()[&FindingKind::HostBound], 3, "then it stayed open");
    let flapping =
        led.change_events().into_iter().filter(|(_, what)| *what == FindingEvent::Flapping);
    assert_eq!(flapping.collect::<Vec<_>>(), [(47, FindingEvent::Flapping)]);
    led.without_evidence(159);
    assert_eq!(led.life.open_records().len(), 1, "it is waited for longer");
    led.without_evidence(1);
    assert_eq!(led.only_record().finding.life.state, LifeState::Closed);
}

#[test]
fn one_that_stands_for_long_does_not_flap_any_more() {
    let mut led = LifecycleRun::default();
    led.with_evidence(1)
        .without_evidence(10)
        .with_evidence(1)
        .without_evidence(10)
        .with_evidence(1);
    assert_eq!(led.only_record().finding.life.state, LifeState::Flapping);
    led.with_evidence(600);
    assert_eq!(led.only_record().finding.life.state, LifeState::Open);
}

#[test]
fn severity_rises_at_once_and_falls_late() {
    let mut led = LifecycleRun::default();
    led.with_evidence(1);
    led.run_step(vec![node_finding("a", Severity::Critical, 1.0)]);
    assert_eq!(led.only_record().finding.severity, Severity::Critical);
    assert_eq!(led.only_record().finding.life.state, LifeState::Changing);
    led.with_evidence(10);
    assert_eq!(led.only_record().finding.severity, Severity::Critical, "not yet");
    led.with_evidence(1);
    assert_eq!(led.only_record().finding.severity, Severity::Warning);
    let changes: Vec<_> = led.only_record().finding.life.changes[1..].iter().collect();
    let said: Vec<_> = changes.iter().map(|c| (c.at.0, &*c.from, &*c.to)).collect();
    assert_eq!(said, [(2_000, "warning", "critical"), (13_000, "critical", "warning")]);
    led.with_evidence(60);
    assert_eq!(led.only_record().finding.life.state, LifeState::Open);
}

#[test]
fn a_cost_that_moves_is_noted_now_and_then_and_changes_are_bounded() {
    let mut led = LifecycleRun::default();
    for second in 0..3_600_u32 {
        let cost = if second % 60 < 30 { 1.0 } else { 100.0 };
        led.run_step(vec![node_finding("a", Severity::Warning, cost)]);
    }
    let life = &led.only_record().finding.life;
    assert_eq!((life.changes.len(), life.changes[0].what), (24, FindingEvent::Opened));
    let (last, first) = (&life.changes[23], &life.changes[1]);
    assert!(
        last.at.duration_since(first.at) > Duration::from_mins(10),
        "far apart: {first:?} {last:?}"
    );
}

#[test]
fn a_thousand_findings_are_open_at_most_and_the_closed_are_forgotten_in_time() {
    let mut led = LifecycleRun::default();
    let many = |from: usize| -> Vec<_> {
        let places = (from..from + 1_100).map(|place| format!("node{place}"));
        places.map(|place| node_finding(&place, Severity::Warning, 1.0)).collect()
    };
    led.run_step(many(0));
    // Of one kind: the others have quotas of their own.
    let open = led.life.open_records().len();
    assert!((MAX_OPEN / 2..MAX_OPEN).contains(&open), "{open}");
    let revision = led.life.closed_revision();
    led.without_evidence(20);
    assert_eq!((led.life.open_records().len(), led.life.closed_records().len()), (0, open));
    assert!(led.life.closed_revision() > revision);
    led.run_step(many(5_000));
    led.without_evidence(10);
    assert_eq!((led.life.known.len(), led.life.closed_records().len()), (MAX_CLOSED, MAX_CLOSED));
    assert!(led.life.closed_records()[0].finding.id.contains("node5"), "the newest stay");
    led.now += 24 * 3_600;
    led.without_evidence(1);
    assert!(led.life.known.is_empty());
}

impl LifecycleRun {
    /// Continues in another tracker after so many seconds with the saved state.
    fn after_restart(&self, gap: i64) -> Self {
        let past = serde_json::to_string(&self.life.to_snapshot()).unwrap();
        let life = FindingTracker::from_snapshot(serde_json::from_str(&past).unwrap());
        Self { life, now: self.now + gap, ..Self::default() }
    }

    /// Runs so many seconds without its evidence, and with this coverage.
    fn run_with_coverage(&mut self, seconds: i64, look: &EvidenceCoverage) -> &mut Self {
        for _ in 0..seconds {
            self.now += 1;
            let unsettled =
                self.life.unsettled_findings().map(|finding| (finding.id.clone(), look.clone()));
            let seen =
                DetectorOutcome { coverage: unsettled.collect(), ..DetectorOutcome::default() };
            self.life.apply_outcome(UnixMs(self.now * 1_000), PERIOD, &self.limits, seen);
        }
        self
    }
}

#[test]
fn finding_outlives_a_restart_until_all_that_it_rests_on_was_looked_at() {
    let mut led = LifecycleRun::default();
    led.with_evidence(30);
    let mut next = led.after_restart(300);
    next.run_with_coverage(5_000, &EvidenceCoverage::Unread);
    assert_eq!(
        next.only_record().finding.life.changes,
        led.only_record().finding.life.changes,
        "nothing happened to it"
    );
    next.run_with_coverage(50, &EvidenceCoverage::ReadFor(60.0))
        .run_with_coverage(1, &EvidenceCoverage::Unread)
        .run_with_coverage(60, &EvidenceCoverage::ReadFor(60.0));
    assert_eq!(next.life.unsettled_findings().count(), 1, "it was looked at, but not all the time");
    next.run_with_coverage(10, &EvidenceCoverage::ReadFor(60.0));
    assert_eq!((next.life.unsettled_findings().count(), next.life.open_records().len()), (0, 1));
    next.run_with_coverage(1, &EvidenceCoverage::ReadFor(60.0));
    assert_eq!(next.life.closed_records().len(), 1, "then its evidence was gone for ten seconds");
    let mut seen = led.after_restart(300);
    seen.run_with_coverage(50, &EvidenceCoverage::Unread).with_evidence(1);
    let life = &seen.only_record().finding.life;
    assert_eq!((life.opened, life.openings), (UnixMs(1_000), 1));
    assert_eq!(seen.life.opened_counts()[&FindingKind::HostBound], 1, "and not opened anew");
}

#[test]
fn finding_that_cannot_come_back_is_closed_with_a_reason() {
    let mut led = LifecycleRun::default();
    led.with_evidence(30);
    let mut next = led.after_restart(60);
    next.run_with_coverage(1, &EvidenceCoverage::NeverRead("its node is gone".into()));
    let last = next.only_record().finding.life.changes.last().unwrap();
    assert_eq!((last.what, last.to.as_str()), (FindingEvent::Closed, "its node is gone"));
}

#[test]
fn severity_does_not_fall_while_averages_begin_anew() {
    let mut led = LifecycleRun::default();
    led.run_step(vec![node_finding("a", Severity::Critical, 1.0)]);
    let mut next = led.after_restart(5);
    let step = |next: &mut LifecycleRun, look: EvidenceCoverage| {
        next.now += 1;
        let findings = vec![node_finding("a", Severity::Warning, 1.0)];
        let looks = next
            .life
            .unsettled_findings()
            .map(|finding| (finding.id.clone(), look.clone()))
            .collect();
        let seen = DetectorOutcome { findings, coverage: looks, ..DetectorOutcome::default() };
        next.life.apply_outcome(UnixMs(next.now * 1_000), PERIOD, &next.limits, seen);
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
fn suspicion_goes_on_over_a_restart_and_what_nobody_saw_does_not_count() {
    let suspect = |led: &mut LifecycleRun, seconds: i64, hold: f64| {
        (0..seconds).all(|_| {
            let entity = Entity::new_node(&"a".into());
            let held = PendingFinding::of(FindingKind::IdleAllocated, entity, 1, true)
                .with_hold_seconds(hold);
            led.now += 1;
            let seen = DetectorOutcome { suspicions: vec![held], ..DetectorOutcome::default() };
            led.life.apply_outcome(UnixMs(led.now * 1_000), PERIOD, &led.limits, seen);
            led.life.open_records().is_empty()
        })
    };
    let mut led = LifecycleRun::default();
    assert!(suspect(&mut led, 500, 540.0));
    let mut next = led.after_restart(200);
    assert!(suspect(&mut next, 41, 540.0), "500 s were seen, and 200 s were not");
    assert!(!suspect(&mut next, 1, 540.0));
    assert_eq!(next.only_record().finding.since, UnixMs(1_000));
    let mut soon = led.after_restart(2);
    assert!(suspect(&mut soon, 10, 501.0), "the first samples are no averages");
    assert!(!suspect(&mut soon, 1, 501.0));
    let mut late = led.after_restart(700);
    assert!(suspect(&mut late, 540, 540.0), "who was away for long begins anew");
}

#[test]
fn what_one_does_after_another_has_not_lasted() {
    let mut led = LifecycleRun::default();
    let step = |led: &mut LifecycleRun, members: &[&str]| {
        let entity = Entity::new(gaunt_schema::EntityKind::Storage);
        let held =
            PendingFinding::of(FindingKind::StorageSlow, entity, 2, true).with_hold_seconds(10.0);
        let held = held.with_members(members.iter().map(ToString::to_string));
        led.now += 1;
        let seen = DetectorOutcome { suspicions: vec![held], ..DetectorOutcome::default() };
        led.life.apply_outcome(UnixMs(led.now * 1_000), PERIOD, &led.limits, seen);
        led.life.open_records().len()
    };
    // One job writes its checkpoint after the other.
    assert!((0..8).all(|_| step(&mut led, &["a"]) == 0));
    assert!((0..8).all(|_| step(&mut led, &["b"]) == 0));
    // Both wait, and one of them did all the time.
    assert!((0..2).all(|_| step(&mut led, &["a", "b"]) == 0));
    assert_eq!(step(&mut led, &["b"]), 1);
}

/// The state and the openings of a finding of this kind after each step of 15 s with (`true`) or without its evidence.
fn read_seldom(kind: FindingKind, evidence: &[bool]) -> Vec<Option<(LifeState, u32)>> {
    let mut led = LifecycleRun::default();
    let mut step = |seen: &bool| {
        led.now += 15;
        let finding = PendingFinding::of(kind, Entity::new_node(&"a".into()), 1, true).finding;
        let findings = if *seen { vec![finding] } else { Vec::new() };
        let seen = DetectorOutcome { findings, ..DetectorOutcome::default() };
        led.life.apply_outcome(UnixMs(led.now * 1_000), Duration::from_secs(15), &led.limits, seen);
        let record = led.life.open_records().first().map(|record| record.finding.life.clone());
        record.map(|life| (life.state, life.openings))
    };
    evidence.iter().map(&mut step).collect()
}

#[test]
fn finding_read_seldom_does_not_flap_and_closes_after_two_pages_without_its_evidence() {
    let mut evidence = [true; 40].to_vec();
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
