//! Pseudo-terminal for tests and benchmarks: a program on one end, and on the other its output, replayed by an
//! emulator.

use std::{
    fs::{self, File},
    io::Write as _,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
    process::Pid,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tempfile::TempDir;
use vt100::Parser;

/// Time limit for anything that a test waits for.
pub(crate) const TIME_LIMIT: Duration = Duration::from_mins(2);

/// Poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Clears the screen, which begins a new frame after a resize.
const CLEAR: &[u8] = b"\x1b[2J";

/// A pseudo-terminal that runs a shell script; its output is stored.
pub(crate) struct TestPty {
    folder: TempDir,
    child: Child,
    keys: Option<File>,
    reader: Option<JoinHandle<()>>,
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Whether output is read from the pty.
    is_draining: Arc<AtomicBool>,
    /// Whether the pty is closed.
    is_cut: Arc<AtomicBool>,
    size: (u16, u16),
}

impl TestPty {
    /// Starts `program` with these arguments on a terminal of 80 columns and 24 lines. The script saves the terminal
    /// modes before and after, and the exit code.
    pub(crate) fn start_program(prefix: &str, program: &Path, arguments: &str) -> Self {
        // A shell whose child dies of SIGINT dies too, unless it handles SIGINT itself.
        Self::start_script(&format!(
            "trap : INT; stty -a >before; {}; echo $? >code.new; stty -a >after; mv code.new code",
            program_script(prefix, program, arguments)
        ))
    }

    /// Starts a script on a terminal of 80 columns and 24 lines.
    pub(crate) fn start_script(script: &str) -> Self {
        Self::start_sized(script, (80, 24))
    }

    /// Starts a script as the leader of a session that this terminal controls.
    pub(crate) fn start_sized(script: &str, size: (u16, u16)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, window_size(size)).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open_end = || Stdio::from(open(name.as_c_str(), flags, Mode::empty()).unwrap());
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait", "sh", "-c", script])
            .current_dir(&folder)
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .env("SHELL", "/bin/sh")
            .env("HOME", folder.path())
            .stdin(open_end())
            .stdout(open_end())
            .stderr(open_end());
        for name in ["XDG_STATE_HOME", "NO_COLOR", "COLORTERM", "LC_ALL", "LC_CTYPE"] {
            command.env_remove(name);
        }
        let keys = File::from(master.try_clone().unwrap());
        let (bytes, is_draining) =
            (Arc::<Mutex<Vec<u8>>>::default(), Arc::new(AtomicBool::new(true)));
        let is_cut = Arc::new(AtomicBool::new(false));
        let reader = thread::spawn({
            let (bytes, is_draining, is_cut) =
                (Arc::clone(&bytes), Arc::clone(&is_draining), Arc::clone(&is_cut));
            move || read_output(&master, &bytes, &is_draining, &is_cut)
        });
        Self {
            folder,
            child: command.spawn().expect("setsid of util-linux starts"),
            keys: Some(keys),
            reader: Some(reader),
            bytes,
            is_draining,
            is_cut,
            size,
        }
    }

    /// Resizes the terminal, which signals the program.
    pub(crate) fn resize_terminal(&mut self, columns: u16, lines: u16) {
        self.size = (columns, lines);
        tcsetwinsize(self.keys.as_ref().unwrap(), window_size(self.size)).unwrap();
    }

    /// Stops or resumes reading from the pty.
    pub(crate) fn set_draining(&self, on: bool) {
        self.is_draining.store(on, Ordering::Relaxed);
    }

    /// Whether the pty takes no more output until some of it is read.
    pub(crate) fn is_output_full(&self) -> bool {
        let name = ptsname(self.keys.as_ref().unwrap(), Vec::new()).unwrap();
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let program_end = open(name.as_c_str(), flags, Mode::empty()).unwrap();
        let mut poll_fds = [PollFd::new(&program_end, PollFlags::OUT)];
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut poll_fds, Some(&no_wait)).unwrap() == 0
    }

    /// Closes the pty.
    pub(crate) fn hang_up(&mut self) {
        self.is_cut.store(true, Ordering::Relaxed);
        self.reader.take().unwrap().join().unwrap();
        self.keys = None;
    }

    /// A file of the script's folder.
    pub(crate) fn file_path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The content of a file, once it has any.
    pub(crate) fn read_file(&self, name: &str) -> String {
        wait_for_some(name, || {
            fs::read_to_string(self.file_path(name)).ok().filter(|text| !text.is_empty())
        })
    }

    /// The terminal modes from `stty -a`, without the size.
    pub(crate) fn terminal_modes(&self, name: &str) -> String {
        let text = self.read_file(name);
        let modes =
            text.split(';').filter(|mode| !["rows", "columns"].iter().any(|w| mode.contains(w)));
        modes.collect::<Vec<_>>().join(";")
    }

    /// The process id of the program.
    pub(crate) fn program_pid(&self) -> Pid {
        read_pid(self.folder.path())
    }

    /// Presses keys.
    pub(crate) fn press_keys(&self, keys: &str) {
        self.keys.as_ref().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Number of bytes written.
    pub(crate) fn byte_count(&self) -> usize {
        self.bytes.lock().unwrap().len()
    }

    /// The bytes from an offset on.
    pub(crate) fn bytes_from(&self, from: usize) -> Vec<u8> {
        self.bytes.lock().unwrap()[from..].to_vec()
    }

    /// An emulator of the terminal's current size, after the bytes from an offset on.
    pub(crate) fn replay_from(&self, from: usize) -> Parser {
        let mut parser = Parser::new(self.size.1, self.size.0, 0);
        parser.process(&self.bytes_from(from));
        parser
    }

    /// The visible text.
    pub(crate) fn screen_text(&self) -> String {
        self.replay_from(0).screen().contents()
    }

    /// The visible text since the last clear, as after a resize.
    pub(crate) fn screen_since_clear(&self) -> String {
        let bytes = self.bytes_from(0);
        let cleared = bytes.windows(CLEAR.len()).rposition(|part| part == CLEAR);
        self.replay_from(cleared.unwrap_or(0)).screen().contents()
    }

    /// Polls until the visible text is as expected.
    pub(crate) fn wait_for_screen(&self, what: &str, is_right: impl Fn(&str) -> bool) -> String {
        wait_for_text(what, || self.screen_text(), is_right)
    }

    /// The main screen is restored: its content, its cursor, no mouse reporting, no open synchronized update.
    pub(crate) fn check_main_screen(&self) {
        let parser = self.replay_from(0);
        let screen = parser.screen();
        assert!(!screen.alternate_screen(), "the alternate screen is left");
        assert!(!screen.hide_cursor(), "the cursor is back");
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
        assert!(!screen.bracketed_paste(), "pasting is as before");
        let bytes = self.bytes_from(0);
        let last =
            |sequence: &[u8]| bytes.windows(sequence.len()).rposition(|part| part == sequence);
        assert!(last(b"\x1b[?2026h") < last(b"\x1b[?2026l"), "the last frame is closed");
    }

    /// The program exited with this code and restored the terminal.
    pub(crate) fn check_restored(&self, code: &str) {
        assert_eq!(self.read_file("code").trim(), code);
        assert_eq!(
            self.terminal_modes("after"),
            self.terminal_modes("before"),
            "the terminal's modes"
        );
        // The last output may still be in the pty.
        wait_for_some("the main screen", || {
            (!self.replay_from(0).screen().alternate_screen()).then_some(())
        });
        self.check_main_screen();
    }
}

impl Drop for TestPty {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
        self.is_cut.store(true, Ordering::Relaxed);
    }
}

/// Reads output from the pty, until it is closed or the other end is.
fn read_output(
    master: &OwnedFd,
    bytes: &Mutex<Vec<u8>>,
    is_draining: &AtomicBool,
    is_cut: &AtomicBool,
) {
    let mut buffer = vec![0; 1 << 14];
    let timeout = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
    while !is_cut.load(Ordering::Relaxed) {
        if !is_draining.load(Ordering::Relaxed) {
            thread::sleep(POLL_INTERVAL);
            continue;
        }
        let mut poll_fds = [PollFd::new(master, PollFlags::IN)];
        if poll(&mut poll_fds, Some(&timeout)).is_ok_and(|ready| ready == 0) {
            continue;
        }
        match rustix::io::read(master, &mut buffer) {
            Ok(length @ 1..) => bytes.lock().unwrap().extend_from_slice(&buffer[..length]),
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

fn window_size((columns, lines): (u16, u16)) -> Winsize {
    Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// A shell command that writes the program's process id to a file and becomes the program.
pub(crate) fn program_script(prefix: &str, program: &Path, arguments: &str) -> String {
    let program = program.display();
    format!("{prefix} sh -c 'echo $$ >pid.new; mv pid.new pid; exec {program} {arguments}'")
}

/// The process id that [`program_script`] writes in its folder.
pub(crate) fn read_pid(folder: &Path) -> Pid {
    let pid = wait_for_some("the program", || fs::read_to_string(folder.join("pid")).ok());
    Pid::from_raw(pid.trim().parse().unwrap()).unwrap()
}

/// Polls a screen until it is as expected.
pub(crate) fn wait_for_text(
    what: &str,
    read_screen: impl Fn() -> String,
    is_right: impl Fn(&str) -> bool,
) -> String {
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        let screen = read_screen();
        if is_right(&screen) {
            return screen;
        }
        assert!(Instant::now() < deadline, "{what} is awaited in vain on\n{screen}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// Polls until there is a value.
pub(crate) fn wait_for_some<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} is awaited in vain");
        thread::sleep(POLL_INTERVAL);
    }
}

/// The fields of `/proc/PID/stat` after the name, which may contain spaces; none if there is no such process.
fn stat_fields(pid: Pid) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    Some(stat.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

/// Whether a process has ended, collected by its parent or not.
pub(crate) fn has_ended(pid: Pid) -> bool {
    stat_fields(pid).is_none_or(|fields| ["Z", "X"].contains(&fields[0].as_str()))
}

/// Whether a process is stopped.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    stat_fields(pid).unwrap()[0] == "T"
}

/// CPU time of a process, in hundredths of a second.
pub(crate) fn cpu_ticks(pid: Pid) -> u64 {
    let fields = stat_fields(pid).unwrap();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
