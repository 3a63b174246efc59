//! The owner in virtual time: simulated fleets through the real text, from page to answer.

use std::time::Duration;

use gaunt_schema::{
    Batch, Delivery, FindingKind, GpuState, Target, TargetId, UnixMs,
    text::{self, Limits},
};
use gaunt_sim::{Fleet, Scenario};

use super::{Options, Owner};
use crate::answer::{Answer, Finding, NodeDetail, NodeLine, Overview, Question};

const START: UnixMs = UnixMs(1_700_000_000_000);

/// A simulated fleet that is read once a second.
struct Run {
    fleet: Fleet,
    owner: Owner,
    second: i64,
    page: String,
}

impl Run {
    fn new(scenario: &str, nodes: usize, seed: u64) -> Self {
        let fleet = Fleet::new(Scenario::named(scenario).unwrap(), nodes, seed, START);
        let options = Options { price_per_gpu_hour: Some(2.0), ..Options::default() };
        let mut owner = Owner::new(options);
        owner.tick(START);
        let targets = (0..nodes).map(|node| Target {
            id: TargetId(node as u32),
            address: format!("127.1.0.{node}:9770").into(),
            node: None,
            origin: "test".into(),
        });
        owner.accept(Delivery::Targets(targets.collect()));
        Self { fleet, owner, second: 0, page: String::new() }
    }

    /// One second: every node's page is written, read and judged.
    fn step(&mut self) {
        self.second += 1;
        let now = START + Duration::from_secs(self.second as u64);
        self.fleet.advance(now);
        for node in 0..self.fleet.nodes() {
            self.page.clear();
            text::write(&self.fleet.report(node), &mut self.page);
            let outcome = text::decode(self.page.as_bytes(), &Limits::default());
            let target = TargetId(node as u32);
            self.owner.accept(Delivery::Batch(Batch {
                target,
                at: now,
                duration_ms: 1.0,
                outcome,
            }));
        }
        self.owner.tick(now);
    }

    fn overview(&mut self) -> std::sync::Arc<Overview> {
        match self.owner.answer(&Question::Overview) {
            Answer::Overview(overview) => overview,
            other => panic!("not an overview: {other:?}"),
        }
    }

    fn findings(&mut self) -> Vec<Finding> {
        match self.owner.answer(&Question::Findings) {
            Answer::Findings(list) => list.findings.clone(),
            other => panic!("not findings: {other:?}"),
        }
    }
}

#[test]
fn probe() {
    for scenario in ["demo", "healthy"] {
        let mut run = Run::new(scenario, 32, 7);
        println!("{:?}", run.fleet.truths());
        for _ in 0..120 {
            run.step();
            let overview = run.overview();
            println!(
                "{} {} {:?} lost {}",
                run.second,
                overview.heat.states,
                overview.findings.iter().map(|f| f.id.clone()).collect::<Vec<_>>(),
                overview.lost.gpus
            );
        }
        println!("{:#?}", run.findings());
    }
}
