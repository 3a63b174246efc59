//! The state of this node's IMEX daemon, which exports GPU memory to the other nodes of an NVLink domain.
//!
//! NVML has no call for it. NVIDIA's tool `nvidia-imex-ctl -q` prints it as one word, as DCGM reads it for its field
//! `DCGM_FI_IMEX_DAEMON_STATUS`; the daemon answers the tool if `IMEX_CMD_ENABLED=1` is in its configuration. The tool is started
//! periodically and never waited for: each tick checks whether it has ended, and kills it past its deadline.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use gaunt_schema::{AbsenceReason, Reading, SanitizedText};
use rustix::fs::{OFlags, fcntl_setfl};

/// The time between two starts of the tool.
const EVERY: Duration = Duration::from_secs(10);

/// The deadline of the tool: it asks a daemon on this node.
const DEADLINE: Duration = Duration::from_secs(5);

/// The most that is read of each of its outputs, in bytes. It prints one word; one that prints more than a pipe holds
/// never ends, and is killed.
const MAX_OUTPUT: u64 = 4096;

/// Where NVIDIA's packages install the tool. The search path of the environment is not used: who can write to a folder of it
/// would run programs as this user.
const PROGRAMS: [&str; 4] = [
    "/usr/bin/nvidia-imex-ctl",
    "/usr/local/bin/nvidia-imex-ctl",
    "/opt/nvidia/imex/bin/nvidia-imex-ctl",
    "/usr/local/nvidia/imex/bin/nvidia-imex-ctl",
];

/// The states in the order of their values in DCGM: 0 to 7.
const STATES: [&str; 8] = [
    "INITIALIZING",
    "STARTING_AUTH_SERVER",
    "WAITING_FOR_PEERS",
    "WAITING_FOR_RECOVERY",
    "INIT_GPU",
    "READY",
    "SHUTTING_DOWN",
    "UNAVAILABLE",
];

/// The message of the tool on a node that has the package, and no list of nodes.
const NOT_CONFIGURED: &str = "Failed to read node configuration file";

/// Queries the daemon periodically.
pub(super) struct ImexDaemon {
    programs: Vec<PathBuf>,
    next: Option<Instant>,
    running: Option<RunningTool>,
    status: Option<ImexStatus>,
}

/// A tool that was started and not yet waited for.
struct RunningTool {
    child: Child,
    started: Instant,
    killed: bool,
}

/// The outcome of the last query.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ImexStatus {
    /// The state, 0 to 7, or why there is none.
    pub(super) reading: Reading,
    /// The reason why there is no state, and the next step.
    pub(super) message: Option<String>,
    /// Whether the query itself failed: false also where there is no daemon.
    pub(super) has_failed: bool,
}

impl ImexDaemon {
    /// A daemon that is queried with the first of these programs that exists; by default NVIDIA's.
    pub(super) fn new(program: Option<&Path>) -> Self {
        let programs = program.map_or_else(
            || PROGRAMS.iter().map(PathBuf::from).collect(),
            |program| vec![program.to_owned()],
        );
        Self { programs, next: None, running: None, status: None }
    }

    /// Starts a query if one is due, and returns the outcome of the last one.
    pub(super) fn poll_state(&mut self, now: Instant) -> Option<&ImexStatus> {
        if let Some(mut tool) = self.running.take() {
            match tool.child.try_wait() {
                Ok(Some(_)) if tool.killed => {}
                Ok(Some(exit)) => {
                    let outputs = read_outputs(&mut tool.child);
                    self.status = Some(ImexStatus::of_outputs(exit, &outputs));
                }
                Ok(None) => {
                    if !tool.killed && now.duration_since(tool.started) >= DEADLINE {
                        // It ends at once, unless the kernel holds it: then no other is started before it has.
                        tool.killed = tool.child.kill().is_ok();
                        self.status = Some(ImexStatus::of_late_tool());
                    }
                    self.running = Some(tool);
                }
                Err(error) => self.status = Some(ImexStatus::of_error(&error)),
            }
        }
        let is_due = self.next.is_none_or(|next| now >= next);
        if is_due && self.running.is_none() {
            self.next = Some(now + EVERY);
            self.start_query(now);
        }
        self.status.as_ref()
    }

    fn start_query(&mut self, now: Instant) {
        let Some(program) = self.programs.iter().find(|program| program.is_file()) else {
            self.status = Some(ImexStatus::of_nothing("nvidia-imex-ctl is not installed"));
            return;
        };
        let mut command = Command::new(program);
        command.arg("-q").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        match command.spawn() {
            Ok(child) => self.running = Some(RunningTool { child, started: now, killed: false }),
            Err(error) => self.status = Some(ImexStatus::of_error(&error)),
        }
    }
}

impl Drop for ImexDaemon {
    fn drop(&mut self) {
        if let Some(tool) = &mut self.running {
            let _ = tool.child.kill();
        }
    }
}

impl ImexStatus {
    fn of_outputs(exit: ExitStatus, outputs: &[String; 2]) -> Self {
        let word = outputs[0].trim();
        let state = STATES.iter().position(|state| state.eq_ignore_ascii_case(word));
        if let Some(state) = state.filter(|_| exit.success()) {
            return Self { reading: Reading::of(state as f64), message: None, has_failed: false };
        }
        if outputs.iter().any(|output| output.contains(NOT_CONFIGURED)) {
            return Self::of_nothing("IMEX is installed, and has no list of nodes");
        }
        let said =
            outputs.iter().find_map(|output| output.lines().find(|line| !line.trim().is_empty()));
        let said = SanitizedText::new(said.unwrap_or("nothing").trim());
        Self::of_failure(
            AbsenceReason::Error,
            format!(
                "nvidia-imex-ctl -q ended with {exit} and said: {said}; check nvidia-imex.service, and IMEX_CMD_ENABLED=1 \
                 in /etc/nvidia-imex/config.cfg"
            ),
        )
    }

    fn of_error(error: &io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::PermissionDenied => AbsenceReason::NoPermission,
            _ => AbsenceReason::Error,
        };
        Self::of_failure(
            reason,
            format!("cannot run nvidia-imex-ctl: {error}; check that this user may execute it"),
        )
    }

    fn of_failure(reason: AbsenceReason, message: String) -> Self {
        Self { reading: Reading::from(reason), message: Some(message), has_failed: true }
    }

    fn of_late_tool() -> Self {
        let message = format!(
            "nvidia-imex-ctl -q does not end within {} s; check nvidia-imex.service",
            DEADLINE.as_secs()
        );
        Self::of_failure(AbsenceReason::Stale, message)
    }

    fn of_nothing(message: &str) -> Self {
        let reading = Reading::from(AbsenceReason::Unsupported);
        Self { reading, message: Some(message.to_owned()), has_failed: false }
    }
}

/// What is in the pipes of a tool that has ended: nothing more is waited for, because one of its own children may hold them open.
fn read_outputs(child: &mut Child) -> [String; 2] {
    fn read_now(pipe: Option<impl Read + std::os::fd::AsFd>) -> String {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe
            && fcntl_setfl(&pipe, OFlags::NONBLOCK).is_ok()
        {
            // The end of the file, or "would block": both end it with what was read.
            let _ = pipe.take(MAX_OUTPUT).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
    [read_now(child.stdout.take()), read_now(child.stderr.take())]
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// The status after a query with a program of these lines, at a time of its own.
    fn query_with(script: &str, seconds_later: u64) -> ImexStatus {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("nvidia-imex-ctl");
        fs::write(&program, format!("#!/bin/sh\n[ \"$*\" = -q ] || exit 9\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut daemon = ImexDaemon::new(Some(&program));
        let started = Instant::now();
        loop {
            let now = started + Duration::from_secs(seconds_later);
            // The start of a file that another thread still holds open for writing fails: it is started again.
            let status = daemon.poll_state(if daemon.running.is_none() { started } else { now });
            match status.cloned() {
                Some(status)
                    if !status.message.as_deref().is_some_and(|it| it.contains("busy")) =>
                {
                    return status;
                }
                Some(_) => daemon.next = None,
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    #[test]
    fn state_is_the_word_of_the_tool() {
        for (state, word) in STATES.iter().enumerate().skip(4).take(2) {
            let status = query_with(&format!("echo {word}"), 0);
            assert_eq!((status.reading, status.message), (Reading::of(state as f64), None));
        }
    }

    #[test]
    fn tool_without_a_state_gives_absence_and_the_next_step() {
        let cases = [
            (
                "echo 'Failed to read node configuration file /etc/x'; exit 1",
                AbsenceReason::Unsupported,
                "no list of nodes",
                false,
            ),
            (
                "echo 'connection refused' >&2; exit 1",
                AbsenceReason::Error,
                "IMEX_CMD_ENABLED=1",
                true,
            ),
            ("echo READY; exit 3", AbsenceReason::Error, "exit status: 3", true),
            ("echo SLEEPING", AbsenceReason::Error, "said: SLEEPING", true),
            (":", AbsenceReason::Error, "said: nothing", true),
        ];
        for (script, reason, part, has_failed) in cases {
            let status = query_with(script, 0);
            assert_eq!(status.reading, Reading::from(reason), "{script}");
            assert_eq!(status.has_failed, has_failed, "{script}");
            assert!(status.message.as_deref().unwrap().contains(part), "{status:?}");
        }
        let mut absent = ImexDaemon::new(Some(Path::new("/nowhere/nvidia-imex-ctl")));
        let status = absent.poll_state(Instant::now()).unwrap();
        assert_eq!((status.reading, status.has_failed), (AbsenceReason::Unsupported.into(), false));
    }

    #[test]
    fn tool_that_does_not_end_is_killed_and_its_state_is_stale() {
        for script in ["exec sleep 1000", "while :; do echo READY; done"] {
            let status = query_with(script, DEADLINE.as_secs());
            assert_eq!(status.reading, Reading::from(AbsenceReason::Stale), "{script}");
        }
    }
}
