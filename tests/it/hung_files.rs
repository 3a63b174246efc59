//! Files that never answer, as on a network file system that is away: `gaunt serve` starts, answers and ends all the same.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{fs, path::Path};

use rustix::{
    fs::{CWD, Mode, mkfifoat},
    process::Signal,
};
use serde_json::Value;

use crate::test_process::{TestProcess, get, wait_for};

/// Replaces a file by a pipe without a writer: opening it does not return.
fn hang_file(path: &Path) {
    // It may not be there.
    _ = fs::remove_file(path);
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
}

/// The threads of a program that wait for a pipe to be opened by another.
fn count_waiting(process: &TestProcess) -> usize {
    let tasks = format!("/proc/{}/task", process.process_id().as_raw_pid());
    // A thread may end meanwhile.
    let opens = format!("{} ", libc::SYS_openat);
    let waits = fs::read_dir(tasks).unwrap().map_while(Result::ok).filter(|task| {
        let call = fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
        call.starts_with(&opens)
    });
    waits.count()
}

fn wait_until_hung(process: &TestProcess, files: usize) {
    wait_for("it waits for its files", || (count_waiting(process) >= files).then_some(()));
}

fn get_json(address: &str, path: &str) -> Value {
    let (status, body) = get(address, &format!("/api/gaunt/v1/{path}")).unwrap();
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn settings_that_hang_on_a_reload_stop_neither_answers_nor_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("gaunt.toml");
    fs::write(&settings, "[gather]\ntargets = [\"127.0.0.1:9\"]\n").unwrap();
    let serve = TestProcess::start_aggregator(&["--config", settings.to_str().unwrap()]);
    let address = serve.served_address();
    wait_for("it is ready", || get(&address, "/readyz").filter(|(status, _)| *status == 200));
    hang_file(&settings);
    serve.send_signal(Signal::HUP);
    wait_until_hung(&serve, 1);
    for _ in 0..3 {
        assert_eq!(get(&address, "/readyz").map(|(status, _)| status), Some(200));
        assert_eq!(get_json(&address, "targets")["targets"].as_array().unwrap().len(), 1);
    }
    let line = serve.line_with("keeping the previous ones");
    assert!(line.contains("gaunt.toml: its file system does not answer within 5 s"), "{line}");
    // The first thread still waits.
    serve.send_signal(Signal::HUP);
    wait_until_hung(&serve, 2);
    assert_eq!(get_json(&address, "targets")["targets"].as_array().unwrap().len(), 1);
    let ended = serve.terminate_and_wait();
    assert_eq!(ended.code(), Some(0), "{ended}");
}

#[test]
fn serve_whose_files_hang_starts_and_ends_on_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["topology.toml", "squeue.json", "hosts"];
    for name in files {
        hang_file(&folder.path().join(name));
    }
    let settings = folder.path().join("gaunt.toml");
    let text = "[gather]\ntargets = [\"127.0.0.1:9\"]\ntargets_files = [\"hosts\"]\n[topology]\nfiles = \
                [\"topology.toml\"]\n[jobs]\nfiles = [\"squeue.json\"]\n";
    fs::write(&settings, text).unwrap();
    let start = || TestProcess::start_aggregator(&["--config", settings.to_str().unwrap()]);
    let starting = start();
    wait_until_hung(&starting, 1);
    let ended = starting.terminate_and_wait();
    assert_eq!(ended.code(), Some(0), "a start that waits for its files: {ended}");

    let serve = start();
    let address = serve.served_address();
    let troubles = wait_for("all three are in the answer", || {
        let answer = get_json(&address, "targets");
        let [sources, site_files] = ["sources", "site_files"].map(|list| answer[list].clone());
        let all = sources.as_array()?.iter().chain(site_files.as_array()?);
        let troubles: Vec<String> =
            all.filter_map(|file| Some(file["trouble"].as_str()?.to_owned())).collect();
        (troubles.len() == files.len()).then_some(troubles)
    });
    for file in files {
        let is_named = |it: &String| it.contains(file) && it.contains("does not answer within 5 s");
        assert!(troubles.iter().any(is_named), "{file}: {troubles:?}");
    }
    wait_until_hung(&serve, files.len());
    let ended = serve.terminate_and_wait();
    assert_eq!(ended.code(), Some(0), "{ended}");
}
