//! Any page from several nodes over some seconds, through cluster and judge into every answer: each can be written as JSON and
//! read back, its texts are plain, and the account of loss adds up.

use std::time::Duration;

use gaunt_api::{Answer, Question};
use gaunt_engine::{Engine, EngineOptions};
use gaunt_schema::{
    Batch, Delivery, ScrapeTarget, TargetId, UnixMs,
    text::{PageLimits, decode_open_metrics, decode_page},
};
use serde_json::Value;

/// When the first page comes.
const START: UnixMs = UnixMs(1_760_017_310_999);

/// Nodes that serve the page, and for how many seconds.
const NODES: u32 = 2;
const SECONDS: u64 = 4;

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

/// The page with another last digit on each line: its values change.
fn change_digits(page: &[u8], step: u8) -> Vec<u8> {
    let mut changed = page.to_vec();
    for at in 1..changed.len() {
        if changed[at] == b'\n' && changed[at - 1].is_ascii_digit() {
            changed[at - 1] = b'0' + (changed[at - 1] - b'0' + step) % 10;
        }
    }
    changed
}

/// An engine some seconds after nodes began to serve a page, and its time.
pub fn engine_of_page(page: &[u8]) -> (Engine, UnixMs) {
    let mut engine = Engine::new(EngineOptions::default());
    engine.run_tick(START);
    let target = |number: u32| ScrapeTarget {
        id: TargetId(number),
        address: format!("10.0.0.{number}:9770").as_str().into(),
        node: None,
        origin: "fuzz".into(),
    };
    engine.ingest_delivery(Delivery::Targets((0..NODES).map(target).collect()));
    let mut now = START;
    for second in 1..=SECONDS {
        now = START + Duration::from_secs(second);
        for number in 0..NODES {
            let body = change_digits(page, (second as u8) * 3 + number as u8);
            let limits = PageLimits::default();
            let outcome = match number {
                0 => decode_open_metrics(&body, &limits),
                _ => decode_page(&body, &limits),
            };
            let batch = Batch { target: TargetId(number), at: now, duration_ms: 1.0, outcome };
            engine.ingest_delivery(Delivery::Batch(batch));
        }
        engine.run_tick(now);
    }
    (engine, now)
}

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
