//! Recordings by the real programs: killed at any moment, with a full disk, and from an aggregator.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, SystemTime},
};

use gaunt_engine::record::{Earlier, Recording, decode_segment};
use gaunt_schema::{Batch, Delivery, UnixMs};
use rustix::process::{Resource, Rlimit, Signal, prlimit};
use serde_json::Value;

use crate::{
    binaries::program_path,
    fleet_snapshot::SimulatorProcess,
    test_process::{TestProcess, get, run_gaunt, wait_for},
};

/// Number of kills of a recording; GAUNT_KILLS overrides it.
const KILLS: u32 = 4;

/// Maximum time until a recording is killed, in milliseconds. Its first block is on disk after a second: some kills
/// come before, others after it.
const MAX_KILL_DELAY_MS: u64 = 1_500;

/// Segments of a folder in their order.
fn list_segments(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "gaunt"));
    paths.sort();
    paths
}

/// The number of deliveries in complete blocks.
fn count_readable(folder: &Path) -> u64 {
    let entries = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        decode_segment(&bytes).map_or(0, |s| s.blocks.iter().map(|b| u64::from(b.entries)).sum())
    };
    list_segments(folder).iter().map(entries).sum()
}

/// All deliveries on disk; none before the first block.
pub(crate) fn read_deliveries(folder: &Path) -> Vec<Delivery> {
    let Ok(recording) = Recording::open_folder(folder) else { return Vec::new() };
    recording.deliveries_from(UnixMs(0)).map(|one| one.unwrap().1).collect()
}

/// The targets of a recording by address, each with the number of its batches that count.
fn count_batches(deliveries: &[Delivery], counts: impl Fn(&Batch) -> bool) -> Vec<(String, usize)> {
    let targets = deliveries.iter().find_map(|one| match one {
        Delivery::Targets(targets) => Some(targets),
        _ => None,
    });
    let batches: Vec<&Batch> = deliveries
        .iter()
        .filter_map(|one| match one {
            Delivery::Batch(batch) => Some(batch),
            _ => None,
        })
        .filter(|batch| counts(batch))
        .collect();
    let targets = targets.into_iter().flatten();
    let counted = targets.map(|target| {
        let of_target = batches.iter().filter(|batch| batch.target == target.id);
        (target.address.to_string(), of_target.count())
    });
    counted.collect()
}

/// Starts `gaunt record`.
pub(crate) fn start_recording(arguments: &[&str], to: &str) -> TestProcess {
    let mut command = Command::new(program_path("gaunt"));
    TestProcess::start_command(command.arg("record").args(arguments).args(["--to", to]))
}

/// Waits until the deliveries on disk are enough, which can only change when a block was written.
pub(crate) fn wait_for_deliveries(
    folder: &Path,
    what: &str,
    is_enough: impl Fn(&[Delivery]) -> bool,
) {
    let mut bytes_before = 0;
    wait_for(what, || {
        let segments = list_segments(folder);
        let bytes: u64 = segments.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        if std::mem::replace(&mut bytes_before, bytes) == bytes {
            return None;
        }
        is_enough(&read_deliveries(folder)).then_some(())
    });
}

/// Checks that only the end of the newest segment is damaged; returns the number of damaged bytes.
fn count_torn_bytes(folder: &Path, whole: &[PathBuf]) -> usize {
    let mut torn = 0;
    for path in list_segments(folder) {
        let bytes = fs::read(&path).unwrap();
        let Ok(segment) = decode_segment(&bytes) else {
            assert!(!whole.contains(&path), "{} had a header", path.display());
            torn += bytes.len();
            continue;
        };
        torn += segment.lost;
        let intact = decode_segment(&bytes[..bytes.len() - segment.lost]).unwrap();
        let is_intact = (intact.blocks.len(), intact.lost) == (segment.blocks.len(), 0);
        assert!(is_intact, "{}: something before its end is damaged", path.display());
    }
    torn
}

#[test]
fn killed_recording_loses_only_its_unfinished_tail() {
    let kills = std::env::var("GAUNT_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let sim = SimulatorProcess::start_healthy(2);
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().to_str().unwrap();
    let (mut random, mut before, mut tails) = (seed | 1, 0, 0);
    for kill in 0..kills {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let delay = Duration::from_millis((random >> 33) % MAX_KILL_DELAY_MS);
        let arguments = ["--log", "gaunt=info", "--period", "100ms", "--targets", &sim.list];
        let recording =
            start_recording(&[&arguments[..], &["--max-bytes", "1073741824"]].concat(), to);
        recording.line_with("recording");
        sleep(delay / 2);
        // What a reader saw during recording is there after the kill.
        let (found, during) = (list_segments(folder.path()), count_readable(folder.path()));
        let whole: Vec<_> = found
            .into_iter()
            .filter(|path| decode_segment(&fs::read(path).unwrap()).is_ok())
            .collect();
        sleep(delay / 2);
        if kill + 1 == kills {
            // However slow the machine is, something is recorded before the last kill.
            wait_for("a block on disk", || (count_readable(folder.path()) > 0).then_some(()));
        }
        recording.send_signal(Signal::KILL);
        drop(recording);
        let after = count_readable(folder.path());
        let torn = count_torn_bytes(folder.path(), &whole);
        assert!(
            after >= during && during >= before,
            "kill {kill} of seed {seed}: {before} {during} {after}"
        );
        (before, tails) = (after, tails + usize::from(torn > 0));
    }
    assert!(before > 0, "nothing was ever recorded");
    let recording = Recording::open_folder(folder.path()).unwrap();
    let read = recording.deliveries_from(UnixMs(0)).map(|one| one.map(|_| 1).unwrap()).sum::<u64>();
    assert_eq!(read, before, "every whole block is read to its end");
    let shown = run_gaunt(&["replay", "--from", to]);
    let page = String::from_utf8(shown.stdout).unwrap();
    assert!(page.starts_with("gaunt  replay · "), "{page}");
    eprintln!(
        "{kills} kills, seed {seed}: {before} deliveries in {} segments, {tails} looks at a torn tail",
        list_segments(folder.path()).len()
    );
}

/// An aggregator that records, and its address.
fn start_recorder(
    folder: &Path,
    sim: &SimulatorProcess,
    wrapper: &[&str],
) -> (TestProcess, String) {
    let config = folder.join("gaunt.toml");
    fs::write(&config, "[record]\nfolder = \"rec\"\n").unwrap();
    let program = program_path("gaunt");
    let mut arguments: Vec<&str> = wrapper.to_vec();
    arguments.extend([program.to_str().unwrap(), "serve", "--listen", "127.0.0.1:0"]);
    arguments.extend(["--config", config.to_str().unwrap(), "--targets", &sim.list]);
    let running = TestProcess::start_command(Command::new(arguments[0]).args(&arguments[1..]));
    let address = running.served_address();
    (running, address)
}

fn fetch_json(address: &str, question: &str) -> Value {
    let (status, body) = get(address, &format!("/api/gaunt/v1/{question}")).unwrap();
    assert_eq!(status, 200, "{question}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// Polls until the recording status meets a condition.
fn wait_for_status(address: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
    wait_for(what, || {
        Some(fetch_json(address, "targets")["keeping"].clone()).filter(|status| condition(status))
    })
}

/// The aggregator reports everywhere that its recording is stopped, and otherwise continues.
fn check_stopped(running: &TestProcess, address: &str, reason: &str) {
    let status = wait_for_status(address, "it says that it is stopped", |status| {
        status["stopped"]["reason"] == reason
    });
    let trouble = status["trouble"].as_str().unwrap();
    assert!(trouble.starts_with("recording stopped: cannot write to "), "{trouble}");
    let overview = wait_for("the overview says so", || {
        Some(fetch_json(address, "overview")).filter(|overview| overview["trouble"][0] == trouble)
    });
    assert!(get(address, "/readyz").unwrap().1.contains("recording stopped: "));
    wait_for("metrics say so", || {
        let page = get(address, "/metrics").unwrap().1;
        page.contains(&format!("gaunt_record_active{{reason=\"{reason}\"}} 0\n")).then_some(())
    });
    running.line_with("recording stopped: ");
    // Everything else continues.
    wait_for("the fleet is read", || {
        let later = fetch_json(address, "overview");
        (later["at"].as_i64() > overview["at"].as_i64() && later["nodes"]["live"] == 2)
            .then_some(())
    });
}

/// Recording resumes, and reports what is missing.
fn check_goes_on(running: &TestProcess, address: &str, stopped: &Value) {
    let status = wait_for_status(address, "it goes on", |status| {
        status["stopped"].is_null() && status["written"].as_u64() > stopped["written"].as_u64()
    });
    assert!(
        status["dropped_stopped"].as_u64().unwrap() > 0 && status["trouble"].is_null(),
        "{status}"
    );
    running.line_with("recording resumed");
    let page = get(address, "/metrics").unwrap().1;
    assert!(page.contains("\ngaunt_record_active 1\n"), "{page}");
    assert!(!page.contains("gaunt_record_dropped_batches_total{reason=\"stopped\"} 0\n"), "{page}");
}

#[test]
fn file_size_limit_stops_only_the_recording() {
    let (sim, folder) = (SimulatorProcess::start_healthy(2), tempfile::tempdir().unwrap());
    let (running, address) = start_recorder(folder.path(), &sim, &[]);
    wait_for_status(&address, "something is written", |status| {
        status["written"].as_u64() > Some(0)
    });
    let set_limit = |bytes| {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(running.process_id()), Resource::Fsize, limit).unwrap();
    };
    set_limit(Some(0));
    check_stopped(&running, &address, "too_large");
    let stopped = fetch_json(&address, "targets")["keeping"].clone();
    set_limit(None);
    check_goes_on(&running, &address, &stopped);
    assert!(running.terminate_and_wait().success());
    assert!(count_readable(&folder.path().join("rec")) > 0);
}

#[test]
fn full_disk_stops_only_the_recording() {
    let unshare_status =
        Command::new("unshare").args(["-Urm", "true"]).stderr(Stdio::null()).status();
    if !unshare_status.is_ok_and(|status| status.success()) {
        // A separate file system needs a namespace, which not every machine allows; the test above needs none.
        return;
    }
    let (sim, folder) = (SimulatorProcess::start_healthy(2), tempfile::tempdir().unwrap());
    let disk = folder.path().join("rec");
    fs::create_dir(&disk).unwrap();
    let mount = "mount -t tmpfs -o size=2m none \"$0\" && exec \"$@\"";
    let wrapper = ["unshare", "-Urm", "sh", "-c", mount, disk.to_str().unwrap()];
    let (running, address) = start_recorder(folder.path(), &sim, &wrapper);
    wait_for_status(&address, "something is written", |status| {
        status["written"].as_u64() > Some(0)
    });
    // The disk as the program sees it.
    let root = PathBuf::from(format!("/proc/{}/root", running.process_id().as_raw_nonzero()));
    let inside = root.join(disk.strip_prefix("/").unwrap());
    let ballast = inside.join("ballast");
    fs::write(&ballast, vec![0; 4 << 20]).unwrap_err();
    check_stopped(&running, &address, "no_space");
    let stopped = fetch_json(&address, "targets")["keeping"].clone();
    fs::remove_file(&ballast).unwrap();
    check_goes_on(&running, &address, &stopped);
    assert!(count_readable(&inside) > 0);
}

#[test]
fn data_of_an_aggregator_can_be_recorded_elsewhere() {
    let (_sim, _running, address) = crate::api_schema::start_fleet_aggregator(3);
    wait_for("the target that cannot be read is a finding", || {
        let open = fetch_json(&address, "findings");
        open["findings"].as_array().is_some_and(|open| !open.is_empty()).then_some(())
    });
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().to_str().unwrap();
    let recorder = start_recording(&["--aggregator", &address], to);
    // What stands comes first: the three nodes, and the target that cannot be read.
    wait_for_deliveries(folder.path(), "two batches of each target", |deliveries| {
        let targets = count_batches(deliveries, |_| true);
        targets.len() == 4 && targets.iter().all(|(_, batches)| *batches >= 2)
    });
    assert!(recorder.terminate_and_wait().success());
    let recording = Recording::open_folder(folder.path()).unwrap();
    assert_eq!(
        (recording.scrape_period(), recording.unfinished_bytes()),
        (Duration::from_secs(1), 0)
    );
    let page = String::from_utf8(run_gaunt(&["replay", "--from", to]).stdout).unwrap();
    // The host of the target that was never read is a node as well.
    assert!(page.starts_with("gaunt  replay · 4 nodes · 24 GPUs · 3 live · 1 down"), "{page}");
    // The finding of the unreachable target was open before, and is open from the first page on.
    let judged = run_gaunt(&["judge", "--from", to, "--format", "json"]).stdout;
    let judged: Value = serde_json::from_slice(&judged).unwrap();
    let down = &judged["findings"][0];
    assert_eq!(down["finding"]["kind"], "target_down", "{judged}");
    assert_eq!(down["opened"], judged["from"], "{judged}");
    assert!(down["finding"]["since"].as_i64() < judged["from"].as_i64(), "{judged}");
    let unreachable = run_gaunt(&["record", "--aggregator", "127.0.0.1:1", "--to", to]);
    let stderr = String::from_utf8(unreachable.stderr).unwrap();
    assert_eq!(unreachable.status.code(), Some(3));
    assert!(stderr.starts_with("gaunt: aggregator 127.0.0.1:1 unreachable: "), "{stderr}");
}

#[test]
fn recording_of_targets_judges_and_replay_says_that_there_is_no_earlier_state() {
    let (sim, folder) = (SimulatorProcess::start_healthy(2), tempfile::tempdir().unwrap());
    let to = folder.path().to_str().unwrap();
    let recorder = start_recording(&["--targets", &sim.list], to);
    // Meanwhile another one, which ends by itself.
    let beside = tempfile::tempdir().unwrap();
    let timed = ["record", "--targets", &sim.list, "--duration", "1s", "--to"];
    let timed = run_gaunt(&[&timed[..], &[beside.path().to_str().unwrap()]].concat());
    assert!(timed.status.success(), "{}", String::from_utf8_lossy(&timed.stderr));
    wait_for_deliveries(folder.path(), "a page of both nodes", |deliveries| {
        let targets = count_batches(deliveries, |batch| batch.outcome.is_ok());
        targets.len() == 2 && targets.iter().all(|(_, pages)| *pages > 0)
    });
    assert!(recorder.terminate_and_wait().success());
    let recording = Recording::open_folder(folder.path()).unwrap();
    let (first, _) = recording.time_span();
    let Earlier::Known(at, state) = recording.earlier(first).unwrap() else { panic!("not known") };
    assert!(!state.findings.is_empty() && !state.past.is_empty(), "judged at {at:?}");
    assert!(state.since.is_some_and(|since| since <= at), "it began to look by itself");
    let replayed = run_gaunt(&["replay", "--from", to]);
    let stderr = String::from_utf8(replayed.stderr).unwrap();
    assert!(stderr.contains("the recording has no earlier state: gaunt started with"), "{stderr}");
    assert!(String::from_utf8(replayed.stdout).unwrap().starts_with("gaunt  replay · 2 nodes"));
}
