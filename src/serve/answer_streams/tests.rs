//! Tests of feeds: lines sent to a fast client, a slow one, and one that reconnects.

use super::*;

fn feed_state(value: Value) -> FeedState {
    FeedState {
        feed: "a".into(),
        number: 1,
        value: Ok(Arc::new(value)),
        whole: OnceLock::new(),
        changes: VecDeque::new(),
    }
}

fn parse_lines(bytes: &Bytes) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    assert!(text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn missed_changes_are_sent_while_they_are_retained() {
    let mut state = feed_state(json!({ "at": 0 }));
    assert_eq!(
        parse_lines(&state.whole_line()),
        [json!({"stream": "a", "number": 1, "whole": {"at": 0}})]
    );
    assert!(state.next(Ok(json!({ "at": 0 }))).is_none(), "nothing is new");
    for at in 1..=KEPT as u64 + 3 {
        state = state.next(Ok(json!({ "at": at }))).unwrap();
    }
    let newest = state.number;
    let last = parse_lines(&state.changes_since(newest - 1).unwrap());
    assert_eq!(last, [json!({"number": newest, "change": {"to": {"at": newest - 1}}})]);
    assert_eq!(parse_lines(&state.changes_since(newest - KEPT as u64).unwrap()).len(), KEPT);
    assert!(state.changes_since(newest - KEPT as u64 - 1).is_none(), "then the whole is sent");
    assert!(state.changes_since(newest).is_none() && state.changes_since(newest + 5).is_none());
}

#[test]
fn changes_over_the_size_limit_are_dropped() {
    let mut state = feed_state(json!({ "text": "" }));
    for round in 0..3_u8 {
        let text = char::from(b'a' + round).to_string().repeat(KEPT_BYTES / 2);
        state = state.next(Ok(json!({ "text": text }))).unwrap();
    }
    assert_eq!(state.changes.len(), 1);
    assert!(state.changes_since(1).is_none());
}

#[test]
fn answer_after_a_refusal_is_sent_whole() {
    let refusal = Refusal::UnknownNode { node: "gpu001".into() };
    let refused = feed_state(json!({ "at": 0 })).next(Err(refusal.clone())).unwrap();
    assert!(refused.changes_since(1).is_none());
    assert_eq!(parse_lines(&refused.whole_line())[0]["refused"]["node"], "gpu001");
    assert!(refused.next(Err(refusal)).is_none());
    let answered = refused.next(Ok(json!({ "at": 1 }))).unwrap();
    assert!(answered.changes_since(2).is_none());
    assert_eq!(parse_lines(&answered.whole_line())[0]["whole"]["at"], 1);
}

#[test]
fn stream_query_is_parsed_like_a_question() {
    let parse = |pairs: &[(&str, &str)]| {
        parse_stream_query(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect())
    };
    let (question, from) =
        parse(&[("filter", "power>300W"), ("ask", "gpus"), ("from", "1f-7")]).unwrap();
    assert!(matches!(question, Question::Table(filter) if filter.source_text() == "power>300W"));
    assert_eq!(from, Some(("1f".to_owned(), 7)));
    for (pairs, expected) in [
        (&[][..], "parameter ask: missing"),
        (&[("ask", "overview"), ("from", "x")], "parameter from: invalid; write the stream"),
        (&[("ask", "nodez")], "unknown question nodez"),
    ] {
        let error = parse(pairs).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
