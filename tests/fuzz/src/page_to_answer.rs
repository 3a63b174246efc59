//! Any page from several nodes over some seconds, through cluster and judge into every answer: each can be written as JSON and
//! read back, its texts are plain, and the account of loss adds up.

use gaunt_api::{Answer, Question};
use serde_json::Value;

use super::page_engine::engine_of_page;

/// What is asked, as in the API.
const QUESTIONS: [&str; 16] = [
    "overview",
    "findings",
    "nodes",
    "closed",
    "gpu_time",
    "targets",
    "usage?last=10m",
    "alerts",
    "coverage",
    "fabric",
    "table/gpus",
    "table/ports",
    "table/nodes",
    "table/jobs",
    "table/targets",
    "history?metric=power",
];

/// A text of an answer that a terminal would interpret.
fn find_unsafe_text(value: &Value) -> Option<&str> {
    let is_unsafe = |text: &str| text.chars().any(char::is_control);
    match value {
        Value::String(text) => is_unsafe(text).then_some(text),
        Value::Array(values) => values.iter().find_map(find_unsafe_text),
        Value::Object(members) => members.iter().find_map(|(name, value)| {
            is_unsafe(name).then_some(&**name).or_else(|| find_unsafe_text(value))
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// The input is the page.
pub fn check_input(page: &[u8]) {
    let (engine, _) = engine_of_page(page);
    for line in QUESTIONS {
        let question = Question::parse_line(line, &[]).expect("a question of the API");
        let answer = engine.answer_question(&question);
        assert!(!matches!(answer, Answer::Refused(_)), "{line}: {answer:?}");
        let json = serde_json::to_value(&answer).expect("an answer is JSON");
        assert_eq!(find_unsafe_text(&json), None, "{line}");
        let again = Answer::from_json(&question, &json);
        assert!(again.is_ok(), "{line}: {:?}", again.err());
        if let Answer::Overview(overview) = answer {
            let lost = &overview.lost;
            let parts = lost.findings_gpus + lost.idle_gpus + lost.unexplained_gpus;
            assert!((lost.gpus - parts).abs() < 1e-6, "{lost:?}");
        }
    }
}
