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
