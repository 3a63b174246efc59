//! The page of one finding, line by line.

use gaunt_schema::{Absent, Entity, FindingKind, Safe, Severity};

use super::*;
use crate::answer::{Acknowledgement, Life};

/// 12:03:41 UTC.
const NOW: UnixMs = UnixMs(43_421_000);

fn number(what: &str, value: Option<f64>, limit: Option<f64>, threshold: &str) -> Evidence {
    Evidence {
        what: what.to_owned(),
        value,
        unit: Unit::Ratio,
        limit,
        note: String::new(),
        source: "gaunt_gpu_sm_clock_hertz".to_owned(),
        threshold: threshold.to_owned(),
        past: crate::answer::Behind::default(),
    }
}

fn change(seconds_ago: i64, what: Turn, from: &str, to: &str) -> Change {
    Change { at: UnixMs(NOW.0 - seconds_ago * 1_000), what, from: from.into(), to: to.into() }
}

fn finding() -> Finding {
    let node = Safe::new("gpu-0417");
    let job = |node: &str| Entity { job: Some("8812".into()), ..Entity::node(&node.into()) };
    Finding {
        id: "throttled/gpu-0417/5".to_owned(),
        kind: FindingKind::Throttled,
        severity: Severity::Critical,
        entity: Entity::gpu(&node, &"5".into()),
        since: UnixMs(NOW.0 - 370_000),
        confidence: 0.97,
        lost_gpus: 511.0,
        cost_gpu_hours_per_hour: 511.0,
        victims: (0..14).map(|n| job(&format!("gpu-{n:04}"))).collect(),
        summary: "gpu-0417 · GPU 5 is throttled by heat or power, at 61 % of its peers' clock; 511 GPUs of its job wait.".to_owned(),
        next: "Look at its temperature, its cooling and its power supply.".to_owned(),
        evidence: vec![
            number("share of the time in which heat or hardware held the clock", Some(0.93), Some(0.5), "clock_event_ratio"),
            Evidence { note: "beside 7 others".to_owned(), ..number("clock against that of its peers", Some(0.61), None, "") },
        ],
        missing: vec!["no pressure of the host is told: whether it waits for storage or a CPU is not known".to_owned()],
        life: Life {
            state: LifeState::Changing,
            opened: UnixMs(NOW.0 - 365_000),
            seen: NOW,
            closed: None,
            openings: 2,
            changes: vec![
                change(365, Turn::Opened, "", "warning"),
                change(40, Turn::Severity, "warning", "critical"),
                change(20, Turn::Acknowledged, "", "alice"),
            ],
        },
        acknowledged: Some(Acknowledgement {
            by: "alice".into(),
            at: UnixMs(NOW.0 - 20_000),
            note: "fan ordered".into(),
            severity: Severity::Critical,
        }),
    }
}

fn told() -> Explanation {
    let signal = |what: &str, value, absent, usual| Signal {
        what: what.to_owned(),
        source: "gaunt_gpu_power_watts".to_owned(),
        unit: Unit::Ratio,
        value,
        absent,
        usual,
        peers: Some(0.7),
        quartiles: Some((0.68, 0.72)),
    };
    let other = |kind, ruling, value| Alternative {
        kind,
        ruling,
        number: number("what is looked at", value, Some(0.08), "io_pressure_ratio"),
    };
    Explanation {
        at: NOW,
        finding: finding(),
        rule: "Hardware or heat holds the clock of a GPU that works for most of the time."
            .to_owned(),
        limits: vec![Limit {
            key: "clock_event_ratio".to_owned(),
            value: 0.5,
            why: "Share of the time that a clock-event reason must hold.".to_owned(),
        }],
        chain: Some(Chain {
            at: NOW,
            peers: "7 other GPUs of job 8812".to_owned(),
            signals: vec![
                signal("power over its limit", Some(0.41), None, Some(0.71)),
                signal("tensor activity", None, Some(Absent::NoPermission), None),
            ],
            alternatives: vec![
                other(FindingKind::DataStarved, Ruling::RuledOut, Some(0.01)),
                other(FindingKind::LinkErrors, Ruling::AlsoThere, Some(0.5)),
                other(FindingKind::LeafCongested, Ruling::Unknown, None),
            ],
        }),
    }
}

#[test]
fn the_whole_chain_is_told_in_the_order_of_reading() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/screens/explain.txt");
    let expected = std::fs::read_to_string(path).unwrap();
    let page = page(&told());
    assert!(page == expected, "the page is not that of {path}:\n{page}");
}

#[test]
fn a_closed_finding_says_how_long_it_lasted() {
    let mut told = told();
    told.finding.life.state = LifeState::Closed;
    told.finding.life.closed = Some(UnixMs(NOW.0 - 60_000));
    let page = page(&told);
    let line = page.lines().nth(1).unwrap();
    assert!(
        line.starts_with("critical · closed at 12:02:41Z, 60 s ago, after 5 min · sure"),
        "{line}"
    );
}

#[test]
fn a_finding_of_which_little_is_known_has_no_empty_sections() {
    let mut told = told();
    told.chain = None;
    told.limits.clear();
    told.finding.evidence.clear();
    told.finding.missing.clear();
    told.finding.victims.clear();
    told.finding.acknowledged = None;
    let page = page(&told);
    for title in ["SIGNALS", "RULED OUT", "EVIDENCE", "LIMITS", "MISSING", "VICTIMS", "TAKEN ON"] {
        assert!(!page.contains(title), "{title} in\n{page}");
    }
}
