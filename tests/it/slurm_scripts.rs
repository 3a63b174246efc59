//! The scripts for Slurm: the epilog, the prolog, the node feature and the list of jobs, with programs of Slurm that note how
//! they were called, and with a real aggregator.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::{
    acknowledgement_access::fetch_json,
    binaries::program_path,
    fleet_snapshot::SimulatorProcess,
    test_process::{RunToEnd as _, TestProcess, wait_for},
};

/// A folder of programs that stand in for those of Slurm.
struct SlurmPrograms {
    folder: tempfile::TempDir,
}

impl SlurmPrograms {
    /// With `gaunt` of this build, and with programs that note their arguments.
    fn new() -> Self {
        let programs = Self { folder: tempfile::tempdir().unwrap() };
        symlink(program_path("gaunt"), programs.path("gaunt")).unwrap();
        for name in ["scontrol", "logger"] {
            programs.add(name, "echo \"${0##*/} $*\" >>\"$CALLS\"");
        }
        programs
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn add(&self, name: &str, script: &str) {
        fs::write(self.path(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a script in the folder; returns its exit code and how it called the programs.
    fn run(&self, script: &Path, environment: &[(&str, &str)]) -> (Option<i32>, String) {
        let calls = self.path("calls");
        fs::write(&calls, "").unwrap();
        let ended: Output = Command::new("sh")
            .arg(script)
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:/usr/bin:/bin", self.folder.path().display()))
            .env("CALLS", &calls)
            .env("SLURM_JOB_ID", "77")
            .envs(environment.iter().copied())
            .run_to_end();
        (ended.status.code(), fs::read_to_string(calls).unwrap())
    }
}

/// A file of config/slurm.
fn slurm_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config/slurm").join(name)
}

#[test]
fn epilog_drains_and_feature_leaves_the_node_with_faulty_hardware_alone() {
    // At twice the speed the port is down after 7.5 s.
    let args = ["--nodes", "4", "--scenario", "port_down", "--speed", "2"];
    let fleet = SimulatorProcess::start_with_args(&args);
    let aggregator = TestProcess::start_aggregator(&["--targets", &fleet.list]);
    let address = aggregator.served_address();
    let port = wait_for("the port is down", || {
        let list = fetch_json(&address, "findings");
        list["findings"].as_array().unwrap().iter().find(|f| f["kind"] == "port_down").cloned()
    });
    let faulty = port["entity"]["node"].as_str().unwrap().to_owned();
    let other = if faulty == "gpu001" { "gpu002" } else { "gpu001" };
    let programs = SlurmPrograms::new();

    let epilog = slurm_file("epilog-gaunt-check.sh");
    let end_job = |node: &str, aggregator: &str| {
        programs.run(&epilog, &[("SLURMD_NODENAME", node), ("GAUNT_AGGREGATOR", aggregator)])
    };
    let (code, calls) = end_job(&faulty, &address);
    let drained = format!("scontrol update NodeName={faulty} State=DRAIN Reason=gaunt: port_down,");
    assert!(code == Some(0) && calls.starts_with(&drained), "{code:?} {calls}");
    assert_eq!(end_job(other, &address), (Some(0), String::new()));
    // Without an answer no node is drained.
    let (code, calls) = end_job(&faulty, "127.0.0.1:9");
    assert_eq!(code, Some(0));
    assert!(calls.starts_with("logger ") && !calls.contains("scontrol"), "{calls}");

    let nodes = [
        format!("{faulty}|h100,gaunt_ok|h100,gaunt_ok"),
        format!("{other}|h100,gaunt_ok|h100"),
        "login1|cpu|cpu".to_owned(),
    ];
    programs.add("sinfo", &format!("printf '%s\\n' '{}'", nodes.join("' '")));
    let features = slurm_file("gaunt-features");
    let (code, calls) = programs.run(&features, &[("GAUNT_AGGREGATOR", &address)]);
    assert_eq!(code, Some(0));
    let mut calls: Vec<&str> = calls.lines().collect();
    calls.sort_unstable();
    let mut expected = [
        format!("scontrol update NodeName={faulty} ActiveFeatures=h100"),
        format!("scontrol update NodeName={other} ActiveFeatures=h100,gaunt_ok"),
    ];
    expected.sort_unstable();
    assert_eq!(calls, expected);
    let unanswered = programs.run(&features, &[("GAUNT_AGGREGATOR", "127.0.0.1:9")]);
    assert_eq!(unanswered, (Some(1), String::new()));
}

#[test]
fn prolog_refuses_a_node_for_wrong_data_a_hang_or_a_lost_gpu_alone() {
    let programs = SlurmPrograms::new();
    let probe = programs.path("probe");
    let prolog = slurm_file("prolog-gaunt-probe.sh");
    for code in 0..=7 {
        programs.add("probe", &format!("echo \"probed $*\"; exit {code}"));
        let environment = [("GAUNT_PROBE", probe.to_str().unwrap()), ("SLURM_JOB_GPUS", "2,3")];
        let (ended, calls) = programs.run(&prolog, &environment);
        assert_eq!(ended, Some(i32::from(matches!(code, 4 | 6 | 7))), "{code}");
        let is_logged = calls.contains(&format!("job 77, exit {code}: probed all-reduce"))
            && calls.contains("--gpus 2,3");
        assert_eq!(is_logged, code != 0, "{code}: {calls}");
        let drains = [("FATAL", "5"), environment[0]];
        assert_eq!(programs.run(&prolog, &drains).0, Some(i32::from(code == 5)), "{code}");
    }
}

#[test]
fn list_of_jobs_is_replaced_whole_or_not_at_all() {
    let unit = fs::read_to_string(slurm_file("gaunt-jobs.service")).unwrap();
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/bin/sh -c '"));
    let programs = SlurmPrograms::new();
    let script = programs.path("command");
    fs::write(&script, command.unwrap().trim_end_matches('\'')).unwrap();
    let list = || fs::read_to_string(programs.path("jobs.json")).unwrap();
    programs.add("squeue", "echo \"$*\"");
    assert_eq!(programs.run(&script, &[]).0, Some(0));
    assert_eq!(list(), "--all --states=running --json\n");
    programs.add("squeue", "echo half; exit 1");
    assert_ne!(programs.run(&script, &[]).0, Some(0));
    assert_eq!(list(), "--all --states=running --json\n");
}
