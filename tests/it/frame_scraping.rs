//! Frames and large fleets: a real exporter's content in both formats, how an aggregator scrapes page rings, what it
//! reports when file descriptors run out, and that a fleet that was down is scraped again.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
};

use gaunt_schema::{
    ScrapedPage,
    frame::{CONTENT_TYPE, FrameDecodeState, FrameDecoder},
    text::{self, PageLimits},
};
use serde_json::Value;

use crate::{
    binaries::{fake_driver, program_path},
    test_process::{TestProcess, free_port, get, wait_for},
};

/// Page rings of a simulated fleet.
struct LoadSimulatorProcess {
    child: Child,
    list: String,
}

impl LoadSimulatorProcess {
    fn start_nodes(nodes: usize, port: u16) -> Self {
        let mut child = Command::new(program_path("gaunt-sim"))
            .args(["--load", "--nodes", &nodes.to_string()])
            .args(["--listen-port", &port.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut list = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut list).unwrap();
        Self { child, list: list.trim().to_owned() }
    }
}

impl Drop for LoadSimulatorProcess {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The answer to a client that reads frames: the head, and the frame.
fn fetch_frame(address: &str, client_state: &str) -> Option<(String, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: {CONTENT_TYPE}\r\nX-Gaunt-Frame: {client_state}\r\n\r\n"
    )
    .ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let body = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(answer[..body].to_vec()).ok()?;
    Some((head.to_ascii_lowercase(), answer[body..].to_vec()))
}

/// The content of a page, independent of order, without collection durations, which differ between ticks.
fn page_content(page: &ScrapedPage) -> BTreeSet<String> {
    let report = &page.report;
    let device = |index: u32| &report.devices[index as usize];
    let samples = report.samples.iter();
    let samples = samples
        .map(|s| format!("{} {:?} {:?}", s.metric.series_key(), device(s.device), s.reading));
    let infos = report.infos.iter();
    let infos =
        infos.map(|i| format!("{} {:?} {:?}", i.metric.series_key(), device(i.device), i.labels));
    samples.chain(infos).chain([format!("{:?}", report.node)]).collect()
}

#[test]
fn exporter_reports_the_same_as_text_and_as_a_frame() {
    let scenario =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/scenarios/eight.toml");
    let mut command = Command::new(program_path("gaunt-node"));
    command
        .args(["--listen", "127.0.0.1:0", "--node", "a"])
        .arg("--nvml-library")
        .arg(fake_driver())
        .env("GAUNT_FAKE_DRIVER", scenario);
    let node = TestProcess::start_command(&mut command);
    let address = node.served_address();
    let (frames, mut decode_state) = (FrameDecoder::default(), FrameDecodeState::default());
    let limits = PageLimits::default();
    let mut read = || {
        let (head, frame) =
            fetch_frame(&address, &frames.client_state(&mut decode_state).to_string())?;
        if !head.starts_with("http/1.1 200 ") {
            return None; // The first sample is not complete.
        }
        assert!(head.contains(&format!("\r\ncontent-type: {CONTENT_TYPE}\r\n")), "{head}");
        assert!(head.contains("\r\nvary: accept, accept-encoding, x-gaunt-frame\r\n"), "{head}");
        Some(frames.decode_frame(&mut decode_state, &frame, &limits).unwrap())
    };
    // Of one tick: the text page is of the same tick if the frames before and after it are.
    let (page, text) = wait_for("both forms of one tick with all boards", || {
        let before = read()?;
        let (_, text) = get(&address, "/metrics")?;
        let after = read()?;
        let text = text::decode_page(text.as_bytes(), &limits).unwrap();
        let is_same_tick = before.report.node_time == after.report.node_time;
        let has_all_gpus = after.report.samples.len() > 300;
        (is_same_tick && has_all_gpus).then_some((after, text))
    });
    assert_eq!(page_content(&page), page_content(&text));
    assert_eq!(page.report.node_time, text.report.node_time);
    assert!(page.bytes * 10 < text.bytes, "{} of {}", page.bytes, text.bytes);
    assert!(frames.decoder_stats().differences > 0);
}

fn fetch_targets(address: &str) -> Option<Value> {
    let (status, body) = get(address, "/api/gaunt/v1/targets")?;
    (status == 200).then(|| serde_json::from_str(&body).unwrap())
}

/// Waits until all targets are in this state.
fn wait_for_states(address: &str, nodes: usize, state: &str) -> Value {
    wait_for(&format!("{nodes} targets are {state}"), || {
        let answer = fetch_targets(address)?;
        let lines = answer["targets"].as_array()?;
        let count = lines.iter().filter(|line| line["state"] == state).count();
        (count == nodes).then_some(answer)
    })
}

#[test]
fn rings_are_read_as_frames_unless_the_settings_say_text() {
    let rings = LoadSimulatorProcess::start_nodes(12, 0);
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("gaunt.toml");
    fs::write(&settings, "[gather]\nframes = false\n").unwrap();
    let settings = settings.to_str().unwrap();
    // Both scrape at the same time.
    let aggregators =
        [(vec![], true), (vec!["--config", settings], false)].map(|(args, is_small)| {
            let args = [args, vec!["--targets", &rings.list]].concat();
            (TestProcess::start_aggregator(&args), is_small)
        });
    for (aggregator, is_small) in &aggregators {
        let address = aggregator.served_address();
        let answer = wait_for("each was read twice", || {
            fetch_targets(&address)
                .filter(|answer| answer["totals"]["scrapes"]["ok"].as_u64() >= Some(36))
        });
        for line in answer["targets"].as_array().unwrap() {
            assert_eq!((&line["samples"], &line["dialect"]), (&960.into(), &"gaunt".into()));
            assert_eq!(line["bytes"].as_u64() < Some(5_000), *is_small, "{line}");
        }
        assert_eq!(answer["totals"]["scrapes"].as_object().unwrap().len(), 1, "{answer}");
    }
}

/// All targets go down at once, and come up at once.
#[test]
fn fleet_that_was_down_is_scraped_again_once_it_is_up() {
    let port = free_port();
    let rings = LoadSimulatorProcess::start_nodes(300, port);
    let aggregator = TestProcess::start_aggregator(&["--targets", &rings.list, "--period", "1s"]);
    let address = aggregator.served_address();
    wait_for_states(&address, 300, "live");
    drop(rings);
    wait_for_states(&address, 300, "down");
    let _rings = LoadSimulatorProcess::start_nodes(300, port);
    let answer = wait_for_states(&address, 300, "live");
    assert!(answer["targets"].as_array().unwrap().iter().all(|line| line["samples"] == 960));
}

#[test]
fn aggregator_out_of_open_files_reports_it_and_still_answers() {
    let rings = LoadSimulatorProcess::start_nodes(100, 0);
    let limited = format!(
        "ulimit -n 64; exec {} serve --listen 127.0.0.1:0 --period 1s --targets '{}'",
        program_path("gaunt").display(),
        rings.list
    );
    let aggregator = TestProcess::start_command(Command::new("sh").args(["-c", &limited]));
    let hint = aggregator.line_with("the limit of open files");
    assert!(hint.contains("`ulimit -n 26024`, or LimitNOFILE=26024 in gaunt's unit"), "{hint}");
    let address = aggregator.served_address();
    let answer = wait_for("some are read and the others are told why not", || {
        let answer = fetch_targets(&address)?;
        let lines = answer["targets"].as_array()?;
        let count = |state: &str| lines.iter().filter(|line| line["state"] == state).count();
        (count("live") == 32 && count("down") == 68).then_some(answer)
    });
    let down = answer["targets"].as_array().unwrap().iter().find(|line| line["state"] == "down");
    let why = down.unwrap()["message"].as_str().unwrap();
    assert!(
        why.ends_with(
            ": gaunt itself has 32 connections, the most that its limit of open files allows. Raise it with `ulimit \
             -n 27000`, or LimitNOFILE=27000 in gaunt's unit."
        ),
        "{why}"
    );
    assert_eq!(
        answer["totals"]["scrapes"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["ok", "out_of_files"]
    );
}
