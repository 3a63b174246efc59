//! The console's bytes on a terminal of our own: replayed through an emulator, on every way out.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{fs, thread, time::Duration};

use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};

use crate::{
    binaries::program,
    pty::{Pty, await_that, has_ended},
};

/// `gaunt` with these arguments, on a terminal of its own.
fn gaunt(prefix: &str, arguments: &str) -> Pty {
    Pty::start(prefix, &program("gaunt"), arguments)
}

/// A screen without its clock, which goes on.
fn timeless(screen: &str) -> String {
    screen.lines().skip(1).map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_changes_lead_to_is_what_is_drawn_anew() {
    let line = gaunt("", "demo --scenario healthy");
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
    let start = line.written();
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
        let line = gaunt("", "demo");
        line.await_screen("the console", |screen| screen.contains("? keys"));
        line.press(key);
        line.expect_given_back("0");
    }
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let line = gaunt("", "demo");
        line.await_screen("the console", |screen| screen.contains("? keys"));
        kill_process(line.pid(), signal).unwrap();
        line.expect_given_back("0");
    }
}

#[test]
fn frames_are_bracketed_and_hold_no_more_than_changed() {
    let line = gaunt("", "demo --scenario healthy");
    line.await_screen("the overview", |screen| screen.contains("one cell = one GPU"));
    line.press("?");
    line.await_screen("the keys", |screen| screen.contains("KEYS HERE"));
    let start = line.written();
    // On a page that stands still only the clock changes.
    await_that("three more frames", || {
        let bytes = line.bytes(start);
        let frames = bytes.windows(8).filter(|w| w == b"\x1b[?2026h").count();
        (frames >= 3).then_some(())
    });
    let bytes = line.bytes(start);
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
        let line = gaunt(&format!("env {prefix}"), "demo --scenario healthy");
        line.await_screen("the overview", |screen| screen.contains("one cell = one GPU"));
        let bytes = line.bytes(0);
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
    let line = gaunt("", "demo --scenario healthy");
    line.await_screen("the overview", |screen| screen.contains("? keys"));
    line.press(":theme light\r");
    let kept = line.file(".local/state/gaunt/console.json");
    let text =
        await_that("the file", || fs::read_to_string(&kept).ok().filter(|t| t.contains('}')));
    assert!(text.contains("\"light\""), "{text}");
    line.press("q");
    line.expect_given_back("0");
}

/// The processor time that a process has used, in ticks of the kernel.
fn used(pid: Pid) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn is_stopped(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('T')
}

/// Sizes that look drawn and are the same in every run.
fn sizes(count: usize) -> impl Iterator<Item = (u16, u16)> {
    let mut number = 7_u32;
    std::iter::repeat_with(move || {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (1 + (number >> 16) as u16 % 1_000, 1 + (number >> 8) as u16 % 400)
    })
    .take(count)
}

#[test]
fn a_storm_of_sizes_ends_in_the_right_picture() {
    let mut line = gaunt("", "demo --scenario healthy");
    line.await_screen("the overview", |screen| screen.contains("one cell = one GPU"));
    for (columns, lines) in
        sizes(200).chain([(1, 1), (0, 0), (65_535, 65_535), (30, 10), (100, 30)])
    {
        line.resize(columns, lines);
        // Two hundred in a second.
        thread::sleep(Duration::from_millis(5));
    }
    await_that("the screen of the last size", || {
        let screen = line.anew();
        (screen.contains("GPU TIME") && screen.contains("? keys")).then_some(())
    });
    line.press("q");
    line.expect_given_back("0");
}

#[test]
fn a_terminal_that_takes_nothing_holds_nobody() {
    let mut line = gaunt("", "demo --scenario healthy");
    line.await_screen("the overview", |screen| screen.contains("one cell = one GPU"));
    line.drain(false);
    // Large pictures until the line is full, then the console must still end, and its modes be restored.
    for (columns, lines) in sizes(60).chain([(1_000, 400)]) {
        line.resize(columns, lines);
        thread::sleep(Duration::from_millis(20));
    }
    let pid = line.pid();
    kill_process(pid, Signal::TSTP).unwrap();
    await_that("the stopped console", || is_stopped(pid).then_some(()));
    kill_process_group(getpgid(Some(pid)).unwrap(), Signal::CONT).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(line.read("code").trim(), "0");
    assert_eq!(line.modes("after"), line.modes("before"), "the terminal's modes");
}

#[test]
fn a_console_whose_line_is_cut_ends_and_does_not_spin() {
    // In a session without this terminal no signal tells of the hang-up: only the terminal itself does.
    for prefix in ["", "setsid -w"] {
        let mut line = gaunt(prefix, "demo");
        line.await_screen("the console", |screen| screen.contains("? keys"));
        let pid = line.pid();
        line.hang_up();
        await_that("the end of the console", || has_ended(pid).then_some(()));
    }
}

#[test]
fn a_console_that_is_stopped_and_continued_comes_back() {
    let line = Pty::shell("PS1='ready> ' exec sh -i");
    let prompt = |screen: &str| screen.trim_end().ends_with("ready>");
    line.await_screen("the shell", prompt);
    line.press("stty -a >before\r");
    let run = program("gaunt");
    line.press(&format!("{} demo --scenario healthy\r", run.display()));
    line.await_screen("the console", |screen| screen.contains("GPU TIME"));
    for round in 0..2 {
        line.press("\x1a");
        line.await_screen("the shell", prompt);
        line.expect_left();
        line.press(&format!("stty -a >after{round}; jobs -p >jobs{round}\r"));
        assert_eq!(
            line.read(&format!("after{round}")),
            line.read("before"),
            "the terminal's modes"
        );
        let pid: i32 = line.read(&format!("jobs{round}")).trim().parse().unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        let before = used(pid);
        line.press("\rfg\r");
        line.await_screen("the console", |screen| screen.contains("GPU TIME"));
        assert!(line.replay(0).screen().alternate_screen());
        assert!(used(pid) >= before);
    }
    line.press("q");
    line.await_screen("the shell", prompt);
    line.expect_left();
    line.press("stty -a >last\r");
    assert_eq!(line.modes("last"), line.modes("before"), "the terminal's modes");
}

/// Whether somebody else stopped it by the signal of Ctrl-Z.
#[test]
fn a_console_that_another_process_stops_leaves_the_terminal_too() {
    let line = gaunt("", "demo --scenario healthy");
    line.await_screen("the console", |screen| screen.contains("GPU TIME"));
    let pid = line.pid();
    kill_process(pid, Signal::TSTP).unwrap();
    await_that("the stopped console", || is_stopped(pid).then_some(()));
    await_that("the main screen", || (!line.replay(0).screen().alternate_screen()).then_some(()));
    line.expect_left();
    let stopped = used(pid);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(used(pid), stopped, "a stopped console uses nothing");
    kill_process_group(getpgid(Some(pid)).unwrap(), Signal::CONT).unwrap();
    await_that("the console again", || line.replay(0).screen().alternate_screen().then_some(()));
    line.await_screen("the console", |screen| screen.contains("GPU TIME"));
    line.press("q");
    line.expect_given_back("0");
}
