//! A target whose page has the series of several nodes.

use super::*;

#[test]
fn page_of_several_nodes_is_told_with_the_next_step() {
    let page = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",Hostname=\"a\"} 40\n\
                DCGM_FI_DEV_GPU_TEMP{gpu=\"1\",Hostname=\"b\"} 41\n";
    let mut engine = Engine::new(EngineOptions::default());
    engine.run_tick(START);
    engine.ingest_delivery(targets_of(1));
    for second in 1..=3 {
        let at = START + Duration::from_secs(second);
        engine.ingest_delivery(Delivery::Batch(Batch {
            target: TargetId(0),
            at,
            duration_ms: 1.0,
            outcome: text::decode_page(page.as_bytes(), &PageLimits::default()),
        }));
        engine.run_tick(at);
    }
    let Answer::Targets(list) = engine.answer_question(&Question::Targets) else {
        panic!("no targets")
    };
    let line = &list.targets[0];
    assert_eq!((line.state, line.node.as_deref()), (TargetState::Live, Some("a")));
    let message = line.message.as_ref().unwrap();
    assert!(message.contains("not read: 1 line of other nodes than the first on it"), "{message}");
    let Answer::Coverage(coverage) = engine.answer_question(&Question::Coverage) else {
        panic!("no coverage")
    };
    let targets = &coverage.checks[0];
    assert_eq!((targets.missing_total, &targets.next), (1, message));
}
