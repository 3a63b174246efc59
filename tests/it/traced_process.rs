//! A program that is stopped at system calls of its main thread, so that a test chooses a moment of its start.

#![expect(unsafe_code, reason = "ptrace has no safe interface")]
#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    io::{self, Read as _},
    os::unix::process::CommandExt as _,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    ptr,
    time::Duration,
};

use libc::{c_int, c_void};
use rustix::{
    fs::{OFlags, fcntl_setfl},
    process::{Pid, Signal, kill_process},
};

use crate::test_process::wait_within;

/// How long a program may take for its start or its end on a busy machine.
const ENDS_WITHIN: Duration = Duration::from_mins(3);

/// What the kernel adds to the number of the signal where a program stops at a system call.
const AT_SYSTEM_CALL: c_int = libc::SIGTRAP | 0x80;

/// A program under ptrace. Only the thread that started it may call it.
pub(crate) struct TracedProcess {
    child: Child,
    pid: Pid,
    stderr: ChildStderr,
    /// What it has written to standard error.
    written: Vec<u8>,
    is_detached: bool,
}

impl TracedProcess {
    /// Starts a program, which is stopped before its first instruction.
    pub(crate) fn start_command(command: &mut Command) -> Self {
        let trace = || {
            // SAFETY: it is a system call without pointers, which a child may make after `fork`.
            match unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        command.env("NO_COLOR", "1").env_remove("RUST_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // SAFETY: the closure only makes a system call.
        let mut child = unsafe { command.pre_exec(trace) }.spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        fcntl_setfl(&stderr, OFlags::NONBLOCK).unwrap();
        let pid = Pid::from_child(&child);
        let process = Self { child, pid, stderr, written: Vec::new(), is_detached: false };
        assert_eq!(process.wait_for_stop(), Some(libc::SIGTRAP), "it stops in its exec");
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        process.call_ptrace(libc::PTRACE_SETOPTIONS, options).unwrap();
        process
    }

    fn call_ptrace(&self, request: libc::c_uint, data: c_int) -> io::Result<()> {
        let data = ptr::without_provenance_mut::<c_void>(data as usize);
        // SAFETY: these requests take numbers, and no memory of this process.
        let result = unsafe {
            libc::ptrace(request, self.pid.as_raw_pid(), ptr::null_mut::<c_void>(), data)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The signal at which the main thread has stopped; none if the program has ended.
    fn wait_for_stop(&self) -> Option<c_int> {
        let mut status = 0;
        // SAFETY: the status is written to a variable of this type.
        let waited = unsafe { libc::waitpid(self.pid.as_raw_pid(), &raw mut status, libc::__WALL) };
        assert_eq!(waited, self.pid.as_raw_pid(), "{}", io::Error::last_os_error());
        libc::WIFSTOPPED(status).then(|| libc::WSTOPSIG(status))
    }

    /// Runs it until its main thread ends a system call: a signal that is sent then is delivered before another call.
    pub(crate) fn step(&mut self) {
        assert!(self.step_or_end(), "it ended: {}", self.read_errors());
    }

    /// The same, or until it ends; whether it runs.
    pub(crate) fn step_or_end(&mut self) -> bool {
        self.run_to_system_call() && self.run_to_system_call()
    }

    /// Runs it until its main thread begins a system call, or ends the one that has begun; whether it runs.
    fn run_to_system_call(&mut self) -> bool {
        let mut signal = 0;
        loop {
            self.call_ptrace(libc::PTRACE_SYSCALL, signal).unwrap();
            match self.wait_for_stop() {
                Some(AT_SYSTEM_CALL) => return true,
                Some(other) => signal = other,
                None => return false,
            }
        }
    }

    /// What it has written to standard error so far.
    pub(crate) fn read_errors(&mut self) -> String {
        let mut part = [0; 4096];
        while let Ok(count @ 1..) = self.stderr.read(&mut part) {
            self.written.extend_from_slice(&part[..count]);
        }
        String::from_utf8_lossy(&self.written).into_owned()
    }

    /// Waits until it writes this to standard error.
    pub(crate) fn wait_for_line(&mut self, text: &str) {
        wait_within(ENDS_WITHIN, text, || self.read_errors().contains(text).then_some(()));
    }

    /// Whether a signal is blocked in its main thread, or has a handler.
    pub(crate) fn handles(&self, signal: Signal) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid.as_raw_pid())).unwrap();
        let has_bit = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
        };
        has_bit("SigBlk:") || has_bit("SigCgt:")
    }

    pub(crate) fn send_signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    /// Lets it run, unless another of its threads has ended it meanwhile.
    pub(crate) fn detach(&mut self) {
        match self.call_ptrace(libc::PTRACE_DETACH, 0) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => panic!("{error}"),
            _ => {}
        }
        self.is_detached = true;
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait_for_end(&mut self) -> ExitStatus {
        assert!(self.is_detached, "it runs");
        wait_within(ENDS_WITHIN, "the program ends", || self.child.try_wait().unwrap())
    }
}

impl Drop for TracedProcess {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
