//! Places of findings: one source or kind never takes those of another.

use std::time::Duration;

use gaunt_schema::LifeState;

use super::{
    super::{Life, Past, Seen, Told},
    *,
};
use crate::judge::Thresholds;

/// A life that is led second by second.
#[derive(Default)]
struct Run {
    life: Life,
    now: i64,
}

fn on(kind: FindingKind, node: &str, device: usize) -> Finding {
    let entity = Entity::port(&node.into(), &format!("mlx5_{device}").into(), &"1".into());
    Finding {
        id: id(kind, &entity),
        kind,
        severity: Severity::Warning,
        entity,
        since: UnixMs(1_000),
        confidence: 0.9,
        lost_gpus: 1.0,
        jobs: Vec::new(),
        victims: Vec::new(),
        summary: String::new(),
        next: String::new(),
        evidence: Vec::new(),
    }
}

fn many(kind: FindingKind, node: &str, devices: usize) -> Vec<Finding> {
    (0..devices).map(|device| on(kind, node, device)).collect()
}

impl Run {
    fn step(&mut self, findings: Vec<Finding>) {
        self.now += 1;
        let seen = Seen { findings, ..Seen::default() };
        let limits = Thresholds::default();
        self.life.step(UnixMs(self.now * 1_000), Duration::from_secs(1), &limits, seen);
    }

    fn open(&self, id: &str) -> Option<&Told> {
        self.life.open().into_iter().find(|told| told.finding.id == id)
    }

    fn ids(&self) -> Vec<String> {
        self.life.open().iter().map(|told| told.finding.id.clone()).collect()
    }

    fn without_place(&self) -> Vec<(FindingKind, u32)> {
        self.life.without_place().iter().map(|(kind, findings)| (*kind, *findings)).collect()
    }
}

const REST: &str = "findings_over_limit/bad";

#[test]
fn places_of_one_node_are_limited_and_one_finding_stands_for_the_rest() {
    let mut run = Run::default();
    let bad = || many(FindingKind::LinkErrors, "bad", 1_000);
    run.step(bad());
    let listed = run.ids().len();
    assert!(listed <= MAX_OF_NODE + 1, "{listed}");
    let unlisted = 1_000 - (listed as u32 - 1);
    assert_eq!(run.without_place(), [(FindingKind::LinkErrors, unlisted)]);
    let rest = run.open(REST).unwrap();
    assert!(rest.finding.summary.contains(&format!("{unlisted} link_errors")), "{rest:?}");
    assert_eq!((rest.finding.severity, rest.life.opened), (Severity::Warning, UnixMs(1_000)));
    // A real fault elsewhere, and another one on the same node, find their places.
    let others = [on(FindingKind::PortDown, "good", 0), on(FindingKind::PortDown, "bad", 7)];
    run.step(bad().into_iter().chain(others.clone()).collect());
    assert!(others.iter().all(|finding| run.open(&finding.id).is_some()), "{:?}", run.ids());
}

#[test]
fn places_keep_their_findings_while_others_come_and_go() {
    let mut run = Run::default();
    run.step(many(FindingKind::LinkErrors, "bad", 100));
    let first = run.ids();
    for round in 0..30 {
        // More urgent ones come: what is open keeps its place and its id.
        let mut seen = many(FindingKind::LinkErrors, "bad", 100);
        let more = (200..300).map(|device| on(FindingKind::LinkErrors, "bad", device + round));
        seen.extend(more.map(|finding| Finding { severity: Severity::Critical, ..finding }));
        run.step(seen);
        assert_eq!(run.ids().len(), first.len());
        assert!(first.iter().all(|id| run.open(id).is_some()), "round {round}");
    }
    let rest = run.open(REST).unwrap();
    assert_eq!(rest.finding.severity, Severity::Critical, "as urgent as what it stands for");
    assert_eq!(rest.life.opened, UnixMs(1_000), "one finding all the time");
    // Fewer than there are places: what stood for the rest closes.
    for _ in 0..15 {
        run.step(many(FindingKind::LinkErrors, "bad", 3));
    }
    assert_eq!(run.ids().len(), 3);
    assert_eq!(run.without_place(), []);
    let closed = run.life.closed();
    let rest = closed.iter().find(|told| told.finding.id == REST).unwrap();
    assert_eq!(rest.life.state, LifeState::Closed);
}

#[test]
fn places_outlive_a_restart() {
    let mut run = Run::default();
    let seen = || many(FindingKind::LinkErrors, "bad", 200);
    run.step(seen());
    let before = run.ids();
    let past: Past =
        serde_json::from_str(&serde_json::to_string(&run.life.past()).unwrap()).unwrap();
    let mut next = Run { life: Life::resume(past), now: run.now };
    next.step(seen().into_iter().rev().collect());
    assert_eq!(next.ids(), before);
    assert_eq!(next.without_place(), run.without_place());
    assert_eq!(next.open(REST).unwrap().life.openings.len(), 1, "it goes on");
}

#[test]
fn places_of_one_kind_leave_room_for_every_other_kind() {
    let mut run = Run::default();
    let flood: Vec<Finding> =
        (0..3_000).map(|node| on(FindingKind::TargetDown, &format!("n{node}"), 0)).collect();
    run.step(flood.clone());
    assert!(run.ids().len() < MAX_OPEN);
    let mut seen = flood;
    for kind in FindingKind::ALL.iter().filter(|kind| **kind != FindingKind::FindingsOverLimit) {
        seen.extend((0..5).map(|node| on(*kind, &format!("other{node}"), 0)));
    }
    run.step(seen);
    for kind in FindingKind::ALL.iter().filter(|kind| **kind != FindingKind::FindingsOverLimit) {
        let open = run.life.open();
        let mut of_kind = open.iter().filter(|told| told.finding.kind == *kind);
        let other = |told: &&&Told| {
            told.finding.entity.node.as_ref().is_some_and(|node| node.starts_with("other"))
        };
        let found = of_kind.by_ref().filter(other).count();
        // The flood's own kind has taken all that it may.
        assert_eq!(found, if *kind == FindingKind::TargetDown { 0 } else { 5 }, "{kind}");
    }
    assert!(run.ids().len() <= MAX_OPEN);
    let unlisted: u32 = run.without_place().iter().map(|(_, findings)| findings).sum();
    assert!(unlisted > 2_000, "{unlisted}");
}

#[test]
fn places_of_closed_findings_are_not_taken_by_one_node() {
    let mut run = Run::default();
    run.step(vec![on(FindingKind::PortDown, "good", 0)]);
    (0..12).for_each(|_| run.step(Vec::new()));
    // One node opens and closes other findings again and again.
    for round in 0..40 {
        run.step((0..60).map(|at| on(FindingKind::LinkErrors, "bad", round * 60 + at)).collect());
        (0..12).for_each(|_| run.step(Vec::new()));
    }
    let closed = run.life.closed();
    assert_eq!(closed.len(), super::super::MAX_CLOSED);
    assert!(closed.iter().any(|told| told.finding.id == "port_down/good/mlx5_0/1"));
}
