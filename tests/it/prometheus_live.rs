//! A real Prometheus as the only source of a snapshot and of an aggregator: nothing is scraped a second time.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    collections::HashSet,
    fs,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use gaunt_engine::record::{Earlier, Recording};
use gaunt_schema::{Batch, Delivery};
use serde_json::Value;

use crate::{
    foreign_recordings::judge_with,
    foreign_site::START_MS,
    prometheus_past::{HALLS, SECONDS, Sample, start_prometheus},
    recording_integrity::{read_deliveries, start_recording, wait_for_deliveries},
    test_process::{TestProcess, get, run_gaunt, wait_for},
};

/// The recorded halls, moved in time so that their last samples are this many seconds ahead of the present.
fn samples_until(ahead: i64) -> Vec<Sample> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let shift = now - START_MS - (SECONDS - ahead) * 1_000;
    let moved = |(series, at, value): &Sample| {
        let value = if series.starts_with("node_time_seconds{") {
            format!("{:.3}", value.parse::<f64>().unwrap() + shift as f64 / 1e3)
        } else {
            value.clone()
        };
        (series.clone(), at + shift, value)
    };
    HALLS.samples.iter().map(moved).collect()
}

/// Kind, and node or job, of each finding that is a warning or worse.
fn urgent_findings(list: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let findings = list["findings"].as_array().unwrap().iter();
    let urgent = findings.filter(|finding| finding["severity"] != "info");
    urgent.map(|finding| (text(&finding["kind"]), text(&finding["entity"]["node"]))).collect()
}

const EXPECTED: [(&str, &str); 3] =
    [("compute_straggler", "r08-c03"), ("link_errors", "hgx03"), ("target_down", "r07-c14")];

fn check_findings(found: &[(String, String)]) {
    for (kind, node) in EXPECTED {
        let is_found = found.iter().any(|(other, at)| other == kind && at == node);
        assert!(is_found, "{kind} of {node}: {found:?}");
    }
    let others = found.iter().filter(|(_, node)| !EXPECTED.iter().any(|(_, at)| at == node));
    assert_eq!(others.count(), 0, "{found:?}");
}

/// How far ahead of the present what the server will have scraped reaches: as long as pages are waited for.
const SECONDS_AHEAD: i64 = 30;

fn recorded_batches(deliveries: &[Delivery]) -> Vec<&Batch> {
    let batches = deliveries.iter().filter_map(|delivery| match delivery {
        Delivery::Batch(batch) => Some(batch),
        _ => None,
    });
    batches.collect()
}

/// The last trouble of the source that was recorded.
fn last_trouble(deliveries: &[Delivery]) -> Option<String> {
    let sources = deliveries.iter().rev().find_map(|delivery| match delivery {
        Delivery::Sources(sources) => Some(sources),
        _ => None,
    });
    sources?[0].trouble.as_ref().map(ToString::to_string)
}

/// Ends a recording of what the server scraped meanwhile, whose state it starts with.
fn check_recording(recorder: TestProcess, folder: &Path) {
    assert!(
        recorder.lines_until_end().contains("gaunt: recorded "),
        "the outage of the server is no end"
    );
    let deliveries = read_deliveries(folder);
    let batches = recorded_batches(&deliveries);
    assert!(batches.is_sorted_by_key(|batch| batch.at), "{batches:?}");
    let pages: HashSet<_> = batches.iter().map(|batch| (batch.target, batch.at)).collect();
    assert_eq!(pages.len(), batches.len(), "each page once");
    let recording = Recording::open_folder(folder).unwrap();
    assert_eq!(recording.scrape_period(), Duration::from_secs(15));
    let (first, _) = recording.time_span();
    assert!(matches!(recording.earlier(first).unwrap(), Earlier::Known(..)));
    // Replayed, it begins with what the recent past of the server had shown.
    let judged = judge_with(&["--from", folder.to_str().unwrap()]);
    for (kind, _) in EXPECTED {
        assert!(judged.iter().any(|finding| finding.0 == kind), "{kind}: {judged:?}");
    }
}

#[test]
fn snapshot_aggregator_and_recording_have_what_a_prometheus_scrapes() {
    let server = start_prometheus(&samples_until(0));
    let output = run_gaunt(&["snapshot", "--prometheus", &server.url, "--format", "json"]);
    // The exporters of one node are down.
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let snapshot: Value = serde_json::from_slice(&output.stdout).unwrap();
    check_findings(&urgent_findings(&snapshot["findings"]));
    let down = snapshot["targets"]["targets"].as_array().unwrap().iter();
    let down: Vec<&Value> = down.filter(|target| target["state"] == "down").collect();
    assert_eq!(down.len(), 2, "{down:?}");
    assert_eq!(down[0]["failure"]["reason"], "reported_down");
    let message = down[0]["message"].as_str().unwrap();
    let expected = format!("Read the error of r07-c14-dcgm at {}/targets.", server.url);
    assert!(message.contains(&expected), "{message}");
    let report =
        run_gaunt(&["report", "--prometheus", &server.url, "--last", "5m", "--format", "json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    // 40 GPUs for five minutes; those of the node whose exporters are down are not known for a part of it.
    let hours = report["total"]["gpu_hours"].as_f64().unwrap();
    assert!((2.8..3.4).contains(&hours), "{hours}");

    // The samples of the first one may all be old by now.
    drop(server);
    let server = start_prometheus(&samples_until(SECONDS_AHEAD));
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("gaunt.toml");
    fs::write(&settings, format!("[prometheus]\nurl = \"{}\"\nevery = \"1s\"\n", server.url))
        .unwrap();
    let settings = settings.to_str().unwrap();
    let to = folder.path().join("recording");
    let recorder =
        start_recording(&["--config", settings, "--prometheus", &server.url], to.to_str().unwrap());
    recorder.line_with("recording 14 targets to ");
    let aggregator = TestProcess::start_aggregator(&["--config", settings]);
    let gaunt = aggregator.served_address();
    let ask = |question: &str| -> Value {
        let (_, body) = get(&gaunt, &format!("/api/gaunt/v1/{question}")).unwrap();
        serde_json::from_str(&body).unwrap()
    };
    let load = wait_for("a refresh", || {
        Some(ask("targets")["sources"][0]["load"].clone()).filter(Value::is_object)
    });
    assert!(load["queries"].as_u64().unwrap() >= 3, "{load}");
    assert_eq!((&load["refresh_ms"], &load["delay_ms"]), (&1_000.into(), &11_000.into()));
    check_findings(&urgent_findings(&ask("findings")));
    let notes = wait_for("the next tick", || {
        ask("overview")["source_notes"][0].as_str().map(str::to_owned)
    });
    assert!(notes.contains(" samples in ") && notes.contains("shown 11 s late"), "{notes}");

    wait_for_deliveries(&to, "two pages", |deliveries| recorded_batches(deliveries).len() >= 2);
    // Without its server the aggregator says so, and blames no target. A query on its way is reset instead of refused.
    drop(server);
    wait_for("the outage", || {
        let trouble = ask("overview")["source_trouble"][0].as_str()?.to_owned();
        trouble.contains("Connection refused").then_some(())
    });
    wait_for_deliveries(&to, "the recorded outage", |deliveries| {
        last_trouble(deliveries).is_some_and(|trouble| trouble.contains("Connection refused"))
    });
    check_findings(&urgent_findings(&ask("findings")));
    check_recording(recorder, &to);
}
