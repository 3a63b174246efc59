//! Tests of finding quotas: one node or kind never uses up the quota of another.

use std::time::Duration;

use gaunt_schema::LifeState;

use super::{
    super::{DetectorOutcome, FindingRecord, FindingSnapshot, FindingTracker},
    *,
};
use crate::Thresholds;

/// A lifecycle that runs second by second.
#[derive(Default)]
struct QuotaRun {
    life: FindingTracker,
    now: i64,
}

fn port_finding(kind: FindingKind, node: &str, device: usize) -> Finding {
    let entity = Entity::new_port(&node.into(), &format!("mlx5_{device}").into(), &"1".into());
    let finding = Finding {
        since: UnixMs(1_000),
        confidence: 0.9,
        ..Finding::new(kind, Severity::Warning, entity)
    };
    finding.with_lost_gpus(1.0)
}

fn port_findings(kind: FindingKind, node: &str, devices: usize) -> Vec<Finding> {
    (0..devices).map(|device| port_finding(kind, node, device)).collect()
}

impl QuotaRun {
    fn run_step(&mut self, findings: Vec<Finding>) {
        self.now += 1;
        let outcome = DetectorOutcome { findings, ..DetectorOutcome::default() };
        let limits = Thresholds::default();
        self.life.apply_outcome(UnixMs(self.now * 1_000), Duration::from_secs(1), &limits, outcome);
    }

    fn open_record(&self, id: &str) -> Option<&FindingRecord> {
        self.life.open_records().into_iter().find(|record| record.finding.id == id)
    }

    fn open_ids(&self) -> Vec<String> {
        self.life.open_records().iter().map(|record| record.finding.id.clone()).collect()
    }

    fn over_limit_counts(&self) -> Vec<(FindingKind, u32)> {
        self.life.over_limit_counts().iter().map(|(kind, findings)| (*kind, *findings)).collect()
    }
}

const REST: &str = "findings_over_limit/bad";

#[test]
fn quota_of_one_node_is_limited_and_one_finding_summarizes_the_rest() {
    let mut run = QuotaRun::default();
    let bad = || port_findings(FindingKind::LinkErrors, "bad", 1_000);
    run.run_step(bad());
    let listed = run.open_ids().len();
    assert!(listed <= MAX_OF_NODE + 1, "{listed}");
    let unlisted = 1_000 - (listed as u32 - 1);
    assert_eq!(run.over_limit_counts(), [(FindingKind::LinkErrors, unlisted)]);
    let rest = run.open_record(REST).unwrap();
    assert!(rest.finding.summary.contains(&format!("{unlisted} link_errors")), "{rest:?}");
    assert_eq!(
        (rest.finding.severity, rest.finding.life.opened),
        (Severity::Warning, UnixMs(1_000))
    );
    // A real fault elsewhere, and another one on the same node, fit in their quotas.
    let others = [
        port_finding(FindingKind::PortDown, "good", 0),
        port_finding(FindingKind::PortDown, "bad", 7),
    ];
    run.run_step(bad().into_iter().chain(others.clone()).collect());
    assert!(
        others.iter().all(|finding| run.open_record(&finding.id).is_some()),
        "{:?}",
        run.open_ids()
    );
}

#[test]
fn quota_stays_with_open_findings_while_others_come_and_go() {
    let mut run = QuotaRun::default();
    run.run_step(port_findings(FindingKind::LinkErrors, "bad", 100));
    let first = run.open_ids();
    for round in 0..30 {
        // More urgent ones appear: open findings keep their quota and their id.
        let mut findings = port_findings(FindingKind::LinkErrors, "bad", 100);
        let more =
            (200..300).map(|device| port_finding(FindingKind::LinkErrors, "bad", device + round));
        findings.extend(more.map(|finding| Finding { severity: Severity::Critical, ..finding }));
        run.run_step(findings);
        assert_eq!(run.open_ids().len(), first.len());
        assert!(first.iter().all(|id| run.open_record(id).is_some()), "round {round}");
    }
    let rest = run.open_record(REST).unwrap();
    assert_eq!(rest.finding.severity, Severity::Critical, "as urgent as what it stands for");
    assert_eq!(rest.finding.life.opened, UnixMs(1_000), "one finding all the time");
    // Fewer than the quota: the summary closes.
    for _ in 0..15 {
        run.run_step(port_findings(FindingKind::LinkErrors, "bad", 3));
    }
    assert_eq!(run.open_ids().len(), 3);
    assert_eq!(run.over_limit_counts(), []);
    let closed = run.life.closed_records();
    let rest = closed.iter().find(|record| record.finding.id == REST).unwrap();
    assert_eq!(rest.finding.life.state, LifeState::Closed);
}

#[test]
fn quota_outlives_a_restart() {
    let mut run = QuotaRun::default();
    let findings = || port_findings(FindingKind::LinkErrors, "bad", 200);
    run.run_step(findings());
    let before = run.open_ids();
    let past: FindingSnapshot =
        serde_json::from_str(&serde_json::to_string(&run.life.to_snapshot()).unwrap()).unwrap();
    let mut next = QuotaRun { life: FindingTracker::from_snapshot(past), now: run.now };
    next.run_step(findings().into_iter().rev().collect());
    assert_eq!(next.open_ids(), before);
    assert_eq!(next.over_limit_counts(), run.over_limit_counts());
    assert_eq!(next.open_record(REST).unwrap().finding.life.openings, 1, "it goes on");
}

#[test]
fn quota_of_one_kind_leaves_capacity_for_every_other_kind() {
    let mut run = QuotaRun::default();
    let flood: Vec<Finding> = (0..3_000)
        .map(|node| port_finding(FindingKind::TargetDown, &format!("n{node}"), 0))
        .collect();
    run.run_step(flood.clone());
    assert!(run.open_ids().len() < MAX_OPEN);
    let mut findings = flood;
    for kind in FindingKind::ALL.iter().filter(|kind| **kind != FindingKind::FindingsOverLimit) {
        findings.extend((0..5).map(|node| port_finding(*kind, &format!("other{node}"), 0)));
    }
    run.run_step(findings);
    for kind in FindingKind::ALL.iter().filter(|kind| **kind != FindingKind::FindingsOverLimit) {
        let open = run.life.open_records();
        let mut of_kind = open.iter().filter(|record| record.finding.kind == *kind);
        let other = |record: &&&FindingRecord| {
            record.finding.entity.node.as_ref().is_some_and(|node| node.starts_with("other"))
        };
        let found = of_kind.by_ref().filter(other).count();
        // The flood's own kind has used up its quota.
        assert_eq!(found, if *kind == FindingKind::TargetDown { 0 } else { 5 }, "{kind}");
    }
    assert!(run.open_ids().len() <= MAX_OPEN);
    let unlisted: u32 = run.over_limit_counts().iter().map(|(_, findings)| findings).sum();
    assert!(unlisted > 2_000, "{unlisted}");
}

#[test]
fn quota_of_closed_findings_is_not_used_up_by_one_node() {
    let mut run = QuotaRun::default();
    run.run_step(vec![port_finding(FindingKind::PortDown, "good", 0)]);
    (0..12).for_each(|_| run.run_step(Vec::new()));
    // One node opens and closes other findings again and again.
    for round in 0..40 {
        run.run_step(
            (0..60)
                .map(|at| port_finding(FindingKind::LinkErrors, "bad", round * 60 + at))
                .collect(),
        );
        (0..12).for_each(|_| run.run_step(Vec::new()));
    }
    let closed = run.life.closed_records();
    assert_eq!(closed.len(), super::super::MAX_CLOSED);
    assert!(closed.iter().any(|record| record.finding.id == "port_down/good/mlx5_0/1"));
}
