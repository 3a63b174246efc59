//! Tests that a finding is shown on what it blames and on what waits for it, whichever screen asks.

use super::*;
use gaunt_api::{AnswerTable, Filter};

/// A fleet of a scenario, until a finding of this kind is open and slows a job.
fn run_until_open(scenario: &str, nodes: usize, kind: FindingKind) -> (EngineTestRun, Finding) {
    let mut run = EngineTestRun::new(scenario, nodes, 7);
    for _ in 0..120 {
        run.step_period();
        let open = run.open_findings();
        if let Some(found) = open.iter().find(|it| it.kind == kind && it.lost_gpus > 1.0) {
            return (run, found.clone());
        }
    }
    panic!("no {kind}: {:?}", run.open_findings());
}

impl EngineTestRun {
    fn ask_table(&mut self, subject: Subject, filter: &str) -> Arc<AnswerTable> {
        let filter = Filter::parse(subject, filter).unwrap();
        match self.engine.answer_question(&Question::Table(filter)) {
            Answer::Table(table) => table,
            other => panic!("no table: {other:?}"),
        }
    }
}

#[test]
fn leaf_that_is_blamed_is_marked_on_the_map_the_ports_and_the_jobs() {
    let kind = FindingKind::LeafCongested;
    let (mut run, finding) = run_until_open("leaf_congested", 32, kind);
    let leaf = finding.entity.leaf.expect("a leaf is blamed");
    let ports = run.ask_table(Subject::Ports, "finding=leaf_congested columns leaf");
    let below = run.ask_table(Subject::Ports, &format!("leaf={leaf} columns leaf"));
    assert_eq!((ports.matched, below.matched > 0), (below.matched, true));
    assert!((0..ports.rows as usize).all(|row| ports.columns[0].text_at(row) == Some(&leaf)));
    let fabric = Question::Fabric(Filter::all_rows(Subject::Ports));
    let Answer::Fabric(fabric) = run.engine.answer_question(&fabric) else { panic!("no fabric") };
    for (cell, of) in fabric.cells.leaf.iter().enumerate() {
        let blamed = (fabric.leaves[*of as usize] == leaf).then_some(kind);
        assert_eq!(fabric.cells.finding[cell], blamed, "{}", fabric.leaves[*of as usize]);
    }
    let slowed = run.ask_table(Subject::Jobs, "finding=leaf_congested columns job");
    assert!(slowed.matched > 0, "the job that waits for the leaf");
}

#[test]
fn node_that_waits_has_the_finding_that_it_waits_for() {
    let (mut run, finding) = run_until_open("data_starved", 32, FindingKind::DataStarved);
    let victims: Vec<_> = finding.victims.iter().filter_map(|it| it.node.clone()).collect();
    assert!(!victims.is_empty());
    // The state of a GPU changes some seconds after its values.
    (0..20).for_each(|_| run.step_period());
    for name in victims {
        let Answer::Node(detail) = run.engine.answer_question(&Question::Node(name)) else {
            panic!("no node")
        };
        let shown: Vec<&str> = detail.findings.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(shown, [finding.id.as_str()], "{}", detail.line.node);
    }
    let calm = run.ask_table(Subject::Nodes, "lost=0 limit 1 columns node");
    let name = calm.columns[0].text_at(0).cloned().expect("a node of another job");
    let Answer::Node(detail) = run.engine.answer_question(&Question::Node(name)) else {
        panic!("no node")
    };
    assert_eq!(detail.findings, []);
}
