//! The console's output on a pseudo-terminal, replayed through an emulator, for every way to exit.

use std::{fs, thread, time::Duration};

use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};

use crate::{
    binaries::program_path,
    pty::{TestPty, cpu_ticks, has_ended, is_stopped, wait_for_some},
};

/// A frame begins and ends with these.
const FRAME_BEGIN: &[u8] = b"\x1b[?2026h";
const FRAME_END: &[u8] = b"\x1b[?2026l";

/// `gaunt` with these arguments, on its own pseudo-terminal.
fn start_gaunt(prefix: &str, arguments: &str) -> TestPty {
    TestPty::start_program(prefix, &program_path("gaunt"), arguments)
}

/// The demo without faults, once it shows its overview.
fn start_healthy_demo() -> TestPty {
    let pty = start_gaunt("", "demo --scenario healthy");
    pty.wait_for_screen("the overview", |screen| screen.contains("one cell = one GPU"));
    pty
}

/// A screen without its clock, which changes.
fn without_clock(screen: &str) -> String {
    screen.lines().skip(1).map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn screen_after_changes_equals_a_full_redraw() {
    let mut pty = start_healthy_demo();
    for (keys, part) in [
        ("5", "NODES  32"),
        ("jj\r", "GPU   state"),
        ("t", "TOPOLOGY"),
        ("4", "NETWORK"),
        ("2", "none open"),
        ("?", "KEYS: findings"),
    ] {
        pty.press_keys(keys);
        pty.wait_for_screen(part, |screen| screen.contains(part));
    }
    // The last page does not change: redrawn, it is the same to the last cell.
    let before = without_clock(&pty.screen_text());
    let start = pty.byte_count();
    pty.press_keys("\x0c");
    let redrawn = wait_for_some("the whole screen", || {
        let drawn = pty.replay_from(start).screen().contents();
        drawn.contains("? close").then(|| without_clock(&drawn))
    });
    assert_eq!(redrawn, before);
    check_frames_of_unchanged_page(&pty);
    check_saved_preferences(&pty);
    pty.press_keys("1");
    pty.wait_for_screen("the overview", |screen| screen.contains("one cell = one GPU"));
    check_resize_burst(&mut pty);
    pty.press_keys("q");
    pty.check_restored("0");
}

/// Frames are bracketed and hold no more than changed: on an unchanged page only the clock, once a second.
fn check_frames_of_unchanged_page(pty: &TestPty) {
    let start = wait_for_some("the end of a frame", || {
        let bytes = pty.bytes_from(0);
        bytes.ends_with(FRAME_END).then_some(bytes.len())
    });
    let count = |bytes: &[u8], sequence: &[u8]| {
        bytes.windows(sequence.len()).filter(|part| *part == sequence).count()
    };
    let bytes = wait_for_some("three more frames", || {
        let bytes = pty.bytes_from(start);
        (count(&bytes, FRAME_BEGIN) >= 3 && bytes.ends_with(FRAME_END)).then_some(bytes)
    });
    let frames = count(&bytes, FRAME_BEGIN);
    assert_eq!(frames, count(&bytes, FRAME_END));
    assert!(bytes.len() / frames < 200, "{} bytes", bytes.len());
}

/// Preferences are saved for the next start.
fn check_saved_preferences(pty: &TestPty) {
    pty.press_keys(":theme light\r");
    let preferences = pty.file_path(".local/state/gaunt/console.json");
    let text = wait_for_some("the file", || {
        fs::read_to_string(&preferences).ok().filter(|t| t.contains('}'))
    });
    assert!(text.contains("\"light\""), "{text}");
}

#[test]
fn terminal_is_restored_on_every_exit() {
    // All start at once: each waits for its first data.
    let by_key = ["q", "\x03", ":quit\r"].map(|key| (key, start_gaunt("", "demo")));
    let by_signal =
        [Signal::TERM, Signal::INT, Signal::HUP].map(|signal| (signal, start_gaunt("", "demo")));
    for (key, pty) in by_key {
        pty.wait_for_screen("the console", |screen| screen.contains("? keys"));
        pty.press_keys(key);
        pty.check_restored("0");
    }
    for (signal, pty) in by_signal {
        pty.wait_for_screen("the console", |screen| screen.contains("? keys"));
        kill_process(pty.program_pid(), signal).unwrap();
        pty.check_restored("0");
    }
}

#[test]
fn output_has_no_colour_with_no_color_and_only_ascii_without_utf_8() {
    let environments =
        [("NO_COLOR=1", false), ("TERM=dumb", false), ("LANG=C LC_ALL=C TERM=linux", true)];
    // All start at once: each waits for its first data.
    let consoles = environments.map(|(prefix, ascii_only)| {
        let pty = start_gaunt(&format!("env {prefix}"), "demo --scenario healthy");
        (prefix, ascii_only, pty)
    });
    for (prefix, ascii_only, pty) in consoles {
        pty.wait_for_screen("the overview", |screen| screen.contains("one cell = one GPU"));
        let bytes = pty.bytes_from(0);
        let text = String::from_utf8_lossy(&bytes);
        if ascii_only {
            assert!(text.is_ascii(), "{prefix}");
        } else {
            let colour = ["\x1b[38;", "\x1b[48;", "\x1b[31m", "\x1b[32m", "\x1b[33m"];
            assert!(colour.iter().all(|sequence| !text.contains(sequence)), "{prefix}");
        }
        pty.press_keys("q");
        pty.check_restored("0");
    }
}

/// Pseudo-random sizes that are the same in every run, without end.
fn terminal_sizes() -> impl Iterator<Item = (u16, u16)> {
    let mut number = 7_u32;
    std::iter::repeat_with(move || {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (1 + (number >> 16) as u16 % 1_000, 1 + (number >> 8) as u16 % 400)
    })
}

/// A burst of resizes ends with the screen of the last size.
fn check_resize_burst(pty: &mut TestPty) {
    let last_sizes = [(1, 1), (0, 0), (65_535, 65_535), (30, 10), (100, 30)];
    for (columns, lines) in terminal_sizes().take(200).chain(last_sizes) {
        pty.resize_terminal(columns, lines);
        // Two hundred per second: frames of some sizes are drawn, others are skipped.
        thread::sleep(Duration::from_millis(5));
    }
    wait_for_some("the screen of the last size", || {
        let screen = pty.screen_since_clear();
        (screen.contains("GPU TIME") && screen.contains("? keys")).then_some(())
    });
}

#[test]
fn console_ends_while_its_terminal_reads_nothing() {
    let mut pty = start_healthy_demo();
    pty.set_draining(false);
    // Large frames until the pty takes no more; the console must still exit and restore the terminal modes.
    let mut sizes = terminal_sizes();
    wait_for_some("a full pty", || {
        let (columns, lines) = sizes.next()?;
        pty.resize_terminal(columns, lines);
        pty.is_output_full().then_some(())
    });
    pty.resize_terminal(1_000, 400);
    let pid = pty.program_pid();
    kill_process(pid, Signal::TSTP).unwrap();
    wait_for_some("the stopped console", || is_stopped(pid).then_some(()));
    kill_process_group(getpgid(Some(pid)).unwrap(), Signal::CONT).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(pty.read_file("code").trim(), "0");
    assert_eq!(pty.terminal_modes("after"), pty.terminal_modes("before"), "the terminal's modes");
}

#[test]
fn console_ends_when_its_terminal_hangs_up() {
    // In a session without this terminal there is no SIGHUP: only the terminal itself reports the hang-up.
    // Both start at once.
    for mut pty in ["", "setsid -w"].map(|prefix| start_gaunt(prefix, "demo")) {
        pty.wait_for_screen("the console", |screen| screen.contains("? keys"));
        let pid = pty.program_pid();
        pty.hang_up();
        wait_for_some("the end of the console", || has_ended(pid).then_some(()));
    }
}

#[test]
fn console_is_redrawn_after_stop_and_continue() {
    let pty = TestPty::start_script("PS1='ready> ' exec sh -i");
    let prompt = |screen: &str| screen.trim_end().ends_with("ready>");
    pty.wait_for_screen("the shell", prompt);
    pty.press_keys("stty -a >before\r");
    let run = program_path("gaunt");
    pty.press_keys(&format!("{} demo --scenario healthy\r", run.display()));
    pty.wait_for_screen("the console", |screen| screen.contains("GPU TIME"));
    for round in 0..2 {
        pty.press_keys("\x1a");
        pty.wait_for_screen("the shell", prompt);
        pty.check_main_screen();
        pty.press_keys(&format!("stty -a >after{round}; jobs -p >jobs{round}\r"));
        assert_eq!(
            pty.read_file(&format!("after{round}")),
            pty.read_file("before"),
            "the terminal's modes"
        );
        let pid: i32 = pty.read_file(&format!("jobs{round}")).trim().parse().unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        let before = cpu_ticks(pid);
        pty.press_keys("\rfg\r");
        pty.wait_for_screen("the console", |screen| screen.contains("GPU TIME"));
        assert!(pty.replay_from(0).screen().alternate_screen());
        assert!(cpu_ticks(pid) >= before);
    }
    pty.press_keys("q");
    pty.wait_for_screen("the shell", prompt);
    pty.check_main_screen();
    pty.press_keys("stty -a >last\r");
    assert_eq!(pty.terminal_modes("last"), pty.terminal_modes("before"), "the terminal's modes");
}

/// A burst longer than a read of crossterm, after input that is no key: each key arrives, in order and at once.
#[test]
fn keys_typed_while_stopped_arrive_all_and_in_order() {
    let pty = start_healthy_demo();
    check_stop_by_another_process(&pty);
    let pid = pty.program_pid();
    kill_process(pid, Signal::STOP).unwrap();
    wait_for_some("the stopped console", || is_stopped(pid).then_some(()));
    let typed: String = (0..3_000).map(|nth| char::from(b'a' + (nth % 26) as u8)).collect();
    pty.press_keys(&format!("\x1b[<0;0;0M\x1b[200~\x1bOx\0\x1b[A:{typed}"));
    kill_process(pid, Signal::CONT).unwrap();
    // A prompt takes 1,024 letters: the last one depends on all before it.
    pty.wait_for_screen("the whole prompt", |screen| screen.contains(&typed[1_000..1_024]));
    pty.press_keys("\x03q");
    pty.check_restored("0");
}

/// A console that another process stops by SIGTSTP leaves the alternate screen, and returns to it.
fn check_stop_by_another_process(pty: &TestPty) {
    let pid = pty.program_pid();
    kill_process(pid, Signal::TSTP).expect("the console runs");
    wait_for_some("the stopped console", || is_stopped(pid).then_some(()));
    wait_for_some("the main screen", || {
        (!pty.replay_from(0).screen().alternate_screen()).then_some(())
    });
    pty.check_main_screen();
    let group = getpgid(Some(pid)).expect("the console has a process group");
    kill_process_group(group, Signal::CONT).expect("the console is stopped");
    wait_for_some("the console again", || {
        pty.replay_from(0).screen().alternate_screen().then_some(())
    });
    pty.wait_for_screen("the console", |screen| screen.contains("GPU TIME"));
}
