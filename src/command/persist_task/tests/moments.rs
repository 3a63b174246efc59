//! Tests of kills while a finding changes: while it flaps, while its severity rises, during its hold-down, and just
//! after it closed.

use gaunt_schema::LifeState;

use super::*;

/// Duration of an intermittent fault: long enough to be found, and off for long enough to close.
const LASTS: Duration = Duration::from_secs(90);
const AWAY: Duration = Duration::from_mins(1);

/// End of a fault.
const ENDS: Duration = Duration::from_mins(4);

/// Periods of downtime, and periods for which the next engine runs.
const OFTEN: [(u32, u32); 10] =
    [(2, 20), (5, 12), (1, 5), (20, 30), (3, 16), (2, 35), (10, 25), (1, 10), (2, 45), (4, 22)];

/// A flapping finding is one finding, and keeps flapping, however often the engine is down.
fn flaps_on(kind: FindingKind, period: Duration) {
    let (duration, pause) = if period > SECOND { (LASTS * 2, AWAY * 2) } else { (LASTS, AWAY) };
    let mut run =
        KilledEngineRun::of(SingleFaultFleet::repeating(kind, 0, START, duration, pause), period);
    let end = run.fleet.onset_time() + (duration + pause) * 6;
    while run.fault_finding().is_none_or(|found| found.life.state != LifeState::Flapping) {
        assert!(run.now < end, "{kind} does not flap: {:?}", run.fault_finding().map(|it| it.life));
        run.step_period();
    }
    run.run_until(run.now + EVERY + period, |_| {});
    let first = run.fault_finding().unwrap_or_else(|| panic!("{kind} closed at once"));
    let opened_before = run.opened_counts();
    for (kill_index, (gap, run_seconds)) in OFTEN.into_iter().enumerate() {
        run.kill_and_resume(gap);
        let context = |run: &KilledEngineRun| {
            format!("{kind}, kill {kill_index}: {:?}", run.explained(&first.id))
        };
        let found = run.fault_finding().unwrap_or_else(|| panic!("closed: {}", context(&run)));
        assert_eq!(found.life.state, LifeState::Flapping, "{}", context(&run));
        run.run_until(run.now + SECOND * run_seconds, |run| {
            let found = run.fault_finding().unwrap_or_else(|| panic!("closed: {}", context(run)));
            assert_eq!((&found.id, found.life.opened), (&first.id, first.life.opened));
        });
    }
    assert_eq!(run.opened_counts().get(&kind), opened_before.get(&kind), "{kind} is opened twice");
}

/// With repeated kills from its opening on, a finding reaches the same severity as without kills, once.
fn rises_on(kind: FindingKind, period: Duration) {
    let mut unkilled = KilledEngineRun::new_unkilled(kind, period);
    let onset = unkilled.fleet.onset_time();
    let mut severities = Vec::new();
    unkilled.run_until(onset + Duration::from_mins(9), |run| {
        severities.extend(run.fault_finding().map(|found| found.severity));
    });
    let last = severities.last().copied();
    severities.dedup();
    let mut run = KilledEngineRun::new(kind, period);
    while run.fault_finding().is_none() {
        assert!(run.now < onset + Duration::from_mins(4), "{kind} is not found");
        run.step_period();
    }
    run.run_until(run.now + EVERY + period, |_| {});
    let (first, opened_before) = (run.fault_finding().unwrap(), run.opened_counts());
    let mut worst = first.severity;
    for kill in 0..10_u32 {
        run.kill_and_resume(1 + kill % 3);
        worst = run.written_finding(&first.id).map_or(worst, |found| found.severity);
        let run_time = (SECOND * (5 + kill)).max(period * 2);
        run.run_until(run.now + run_time, |run| {
            let found =
                run.fault_finding().unwrap_or_else(|| panic!("{kind} closed by kill {kill}"));
            assert!(found.severity >= worst, "{kind}, kill {kill}: {found:?}");
            worst = found.severity;
        });
    }
    run.run_until(onset + Duration::from_mins(9), |_| {});
    let found = run.fault_finding().unwrap();
    assert_eq!((Some(found.severity), &found.id), (last, &first.id), "{kind}: {severities:?}");
    assert_eq!(run.opened_counts().get(&kind), opened_before.get(&kind), "{kind} is opened twice");
    assert!(severity_turns(&found) <= severities.len() as u32, "{kind}: {:?}", found.life);
}

/// With kills during its hold-down, a finding closes once, later, and with a reason.
fn heals_on(kind: FindingKind, period: Duration) {
    let mut run =
        KilledEngineRun::of(SingleFaultFleet::with_end(kind, 0, START, ENDS.as_secs_f64()), period);
    let fault_end = run.fleet.onset_time() + ENDS;
    run.run_until(fault_end, |_| {});
    let first = run.fault_finding().unwrap_or_else(|| panic!("{kind} is not found"));
    let opened_before = run.opened_counts();
    // Its evidence ends from one step to the next, and it is still open.
    while run.fault_finding().is_some_and(|found| found.life.seen == run.now) {
        assert!(run.now < fault_end + Duration::from_mins(15), "{kind} does not heal");
        run.step_period();
    }
    assert!(run.fault_finding().is_some(), "{kind} has no hold-down");
    for gap in [1, 2, 4, 1, 3] {
        run.kill_and_resume(gap);
        run.run_until(run.now + (SECOND * 4).max(period), |run| {
            assert!(run.fault_finding().is_some(), "{kind} closed before it was looked at again");
        });
    }
    let end = run.now + Duration::from_mins(15);
    while run.fault_finding().is_some() {
        assert!(run.now < end, "{kind} never closes: {:?}", run.explained(&first.id));
        run.step_period();
    }
    stays_closed(&mut run, &first, &opened_before);
}

/// With a kill just after it closed, before and after the write, a finding stays closed; if the fault recurs it is the
/// same finding.
fn closes_on(kind: FindingKind, period: Duration, wait_periods: u32) {
    let pause = Duration::from_mins(8);
    let mut run =
        KilledEngineRun::of(SingleFaultFleet::repeating(kind, 0, START, ENDS, pause), period);
    let onset = run.fleet.onset_time();
    run.run_until(onset + ENDS, |_| {});
    let first = run.fault_finding().unwrap_or_else(|| panic!("{kind} is not found"));
    let opened_before = run.opened_counts();
    while run.fault_finding().is_some() {
        assert!(run.now < onset + ENDS + pause, "{kind} does not close");
        run.step_period();
    }
    run.run_until(run.now + period * wait_periods, |_| {});
    let life_before = run.explained(&first.id).unwrap().life;
    run.kill_and_resume(2);
    if wait_periods > 0 {
        run.run_until(run.now + Duration::from_secs(30), |run| {
            assert_eq!(run.explained(&first.id).unwrap().life, life_before, "{kind} is as it was");
        });
    }
    let end = onset + ENDS + pause;
    run.run_until(UnixMs(end.0 - 10_000), |_| {});
    let closed = run.explained(&first.id).unwrap();
    assert_eq!((closed.life.state, run.fault_finding()), (LifeState::Closed, None), "{kind}");
    let closings = closed.life.changes.iter().filter(|change| change.what == FindingEvent::Closed);
    assert_eq!(closings.count(), 1, "{kind}: {:?}", closed.life);
    assert_eq!(run.opened_counts().get(&kind), opened_before.get(&kind), "{kind} is opened twice");
    run.run_until(end + ENDS, |_| {});
    let reopened =
        run.fault_finding().unwrap_or_else(|| panic!("{kind} is not found when it comes again"));
    assert_eq!(reopened.id, first.id);
    assert_eq!(run.opened_counts()[&kind], opened_before[&kind] + 1, "{kind} came twice");
}

/// It is closed with a reason, and not reported again for five minutes.
fn stays_closed(
    run: &mut KilledEngineRun,
    first: &Finding,
    opened_before: &BTreeMap<FindingKind, u64>,
) {
    let kind = first.kind;
    run.run_until(run.now + Duration::from_mins(5), |run| {
        assert!(run.fault_finding().is_none(), "{kind} is open again: {:?}", run.fault_finding());
    });
    let life = run.explained(&first.id).unwrap().life;
    assert_eq!((life.state, life.opened), (LifeState::Closed, first.life.opened), "{kind}");
    let closings: Vec<_> =
        life.changes.iter().filter(|change| change.what == FindingEvent::Closed).collect();
    assert_eq!(closings.len(), 1, "{kind}: {life:?}");
    assert!(!closings[0].to.is_empty(), "{kind} says no reason");
    assert_eq!(run.opened_counts().get(&kind), opened_before.get(&kind), "{kind} is opened twice");
}

macro_rules! each {
    ($($test:ident: $check:ident($kind:ident, $period:expr $(, $more:expr)*);)*) => {
        $(
            #[test]
            fn $test() {
                $check(FindingKind::$kind, $period $(, $more)*);
            }
        )*
    };
}

each! {
    port_down_flaps_over_kills: flaps_on(PortDown, SECOND);
    data_starved_flaps_over_kills: flaps_on(DataStarved, SECOND);
    link_errors_flaps_over_kills: flaps_on(LinkErrors, SECOND);
    target_down_flaps_over_kills: flaps_on(TargetDown, SECOND);
    target_down_rises_over_kills: rises_on(TargetDown, SLOW);
    data_starved_rises_over_kills: rises_on(DataStarved, SECOND);
    storage_slow_rises_over_kills: rises_on(StorageSlow, SECOND);
    throttled_rises_over_kills: rises_on(Throttled, SECOND);
    port_down_heals_over_kills: heals_on(PortDown, SECOND);
    data_starved_heals_over_kills: heals_on(DataStarved, SECOND);
    throttled_heals_over_kills: heals_on(Throttled, SECOND);
    link_errors_heals_over_kills: heals_on(LinkErrors, SECOND);
    nvlink_degraded_heals_over_kills: heals_on(NvlinkDegraded, SECOND);
    fabric_degraded_heals_over_kills: heals_on(FabricDegraded, SECOND);
    target_down_heals_over_kills: heals_on(TargetDown, SECOND);
    driver_hung_heals_over_kills: heals_on(DriverHung, SECOND);
    port_down_closed_outlives_kills: closes_on(PortDown, SECOND, 8);
    data_starved_closed_outlives_kills: closes_on(DataStarved, SECOND, 8);
    throttled_closed_outlives_kills: closes_on(Throttled, SECOND, 8);
    link_errors_closed_outlives_kills: closes_on(LinkErrors, SECOND, 8);
    target_down_closed_outlives_kills: closes_on(TargetDown, SECOND, 8);
    port_down_closed_unwritten_outlives_kills: closes_on(PortDown, SECOND, 0);
    data_starved_closed_unwritten_outlives_kills: closes_on(DataStarved, SECOND, 0);
}
