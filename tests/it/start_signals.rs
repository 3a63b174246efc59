//! Signals at any moment of a start: a program ends in order, or reloads its settings once it serves, as from then on.
//!
//! A moment is a system call of the main thread, at which the program stops: what is tested does not depend on how busy the
//! machine is.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, ExitStatus},
};

use rustix::{
    fs::{CWD, Mode, mkfifoat},
    process::Signal,
};

use crate::{
    binaries::program_path,
    test_process::{TestProcess, wait_for},
    traced_process::TracedProcess,
};

/// Moments of each start, spread over all of it; GAUNT_MOMENTS overrides it. More take a second for each ten.
const MOMENTS: usize = 12;

/// A program that runs until a signal ends it.
struct ServiceProgram {
    name: &'static str,
    arguments: &'static str,
    /// What it writes once it has started, and after a reload; without that SIGHUP ends it.
    ready_line: &'static str,
    reload_line: Option<&'static str>,
}

/// `gaunt serve`, which has a target that refuses connections.
const SERVE: ServiceProgram = ServiceProgram {
    name: "gaunt",
    arguments: "serve --listen 127.0.0.1:0 --targets 127.0.0.1:1 --state state",
    ready_line: "serving address=",
    reload_line: Some("reloaded targets"),
};
const RECORD: ServiceProgram = ServiceProgram {
    name: "gaunt",
    arguments: "record --targets 127.0.0.1:1 --to recording",
    ready_line: "Ctrl-C ends it",
    reload_line: None,
};
const NODE: ServiceProgram = ServiceProgram {
    name: "gaunt-node",
    arguments: "--listen 127.0.0.1:0 --without nvml",
    ready_line: "serving /metrics",
    reload_line: Some("settings reloaded"),
};
const SIM: ServiceProgram = ServiceProgram {
    name: "gaunt-sim",
    arguments: "--nodes 1 --listen-port 0",
    ready_line: "serving a simulated fleet",
    reload_line: None,
};

impl ServiceProgram {
    fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(program_path(self.name));
        command.current_dir(folder).args(self.arguments.split(' '));
        command
    }

    /// The number of moments until a start is complete, and the first of them at which a signal is handled.
    fn count_moments(&self, folder: &Path) -> (usize, usize) {
        let mut process = TracedProcess::start_command(&mut self.command(folder));
        let (mut moments, mut first_handled) = (0, None);
        while !process.read_errors().contains(self.ready_line) {
            process.step();
            moments += 1;
            if first_handled.is_none() && process.handles(Signal::TERM) {
                first_handled = Some(moments);
            }
        }
        (moments, first_handled.unwrap())
    }

    /// Checks what a signal does at moments of the whole start.
    fn check_start(&self, signals: &[Signal]) {
        let folder = tempfile::tempdir().unwrap();
        let (moments, first_handled) = self.count_moments(folder.path());
        let parsed = count_version_moments(self.name);
        assert!(first_handled < parsed, "{} parses its command line before", self.name);
        let count = env::var("GAUNT_MOMENTS").map_or(MOMENTS, |count| count.parse().unwrap());
        let spread =
            (0..=count).map(|part| first_handled + (moments - first_handled) * part / count);
        let around = [1, first_handled - 1, first_handled, first_handled + 1];
        let chosen: BTreeSet<usize> = around.into_iter().chain(spread).collect();
        for (moment, signal) in chosen.iter().flat_map(|at| signals.iter().map(move |it| (at, it)))
        {
            let what = format!("{} {}, {signal:?} at {moment}", self.name, self.arguments);
            let (is_handled, status) = self.signal_at(folder.path(), *moment, *signal);
            // Before its first line no program can do anything.
            assert!(is_handled || *moment < parsed, "{what}");
            let expected = if is_handled { (Some(0), None) } else { (None, Some(signal.as_raw())) };
            assert_eq!((status.code(), status.signal()), expected, "{what}");
        }
    }

    /// Sends a signal at a moment; whether it was handled then, and how the program has ended.
    fn signal_at(&self, folder: &Path, moment: usize, signal: Signal) -> (bool, ExitStatus) {
        let mut process = TracedProcess::start_command(&mut self.command(folder));
        for _ in 0..moment {
            // Some starts are shorter: threads differ.
            if process.read_errors().contains(self.ready_line) {
                break;
            }
            process.step();
        }
        let is_handled = process.handles(signal);
        process.send_signal(signal);
        process.detach();
        if let Some(reload_line) = self.reload_line.filter(|_| is_handled && signal == Signal::HUP)
        {
            process.wait_for_line(self.ready_line);
            process.wait_for_line(reload_line);
            process.send_signal(Signal::TERM);
        }
        (is_handled, process.wait_for_end())
    }
}

/// The number of moments until a program has parsed its command line and printed its version.
fn count_version_moments(name: &str) -> usize {
    let mut process =
        TracedProcess::start_command(Command::new(program_path(name)).arg("--version"));
    let mut moments = 0;
    while process.step_or_end() {
        moments += 1;
    }
    moments
}

#[test]
fn signal_during_the_start_of_serve_ends_or_reloads_it() {
    SERVE.check_start(&[Signal::TERM, Signal::HUP]);
}

#[test]
fn signal_during_the_start_of_record_ends_it() {
    RECORD.check_start(&[Signal::INT, Signal::HUP]);
}

#[test]
fn signal_during_the_start_of_the_exporter_ends_or_reloads_it() {
    NODE.check_start(&[Signal::TERM, Signal::HUP]);
}

#[test]
fn signal_during_the_start_of_the_simulator_ends_it() {
    SIM.check_start(&[Signal::TERM, Signal::HUP]);
}

/// Opening a pipe without a reader does not return, as opening a file on a file system that hangs.
#[test]
fn start_that_hangs_ends_on_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    mkfifoat(CWD, folder.path().join("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
    let mut command = SIM.command(folder.path());
    let process = TestProcess::start_command(command.args(["--targets", "pipe"]));
    let system_call = format!("/proc/{}/syscall", process.process_id().as_raw_pid());
    let opens = format!("{} ", libc::SYS_openat);
    wait_for("the program opens it", || {
        fs::read_to_string(&system_call).unwrap().starts_with(&opens).then_some(())
    });
    let ended = process.terminate_and_wait();
    assert_eq!(ended.code(), Some(0), "{ended}");
}

#[test]
fn recording_under_nohup_outlives_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let program = program_path("gaunt");
    let mut shell = Command::new("/bin/sh");
    shell.current_dir(folder.path()).arg("-c").arg(format!(
        "trap '' HUP; exec {} {}",
        program.display(),
        RECORD.arguments
    ));
    let record = TestProcess::start_command(&mut shell);
    record.line_with(RECORD.ready_line);
    record.send_signal(Signal::HUP);
    // Of two that wait the kernel delivers the one with the lower number first: SIGHUP.
    let lines = record.lines_until_end();
    assert!(lines.contains("recorded"), "{lines}");
}
