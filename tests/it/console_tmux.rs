//! The console in a real terminal (tmux), and the state of that terminal afterwards.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use gaunt_engine::record::{MAX_AGE, MAX_SIZE, RecordOptions, Recorder};
use gaunt_schema::{Batch, Delivery, ScrapeTarget, TargetId, UnixMs, text};
use gaunt_sim::{Scenario, SimFleet};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{
    binaries::program_path,
    pty::{TIME_LIMIT, has_ended, program_script, read_pid, wait_for_some},
};

/// Prompt of the shell in the terminal.
const PROMPT: &str = "ready>";

/// Start of a recorded fleet.
const START: UnixMs = UnixMs(1_760_017_311_000);

/// Scrape interval of a recorded fleet.
const SECOND: Duration = Duration::from_secs(1);

/// Shortest and longest pause between two looks at a screen: each look is a process of tmux.
const LOOK_PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));

/// A separate terminal with a shell in it. Dropping it closes the terminal.
struct TmuxTerminal {
    folder: TempDir,
}

impl TmuxTerminal {
    fn new(width: u16, height: u16) -> Self {
        assert!(Path::new("/usr/bin/tmux").exists(), "tmux is missing: run tests/run");
        let terminal = Self { folder: tempfile::tempdir().expect("a folder can be made") };
        let shell = format!("env LANG=C.UTF-8 PS1='{PROMPT} ' sh");
        let (width, height) = (width.to_string(), height.to_string());
        terminal.run_tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            &shell,
        ]);
        terminal.wait_for_screen("the shell's prompt", |screen| screen.starts_with(PROMPT));
        terminal.type_line("stty -a >before");
        terminal
    }

    fn run_tmux(&self, arguments: &[&str]) -> Output {
        let output = Command::new("tmux")
            .current_dir(&self.folder)
            .env("LANG", "C.UTF-8")
            .arg("-S")
            .arg(self.file_path("socket"))
            .args(arguments)
            .output()
            .expect("tmux starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {arguments:?}: {stderr}");
        output
    }

    fn file_path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn type_line(&self, line: &str) {
        self.run_tmux(&["send-keys", "-l", line]);
        self.press_key("Enter");
    }

    fn press_key(&self, key: &str) {
        self.run_tmux(&["send-keys", key]);
    }

    fn capture_screen(&self) -> String {
        String::from_utf8(self.run_tmux(&["capture-pane", "-p"]).stdout).expect("tmux writes UTF-8")
    }

    /// Polls the screen until it is as expected, more rarely the longer it takes.
    fn wait_for_screen(&self, what: &str, is_right: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.capture_screen();
            if is_right(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < TIME_LIMIT, "{what} is awaited in vain on\n{screen}");
            let (shortest, longest) = LOOK_PAUSES;
            thread::sleep((begun.elapsed() / 10).clamp(shortest, longest));
        }
    }

    /// Starts `gaunt` with these arguments from the shell, and returns its process id.
    fn start_gaunt(&self, prefix: &str, arguments: &str) -> Pid {
        let script = program_script(prefix, &program_path("gaunt"), arguments);
        self.type_line(&format!("clear; {script}"));
        read_pid(self.folder.path())
    }

    /// The terminal belongs to the shell again, with its modes restored.
    fn check_restored(&self) {
        self.wait_for_screen("prompt", |screen| screen.trim_end().ends_with(PROMPT));
        // Removes the output of an earlier check.
        let after = self.file_path("after");
        drop(fs::remove_file(&after));
        self.type_line("stty -a >after.new; mv after.new after");
        self.wait_for_screen("modes of the terminal", |_| after.exists());
        let read = |name| fs::read_to_string(self.file_path(name)).expect("stty wrote");
        assert_eq!(read("after"), read("before"), "the terminal's modes");
        let format = "#{alternate_on} #{cursor_flag} #{mouse_any_flag}";
        let modes = self.run_tmux(&["display-message", "-p", format]).stdout;
        let modes = String::from_utf8_lossy(&modes);
        assert_eq!(modes.trim(), "0 1 0", "alternate screen off, cursor on, mouse off");
    }
}

impl Drop for TmuxTerminal {
    fn drop(&mut self) {
        // A test may have closed the terminal already.
        let socket = self.file_path("socket");
        let _ = Command::new("tmux").arg("-S").arg(socket).arg("kill-server").output();
    }
}

fn wait_for_end(pid: Pid) {
    wait_for_some("the end of the process", || has_ended(pid).then_some(()));
}

/// Records so many seconds of a simulated fleet in virtual time.
fn record_fleet(scenario: &str, nodes: usize, seconds: u32, folder: PathBuf) {
    let scenario = Scenario::from_name(scenario).expect("the scenario is built in");
    let mut fleet = SimFleet::new(scenario, nodes, 1, START);
    let options = RecordOptions { folder, max_size: MAX_SIZE, max_age: MAX_AGE, period: SECOND };
    let recorder = Recorder::start_recording(options).expect("a recording can be written");
    let target = |node: usize| ScrapeTarget {
        id: TargetId(node as u32),
        address: format!("10.0.0.{node}:9770").into(),
        node: None,
        origin: "test".into(),
    };
    recorder.record_delivery(START, &Delivery::Targets((0..nodes).map(target).collect()));
    for second in 1..=seconds {
        let at = START + SECOND * second;
        fleet.advance_to(at);
        for node in 0..nodes {
            let (_, page) = fleet.scraped_pages(node).swap_remove(0);
            let outcome = text::decode_page(page.as_bytes(), &text::PageLimits::default());
            let batch = Batch { target: TargetId(node as u32), at, duration_ms: 1.5, outcome };
            // It drops what is delivered faster than the disk takes it.
            wait_for_some("the recorder", || recorder.has_capacity().then_some(()));
            recorder.record_delivery(at, &Delivery::Batch(batch));
        }
    }
}

#[test]
fn demo_shows_its_finding_first_and_opens_all_screens() {
    let terminal = TmuxTerminal::new(100, 30);
    terminal.start_gaunt("", "demo --scenario port_down");
    let first = terminal.wait_for_screen("port_down", |screen| screen.contains("port_down"));
    for part in ["GPU TIME", "LOST", "FINDINGS  1 open", "HEAT      one cell = one GPU", "gpu001"] {
        assert!(first.contains(part), "no {part} on the first screen:\n{first}");
    }
    terminal.press_key("Enter");
    let finding = terminal.wait_for_screen("evidence", |screen| screen.contains("EVIDENCE"));
    assert!(finding.contains("NEXT"), "{finding}");
    terminal.press_key("Enter");
    let node = terminal.wait_for_screen("port table", |screen| screen.contains("PORT "));
    assert!(node.contains("DOWN") && node.contains("mlx5_0/1") && node.contains("GPU "), "{node}");
    terminal.press_key("5");
    terminal.wait_for_screen("list of nodes", |screen| {
        screen.contains("NODES") && screen.contains("worst first")
    });
    terminal.press_key("2");
    terminal.wait_for_screen("list of findings", |screen| screen.contains("\n FINDINGS  1 open"));
    terminal.press_key("?");
    terminal.wait_for_screen("keys", |screen| screen.contains("2         open findings"));
    terminal.press_key("Escape");
    terminal.press_key("1");
    terminal.wait_for_screen("overview", |screen| screen.contains("GPU TIME"));
    terminal.press_key("q");
    terminal.check_restored();
}

#[test]
fn starved_host_is_on_the_first_screen() {
    let terminal = TmuxTerminal::new(80, 24);
    // A recording shows the same instant at every run.
    let recording = terminal.file_path("recording");
    record_fleet("data_starved", 16, 45, recording.clone());
    terminal.start_gaunt("", &format!("replay --seek 40s --from {}", recording.display()));
    let first = terminal.wait_for_screen("data_starved", |screen| {
        screen.contains("data_starved") && screen.contains("data-starved")
    });
    assert!(first.contains("FINDINGS  1 open"), "{first}");
    terminal.press_key("q");
    terminal.check_restored();
}

#[test]
fn local_machine_is_shown_without_any_configuration() {
    let terminal = TmuxTerminal::new(100, 30);
    terminal.start_gaunt("", "");
    let screen = terminal.wait_for_screen("this box", |screen| screen.contains("HOST      CPU"));
    assert!(screen.contains("1 node") && screen.contains("memory"), "{screen}");
    terminal.press_key("C-c");
    terminal.check_restored();
}

#[test]
fn terminal_is_restored_on_every_terminating_signal() {
    // All start at once: each waits for its first data.
    let consoles = [Signal::TERM, Signal::INT, Signal::HUP].map(|signal| {
        let terminal = TmuxTerminal::new(80, 24);
        let pid = terminal.start_gaunt("", "demo");
        (signal, terminal, pid)
    });
    for (signal, terminal, pid) in consoles {
        terminal.wait_for_screen("console", |screen| screen.contains("1 overview"));
        kill_process(pid, signal).unwrap();
        wait_for_end(pid);
        terminal.check_restored();
    }
}

#[test]
fn suspended_console_restores_the_terminal_and_resumes() {
    let terminal = TmuxTerminal::new(80, 24);
    terminal.start_gaunt("", "demo");
    terminal.wait_for_screen("console", |screen| screen.contains("GPU TIME"));
    terminal.press_key("C-z");
    terminal.check_restored();
    terminal.type_line("fg");
    terminal.wait_for_screen("console", |screen| screen.contains("GPU TIME"));
    check_redraw_after_resize(&terminal);
    terminal.press_key("q");
    terminal.check_restored();
}

/// A terminal that is resized is redrawn.
fn check_redraw_after_resize(terminal: &TmuxTerminal) {
    terminal.run_tmux(&["resize-window", "-x", "50", "-y", "10"]);
    terminal.wait_for_screen("refusal", |screen| screen.starts_with("50×10 is too small"));
    terminal.run_tmux(&["resize-window", "-x", "120", "-y", "40"]);
    let wide = terminal.wait_for_screen("console", |screen| screen.contains("GPU TIME"));
    let header = wide.lines().next().expect("a header");
    assert!(header.chars().count() > 100, "{wide}");
    terminal.run_tmux(&["resize-window", "-x", "80", "-y", "24"]);
    // tmux notifies the program after it cuts the screen: only a new frame has its right end again.
    terminal.wait_for_screen("whole header", |screen| {
        screen.lines().next().is_some_and(|header| header.contains('●'))
    });
}

/// In a session of its own there is no SIGHUP: only the terminal itself reports the hang-up.
#[test]
fn console_ends_when_its_terminal_is_gone() {
    let terminal = TmuxTerminal::new(80, 24);
    let pid = terminal.start_gaunt("setsid -w", "demo");
    terminal.wait_for_screen("console", |screen| screen.contains("GPU TIME"));
    terminal.run_tmux(&["kill-server"]);
    wait_for_end(pid);
}

#[test]
fn replay_is_paused_advanced_and_ends() {
    let terminal = TmuxTerminal::new(100, 30);
    let recording = terminal.file_path("recording");
    record_fleet("healthy", 2, 4, recording.clone());
    terminal.start_gaunt("", &format!("replay --speed 0.1 --from {}", recording.display()));
    terminal.wait_for_screen("replay", |screen| screen.contains("replay z: pause"));
    terminal.press_key("z");
    let paused =
        terminal.wait_for_screen("paused replay", |screen| screen.contains("PAUSED z: play"));
    let clock = |screen: &str| {
        screen.lines().next().and_then(|line| line.split("z: play").nth(1)).map(str::to_owned)
    };
    // Keys still work, and nothing moves.
    terminal.press_key("5");
    let nodes = terminal.wait_for_screen("list of nodes", |screen| screen.contains("NODES"));
    assert_eq!(clock(&nodes), clock(&paused));
    // While paused, it can seek forward, but not beyond the latest data.
    terminal.press_key("]");
    let at_end = terminal.wait_for_screen("the end", |screen| {
        screen.contains("PAUSED") && clock(screen) != clock(&paused)
    });
    terminal.press_key("]");
    terminal.wait_for_screen("no further", |screen| screen.contains("the recording ends at"));
    assert!(at_end.contains("2 nodes"), "{at_end}");
    terminal.press_key("z");
    terminal.wait_for_screen("the end", |screen| screen.contains("end of the replay"));
    terminal.press_key("q");
    terminal.check_restored();
}
