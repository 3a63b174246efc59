//! Following an aggregator by streams, as the console does: updates, failures and reconnects.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::time::Instant;

use gaunt::answer_source::{AggregatorClient, AnswerSource};
use gaunt_api::{Answer, Question};
use gaunt_schema::UnixMs;

use crate::{
    api_schema::start_fleet_aggregator,
    test_process::{DEADLINE, TestProcess, free_port},
};

/// Retries until `wanted` is true of an answer or of its failure.
async fn wait_for_answer<T>(
    source: &AnswerSource,
    question: &Question,
    mut wanted: impl FnMut(Result<Answer, String>) -> Option<T>,
) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        let answer = source.ask_question(question.clone()).await.map_err(|error| error.to_string());
        let last_answer = format!("{answer:?}");
        if let Some(found) = wanted(answer) {
            return found;
        }
        assert!(Instant::now() < end, "never as wanted; last {last_answer:.300}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

fn answer_time(answer: Result<Answer, String>) -> UnixMs {
    match answer.unwrap() {
        Answer::Overview(overview) => overview.at,
        Answer::Table(table) => table.at,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn followed_answer_advances_and_a_refusal_is_reported() {
    let (_sim, _running, address) = start_fleet_aggregator(3);
    let source = AnswerSource::Aggregator(AggregatorClient::new(&address).unwrap()).with_streams();
    let table = Question::parse_line("gpus?filter=power>1W sort power desc limit 5", &[]).unwrap();
    for question in [Question::Overview, table] {
        let first = wait_for_answer(&source, &question, |answer| Some(answer_time(answer))).await;
        // Each answer comes at once and is newer or the same.
        wait_for_answer(&source, &question, |answer| {
            Some(answer_time(answer)).filter(|now| *now > first)
        })
        .await;
    }
    let unknown_node = Question::Node("nobody".into());
    let Answer::Refused(refusal) = source.ask_question(unknown_node).await.unwrap() else {
        panic!("not refused")
    };
    assert!(refusal.to_string().starts_with("no node is named nobody"), "{refusal}");
}

#[tokio::test]
async fn restarted_aggregator_is_followed_again() {
    let address = format!("127.0.0.1:{}", free_port());
    let serve = || {
        let mut command = std::process::Command::new(crate::binaries::program_path("gaunt"));
        command.args(["serve", "--targets", "127.0.0.1:9", "--listen", &address]);
        let running = TestProcess::start_command(&mut command);
        running.served_address();
        running
    };
    let source = AnswerSource::Aggregator(AggregatorClient::new(&address).unwrap()).with_streams();
    let why = wait_for_answer(&source, &Question::Overview, Result::err).await;
    assert!(why.contains("unreachable"), "{why}");
    let running = serve();
    let first =
        wait_for_answer(&source, &Question::Overview, |a| a.is_ok().then(|| answer_time(a))).await;
    drop(running);
    let why = wait_for_answer(&source, &Question::Overview, Result::err).await;
    assert!(why.contains(&address), "{why}");
    let _running = serve();
    wait_for_answer(&source, &Question::Overview, |answer| {
        answer.is_ok().then(|| answer_time(answer)).filter(|now| *now > first)
    })
    .await;
}
