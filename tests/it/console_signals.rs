//! The console under signals at bad moments: during start, in bursts, and while its terminal accepts no output.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};

use crate::{
    binaries::program_path,
    pty::{TestPty, cpu_ticks, has_ended, wait_for_some},
};

/// A frame begins with this.
const BEGIN: &[u8] = b"\x1b[?2026h";

/// A console whose aggregator does not exist: it only displays that.
fn start_waiting_console() -> TestPty {
    let line = TestPty::start_program("", &program_path("gaunt"), "--aggregator 127.0.0.1:1");
    line.wait_for_screen("the console", |screen| screen.contains("no answer since"));
    line
}

/// A busy-waiting process uses the whole second; a blocked one uses a few hundredths.
fn check_low_cpu(pid: Pid) {
    let (before, begun) = (cpu_ticks(pid), Instant::now());
    thread::sleep(Duration::from_secs(1));
    let share = (cpu_ticks(pid) - before) as f64 / begun.elapsed().as_secs_f64();
    assert!(share < 30.0, "{share:.0} % of a processor");
}

fn count_frames(bytes: &[u8]) -> usize {
    bytes.windows(BEGIN.len()).filter(|part| *part == BEGIN).count()
}

#[test]
fn a_signal_at_any_moment_of_the_start_leaves_the_terminal_as_it_was() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        for delay in [0, 1, 2, 4, 8, 16, 32, 64, 128] {
            let line =
                TestPty::start_program("", &program_path("gaunt"), "--aggregator 127.0.0.1:1");
            let pid = line.program_pid();
            thread::sleep(Duration::from_millis(delay));
            // The handler may not be installed yet: but before that the terminal is not in raw mode.
            kill_process(pid, signal).unwrap();
            let code: i32 = line.read_file("code").trim().parse().unwrap();
            let killed = 128 + signal.as_raw();
            assert!([0, killed].contains(&code), "{signal:?} after {delay} ms: {code}");
            let modes = (line.terminal_modes("after"), line.terminal_modes("before"));
            assert_eq!(modes.0, modes.1, "{signal:?} after {delay} ms");
            wait_for_some("the main screen", || {
                (!line.replay_from(0).screen().alternate_screen()).then_some(())
            });
        }
    }
}

#[test]
fn a_storm_of_signals_draws_no_more_than_anybody_can_read() {
    let line = start_waiting_console();
    let pid = line.program_pid();
    let (from, begun) = (line.byte_count(), Instant::now());
    for _ in 0..500 {
        kill_process(pid, Signal::WINCH).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    // Twenty frames per second, and one that was due.
    let most = begun.elapsed().as_secs_f64() * 20.0 + 2.0;
    let drawn = count_frames(&line.bytes_from(from));
    assert!((drawn as f64) < most, "{drawn} frames of at most {most:.0}");
    check_low_cpu(pid);
    line.press_keys("q");
    line.check_restored("0");
}

#[test]
fn stopped_and_continued_again_and_again_it_ends_as_it_began() {
    let line = start_waiting_console();
    let pid = line.program_pid();
    let group = getpgid(Some(pid)).unwrap();
    for _ in 0..20 {
        kill_process(pid, Signal::TSTP).unwrap();
        thread::sleep(Duration::from_millis(5));
        kill_process_group(group, Signal::CONT).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    // The last stop may come after the last SIGCONT.
    let mut rounds = 0;
    wait_for_some("the console again", || {
        rounds += 1;
        if rounds % 10 == 0 {
            kill_process_group(group, Signal::CONT).unwrap();
        }
        let screen = line.replay_from(0);
        let ours = screen.screen().alternate_screen();
        (ours && screen.screen().contents().contains("no answer since")).then_some(())
    });
    check_low_cpu(pid);
    line.press_keys("q");
    line.check_restored("0");
}

#[test]
fn a_terminal_that_takes_nothing_costs_nothing_and_is_right_again_later() {
    let line = start_waiting_console();
    let pid = line.program_pid();
    line.set_draining(false);
    // Full redraws until the pty buffer is full.
    for _ in 0..400 {
        line.press_keys("\x0c");
        thread::sleep(Duration::from_millis(2));
    }
    check_low_cpu(pid);
    line.press_keys("?");
    line.set_draining(true);
    line.wait_for_screen("the keys", |screen| screen.contains("KEYS: overview"));
    line.press_keys("qq");
    line.check_restored("0");
}

#[test]
fn a_line_that_is_cut_while_it_takes_nothing_ends_the_console() {
    let mut line = start_waiting_console();
    let pid = line.program_pid();
    line.set_draining(false);
    for _ in 0..400 {
        line.press_keys("\x0c");
        thread::sleep(Duration::from_millis(1));
    }
    let begun = Instant::now();
    line.hang_up();
    wait_for_some("the end of the console", || has_ended(pid).then_some(()));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}
