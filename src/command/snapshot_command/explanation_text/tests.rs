//! Tests of the explanation text, line by line.

use gaunt_schema::{AbsenceReason, Entity, FindingKind, LossShare, SanitizedText, Severity};

use super::*;
use gaunt_api::{
    Acknowledgement, EvidenceRole, FindingContext, FindingLifecycle, FleetChange, FleetChangeKind,
    LimitSide, VictimJob,
};

/// 12:03:41 UTC.
const NOW: UnixMs = UnixMs(43_421_000);

fn evidence_item(
    what: &str,
    value: Option<f64>,
    limit: Option<f64>,
    threshold: &str,
) -> EvidenceItem {
    EvidenceItem {
        what: what.to_owned(),
        value,
        unit: Unit::Ratio,
        limit,
        side: limit.map_or(LimitSide::Unknown, |_| LimitSide::AtLeast),
        role: limit.map_or(EvidenceRole::Context, |_| EvidenceRole::Proof),
        note: String::new(),
        source: "gaunt_gpu_sm_clock_hertz".to_owned(),
        threshold: threshold.to_owned(),
        past: gaunt_api::HistoryRelation::default(),
    }
}

fn lifecycle_change(seconds_ago: i64, what: FindingEvent, from: &str, to: &str) -> LifecycleChange {
    LifecycleChange {
        at: UnixMs(NOW.0 - seconds_ago * 1_000),
        what,
        from: from.into(),
        to: to.into(),
    }
}

fn sample_finding() -> Finding {
    let node = SanitizedText::new("gpu-0417");
    let job = |node: &str| Entity { job: Some("8812".into()), ..Entity::new_node(&node.into()) };
    let entity = Entity::new_gpu(&node, &"5".into());
    let finding = Finding {
        since: UnixMs(NOW.0 - 370_000),
        confidence: 0.97,
        victims: (0..14).map(|n| job(&format!("gpu-{n:04}"))).collect(),
        summary: "gpu-0417 · GPU 5 is throttled: SM clock 0.61 × peer median, thermal or HW slowdown; 511 GPUs of its job wait.".to_owned(),
        next: "Check its temperature, cooling and power supply.".to_owned(),
        evidence: vec![
            evidence_item("thermal or HW slowdown", Some(0.93), Some(0.5), "clock_event_ratio"),
            EvidenceItem { note: "beside 7 others".to_owned(), ..evidence_item("SM clock / peer median", Some(0.61), None, "") },
        ],
        missing: vec!["no PSI metrics: cannot tell IO wait from CPU contention".to_owned()],
        life: FindingLifecycle {
            state: LifeState::Changing,
            opened: UnixMs(NOW.0 - 365_000),
            seen: NOW,
            closed: None,
            openings: 2,
            changes: vec![
                lifecycle_change(365, FindingEvent::Opened, "", "warning"),
                lifecycle_change(40, FindingEvent::Severity, "warning", "critical"),
                lifecycle_change(20, FindingEvent::Acknowledged, "", "alice"),
            ],
        },
        acknowledged: Some(Acknowledgement {
            by: "alice".into(),
            at: UnixMs(NOW.0 - 20_000),
            note: "fan ordered".into(),
            severity: Severity::Critical,
        }),
        ..Finding::new(FindingKind::Throttled, Severity::Critical, entity)
    };
    finding.with_lost_gpus(511.0)
}

fn sample_context() -> FindingContext {
    FindingContext {
        id: sample_finding().id,
        jobs: vec![VictimJob {
            job: "8812".into(),
            name: Some("llama-pt".into()),
            user: Some("alice".into()),
            account: None,
            gpus: 512,
        }],
        job_count: 1,
        cost_per_hour: Some(1_277.5),
        currency: "USD".into(),
        changes: vec![FleetChange {
            at: UnixMs(sample_finding().since.0 - 20_000),
            kind: FleetChangeKind::JobStarted,
            job: Some("8812".into()),
            nodes: Vec::new(),
            node_count: 64,
            what: SanitizedText::default(),
        }],
    }
}

fn sample_explanation() -> Explanation {
    let signal = |what: &str, value, absent, usual| SignalDetail {
        what: what.to_owned(),
        source: "gaunt_gpu_power_watts".to_owned(),
        unit: Unit::Ratio,
        value,
        absent,
        usual,
        peers: Some(0.7),
        quartiles: Some((0.68, 0.72)),
    };
    let other = |kind, ruling, value| AlternativeDetail {
        kind,
        ruling,
        number: evidence_item(
            "IO pressure (PSI or iowait)",
            value,
            Some(0.08),
            "io_pressure_ratio",
        ),
    };
    Explanation {
        context: Some(sample_context()),
        at: NOW,
        finding: sample_finding(),
        rule: "An active GPU reports a thermal or HW slowdown for most of the time.".to_owned(),
        limits: vec![LimitDetail {
            key: "clock_event_ratio".to_owned(),
            value: 0.5,
            why: "Share of the time for which a clock-event (throttle) reason must be active."
                .to_owned(),
        }],
        chain: Some(EvidenceContext {
            at: NOW,
            peers: "7 other GPUs of job 8812".to_owned(),
            signals: vec![
                signal("power / power limit", Some(0.41), None, Some(0.71)),
                signal("tensor activity", None, Some(AbsenceReason::NoPermission), None),
            ],
            alternatives: vec![
                other(FindingKind::DataStarved, AlternativeOutcome::RuledOut, Some(0.01)),
                other(FindingKind::LinkErrors, AlternativeOutcome::AlsoThere, Some(0.5)),
                other(FindingKind::LeafCongested, AlternativeOutcome::Unknown, None),
            ],
        }),
        earlier_count: 0,
        earlier: Vec::new(),
    }
}

#[test]
fn explanation_page_has_all_sections_in_order() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/screens/explain.txt");
    let page = render_page(&sample_explanation());
    if std::env::var_os("GAUNT_BLESS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    assert!(page == expected, "the page is not that of {path}:\n{page}");
}

#[test]
fn closed_finding_shows_how_long_it_lasted() {
    let mut explanation = sample_explanation();
    explanation.finding.life.state = LifeState::Closed;
    explanation.finding.life.closed = Some(UnixMs(NOW.0 - 60_000));
    let page = render_page(&explanation);
    let line = page.lines().nth(1).unwrap();
    assert!(
        line.starts_with("critical · closed at 12:02:41Z, 1m ago, after 5m10 · confidence"),
        "{line}"
    );
}

#[test]
fn finding_with_little_data_has_no_empty_sections() {
    let mut explanation = sample_explanation();
    explanation.chain = None;
    explanation.limits.clear();
    explanation.finding.evidence.clear();
    explanation.finding.missing.clear();
    explanation.finding.victims.clear();
    explanation.finding.acknowledged = None;
    let page = render_page(&explanation);
    for title in ["SIGNALS", "RULED OUT", "EVIDENCE", "LIMITS", "MISSING", "VICTIMS", "ACK"] {
        assert!(!page.contains(title), "{title} in\n{page}");
    }
}

#[test]
fn undecided_cause_names_the_others_with_their_shares() {
    let mut explanation = sample_explanation();
    let share = |id: &str, share| LossShare { id: id.to_owned(), share };
    let id = explanation.finding.id.clone();
    explanation.finding.loss_shares = vec![share("storage_slow/job-71", 0.58), share(&id, 0.42)];
    let page = render_page(&explanation);
    let text = "42 % of the loss is attributed to this finding, 58 % to storage_slow/job-71";
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&page).contains(&format!("UNDECIDED {text}")), "{page}");
    explanation.finding.loss_shares.clear();
    assert!(!render_page(&explanation).contains("UNDECIDED"));
}
