//! The console's output on a pseudo-terminal, replayed through an emulator, for every way to exit.

use std::{fs, thread, time::Duration};

use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};

use crate::{
    binaries::program_path,
    pty::{TestPty, cpu_ticks, has_ended, is_stopped, wait_for_some},
};

/// `gaunt` with these arguments, on its own pseudo-terminal.
fn start_gaunt(prefix: &str, arguments: &str) -> TestPty {
    TestPty::start_program(prefix, &program_path("gaunt"), arguments)
}

/// A screen without its clock, which changes.
fn without_clock(screen: &str) -> String {
    screen.lines().skip(1).map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_changes_lead_to_is_what_is_drawn_anew() {
    let line = start_gaunt("", "demo --scenario healthy");
    line.wait_for_screen("the overview", |screen| screen.contains("one cell = one GPU"));
    for (keys, part) in [
        ("5", "NODES  32"),
        ("jj\r", "GPU   state"),
        ("t", "TOPOLOGY"),
        ("4", "NETWORK"),
        ("2", "none open"),
        ("?", "KEYS: findings"),
    ] {
        line.press_keys(keys);
        line.wait_for_screen(part, |screen| screen.contains(part));
    }
    // The last page does not change: redrawn, it is the same to the last cell.
    let before = without_clock(&line.screen_text());
    let start = line.byte_count();
    line.press_keys("\x0c");
    let anew = wait_for_some("the whole screen", || {
        let drawn = line.replay_from(start).screen().contents();
        drawn.contains("? keys").then(|| without_clock(&drawn))
    });
    assert_eq!(anew, before);
    line.press_keys("q");
    line.check_restored("0");
}

#[test]
fn every_way_out_gives_the_terminal_back() {
    for key in ["q", "\x03", ":quit\r"] {
        let line = start_gaunt("", "demo");
        line.wait_for_screen("the console", |screen| screen.contains("? keys"));
        line.press_keys(key);
        line.check_restored("0");
    }
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let line = start_gaunt("", "demo");
        line.wait_for_screen("the console", |screen| screen.contains("? keys"));
        kill_process(line.program_pid(), signal).unwrap();
        line.check_restored("0");
    }
}

#[test]
fn frames_are_bracketed_and_hold_no_more_than_changed() {
    let line = start_gaunt("", "demo --scenario healthy");
    line.wait_for_screen("the overview", |screen| screen.contains("one cell = one GPU"));
    line.press_keys("?");
    line.wait_for_screen("the keys", |screen| screen.contains("KEYS: "));
    let start = line.byte_count();
    // On an unchanged page only the clock changes.
    wait_for_some("three more frames", || {
        let bytes = line.bytes_from(start);
        let frames = bytes.windows(8).filter(|w| w == b"\x1b[?2026h").count();
        (frames >= 3).then_some(())
    });
    let bytes = line.bytes_from(start);
    let count = |wanted: &[u8]| bytes.windows(wanted.len()).filter(|w| *w == wanted).count();
    assert_eq!(count(b"\x1b[?2026h"), count(b"\x1b[?2026l"));
    assert!(bytes.len() / count(b"\x1b[?2026h") < 200, "{} bytes", bytes.len());
    line.press_keys("qq");
    line.check_restored("0");
}

#[test]
fn without_colours_none_is_sent_and_without_utf_8_no_other_sign() {
    for (prefix, plain) in
        [("NO_COLOR=1", false), ("TERM=dumb", false), ("LANG=C LC_ALL=C TERM=linux", true)]
    {
        let line = start_gaunt(&format!("env {prefix}"), "demo --scenario healthy");
        line.wait_for_screen("the overview", |screen| screen.contains("one cell = one GPU"));
        let bytes = line.bytes_from(0);
        let text = String::from_utf8_lossy(&bytes);
        if plain {
            assert!(text.is_ascii(), "{prefix}");
        } else {
            let colour = ["\x1b[38;", "\x1b[48;", "\x1b[31m", "\x1b[32m", "\x1b[33m"];
            assert!(colour.iter().all(|sequence| !text.contains(sequence)), "{prefix}");
        }
        line.press_keys("q");
        line.check_restored("0");
    }
}

#[test]
fn choices_are_kept_for_the_next_time() {
    let line = start_gaunt("", "demo --scenario healthy");
    line.wait_for_screen("the overview", |screen| screen.contains("? keys"));
    line.press_keys(":theme light\r");
    let kept = line.file_path(".local/state/gaunt/console.json");
    let text =
        wait_for_some("the file", || fs::read_to_string(&kept).ok().filter(|t| t.contains('}')));
    assert!(text.contains("\"light\""), "{text}");
    line.press_keys("q");
    line.check_restored("0");
}

/// Pseudo-random sizes that are the same in every run.
fn terminal_sizes(count: usize) -> impl Iterator<Item = (u16, u16)> {
    let mut number = 7_u32;
    std::iter::repeat_with(move || {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (1 + (number >> 16) as u16 % 1_000, 1 + (number >> 8) as u16 % 400)
    })
    .take(count)
}

#[test]
fn a_storm_of_sizes_ends_in_the_right_picture() {
    let mut line = start_gaunt("", "demo --scenario healthy");
    line.wait_for_screen("the overview", |screen| screen.contains("one cell = one GPU"));
    for (columns, lines) in
        terminal_sizes(200).chain([(1, 1), (0, 0), (65_535, 65_535), (30, 10), (100, 30)])
    {
        line.resize_terminal(columns, lines);
        // Two hundred per second.
        thread::sleep(Duration::from_millis(5));
    }
    wait_for_some("the screen of the last size", || {
        let screen = line.screen_since_clear();
        (screen.contains("GPU TIME") && screen.contains("? keys")).then_some(())
    });
    line.press_keys("q");
    line.check_restored("0");
}

#[test]
fn a_terminal_that_takes_nothing_holds_nobody() {
    let mut line = start_gaunt("", "demo --scenario healthy");
    line.wait_for_screen("the overview", |screen| screen.contains("one cell = one GPU"));
    line.set_draining(false);
    // Large frames until the pty buffer is full; the console must still exit and restore the terminal modes.
    for (columns, lines) in terminal_sizes(60).chain([(1_000, 400)]) {
        line.resize_terminal(columns, lines);
        thread::sleep(Duration::from_millis(20));
    }
    let pid = line.program_pid();
    kill_process(pid, Signal::TSTP).unwrap();
    wait_for_some("the stopped console", || is_stopped(pid).then_some(()));
    kill_process_group(getpgid(Some(pid)).unwrap(), Signal::CONT).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(line.read_file("code").trim(), "0");
    assert_eq!(line.terminal_modes("after"), line.terminal_modes("before"), "the terminal's modes");
}

#[test]
fn a_console_whose_line_is_cut_ends_and_does_not_spin() {
    // In a session without this terminal there is no SIGHUP: only the terminal itself reports the hang-up.
    for prefix in ["", "setsid -w"] {
        let mut line = start_gaunt(prefix, "demo");
        line.wait_for_screen("the console", |screen| screen.contains("? keys"));
        let pid = line.program_pid();
        line.hang_up();
        wait_for_some("the end of the console", || has_ended(pid).then_some(()));
    }
}

#[test]
fn a_console_that_is_stopped_and_continued_comes_back() {
    let line = TestPty::start_script("PS1='ready> ' exec sh -i");
    let prompt = |screen: &str| screen.trim_end().ends_with("ready>");
    line.wait_for_screen("the shell", prompt);
    line.press_keys("stty -a >before\r");
    let run = program_path("gaunt");
    line.press_keys(&format!("{} demo --scenario healthy\r", run.display()));
    line.wait_for_screen("the console", |screen| screen.contains("GPU TIME"));
    for round in 0..2 {
        line.press_keys("\x1a");
        line.wait_for_screen("the shell", prompt);
        line.check_main_screen();
        line.press_keys(&format!("stty -a >after{round}; jobs -p >jobs{round}\r"));
        assert_eq!(
            line.read_file(&format!("after{round}")),
            line.read_file("before"),
            "the terminal's modes"
        );
        let pid: i32 = line.read_file(&format!("jobs{round}")).trim().parse().unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        let before = cpu_ticks(pid);
        line.press_keys("\rfg\r");
        line.wait_for_screen("the console", |screen| screen.contains("GPU TIME"));
        assert!(line.replay_from(0).screen().alternate_screen());
        assert!(cpu_ticks(pid) >= before);
    }
    line.press_keys("q");
    line.wait_for_screen("the shell", prompt);
    line.check_main_screen();
    line.press_keys("stty -a >last\r");
    assert_eq!(line.terminal_modes("last"), line.terminal_modes("before"), "the terminal's modes");
}

/// A burst longer than a read of crossterm, after input that is no key: each key arrives, in order and at once.
#[test]
fn keys_that_nobody_takes_wait_and_none_is_lost() {
    let line = start_gaunt("", "demo --scenario healthy");
    line.wait_for_screen("the overview", |screen| screen.contains("one cell = one GPU"));
    let pid = line.program_pid();
    kill_process(pid, Signal::STOP).unwrap();
    wait_for_some("the stopped console", || is_stopped(pid).then_some(()));
    let typed: String = (0..3_000).map(|nth| char::from(b'a' + (nth % 26) as u8)).collect();
    line.press_keys(&format!("\x1b[<0;0;0M\x1b[200~\x1bOx\0\x1b[A:{typed}"));
    kill_process(pid, Signal::CONT).unwrap();
    // A prompt takes 1,024 letters: the last one depends on all before it.
    line.wait_for_screen("the whole prompt", |screen| screen.contains(&typed[1_000..1_024]));
    line.press_keys("\x03q");
    line.check_restored("0");
}

/// Tests a console that another process stops by SIGTSTP.
#[test]
fn a_console_that_another_process_stops_leaves_the_terminal_too() {
    let line = start_gaunt("", "demo --scenario healthy");
    line.wait_for_screen("the console", |screen| screen.contains("GPU TIME"));
    let pid = line.program_pid();
    kill_process(pid, Signal::TSTP).unwrap();
    wait_for_some("the stopped console", || is_stopped(pid).then_some(()));
    wait_for_some("the main screen", || {
        (!line.replay_from(0).screen().alternate_screen()).then_some(())
    });
    line.check_main_screen();
    let stopped = cpu_ticks(pid);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(cpu_ticks(pid), stopped, "a stopped console uses nothing");
    kill_process_group(getpgid(Some(pid)).unwrap(), Signal::CONT).unwrap();
    wait_for_some("the console again", || {
        line.replay_from(0).screen().alternate_screen().then_some(())
    });
    line.wait_for_screen("the console", |screen| screen.contains("GPU TIME"));
    line.press_keys("q");
    line.check_restored("0");
}
