//! Tests of the fleet snapshot as plain columns.

use std::sync::Arc;

use gaunt_schema::{Entity, FindingKind, SanitizedText, Severity};

use super::*;
use gaunt_api::{FindingList, JobOwner, NodeCounts, NodeState, StateCount};

/// A port that is down.
fn port_down_finding() -> Finding {
    let node = SanitizedText::new("gpu003");
    let entity = Entity::new_port(&node, &"mlx5_1".into(), &"1".into());
    let finding = Finding {
        since: UnixMs(3_600_000),
        confidence: 0.99,
        summary: "Port mlx5_1/1 of gpu003 is down since 01:00:00Z (45 s).".to_owned(),
        next: "Check the cable and the switch port.".to_owned(),
        evidence: vec![EvidenceItem {
            what: "state".to_owned(),
            value: Some(1.0),
            unit: Unit::Count,
            limit: Some(4.0),
            side: gaunt_api::LimitSide::Below,
            role: gaunt_api::EvidenceRole::Proof,
            note: "7 of 8 sibling ports are active".to_owned(),
            source: String::new(),
            threshold: String::new(),
            past: gaunt_api::HistoryRelation::default(),
        }],
        ..Finding::new(FindingKind::PortDown, Severity::Critical, entity)
    };
    finding.with_lost_gpus(14.0)
}

fn sample_snapshot() -> FleetSnapshot {
    let node = SanitizedText::new("gpu003");
    let finding = port_down_finding();
    let line = NodeLine {
        node,
        state: NodeState::Live,
        age_ms: Some(300),
        gpu_states: "CCCCwwww".to_owned(),
        lost_gpus: 4.0,
        utilization_ratio: Some(0.97),
        power_watts: Some(4_321.0),
        ports: (7, 8),
        jobs: vec!["8812".into()],
        finding: Some(FindingKind::PortDown),
    };
    let overview = Overview {
        cluster: "prod-a".into(),
        at: UnixMs(3_645_000),
        period_ms: 1_000,
        nodes: NodeCounts { live: 1, down: 1, ..NodeCounts::default() },
        states: vec![
            StateCount { state: GpuState::Computing, gpus: 4 },
            StateCount { state: GpuState::Waiting, gpus: 4 },
        ],
        lost: LostGpuTime {
            gpus: 4.0,
            findings_gpus: 3.5,
            unexplained_gpus: 0.5,
            unknown_gpus: 1,
            cost_per_hour: Some(8.0),
            currency: "USD".into(),
            ..LostGpuTime::default()
        },
        worst: vec![line],
        trouble: vec!["b:9770: cannot connect: connection refused".into()],
        ..Overview::default()
    };
    let findings = FindingList { findings: vec![finding], ..FindingList::default() };
    FleetSnapshot {
        overview: Arc::new(overview),
        findings: Arc::new(findings),
        ..FleetSnapshot::default()
    }
}

#[test]
fn page_shows_state_then_cost_then_entity_then_evidence() {
    let expected = "\
gaunt  prod-a · 2 nodes · 8 GPUs · 1 live · 1 down  at 01:00:45Z
GPU TIME  computing 50.0 %   waiting 50.0 %
LOST      4.0 GPUs of 8 (50.0 %)   8.00 USD/h
          findings 3.5   idle in jobs 0.0   unexplained 0.5   unknown 1 GPU

FINDINGS  1 open
critical  port_down            gpu003 · mlx5_1/1                45s    14.0 GPUs lost  conf  99 %
          Port mlx5_1/1 of gpu003 is down since 01:00:00Z (45 s).
          · state 1 (limit < 4) - 7 of 8 sibling ports are active
          next: Check the cable and the switch port.

NODE    state  GPUs              lost   util     power  ports  finding                 jobs
gpu003  live   CCCCwwww           4.0   97 %    4321 W    7/8  port_down               8812
C computing   w waiting

PROBLEMS
  b:9770: cannot connect: connection refused
";
    assert_eq!(render_page(&sample_snapshot()), expected);
}

#[test]
fn findings_of_one_kind_are_one_line_below_a_worse_one() {
    let mut findings = vec![sample_snapshot().findings.findings[0].clone()];
    findings.extend((0..83).map(gaunt_api::samples::idle_finding));
    let owner_of = |_: &Entity| JobOwner { user: Some("sam".into()), account: None };
    let groups = FindingGroup::group_findings(&findings, owner_of);
    let list = FindingList { findings, total: 84, groups, ..FindingList::default() };
    let page = render_page(&FleetSnapshot { findings: Arc::new(list), ..sample_snapshot() });
    let rows: Vec<&str> = page.lines().filter(|line| line.contains("GPUs lost  conf")).collect();
    let expected = "info      idle_allocated       × 83 jobs, 664 GPUs, user sam   1h00   664.0 GPUs \
                    lost  conf  60 %";
    assert_eq!(rows.len(), 2, "{page}");
    assert!(rows[0].starts_with("critical  port_down"), "{page}");
    assert_eq!(rows[1], expected);
    assert!(page.contains("FINDINGS  84 open"), "{page}");
    assert!(page.contains("e.g. job 0 holds 8 GPUs"), "{page}");
}

#[test]
fn longest_kind_and_full_confidence_have_their_columns() {
    let mut snapshot = sample_snapshot();
    let list = Arc::make_mut(&mut snapshot.findings);
    (list.findings[0].kind, list.findings[0].confidence) = (FindingKind::UnexplainedSlowdown, 1.0);
    Arc::make_mut(&mut snapshot.overview).worst[0].finding = Some(FindingKind::UnexplainedSlowdown);
    let page = render_page(&snapshot);
    assert!(page.contains("conf 100 %\n"), "{page}");
    let nodes: Vec<&str> = page.lines().skip_while(|line| !line.starts_with("NODE")).collect();
    assert_eq!(nodes[1].find("8812"), nodes[0].find("jobs"), "{page}");
}

#[test]
fn lines_are_no_wider_than_the_page() {
    let mut wide = sample_snapshot();
    let mut overview = (*wide.overview).clone();
    overview.worst[0].jobs = vec![SanitizedText::new(&"東京".repeat(60))];
    overview.trouble = vec![SanitizedText::new(&"x".repeat(250))];
    wide.overview = Arc::new(overview);
    for line in render_page(&wide).lines() {
        assert!(line.width() <= WIDTH, "{line}");
    }
}

#[test]
fn empty_fleet_shows_no_unknown_number() {
    let page = render_page(&FleetSnapshot::default());
    assert!(page.contains("no GPUs known"), "{page}");
    assert!(!page.contains("NaN") && !page.contains('%'), "{page}");
}

#[test]
fn loss_and_ports_of_a_fleet_that_does_not_answer_are_unknown() {
    let mut snapshot = sample_snapshot();
    let overview = Arc::make_mut(&mut snapshot.overview);
    overview.states = vec![StateCount { state: GpuState::Stale, gpus: 8 }];
    overview.lost = LostGpuTime {
        unknown_gpus: 8,
        cost_per_hour: Some(0.0),
        currency: "USD".into(),
        ..LostGpuTime::default()
    };
    overview.worst[0].ports = (0, 0);
    overview.worst[0].power_watts = None;
    let page = render_page(&snapshot);
    assert!(page.contains("\nLOST      unknown\n          unknown 8 GPUs\n"), "{page}");
    assert!(page.contains("   97 %         -      -  port_down"), "{page}");
}
