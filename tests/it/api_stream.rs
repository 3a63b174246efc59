//! Streams of a running aggregator: their content, how they are resumed, and their limit.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use gaunt_api::{Answer, Question, json_diff};
use serde_json::{Value, json};

use crate::{
    fleet_snapshot::SimulatorProcess,
    test_process::{DEADLINE, TestProcess, get, wait_for},
};

/// GPUs, and ports, of the followed fleet.
const FLEET_GPUS: usize = 48;

/// An aggregator over six simulated nodes whose streams have two lines a second.
struct FollowedAggregator {
    address: String,
    /// Unused, but only a mutex can be shared between threads.
    _running: Mutex<TestProcess>,
    _sim: SimulatorProcess,
}

impl FollowedAggregator {
    /// Starts it and waits until the rates of all ports are known.
    fn start_program() -> Self {
        let sim = SimulatorProcess::start_healthy(FLEET_GPUS / 8);
        let arguments = ["--targets", &sim.list, "--period", "500ms"];
        let running = TestProcess::start_aggregator(&arguments);
        let address = running.served_address();
        wait_for("rates of all ports are known", || {
            let (_, body) = get(&address, "/api/gaunt/v1/ports?filter=has%20receive&limit=1")?;
            let table: Value = serde_json::from_str(&body).ok()?;
            (table["total"] == FLEET_GPUS && table["matched"] == FLEET_GPUS).then_some(())
        });
        Self { address, _running: Mutex::new(running), _sim: sim }
    }

    /// Tests that run at the same time share it; it ends with the last of them.
    fn share_program() -> Arc<Self> {
        static SHARED: Mutex<Weak<FollowedAggregator>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = shared.upgrade() {
            return running;
        }
        let started = Arc::new(Self::start_program());
        *shared = Arc::downgrade(&started);
        started
    }
}

/// A stream of lines; HTTP/1.0 has no chunks, so the bytes are those that were written.
struct LineStream(BufReader<TcpStream>);

impl LineStream {
    fn open_stream(address: &str, query: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let path = format!("/api/gaunt/v1/stream?{query}");
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
        Self(BufReader::new(stream))
    }

    /// The head of the answer, in lower case.
    fn read_head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(self.0.read_line(&mut head).unwrap() > 0, "no head: {head}");
        }
        head.to_ascii_lowercase()
    }

    fn read_json_line(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}

#[test]
fn stream_changes_lead_from_the_whole_answer_to_the_newest() {
    let aggregator = FollowedAggregator::share_program();
    let address = aggregator.address.as_str();
    let mut lines =
        LineStream::open_stream(address, "ask=gpus&columns=node,gpu,state,power&limit=48");
    let head = lines.read_head();
    assert!(head.contains("200 ok") && head.contains("application/x-ndjson"), "{head}");
    let first = lines.read_json_line();
    let stream = first["stream"].as_str().unwrap().to_owned();
    let mut state = first["whole"].clone();
    let mut number = first["number"].as_u64().unwrap();
    let whole_bytes = state.to_string().len();
    for _ in 0..4 {
        let line = lines.read_json_line();
        assert_eq!(line["number"], number + 1, "{line}");
        number += 1;
        assert!(line["change"].to_string().len() < whole_bytes, "a change is less than the whole");
        let before = state["at"].as_i64().unwrap();
        json_diff::apply_diff(&mut state, &line["change"]).unwrap();
        assert!(state["at"].as_i64().unwrap() >= before);
        let question = Question::parse_line("gpus", &[]).unwrap();
        let Answer::Table(table) = Answer::from_json(&question, &state).unwrap() else { panic!() };
        assert_eq!(table.rows, 48);
    }
    // A client that reconnects receives what it missed, as long as another client kept the stream running.
    let mut other =
        LineStream::open_stream(address, "ask=gpus&columns=node,gpu,state,power&limit=48");
    other.read_head();
    assert_eq!(
        other.read_json_line()["stream"].as_str(),
        Some(stream.as_str()),
        "the same feed goes on"
    );
    drop(lines);
    let query = format!("ask=gpus&columns=node,gpu,state,power&limit=48&from={stream}-{number}");
    let mut again = LineStream::open_stream(address, &query);
    again.read_head();
    let line = again.read_json_line();
    assert_eq!(
        (line["number"].as_u64(), line["whole"].is_null()),
        (Some(number + 1), true),
        "{line}"
    );
    // A position in another stream is invalid here.
    let mut foreign =
        LineStream::open_stream(address, "ask=gpus&columns=node,gpu,state,power&limit=48&from=0-3");
    foreign.read_head();
    assert_eq!(foreign.read_json_line()["whole"]["rows"], 48);
}

#[test]
fn stream_state_equals_the_answer_to_the_question() {
    let aggregator = FollowedAggregator::share_program();
    let address = aggregator.address.as_str();
    let mut lines = LineStream::open_stream(address, "ask=overview");
    lines.read_head();
    let mut state = lines.read_json_line()["whole"].clone();
    let end = std::time::Instant::now() + DEADLINE;
    loop {
        let (_, body) = get(address, "/api/gaunt/v1/overview").unwrap();
        let asked: Value = serde_json::from_str(&body).unwrap();
        while state["at"].as_i64() < asked["at"].as_i64() {
            json_diff::apply_diff(&mut state, &lines.read_json_line()["change"]).unwrap();
        }
        // There may be a tick between the two.
        if state["at"] == asked["at"] {
            assert_eq!(state, asked);
            return;
        }
        assert!(std::time::Instant::now() < end, "never at the same tick");
    }
}

#[test]
fn streams_are_limited_and_silent_clients_disturb_no_other() {
    // Not the shared one: the streams of other tests would take seats.
    let aggregator = FollowedAggregator::start_program();
    let address = aggregator.address.as_str();
    // One less than the limit; none of these clients reads anything.
    let mut silent: Vec<LineStream> =
        (0..255).map(|_| LineStream::open_stream(address, "ask=overview")).collect();
    let mut reading = LineStream::open_stream(address, "ask=overview");
    let opened = silent.iter_mut().map(|lines| lines.0.fill_buf().is_ok());
    let opened = opened.filter(|opened| *opened).count();
    assert_eq!(opened, 255);
    assert!(reading.read_head().contains("200 ok"));
    let number = reading.read_json_line()["number"].as_u64().unwrap();
    assert_eq!(reading.read_json_line()["number"], json!(number + 1));
    let mut refused = LineStream::open_stream(address, "ask=overview");
    let head = refused.read_head();
    assert!(head.contains("503") && head.contains("retry-after: 1"), "{head}");
    assert_eq!(get(address, "/healthz").unwrap().0, 200, "questions are still answered");
    drop(silent);
    wait_for("a seat is free again", || {
        LineStream::open_stream(address, "ask=overview")
            .read_head()
            .contains("200 ok")
            .then_some(())
    });
}
