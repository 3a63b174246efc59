//! Tests of faults that are older than the first look at a cluster: what they caused is all that its past shows.

use gaunt_schema::Severity;

use super::{JobFixture, NodeShown, STARVED, WAITING};

/// The kinds and severities of what is open after some minutes, in which the first node starves from the beginning.
fn starved_since_the_first_look(others: NodeShown) -> Vec<(String, Severity)> {
    let mut fixture = JobFixture::of(4);
    fixture.run(400, [Some(STARVED), Some(others), Some(others), Some(others)]);
    let open = fixture.judge.open_findings().into_iter();
    open.map(|finding| (finding.id.clone(), finding.severity)).collect()
}

#[test]
fn host_that_alone_waits_is_blamed_though_it_always_did() {
    let open = starved_since_the_first_look(WAITING);
    let blamed: Vec<&str> = open
        .iter()
        .filter(|(_, severity)| *severity > Severity::Info)
        .map(|(id, _)| id.as_str())
        .collect();
    assert_eq!(blamed, ["data_starved/gpu001"]);
}

#[test]
fn host_that_waits_like_the_others_of_its_job_is_not_blamed() {
    let open = starved_since_the_first_look(NodeShown { io: STARVED.io, ..WAITING });
    assert!(open.iter().all(|(_, severity)| *severity == Severity::Info), "{open:?}");
}
