//! Findings that open, change, come back, flap, close, are forgotten and outlive a restart.

use gaunt_schema::{Entity, LifeState, Severity, Turn};

use super::*;

const PERIOD: Duration = Duration::from_secs(1);

/// A life that is led second by second.
#[derive(Default)]
struct Led {
    life: Life,
    limits: Thresholds,
    now: i64,
}

fn finding(place: &str, severity: Severity, lost_gpus: f64) -> Finding {
    let entity = Entity::node(&place.into());
    let kinds = if severity == Severity::Critical { 2 } else { 1 };
    let made = Suspicion::of(FindingKind::HostBound, entity, kinds, true);
    made.costs(lost_gpus, Vec::new()).finding
}

impl Led {
    fn step(&mut self, findings: Vec<Finding>) {
        self.now += 1;
        let costs: Vec<_> = findings.iter().map(|f| (f.id.clone(), f.lost_gpus)).collect();
        let seen = Seen { findings, ..Seen::default() };
        let now = UnixMs(self.now * 1_000);
        self.life.step(now, PERIOD, &self.limits, seen);
        self.life.charge(now, costs.iter().map(|(id, cost)| (id, *cost)));
    }

    /// So many seconds in which the evidence of one finding is there.
    fn with(&mut self, seconds: i64) -> &mut Self {
        for _ in 0..seconds {
            self.step(vec![finding("a", Severity::Warning, 1.0)]);
        }
        self
    }

    /// So many seconds in which it is not.
    fn without(&mut self, seconds: i64) -> &mut Self {
        for _ in 0..seconds {
            self.step(Vec::new());
        }
        self
    }

    fn only(&self) -> &Told {
        let all: Vec<_> = self.life.known.values().collect();
        assert_eq!(all.len(), 1);
        &all[0].told
    }

    fn turns(&self) -> Vec<(i64, Turn)> {
        let turns = self.only().life.changes.iter();
        turns.map(|turn| (turn.at.0 / 1_000, turn.what)).collect()
    }
}

#[test]
fn a_finding_closes_after_a_while_and_is_remembered() {
    let mut led = Led::default();
    led.with(5).without(9);
    assert_eq!((led.life.open().len(), led.only().life.state), (1, LifeState::Open));
    led.without(1);
    assert_eq!((led.life.open().len(), led.life.closed().len()), (0, 1));
    let life = &led.only().life;
    assert_eq!((life.state, life.opened.0, life.seen.0), (LifeState::Closed, 1_000, 5_000));
    assert_eq!(life.closed, Some(UnixMs(15_000)));
    assert_eq!(led.turns(), [(1, Turn::Opened), (15, Turn::Closed)]);
}

#[test]
fn one_that_comes_back_soon_is_the_same_and_later_another() {
    let mut led = Led::default();
    led.with(5).without(10).with(1);
    assert_eq!(led.turns(), [(1, Turn::Opened), (15, Turn::Closed), (16, Turn::Reopened)]);
    assert_eq!(led.only().life.opened, UnixMs(1_000), "it is the same finding");
    led.without(10 + 601).with(1);
    assert_eq!(led.turns(), [(led.now, Turn::Opened)], "after ten minutes it is another one");
    assert_eq!(led.life.opened()[&FindingKind::HostBound], 3);
}

#[test]
fn one_that_comes_and_goes_is_one_flapping_finding() {
    let mut led = Led::default();
    for _ in 0..10 {
        led.with(3).without(20);
    }
    let life = &led.only().life;
    assert_eq!((life.state, life.openings.len()), (LifeState::Flapping, 10));
    assert_eq!(led.life.opened()[&FindingKind::HostBound], 3, "then it stayed open");
    let flapping = led.turns().into_iter().filter(|(_, what)| *what == Turn::Flapping);
    assert_eq!(flapping.collect::<Vec<_>>(), [(47, Turn::Flapping)]);
    led.without(159);
    assert_eq!(led.life.open().len(), 1, "it is waited for longer");
    led.without(1);
    assert_eq!(led.only().life.state, LifeState::Closed);
}

#[test]
fn one_that_stands_for_long_does_not_flap_any_more() {
    let mut led = Led::default();
    led.with(1).without(10).with(1).without(10).with(1);
    assert_eq!(led.only().life.state, LifeState::Flapping);
    led.with(600);
    assert_eq!(led.only().life.state, LifeState::Open);
}

#[test]
fn severity_rises_at_once_and_falls_late() {
    let mut led = Led::default();
    led.with(1);
    led.step(vec![finding("a", Severity::Critical, 1.0)]);
    assert_eq!(led.only().finding.severity, Severity::Critical);
    assert_eq!(led.only().life.state, LifeState::Changing);
    led.with(10);
    assert_eq!(led.only().finding.severity, Severity::Critical, "not yet");
    led.with(1);
    assert_eq!(led.only().finding.severity, Severity::Warning);
    let changes: Vec<_> = led.only().life.changes[1..].iter().collect();
    let said: Vec<_> = changes.iter().map(|c| (c.at.0, &*c.from, &*c.to)).collect();
    assert_eq!(said, [(2_000, "warning", "critical"), (13_000, "critical", "warning")]);
    led.with(60);
    assert_eq!(led.only().life.state, LifeState::Open);
}

#[test]
fn a_cost_that_moves_is_noted_now_and_then_and_changes_are_bounded() {
    let mut led = Led::default();
    for second in 0..3_600_u32 {
        let cost = if second % 60 < 30 { 1.0 } else { 100.0 };
        led.step(vec![finding("a", Severity::Warning, cost)]);
    }
    let life = &led.only().life;
    assert_eq!((life.changes.len(), life.changes[0].what), (24, Turn::Opened));
    let (last, first) = (&life.changes[23], &life.changes[1]);
    assert!(last.at.since(first.at) > Duration::from_mins(10), "far apart: {first:?} {last:?}");
}

#[test]
fn a_thousand_findings_are_open_at_most_and_the_closed_are_forgotten_in_time() {
    let mut led = Led::default();
    let many = |from: usize| -> Vec<_> {
        let places = (from..from + 1_100).map(|place| format!("node{place}"));
        places.map(|place| finding(&place, Severity::Warning, 1.0)).collect()
    };
    led.step(many(0));
    // Of one kind: the others have places of their own.
    let open = led.life.open().len();
    assert!((MAX_OPEN / 2..MAX_OPEN).contains(&open), "{open}");
    let revision = led.life.revision();
    led.without(20);
    assert_eq!((led.life.open().len(), led.life.closed().len()), (0, open));
    assert!(led.life.revision() > revision);
    led.step(many(5_000));
    led.without(10);
    assert_eq!((led.life.known.len(), led.life.closed().len()), (MAX_CLOSED, MAX_CLOSED));
    assert!(led.life.closed()[0].finding.id.contains("node5"), "the newest stay");
    led.now += 24 * 3_600;
    led.without(1);
    assert!(led.life.known.is_empty());
}

impl Led {
    /// Another one goes on after so many seconds with what was written down of this one.
    fn restarted(&self, gap: i64) -> Self {
        let past = serde_json::to_string(&self.life.past()).unwrap();
        let life = Life::resume(serde_json::from_str(&past).unwrap());
        Self { life, now: self.now + gap, ..Self::default() }
    }

    /// So many seconds in which its evidence is not there, and this is looked at.
    fn looking(&mut self, seconds: i64, look: &Look) -> &mut Self {
        for _ in 0..seconds {
            self.now += 1;
            let unsettled = self.life.unsettled().map(|finding| (finding.id.clone(), look.clone()));
            let seen = Seen { looks: unsettled.collect(), ..Seen::default() };
            self.life.step(UnixMs(self.now * 1_000), PERIOD, &self.limits, seen);
        }
        self
    }
}

#[test]
fn finding_outlives_a_restart_until_all_that_it_rests_on_was_looked_at() {
    let mut led = Led::default();
    led.with(30);
    let mut next = led.restarted(300);
    next.looking(5_000, &Look::Nothing);
    assert_eq!(next.only().life.changes, led.only().life.changes, "nothing happened to it");
    next.looking(50, &Look::At(60.0)).looking(1, &Look::Nothing).looking(60, &Look::At(60.0));
    assert_eq!(next.life.unsettled().count(), 1, "it was looked at, but not all the time");
    next.looking(10, &Look::At(60.0));
    assert_eq!((next.life.unsettled().count(), next.life.open().len()), (0, 1));
    next.looking(1, &Look::At(60.0));
    assert_eq!(next.life.closed().len(), 1, "then its evidence was gone for ten seconds");
    let mut seen = led.restarted(300);
    seen.looking(50, &Look::Nothing).with(1);
    let life = &seen.only().life;
    assert_eq!((life.opened, life.openings.len()), (UnixMs(1_000), 1));
    assert_eq!(seen.life.opened()[&FindingKind::HostBound], 1, "and not opened anew");
}

#[test]
fn finding_that_cannot_come_back_is_closed_with_a_reason() {
    let mut led = Led::default();
    led.with(30);
    let mut next = led.restarted(60);
    next.looking(1, &Look::Never("its node is gone".into()));
    let last = next.only().life.changes.last().unwrap();
    assert_eq!((last.what, last.to.as_str()), (Turn::Closed, "its node is gone"));
}

#[test]
fn severity_does_not_fall_while_averages_begin_anew() {
    let mut led = Led::default();
    led.step(vec![finding("a", Severity::Critical, 1.0)]);
    let mut next = led.restarted(5);
    let step = |next: &mut Led, look: Look| {
        next.now += 1;
        let findings = vec![finding("a", Severity::Warning, 1.0)];
        let looks =
            next.life.unsettled().map(|finding| (finding.id.clone(), look.clone())).collect();
        let seen = Seen { findings, looks, ..Seen::default() };
        next.life.step(UnixMs(next.now * 1_000), PERIOD, &next.limits, seen);
        next.only().finding.severity
    };
    assert!((0..100).all(|_| step(&mut next, Look::At(100.0)) == Severity::Critical));
    let after: Vec<_> = (0..12).map(|_| step(&mut next, Look::At(100.0))).collect();
    assert_eq!(after[11], Severity::Warning);
}

#[test]
fn suspicion_goes_on_over_a_restart_and_what_nobody_saw_does_not_count() {
    let suspect = |led: &mut Led, seconds: i64, hold: f64| {
        (0..seconds).all(|_| {
            let entity = Entity::node(&"a".into());
            let held = Suspicion::of(FindingKind::IdleAllocated, entity, 1, true).hold(hold);
            led.now += 1;
            let seen = Seen { suspicions: vec![held], ..Seen::default() };
            led.life.step(UnixMs(led.now * 1_000), PERIOD, &led.limits, seen);
            led.life.open().is_empty()
        })
    };
    let mut led = Led::default();
    assert!(suspect(&mut led, 500, 540.0));
    let mut next = led.restarted(200);
    assert!(suspect(&mut next, 41, 540.0), "500 s were seen, and 200 s were not");
    assert!(!suspect(&mut next, 1, 540.0));
    assert_eq!(next.only().finding.since, UnixMs(1_000));
    let mut soon = led.restarted(2);
    assert!(suspect(&mut soon, 10, 501.0), "the first samples are no averages");
    assert!(!suspect(&mut soon, 1, 501.0));
    let mut late = led.restarted(700);
    assert!(suspect(&mut late, 540, 540.0), "who was away for long begins anew");
}

#[test]
fn what_one_does_after_another_has_not_lasted() {
    let mut led = Led::default();
    let step = |led: &mut Led, members: &[&str]| {
        let entity = Entity::new(gaunt_schema::EntityKind::Storage);
        let held = Suspicion::of(FindingKind::StorageSlow, entity, 2, true).hold(10.0);
        let held = held.rests_on(members.iter().map(ToString::to_string));
        led.now += 1;
        let seen = Seen { suspicions: vec![held], ..Seen::default() };
        led.life.step(UnixMs(led.now * 1_000), PERIOD, &led.limits, seen);
        led.life.open().len()
    };
    // One job writes its checkpoint after the other.
    assert!((0..8).all(|_| step(&mut led, &["a"]) == 0));
    assert!((0..8).all(|_| step(&mut led, &["b"]) == 0));
    // Both wait, and one of them did all the time.
    assert!((0..2).all(|_| step(&mut led, &["a", "b"]) == 0));
    assert_eq!(step(&mut led, &["b"]), 1);
}

#[test]
fn finding_read_seldom_does_not_flap_and_closes_after_two_pages_without_its_evidence() {
    let mut led = Led::default();
    let mut step = |seen: bool| {
        led.now += 15;
        let findings = if seen { vec![finding("a", Severity::Warning, 1.0)] } else { Vec::new() };
        let seen = Seen { findings, ..Seen::default() };
        led.life.step(UnixMs(led.now * 1_000), Duration::from_secs(15), &led.limits, seen);
        let told = led.life.open().first().map(|told| told.life.clone());
        told.map(|life| (life.state, life.openings.len()))
    };
    for _ in 0..40 {
        assert_eq!(step(true), Some((LifeState::Open, 1)));
    }
    assert_eq!(step(false), Some((LifeState::Open, 1)), "one page without it");
    assert_eq!(step(true), Some((LifeState::Open, 1)));
    assert!(step(false).is_some());
    assert_eq!(step(false), None, "two pages without it");
}
