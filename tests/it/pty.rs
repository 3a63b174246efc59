//! A terminal of the test's own: a program on its one end, and on the other what it wrote, replayed by an emulator.

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

/// How long anything is awaited before the test fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// What was cleared last begins the picture after a change of size.
const CLEAR: &[u8] = b"\x1b[2J";

/// A terminal with a shell script on it; what is written on it is kept.
pub(crate) struct TestPty {
    folder: TempDir,
    child: Child,
    keys: Option<File>,
    reader: Option<JoinHandle<()>>,
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Whether what is written is taken off the line.
    is_draining: Arc<AtomicBool>,
    /// Whether the line is cut.
    is_cut: Arc<AtomicBool>,
    size: (u16, u16),
}

impl TestPty {
    /// Starts `program` with these arguments on a terminal of 80 columns and 24 lines. What the terminal's modes were
    /// before and are after, and how it ended, is written down.
    pub(crate) fn start_program(prefix: &str, program: &Path, arguments: &str) -> Self {
        let run =
            format!("echo $$ >pid.new; mv pid.new pid; exec {} {arguments}", program.display());
        // A shell whose child ends by an interrupt ends with it, unless it does something about interrupts itself.
        Self::start_script(&format!(
            "trap : INT; stty -a >before; {prefix} sh -c '{run}'; echo $? >code.new; stty -a >after; mv code.new code"
        ))
    }

    /// Starts a script, as the leader of a session that this terminal controls.
    pub(crate) fn start_script(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let end = || Stdio::from(open(name.as_c_str(), flags, Mode::empty()).unwrap());
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait", "sh", "-c", script])
            .current_dir(&folder)
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .env("SHELL", "/bin/sh")
            .env("HOME", folder.path())
            .stdin(end())
            .stdout(end())
            .stderr(end());
        for name in ["XDG_STATE_HOME", "NO_COLOR", "COLORTERM", "LC_ALL", "LC_CTYPE"] {
            command.env_remove(name);
        }
        let keys = File::from(master.try_clone().unwrap());
        let (bytes, drains) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::new(AtomicBool::new(true)));
        let cut = Arc::new(AtomicBool::new(false));
        let reader = thread::spawn({
            let (bytes, drains, cut) = (Arc::clone(&bytes), Arc::clone(&drains), Arc::clone(&cut));
            move || read_output(&master, &bytes, &drains, &cut)
        });
        let mut pty = Self {
            folder,
            child: command.spawn().expect("setsid of util-linux starts"),
            keys: Some(keys),
            reader: Some(reader),
            bytes,
            is_draining: drains,
            is_cut: cut,
            size: (0, 0),
        };
        pty.resize_terminal(80, 24);
        pty
    }

    /// Gives the terminal another size, which its program is told.
    pub(crate) fn resize_terminal(&mut self, columns: u16, lines: u16) {
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(self.keys.as_ref().unwrap(), size).unwrap();
        self.size = (columns, lines);
    }

    /// Stops to take anything off the line, or goes on.
    pub(crate) fn set_draining(&self, on: bool) {
        self.is_draining.store(on, Ordering::Relaxed);
    }

    /// Cuts the line.
    pub(crate) fn hang_up(&mut self) {
        self.is_cut.store(true, Ordering::Relaxed);
        self.reader.take().unwrap().join().unwrap();
        self.keys = None;
    }

    /// A file of the script's folder.
    pub(crate) fn file_path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a file says, once it does.
    pub(crate) fn read_file(&self, name: &str) -> String {
        wait_for_some(name, || {
            fs::read_to_string(self.file_path(name)).ok().filter(|text| !text.is_empty())
        })
    }

    /// The terminal's modes as `stty -a` wrote them down, without its size.
    pub(crate) fn terminal_modes(&self, name: &str) -> String {
        let text = self.read_file(name);
        let modes =
            text.split(';').filter(|mode| !["rows", "columns"].iter().any(|w| mode.contains(w)));
        modes.collect::<Vec<_>>().join(";")
    }

    /// The program.
    pub(crate) fn program_pid(&self) -> Pid {
        Pid::from_raw(self.read_file("pid").trim().parse().unwrap()).unwrap()
    }

    /// Presses keys.
    pub(crate) fn press_keys(&self, keys: &str) {
        self.keys.as_ref().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// How many bytes were written.
    pub(crate) fn byte_count(&self) -> usize {
        self.bytes.lock().unwrap().len()
    }

    /// What was written from a byte on.
    pub(crate) fn bytes_from(&self, from: usize) -> Vec<u8> {
        self.bytes.lock().unwrap()[from..].to_vec()
    }

    /// A terminal of the size that this one has now, after the bytes from a place on.
    pub(crate) fn replay_from(&self, from: usize) -> Parser {
        let mut parser = Parser::new(self.size.1, self.size.0, 0);
        parser.process(&self.bytes_from(from));
        parser
    }

    /// What is seen.
    pub(crate) fn screen_text(&self) -> String {
        self.replay_from(0).screen().contents()
    }

    /// What is seen since the screen was cleared last, as after a change of size.
    pub(crate) fn screen_since_clear(&self) -> String {
        let bytes = self.bytes_from(0);
        let cleared = bytes.windows(CLEAR.len()).rposition(|part| part == CLEAR);
        self.replay_from(cleared.unwrap_or(0)).screen().contents()
    }

    /// Looks until what is seen is right.
    pub(crate) fn wait_for_screen(&self, what: &str, is_right: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen_text();
            if is_right(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "{what} is awaited in vain on\n{screen}");
            thread::sleep(LOOK);
        }
    }

    /// The screen is the shell's again: its own picture, its cursor, no mouse, no frame left open.
    pub(crate) fn check_main_screen(&self) {
        let parser = self.replay_from(0);
        let screen = parser.screen();
        assert!(!screen.alternate_screen(), "the alternate screen is left");
        assert!(!screen.hide_cursor(), "the cursor is back");
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
        assert!(!screen.bracketed_paste(), "pasting is as before");
        let bytes = self.bytes_from(0);
        let last = |wanted: &[u8]| bytes.windows(wanted.len()).rposition(|part| part == wanted);
        assert!(last(b"\x1b[?2026h") < last(b"\x1b[?2026l"), "the last frame is closed");
    }

    /// The program has ended with this code and left everything as it was.
    pub(crate) fn check_restored(&self, code: &str) {
        assert_eq!(self.read_file("code").trim(), code);
        assert_eq!(
            self.terminal_modes("after"),
            self.terminal_modes("before"),
            "the terminal's modes"
        );
        // What was written last may still be on the line.
        wait_for_some("the main screen", || {
            (!self.replay_from(0).screen().alternate_screen()).then_some(())
        });
        self.check_main_screen();
    }
}

impl Drop for TestPty {
    fn drop(&mut self) {
        // A test may have ended it already.
        drop(self.child.kill());
        drop(self.child.wait());
        self.is_cut.store(true, Ordering::Relaxed);
    }
}

/// Takes off the line what is written on it, until it is cut or nobody is at its other end.
fn read_output(master: &OwnedFd, bytes: &Mutex<Vec<u8>>, drains: &AtomicBool, cut: &AtomicBool) {
    let mut buffer = vec![0; 1 << 14];
    let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    while !cut.load(Ordering::Relaxed) {
        if !drains.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
            continue;
        }
        let mut wanted = [PollFd::new(master, PollFlags::IN)];
        if poll(&mut wanted, Some(&look)).is_ok_and(|ready| ready == 0) {
            continue;
        }
        match rustix::io::read(master, &mut buffer) {
            Ok(length @ 1..) => bytes.lock().unwrap().extend_from_slice(&buffer[..length]),
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

/// Looks again and again until there is something.
pub(crate) fn wait_for_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} is awaited in vain");
        thread::sleep(LOOK);
    }
}

/// Whether a process has ended, collected by its parent or not.
pub(crate) fn has_ended(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    status.map_or(true, |status| {
        status.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
    })
}
