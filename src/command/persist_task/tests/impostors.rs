//! Tests: what a saved state knows of the addresses of nodes, after starts in which another machine under the name of a node
//! answers first.

use gaunt_api::TargetLine;
use gaunt_schema::{ScrapeTarget, TargetId};

use super::*;

/// Starts in a row; each of them begins with the state of the one before.
const STARTS: u32 = 8;

/// The target that reports the name of the first node.
const IMPOSTOR: TargetId = TargetId(900);

fn target_rows(run: &KilledEngineRun) -> Vec<TargetLine> {
    match run.engine.answer_question(&Question::Targets) {
        Answer::Targets(list) => list.targets.clone(),
        other => panic!("{other:?}"),
    }
}

/// Gives the engine the page of the first node, as the impostor serves it.
fn ingest_impostor(run: &mut KilledEngineRun) {
    let (now, at) = (run.now, run.clock());
    let page = run.fleet.scrape_at(now).swap_remove(0);
    run.engine.ingest_delivery(Delivery::Batch(Batch { target: IMPOSTOR, at, ..page }));
}

/// None of the targets is named, and the impostor is always the first that is read.
#[test]
fn impostor_is_not_believed_with_the_state_that_was_saved() {
    let mut run = KilledEngineRun::new(FindingKind::PortDown, SECOND);
    run.run_until(START + Duration::from_secs(10), |_| {});
    let owner = run.fleet.scrape_targets().swap_remove(0);
    for start in 0..STARTS {
        let state = run.engine.persisted_state().unwrap();
        let outcome = run.writer.as_mut().unwrap().write_changes(&state, true);
        assert_eq!((outcome.findings, outcome.other_parts), (Ok(()), Ok(())));
        run.kill_and_resume(1);
        let mut targets = run.fleet.scrape_targets();
        assert!(targets.iter().all(|target| target.node.is_none()));
        let address = "impostor:9770".into();
        targets.push(ScrapeTarget { id: IMPOSTOR, address, ..owner.clone() });
        run.engine.ingest_delivery(Delivery::Targets(targets));
        for second in 0..3 + start {
            ingest_impostor(&mut run);
            run.engine.run_tick(run.clock());
            let Answer::Nodes(list) = run.engine.answer_question(&Question::Nodes) else {
                panic!("no list of nodes")
            };
            let is_believed = list.nodes.iter().any(|node| !node.gpu_states.is_empty());
            assert!(!is_believed, "start {start}, second {second}: its owner was not read yet");
            run.now = run.now + SECOND;
        }
        for _ in 0..3 {
            ingest_impostor(&mut run);
            run.step_period();
        }
        for row in target_rows(&run) {
            let flag = match row.address.as_str() {
                "impostor:9770" => " and impostor:9770 both report node ",
                address if address == owner.address.as_str() => "impostor:9770 also reports",
                _ => "",
            };
            let message = row.message.as_deref().unwrap_or_default();
            assert_eq!(flag.is_empty(), message.is_empty(), "start {start}: {row:?}");
            assert!(message.contains(flag), "start {start}: {row:?}");
        }
    }
}
