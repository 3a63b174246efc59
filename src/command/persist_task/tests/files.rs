//! Tests of clock changes during downtime, and of files that are truncated or were written by an older version.

use std::fs;

use gaunt_schema::LifeState;
use serde_json::{Map, Value};

use super::*;

const HOUR_MS: i64 = 3_600_000;

/// The clock changes during downtime: the finding keeps its identity, and closes when its fault ends.
fn outlives_clock(kind: FindingKind, period: Duration, set_ms: i64) {
    let duration = Duration::from_mins(10);
    let mut run = KilledEngineRun::of(
        SingleFaultFleet::with_end(kind, 0, START, duration.as_secs_f64()),
        period,
    );
    let fault_end = run.fleet.onset_time() + duration;
    while run.fault_finding().is_none() {
        assert!(run.now < fault_end, "{kind} is not found");
        run.step_period();
    }
    run.run_until(run.now + EVERY * 2 + period, |_| {});
    let (first, opened_before) = (run.fault_finding().unwrap(), run.opened_counts());
    run.ahead_ms = set_ms;
    run.kill_and_resume(5);
    run.run_until(fault_end, |run| {
        let found =
            run.fault_finding().unwrap_or_else(|| panic!("closed: {:?}", run.explained(&first.id)));
        assert_eq!((&found.id, found.life.opened), (&first.id, first.life.opened));
        assert!(found.severity >= first.severity, "{found:?}");
        assert_ne!(found.life.state, LifeState::Flapping, "{found:?}");
    });
    assert_eq!(run.opened_counts().get(&kind), opened_before.get(&kind), "{kind} is opened twice");
    let end = run.now + Duration::from_mins(10);
    while run.fault_finding().is_some() {
        assert!(run.now < end, "{kind} never closes: {:?}", run.fault_finding());
        run.step_period();
    }
    let life = run.explained(&first.id).unwrap().life;
    assert_eq!(life.closed, Some(run.clock()), "{life:?}");
}

#[test]
fn findings_outlive_a_clock_that_is_set_back_by_an_hour() {
    outlives_clock(FindingKind::PortDown, SECOND, -HOUR_MS);
    outlives_clock(FindingKind::DataStarved, SECOND, -HOUR_MS);
    outlives_clock(FindingKind::TargetDown, SECOND, -HOUR_MS);
}

#[test]
fn findings_outlive_a_clock_that_is_set_forward_by_a_day() {
    outlives_clock(FindingKind::PortDown, SECOND, 24 * HOUR_MS);
    outlives_clock(FindingKind::DataStarved, SECOND, 24 * HOUR_MS);
    outlives_clock(FindingKind::TargetDown, SECOND, 24 * HOUR_MS);
}

#[test]
fn flapping_ends_although_the_clock_was_set_back() {
    let (duration, pause) = (Duration::from_mins(1), Duration::from_mins(1));
    let fleet = SingleFaultFleet::repeating(FindingKind::PortDown, 0, START, duration, pause);
    let mut run = KilledEngineRun::of(fleet, SECOND);
    while run.fault_finding().is_none_or(|found| found.life.state != LifeState::Flapping) {
        assert!(run.now < START + Duration::from_mins(20), "it does not flap");
        run.step_period();
    }
    run.run_until(run.now + EVERY * 2, |_| {});
    run.ahead_ms = -HOUR_MS;
    run.fleet = SingleFaultFleet::of(FindingKind::PortDown, 0, START);
    run.kill_and_resume(5);
    run.run_until(run.now + Duration::from_mins(32), |_| {});
    let found = run.fault_finding().expect("the port is down");
    assert_ne!(found.life.state, LifeState::Flapping, "{:?}", found.life);
}

#[test]
fn truncated_file_of_findings_is_set_aside_and_the_fault_is_found_again() {
    let mut run = KilledEngineRun::new(FindingKind::PortDown, SECOND);
    run.run_until(run.fleet.onset_time() + Duration::from_mins(2), |_| {});
    let first = run.fault_finding().expect("the port is down");
    let path = run.folder.path().join("findings.gaunt");
    let complete = fs::read(&path).unwrap();
    let truncated = &complete[..complete.len() / 2];
    fs::write(&path, truncated).unwrap();
    run.kill_and_resume(3);
    let aside = run.folder.path().join("findings.gaunt.damaged");
    assert_eq!(fs::read(aside).unwrap(), truncated);
    // The baselines are complete: the port was active before.
    run.run_until(run.now + SECOND * 5, |_| {});
    let found = run.fault_finding().expect("the port is still down");
    assert_eq!((&found.id, found.severity), (&first.id, first.severity));
}

/// Fields that the first version of the format did not write.
const LATER: [&str; 11] = [
    "jobs",
    "pending",
    "hangs",
    "chain",
    "active",
    "drifts",
    "nvlinks",
    "errors",
    "addresses",
    "seen",
    "accepted",
];

/// Separates the lifecycle of a record from its finding, as the first version did.
fn separate_lifecycle(record: &mut Map<String, Value>) {
    let openings = record.remove("openings").unwrap();
    let finding = record["finding"].as_object_mut().unwrap();
    let mut life = finding.remove("life").unwrap();
    life["openings"] = openings;
    finding.retain(|name, _| {
        !["cost_gpu_hours_per_hour", "missing", "acknowledged"].contains(&name.as_str())
    });
    record.insert("life".to_owned(), life);
}

/// Converts a value to the first version of the format.
fn older(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("finding") {
                separate_lifecycle(fields);
            }
            // The first version already wrote the `seen` time of a finding.
            let is_lifecycle = fields.contains_key("openings");
            fields.retain(|name, _| {
                (is_lifecycle && name == "seen") || !LATER.contains(&name.as_str())
            });
            fields.values_mut().for_each(older);
        }
        Value::Array(values) => {
            if let [
                Value::Number(_),
                Value::Number(_),
                Value::Number(_),
                Value::Bool(_),
                Value::Number(_),
            ] = values.as_slice()
            {
                values.remove(3);
            }
            values.iter_mut().for_each(older);
        }
        _ => {}
    }
}

#[test]
fn files_of_the_first_version_are_read() {
    for kind in [FindingKind::PortDown, FindingKind::DataStarved] {
        let mut run = KilledEngineRun::new(kind, SECOND);
        run.run_until(run.fleet.onset_time() + Duration::from_mins(2), |_| {});
        let (first, opened_before) =
            (run.fault_finding().expect("it is found"), run.opened_counts());
        let state = run.engine.persisted_state().unwrap();
        let baselines: &BaselineSnapshot = state.learned_baselines().unwrap();
        let mut parts =
            [serde_json::to_value(&state).unwrap(), serde_json::to_value(baselines).unwrap()];
        let before = parts.clone();
        parts.iter_mut().for_each(older);
        assert!(parts[0] != before[0] && parts[1] != before[1], "nothing is older");
        run.writer = None;
        let mut store = StateStore::open_folder(run.folder.path()).unwrap();
        for (part, value) in [StatePart::Findings, StatePart::Baselines].into_iter().zip(&parts) {
            store.save_part(part, &serde_json::to_vec(value).unwrap()).unwrap();
        }
        drop(store);
        run.kill_and_resume(3);
        let damaged = fs::read_dir(run.folder.path()).unwrap().filter_map(Result::ok);
        let damaged: Vec<_> =
            damaged.filter(|file| file.file_name().to_string_lossy().contains("damaged")).collect();
        assert!(damaged.is_empty(), "{damaged:?}");
        run.run_until(run.now + Duration::from_mins(5), |run| {
            let found = run.fault_finding().unwrap_or_else(|| panic!("{kind} is lost"));
            assert_eq!((&found.id, found.life.opened), (&first.id, first.life.opened));
        });
        assert_eq!(
            run.opened_counts().get(&kind),
            opened_before.get(&kind),
            "{kind} is opened twice"
        );
    }
}
