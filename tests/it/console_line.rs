//! The console's bytes on a terminal of our own: replayed through an emulator, on every way out.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    io::{Read as _, Write as _},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use vt100::Parser;

use crate::binaries::program;

/// How long anything is awaited before the test fails.
const PATIENCE: Duration = Duration::from_mins(2);

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// A terminal that `script` opens; what is written on it is kept.
struct Line {
    folder: TempDir,
    script: Child,
    keys: ChildStdin,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Line {
    /// Starts `gaunt` with these arguments on a terminal of 80 columns and 24 lines.
    fn start(prefix: &str, arguments: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let gaunt = program("gaunt");
        let run = format!("echo $$ >pid.new; mv pid.new pid; exec {} {arguments}", gaunt.display());
        let script = format!(
            "stty cols 80 rows 24; tty >tty; stty -a >before; {prefix} sh -c '{run}'; \
             echo $? >code.new; stty -a >after; mv code.new code"
        );
        let mut script = Command::new("script")
            .args(["-qfec", &script, "/dev/null"])
            .current_dir(&folder)
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .env("SHELL", "/bin/sh")
            .env("HOME", folder.path())
            .env_remove("XDG_STATE_HOME")
            .env_remove("NO_COLOR")
            .env_remove("COLORTERM")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("script of util-linux starts");
        let keys = script.stdin.take().unwrap();
        let mut screen = script.stdout.take().unwrap();
        let bytes = Arc::<Mutex<Vec<u8>>>::default();
        let kept = Arc::clone(&bytes);
        thread::spawn(move || {
            let mut buffer = [0; 1 << 14];
            while let Ok(length @ 1..) = screen.read(&mut buffer) {
                kept.lock().unwrap().extend_from_slice(&buffer[..length]);
            }
        });
        Self { folder, script, keys, bytes }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        await_that(name, || {
            fs::read_to_string(self.file(name)).ok().filter(|text| !text.is_empty())
        })
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.read("pid").trim().parse().unwrap()).unwrap()
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// The screen that the bytes from `start` on lead to.
    fn replay(&self, start: usize) -> Parser {
        let mut parser = Parser::new(24, 80, 0);
        parser.process(&self.bytes.lock().unwrap()[start..]);
        parser
    }

    fn screen(&self) -> String {
        self.replay(0).screen().contents()
    }

    fn await_screen(&self, what: &str, is_right: impl Fn(&str) -> bool) -> String {
        await_that(what, || Some(self.screen()).filter(|screen| is_right(screen)))
    }

    /// The program has ended and left everything as it was.
    fn expect_given_back(&self, code: &str) {
        assert_eq!(self.read("code").trim(), code);
        assert_eq!(self.read("after"), self.read("before"), "the terminal's modes");
        let parser = self.replay(0);
        let screen = parser.screen();
        assert!(!screen.alternate_screen(), "the alternate screen is left");
        assert!(!screen.hide_cursor(), "the cursor is back");
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // A test may have ended it already.
        drop(self.script.kill());
        drop(self.script.wait());
    }
}

fn await_that<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} is awaited in vain");
        thread::sleep(LOOK);
    }
}

/// A screen without its clock, which goes on.
fn timeless(screen: &str) -> String {
    screen.lines().skip(1).map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_changes_lead_to_is_what_is_drawn_anew() {
    let mut line = Line::start("", "demo --scenario healthy");
    line.await_screen("the overview", |screen| screen.contains("one cell = one GPU"));
    for (keys, part) in [
        ("5", "NODES  32"),
        ("jj\r", "GPU   doing"),
        ("t", "TOPOLOGY"),
        ("4", "NETWORK"),
        ("2", "none open"),
        ("?", "KEYS HERE: findings"),
    ] {
        line.press(keys);
        line.await_screen(part, |screen| screen.contains(part));
    }
    // The last page stands still: drawn anew, it is the same to the last cell.
    let before = timeless(&line.screen());
    let start = line.bytes.lock().unwrap().len();
    line.press("\x0c");
    let anew = await_that("the whole screen", || {
        let drawn = line.replay(start).screen().contents();
        drawn.contains("? keys").then(|| timeless(&drawn))
    });
    assert_eq!(anew, before);
    line.press("q");
    line.expect_given_back("0");
}

#[test]
fn every_way_out_gives_the_terminal_back() {
    for key in ["q", "\x03", ":quit\r"] {
        let mut line = Line::start("", "demo");
        line.await_screen("the console", |screen| screen.contains("? keys"));
        line.press(key);
        line.expect_given_back("0");
    }
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let line = Line::start("", "demo");
        line.await_screen("the console", |screen| screen.contains("? keys"));
        kill_process(line.pid(), signal).unwrap();
        line.expect_given_back("0");
    }
}

#[test]
fn frames_are_bracketed_and_hold_no_more_than_changed() {
    let mut line = Line::start("", "demo --scenario healthy");
    line.await_screen("the overview", |screen| screen.contains("one cell = one GPU"));
    line.press("?");
    line.await_screen("the keys", |screen| screen.contains("KEYS HERE"));
    let start = line.bytes.lock().unwrap().len();
    // On a page that stands still only the clock changes.
    await_that("three more frames", || {
        let bytes = line.bytes.lock().unwrap();
        let frames = bytes[start..].windows(8).filter(|w| w == b"\x1b[?2026h").count();
        (frames >= 3).then_some(())
    });
    let bytes = line.bytes.lock().unwrap()[start..].to_vec();
    let count = |wanted: &[u8]| bytes.windows(wanted.len()).filter(|w| *w == wanted).count();
    assert_eq!(count(b"\x1b[?2026h"), count(b"\x1b[?2026l"));
    assert!(bytes.len() / count(b"\x1b[?2026h") < 200, "{} bytes", bytes.len());
    line.press("qq");
    line.expect_given_back("0");
}

#[test]
fn without_colours_none_is_sent_and_without_utf_8_no_other_sign() {
    for (prefix, plain) in
        [("NO_COLOR=1", false), ("TERM=dumb", false), ("LANG=C LC_ALL=C TERM=linux", true)]
    {
        let mut line = Line::start(&format!("env {prefix}"), "demo --scenario healthy");
        line.await_screen("the overview", |screen| screen.contains("one cell = one GPU"));
        let bytes = line.bytes.lock().unwrap().clone();
        let text = String::from_utf8_lossy(&bytes);
        if plain {
            assert!(text.is_ascii(), "{prefix}");
        } else {
            let colour = ["\x1b[38;", "\x1b[48;", "\x1b[31m", "\x1b[32m", "\x1b[33m"];
            assert!(colour.iter().all(|sequence| !text.contains(sequence)), "{prefix}");
        }
        line.press("q");
        line.expect_given_back("0");
    }
}

#[test]
fn choices_are_kept_for_the_next_time() {
    let mut line = Line::start("", "demo --scenario healthy");
    line.await_screen("the overview", |screen| screen.contains("? keys"));
    line.press(":theme light\r");
    let kept = line.file(".local/state/gaunt/console.json");
    let text =
        await_that("the file", || fs::read_to_string(&kept).ok().filter(|t| t.contains('}')));
    assert!(text.contains("\"light\""), "{text}");
    line.press("q");
    line.expect_given_back("0");
}
