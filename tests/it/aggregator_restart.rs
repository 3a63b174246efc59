//! Restart of an aggregator after a kill: findings, acknowledgements and counters continue.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    acknowledgement_access::{FINDING, fetch_json, wait_for_finding},
    binaries::program_path,
    fleet_snapshot::SimulatorProcess,
    test_process::{RunToEnd, TestProcess, get, wait_for},
};

/// Settings that find a refused connection down within half a second.
const FREQUENT_SCRAPES: &str = "[gather]\nperiod = \"200ms\"\n";

/// Settings that close a finding soon, and soon report a port that was down at the first sample: baselines may not have
/// been saved before a kill. What was open survives because its evidence is read again, not because it may not be
/// closed yet.
const EARLY_CLOSING: &str =
    "[judge]\nresume_seconds = 1.0\nclose_seconds = 3.0\nport_never_active_seconds = 2.0\n";

/// Engine time, in milliseconds, in which nothing may change after a restart. The averages of the judge span 10 s:
/// until then everything is new to it. A finding whose evidence is not seen again closes after 7 s: three scrapes, and
/// the seconds of the settings.
const UNCHANGED_MS: i64 = 12_000;

/// An aggregator that persists its state in a folder.
fn start_aggregator(folder: &Path, targets: &str) -> (TestProcess, String) {
    let (running, address, _) = start_until_line(folder, targets, "serving address=");
    (running, address)
}

/// The same, with the line that it logs before it serves. Settings in the folder are used.
fn start_until_line(folder: &Path, targets: &str, text: &str) -> (TestProcess, String, String) {
    let token = folder.join("token");
    fs::write(&token, "correct-horse-battery-staple").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let (state, token) = (folder.join("state"), token.to_str().unwrap().to_owned());
    let state = state.to_str().unwrap();
    let mut args = vec!["--targets", targets, "--state", state, "--token-file", &token];
    let settings = folder.join("settings.toml");
    if settings.exists() {
        args.extend(["--config", settings.to_str().unwrap()]);
    }
    let running = TestProcess::start_aggregator(&args);
    let line = running.line_with(text);
    let address = match line.split("address=").nth(1) {
        Some(address) => address.split(' ').next().unwrap().to_owned(),
        None => running.served_address(),
    };
    (running, address, line)
}

fn acknowledge_finding(folder: &Path, address: &str, id: &str) {
    let output = Command::new(program_path("gaunt"))
        .args(["ack", id, "--by", "alice", "--note", "cable ordered", "--aggregator", address])
        .arg("--token-file")
        .arg(folder.join("token"))
        .run_to_end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn metric_value(address: &str, series: &str) -> Option<f64> {
    let page = get(address, "/metrics")?.1;
    let line = page.lines().find(|line| line.starts_with(series))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn killed_aggregator_continues_where_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("settings.toml"), FREQUENT_SCRAPES).unwrap();
    let (running, address) = start_aggregator(folder.path(), "127.0.0.1:9");
    let before = wait_for_finding(&address, FINDING);
    acknowledge_finding(folder.path(), &address, FINDING);
    // Killed at once: what was answered is persisted.
    running.send_signal(Signal::KILL);
    drop(running);

    let (_running, address, line) =
        start_until_line(folder.path(), "127.0.0.1:9", "restored persisted state");
    assert!(line.contains("open=1 closed=0"), "{line}");
    let after = wait_for_finding(&address, FINDING);
    let ack = &after["acknowledged"];
    assert_eq!((ack["by"].as_str(), ack["note"].as_str()), (Some("alice"), Some("cable ordered")));
    assert_eq!(after["life"]["opened"], before["life"]["opened"], "the same finding");
    assert_eq!(after["since"], before["since"]);
    let changes: Vec<&str> = after["life"]["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["what"].as_str().unwrap())
        .collect();
    assert_eq!(changes, ["opened", "acknowledged"], "it was not opened anew");
    let opened = "gaunt_findings_opened_total{kind=\"target_down\"}";
    wait_for("it is counted once", || {
        metric_value(&address, opened).filter(|count| count.to_bits() == 1.0_f64.to_bits())
    });
}

#[test]
fn damaged_state_is_set_aside_and_a_state_folder_is_not_shared() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("settings.toml"), FREQUENT_SCRAPES).unwrap();
    let (running, address) = start_aggregator(folder.path(), "127.0.0.1:9");
    wait_for_finding(&address, FINDING);
    acknowledge_finding(folder.path(), &address, FINDING);
    let state = folder.path().join("state");
    let second = Command::new(program_path("gaunt"))
        .args(["serve", "--listen", "127.0.0.1:0", "--targets", "127.0.0.1:9", "--state"])
        .arg(&state)
        .run_to_end();
    assert_eq!(second.status.code(), Some(3));
    let stderr = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(stderr.contains("another gaunt uses the state folder "), "{stderr}");
    assert!(running.terminate_and_wait().success());

    let file = state.join("findings.gaunt");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    fs::write(&file, &bytes).unwrap();
    let (_running, address, line) = start_until_line(
        folder.path(),
        "127.0.0.1:9",
        "cannot read persisted state; it is set aside",
    );
    assert!(line.contains("why=its checksum does not match"), "{line}");
    assert_eq!(fs::read(state.join("findings.gaunt.damaged")).unwrap(), bytes);
    assert_eq!(wait_for_finding(&address, FINDING)["acknowledged"], Value::Null);
}

#[test]
fn finding_stays_open_over_a_restart_and_no_false_one_opens() {
    // At twice the speed the port is down after 7.5 s. Rates are per second of the nodes' own clocks.
    let args = ["--nodes", "4", "--scenario", "port_down", "--speed", "2"];
    let fleet = SimulatorProcess::start_with_args(&args);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("settings.toml"), EARLY_CLOSING).unwrap();
    let (running, address) = start_aggregator(folder.path(), &fleet.list);
    let port = wait_for("the port is down", || {
        let list = fetch_json(&address, "findings");
        list["findings"].as_array().unwrap().iter().find(|f| f["kind"] == "port_down").cloned()
    });
    let id = port["id"].as_str().unwrap().to_owned();
    let watched_seconds =
        |address: &str| fetch_json(address, "usage?last=1h")["watched_seconds"].as_f64();
    wait_for("some time is watched", || {
        watched_seconds(&address).filter(|seconds| *seconds >= 5.0)
    });
    acknowledge_finding(folder.path(), &address, &id);
    running.send_signal(Signal::KILL);
    drop(running);
    let restarted = Instant::now();

    let (_running, address) = start_aggregator(folder.path(), &fleet.list);
    let (mut first, mut unchanged_ms) = (None, 0);
    while unchanged_ms < UNCHANGED_MS {
        let list = fetch_json(&address, "findings");
        let at = list["at"].as_i64().unwrap();
        unchanged_ms = at - *first.get_or_insert(at);
        let open: Vec<&str> = list["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| finding["id"].as_str().unwrap())
            .collect();
        assert_eq!(open, [id.as_str()], "after {unchanged_ms} ms");
        let finding = &list["findings"][0];
        assert_eq!(finding["life"]["opened"], port["life"]["opened"]);
        assert_eq!(finding["acknowledged"]["by"], "alice");
        assert!(restarted.elapsed() < Duration::from_mins(1), "it stands still at {at}");
        thread::sleep(Duration::from_millis(200));
    }
    let (watched, uptime) = (watched_seconds(&address).unwrap(), restarted.elapsed().as_secs_f64());
    assert!(watched > uptime, "{watched} s are known by one who lives for {uptime} s");
    let closed = fetch_json(&address, "closed");
    assert_eq!(closed["total"], 0, "nothing was closed");
}
