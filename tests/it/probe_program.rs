//! gaunt-probe with the fake driver, as a user runs it: measurements, failures, and the exit code of each.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fmt::Write as _,
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    binaries::{fake_driver, program_path},
    test_process::RunToEnd,
};

/// A scenario for one test, and a way to run gaunt-probe on it.
pub(crate) struct ProbeFixture {
    folder: TempDir,
}

/// The output of gaunt-probe.
pub(crate) struct ProbeOutput {
    pub(crate) code: i32,
    pub(crate) answer: Value,
}

impl ProbeFixture {
    /// Idle GPUs; `gpu` is added to each of them, `cuda` sets how they differ from the default.
    pub(crate) fn with_gpus(gpus: usize, gpu: &str, cuda: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ledger_path = folder.path().join("ledger");
        let ledger_path = ledger_path.display();
        let mut text = format!("driver = '570.1'\n[cuda]\nledger = '{ledger_path}'\n{cuda}\n");
        for index in 0..gpus {
            let _ = writeln!(
                text,
                "[[gpu]]\nuuid = 'GPU-{index}'\nmodel = 'NVIDIA H100 80GB HBM3'\n\
                 pci_bus_id = '00000000:{:02X}:00.0'\nmemory_total_bytes = 85899345920",
                0x1b + 2 * index
            );
            let idle_keys = [
                "utilization_percent",
                "memory_activity_percent",
                "mig_mode",
                "memory_used_bytes",
                "processes",
                "compute_mode",
            ];
            for key in idle_keys.iter().filter(|key| !gpu.contains(**key)) {
                let _ = writeln!(text, "{key} = 0");
            }
            text += gpu;
            text += "\n";
        }
        fs::write(folder.path().join("scenario.toml"), text).unwrap();
        Self { folder }
    }

    /// A command that can take further arguments.
    pub(crate) fn probe_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program_path("gaunt-probe"));
        command.args(arguments).arg("--json");
        command.env("GAUNT_FAKE_DRIVER", self.folder.path().join("scenario.toml"));
        for flag in ["--cuda-library", "--nvml-library", "--nccl-library"] {
            command.arg(flag).arg(fake_driver());
        }
        command
    }

    /// Runs it. The fake driver uses the host's time as GPU time, so the limit on busy GPUs is off here.
    pub(crate) fn run(&self, arguments: &[&str]) -> ProbeOutput {
        let mut command = self.probe_command(arguments);
        if arguments[0] != "doctor" {
            command.args(["--busy", "60s"]);
            if !arguments.contains(&"--within") {
                command.args(["--within", "60s"]);
            }
        }
        parse_output(&command.run_to_end())
    }

    /// The allocations left in each context that ended, by GPU; none if a process was killed.
    fn context_leftovers(&self) -> Vec<String> {
        let text = fs::read_to_string(self.file_path("ledger")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn file_path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Every context ended without leftover allocations.
    fn check_all_freed(&self, gpus: usize) {
        let leftovers = self.context_leftovers();
        assert_eq!(leftovers.len(), gpus, "{leftovers:?}");
        for line in leftovers {
            assert!(line.contains("bytes=0 streams=0 events=0 modules=0"), "{line}");
        }
    }
}

pub(crate) fn parse_output(output: &Output) -> ProbeOutput {
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    let answer = serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}\n{error}"));
    ProbeOutput { code: output.status.code().unwrap(), answer }
}

impl ProbeOutput {
    pub(crate) fn ending_message(&self) -> &str {
        self.answer["ending"]["message"].as_str().unwrap()
    }

    /// The only measurement.
    fn only_measurement(&self) -> &Value {
        assert_eq!(self.code, 0, "{}", self.ending_message());
        let measurements = self.answer["measured"].as_array().unwrap();
        assert_eq!(measurements.len(), 1, "{measurements:?}");
        &measurements[0]
    }

    /// The bandwidth of one direction of a matrix, in GB/s.
    fn way_bandwidth(&self, what: &str, between: &str, tool: &str) -> f64 {
        let measurements = self.answer["measured"].as_array().unwrap();
        let fits = |one: &&Value| {
            one["collective"] == what && one["between"] == between && one["tool"] == tool
        };
        let measurement = measurements
            .iter()
            .find(fits)
            .unwrap_or_else(|| panic!("no {what} {between}: {measurements:?}"));
        measurement["algbw"].as_f64().unwrap() / 1e9
    }
}

#[test]
fn eight_gpus_reach_what_their_links_carry() {
    let probe = ProbeFixture::with_gpus(8, "", "latency_microseconds = 0.1");
    let output = probe.run(&["all-reduce", "--bytes", "2MiB", "--runs", "3"]);
    let measurement = output.only_measurement();
    assert_eq!(measurement["between"], "gpu0..7");
    assert_eq!(measurement["way"], "peer");
    assert_eq!(measurement["ranks"], 8);
    assert_eq!(measurement["wrong"], 0);
    assert_eq!(measurement["runs"], 3);
    let (busbw, algbw) =
        (measurement["busbw"].as_f64().unwrap(), measurement["algbw"].as_f64().unwrap());
    assert!((busbw / algbw - 1.75).abs() < 1e-9);
    // Links carry 400 GB/s here; the difference is latency.
    assert!((300e9..=400e9).contains(&busbw), "{busbw}");
    probe.check_all_freed(8);
}

#[test]
fn slow_link_shows_in_the_matrix_and_fails_a_floor() {
    let link = "[[cuda.link]]\nfrom = 1\nto = 2\ngigabytes_per_second = 40";
    let probe = ProbeFixture::with_gpus(3, "", link);
    let output = probe.run(&["matrix", "--bytes", "1MiB", "--runs", "2"]);
    assert_eq!(output.code, 0, "{}", output.ending_message());
    let slow = output.way_bandwidth("read", "gpu1>gpu2", "gaunt");
    let normal = output.way_bandwidth("read", "gpu2>gpu1", "gaunt");
    assert!(slow < 40.0 && normal > 200.0, "{slow} against {normal}");
    assert!((output.way_bandwidth("write", "gpu1>gpu2", "gaunt") - slow).abs() < 1.0);
    let host = output.way_bandwidth("to_gpu", "host>gpu0", "driver");
    assert!((40.0..50.0).contains(&host), "{host}");
    let (ours, driver) = (
        output.way_bandwidth("copy", "gpu0", "gaunt"),
        output.way_bandwidth("copy", "gpu0", "driver"),
    );
    assert!((ours / driver - 1.0).abs() < 0.01);
    probe.check_all_freed(3);

    let output = probe.run(&["send-recv", "--bytes", "1MiB", "--floor", "100"]);
    assert_eq!(output.code, 5, "{}", output.ending_message());
    assert!(
        output.ending_message().contains("below the floor of 100 GB/s"),
        "{}",
        output.ending_message()
    );
    assert_eq!(probe.run(&["send-recv", "--bytes", "1MiB", "--floor", "20"]).code, 0);
    let faults_only = ["send-recv", "--bytes", "1MiB", "--floor", "100", "--faults-only"];
    assert_eq!(probe.run(&faults_only).code, 5);
}

#[test]
fn wrong_data_is_found_and_located() {
    for (kernel, arguments) in [
        ("gaunt_add_f32", ["all-reduce", "--type", "f32"]),
        ("gaunt_add_bf16", ["all-reduce", "--type", "bf16"]),
        ("gaunt_copy", ["all-gather", "--type", "f32"]),
        ("gaunt_copy", ["matrix", "--type", "f32"]),
    ] {
        let fault = format!("[[cuda.fault]]\nkernel = '{kernel}'\ngpu = 1\nnth = 3\nwrong = true");
        let probe = ProbeFixture::with_gpus(4, "", &fault);
        let mut full_arguments = arguments.to_vec();
        full_arguments.extend(["--bytes", "64KiB"]);
        let output = probe.run(&full_arguments);
        assert_eq!(output.code, 4, "{arguments:?}: {}", output.ending_message());
        assert_eq!(output.answer["ending"]["kind"], "wrong_data");
        let bad = output.answer["measured"].as_array().unwrap().iter();
        let bad: Vec<_> = bad.filter(|one| one["wrong"].as_u64() > Some(0)).collect();
        assert_eq!(bad.len(), 1, "{bad:?}");
        assert!(bad[0]["wrong_at"].as_str().unwrap().contains("element"), "{bad:?}");
        probe.check_all_freed(4);
    }
}

#[test]
fn hung_kernel_is_killed_in_time() {
    let probe = ProbeFixture::with_gpus(
        4,
        "",
        "[[cuda.fault]]\nkernel = 'gaunt_add_f32'\ngpu = 2\nnth = 5\nhang = true",
    );
    let output = probe.run(&["all-reduce", "--bytes", "64KiB", "--within", "700ms"]);
    assert_eq!(output.code, 6, "{}", output.ending_message());
    assert!(output.ending_message().contains("all_reduce, run 1"), "{}", output.ending_message());
    let seconds = output.answer["cost"]["seconds"].as_f64().unwrap();
    assert!(seconds < 20.0, "{seconds}");
}

#[test]
fn hung_driver_is_killed_as_well() {
    let probe = ProbeFixture::with_gpus(
        2,
        "",
        "[[cuda.fault]]\ncall = 'cuDevicePrimaryCtxRetain'\ngpu = 1\nhang = true",
    );
    let output = probe.run(&["all-reduce", "--bytes", "64KiB", "--setup", "500ms"]);
    assert_eq!(output.code, 6, "{}", output.ending_message());
    assert!(output.ending_message().contains("context of GPU 1"), "{}", output.ending_message());
}

#[test]
fn lost_gpu_is_named() {
    let probe = ProbeFixture::with_gpus(
        4,
        "",
        "[[cuda.fault]]\nkernel = 'gaunt_add_f32'\ngpu = 3\nnth = 9\nerror = 719",
    );
    let output = probe.run(&["all-reduce", "--bytes", "64KiB"]);
    assert_eq!(output.code, 7, "{}", output.ending_message());
    assert!(output.ending_message().starts_with("GPU 3: CUDA error CUDA_ERROR_LAUNCH_FAILED"));
    // Allocations on the other GPUs are freed; those of a dead context are lost with it.
    let leftovers = probe.context_leftovers();
    assert_eq!(leftovers.len(), 4);
    for line in leftovers.iter().filter(|line| !line.starts_with("gpu=3")) {
        assert!(line.contains("bytes=0 streams=0 events=0 modules=0"), "{line}");
    }
}

#[test]
fn transfer_without_peer_access_is_staged_through_the_host() {
    let probe = ProbeFixture::with_gpus(4, "", "peer = false");
    let output = probe.run(&["all-reduce", "--bytes", "1MiB"]);
    assert_eq!(output.only_measurement()["way"], "staged");
    assert!(output.answer["notes"][0].as_str().unwrap().contains("through host memory"));
    assert!(output.only_measurement()["busbw"].as_f64().unwrap() < 25e9);
    let output = probe.run(&["matrix", "--bytes", "256KiB"]);
    assert!(output.way_bandwidth("read", "gpu0>gpu1", "driver") < 25.0);

    let output = probe.run(&["all-reduce", "--bytes", "1MiB", "--require-peer"]);
    assert_eq!(output.code, 11);
    assert!(output.ending_message().starts_with("GPU 0 cannot access the memory of GPU 1"));

    let pair = ProbeFixture::with_gpus(4, "", "[[cuda.link]]\nfrom = 0\nto = 1\npeer = false");
    assert_eq!(pair.run(&["all-reduce", "--bytes", "64KiB"]).only_measurement()["way"], "mixed");
    pair.check_all_freed(4);
}

#[test]
fn unavailable_memory_is_not_allocated() {
    let probe = ProbeFixture::with_gpus(2, "", "memory_bytes = 1000000");
    let output = probe.run(&["all-reduce", "--bytes", "1MiB"]);
    assert_eq!(output.code, 8, "{}", output.ending_message());
    assert!(output.ending_message().contains("1000000 are free"), "{}", output.ending_message());
    probe.check_all_freed(2);
    let probe = ProbeFixture::with_gpus(
        2,
        "",
        "[[cuda.fault]]\ncall = 'cuMemAlloc'\ngpu = 1\nnth = 2\nerror = 2",
    );
    let output = probe.run(&["all-reduce", "--bytes", "64KiB"]);
    assert_eq!(output.code, 8, "{}", output.ending_message());
    probe.check_all_freed(2);
}

#[test]
fn new_process_on_a_gpu_stops_the_probe_at_once() {
    let probe = ProbeFixture::with_gpus(4, "", "process_after_launches = 400");
    let output = probe.run(&["all-reduce", "--bytes", "256KiB", "--runs", "1000"]);
    assert_eq!(output.code, 9, "{}", output.ending_message());
    // The process is on every GPU from one instant on; which is read first depends on where the
    // round of checks stood at that instant.
    assert!(
        output.ending_message().contains("process 4000000 is on GPU "),
        "{}",
        output.ending_message()
    );
    assert_eq!(output.answer["ending"]["reason"], "process");
    probe.check_all_freed(4);
}

#[test]
fn gpus_that_are_not_free_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("job_17"), "").unwrap();
    let job = folder.path().join("job_*");
    for (gpu, reason, message) in [
        ("processes = 1", "process", "is on GPU 0"),
        ("compute_mode = 3", "mode", "exclusive"),
        ("mig_mode = 1", "mode", "in MIG mode"),
        ("utilization_percent = 40", "in_use", "40 % busy, but NVML lists no process"),
        ("memory_used_bytes = 2000000000", "in_use", "are in use, but NVML lists no process"),
        ("[[gpu.process]]\npid = 77\nmemory_bytes = 1\nsm_percent = 1", "process", "process 77"),
    ] {
        let probe = ProbeFixture::with_gpus(2, gpu, "");
        let output = probe.run(&["all-reduce", "--bytes", "64KiB"]);
        assert_eq!(output.code, 3, "{gpu}: {}", output.ending_message());
        assert_eq!(output.answer["ending"]["reason"], reason, "{gpu}");
        assert!(output.ending_message().contains(message), "{}", output.ending_message());
        assert!(probe.context_leftovers().is_empty(), "no context was made");
        assert_eq!(probe.run(&["all-reduce", "--bytes", "64KiB", "--even-if-busy"]).code, 0);
    }
    let probe = ProbeFixture::with_gpus(2, "", "");
    let output = probe.run(&["all-reduce", "--unless-exists", job.to_str().unwrap()]);
    assert_eq!((output.code, &output.answer["ending"]["reason"]), (3, &Value::from("job")));
}

#[test]
fn limits_are_enforced_and_reported() {
    let probe = ProbeFixture::with_gpus(4, "", "");
    for (limit, message) in [("--memory", "a GPU, the limit is"), ("--traffic", "one run moves")] {
        let output = probe.run(&["all-reduce", "--bytes", "1MiB", limit, "100KiB"]);
        assert_eq!(output.code, 12, "{}", output.ending_message());
        assert!(output.ending_message().contains(message), "{}", output.ending_message());
    }
    let output = probe.run(&["all-reduce", "--bytes", "1MiB", "--traffic", "20MiB"]);
    assert_eq!(output.only_measurement()["runs"], 1);
    assert!(output.answer["cost"]["traffic_bytes"].as_u64().unwrap() <= 20 << 20);
    let probe = ProbeFixture::with_gpus(2, "", "");
    assert_eq!(probe.run(&["all-reduce", "--bytes", "1MiB", "--sms", "8", "--ranks", "4"]).code, 0);
    for line in probe.context_leftovers() {
        let number = |key: &str| {
            let value = line.split(key).nth(1).unwrap().split(' ').next().unwrap();
            value.parse::<u32>().unwrap()
        };
        // Two ranks share a GPU: each has its part of the limit, and one stream waits at the gate.
        assert!(number("largest_grid=") <= 4, "{line}");
        assert_eq!(number("most_streams="), 2 * 4 + 1, "{line}");
    }
}

#[test]
fn missing_driver_is_reported_in_one_line() {
    let mut command = Command::new(program_path("gaunt-probe"));
    let output = command
        .args(["all-reduce", "--even-if-busy", "--cuda-library", "/nowhere/libcuda.so"])
        .run_to_end();
    assert_eq!(output.status.code(), Some(10));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("no CUDA driver: /nowhere/libcuda.so") && error.lines().count() == 1,
        "{error}"
    );
    let started_anyway = Command::new(program_path("gaunt-probe"))
        .args(["all-reduce", "--faults-only", "--cuda-library", "/nowhere/libcuda.so"])
        .run_to_end();
    assert_eq!(started_anyway.status.code(), Some(0));
    let error = String::from_utf8(started_anyway.stderr).unwrap();
    assert!(error.starts_with("gaunt-probe: "), "says why nothing was measured: {error}");
    let doctor = Command::new(program_path("gaunt-probe"))
        .args([
            "doctor",
            "--cuda-library",
            "/nowhere/libcuda.so",
            "--nvml-library",
            "/nowhere/libnvidia-ml.so",
        ])
        .run_to_end();
    assert_eq!(doctor.status.code(), Some(10));
    assert!(String::from_utf8(doctor.stdout).unwrap().contains("--  CUDA driver"));
}

#[test]
fn doctor_reports_what_is_there() {
    let output = ProbeFixture::with_gpus(2, "", "[[cuda.link]]\nfrom = 0\nto = 1\npeer = false")
        .probe_command(&["doctor"])
        .run_to_end();
    assert_eq!(output.status.code(), Some(0));
    let checks: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let check_named = |name: &str| checks.iter().find(|check| check["name"] == name).unwrap();
    assert_eq!(check_named("GPUs")["says"], "2 NVIDIA H100 80GB HBM3, sm_90");
    assert!(check_named("peer access")["says"].as_str().unwrap().contains("0-1, 1-0"));
    assert_eq!(check_named("peer access")["good"], false);
    assert_eq!(check_named("idle")["good"], true);
}
