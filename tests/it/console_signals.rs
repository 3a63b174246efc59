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
    let pty = TestPty::start_program("", &program_path("gaunt"), "--aggregator 127.0.0.1:1");
    pty.wait_for_screen("the console", |screen| screen.contains("no answer since"));
    pty
}

/// A busy-waiting process uses the whole time; a blocked one uses a few hundredths of a second. In a shorter time its
/// few frames would count too much.
fn check_low_cpu(pid: Pid) {
    let (before, begun) = (cpu_ticks(pid), Instant::now());
    thread::sleep(Duration::from_millis(500));
    let share = (cpu_ticks(pid) - before) as f64 / begun.elapsed().as_secs_f64();
    assert!(share < 30.0, "{share:.0} % of a processor");
}

/// Stops reading, and lets the console redraw its whole screen until the pty takes no more: the next frame is blocked.
fn block_terminal(pty: &TestPty) {
    pty.set_draining(false);
    wait_for_some("a full pty", || {
        pty.press_keys("\x0c");
        pty.is_output_full().then_some(())
    });
}

fn count_frames(bytes: &[u8]) -> usize {
    bytes.windows(BEGIN.len()).filter(|part| *part == BEGIN).count()
}

#[test]
fn terminal_is_restored_after_a_signal_at_any_moment_of_the_start() {
    let user = [Signal::USR1, Signal::USR2];
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT].into_iter().chain(user) {
        let delays: &[u64] =
            if user.contains(&signal) { &[4, 128] } else { &[0, 1, 2, 4, 8, 16, 32, 64, 128] };
        for &delay in delays {
            let pty =
                TestPty::start_program("", &program_path("gaunt"), "--aggregator 127.0.0.1:1");
            let pid = pty.program_pid();
            thread::sleep(Duration::from_millis(delay));
            // The handler may not be installed yet: but before that the terminal is not in raw mode.
            kill_process(pid, signal).unwrap();
            let code: i32 = pty.read_file("code").trim().parse().unwrap();
            let signal_code = 128 + signal.as_raw();
            assert!([0, signal_code].contains(&code), "{signal:?} after {delay} ms: {code}");
            let modes = (pty.terminal_modes("after"), pty.terminal_modes("before"));
            assert_eq!(modes.0, modes.1, "{signal:?} after {delay} ms");
            wait_for_some("the main screen", || {
                (!pty.replay_from(0).screen().alternate_screen()).then_some(())
            });
        }
    }
}

#[test]
fn frame_rate_is_limited_in_a_burst_of_signals() {
    let pty = start_waiting_console();
    let pid = pty.program_pid();
    let (from, begun) = (pty.byte_count(), Instant::now());
    for _ in 0..500 {
        kill_process(pid, Signal::WINCH).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    // Twenty frames per second, and one that was due.
    let limit = begun.elapsed().as_secs_f64() * 20.0 + 2.0;
    let drawn = count_frames(&pty.bytes_from(from));
    assert!((drawn as f64) < limit, "{drawn} frames of at most {limit:.0}");
    check_low_cpu(pid);
    pty.press_keys("q");
    pty.check_restored("0");
}

#[test]
fn console_is_intact_after_repeated_stop_and_continue() {
    let pty = start_waiting_console();
    let pid = pty.program_pid();
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
        let screen = pty.replay_from(0);
        let on_alternate_screen = screen.screen().alternate_screen();
        (on_alternate_screen && screen.screen().contents().contains("no answer since"))
            .then_some(())
    });
    check_low_cpu(pid);
    pty.press_keys("q");
    // So may it after the key was pressed.
    wait_for_some("the end", || {
        kill_process_group(group, Signal::CONT).ok();
        has_ended(pid).then_some(())
    });
    pty.check_restored("0");
}

#[test]
fn blocked_terminal_costs_no_cpu_and_is_redrawn_later() {
    let pty = start_waiting_console();
    let pid = pty.program_pid();
    block_terminal(&pty);
    check_low_cpu(pid);
    pty.press_keys("?");
    pty.set_draining(true);
    pty.wait_for_screen("the keys", |screen| screen.contains("KEYS: overview"));
    pty.press_keys("qq");
    pty.check_restored("0");
}

#[test]
fn console_ends_when_a_blocked_terminal_hangs_up() {
    let mut pty = start_waiting_console();
    let pid = pty.program_pid();
    block_terminal(&pty);
    let begun = Instant::now();
    pty.hang_up();
    wait_for_some("the end of the console", || has_ended(pid).then_some(()));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}
