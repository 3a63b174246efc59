//! Runs programs during a test, with plain HTTP to query them.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    cell::RefCell,
    collections::VecDeque,
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{
        atomic::{AtomicU16, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use crate::binaries::program_path;

/// Time limit on a busy machine for what happens within a second or two.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Time limit for a program that ends by itself.
const ENDING: Duration = Duration::from_mins(3);

/// A program that is killed at the end of the test.
pub(crate) struct TestProcess {
    child: Child,
    lines: Receiver<String>,
    /// Lines logged before the address.
    unread_lines: RefCell<VecDeque<String>>,
}

impl TestProcess {
    /// Starts a program and reads its standard error.
    pub(crate) fn start_command(command: &mut Command) -> Self {
        let mut child = command
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stderr = child.stderr.take().unwrap();
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // The test may have ended.
                _ = send.send(line);
            }
        });
        Self { child, lines, unread_lines: RefCell::default() }
    }

    /// Starts `gaunt serve` on a free port.
    pub(crate) fn start_aggregator(args: &[&str]) -> Self {
        let mut command = Command::new(program_path("gaunt"));
        Self::start_command(command.args(["serve", "--listen", "127.0.0.1:0"]).args(args))
    }

    /// The first line that contains `text`.
    pub(crate) fn line_with(&self, text: &str) -> String {
        let end = Instant::now() + DEADLINE;
        let mut other_lines = Vec::new();
        while let Some(line) = self.unread_lines.borrow_mut().pop_front() {
            if line.contains(text) {
                return line;
            }
            other_lines.push(line);
        }
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            if line.contains(text) {
                return line;
            }
            other_lines.push(line);
        }
        panic!("no line with {text:?} in\n{}", other_lines.join("\n"));
    }

    /// The address that the program logs.
    pub(crate) fn served_address(&self) -> String {
        let line = wait_for("it says its address", || {
            let line = self.lines.recv_timeout(DEADLINE).expect("it goes on talking");
            if !line.contains("address=") {
                self.unread_lines.borrow_mut().push_back(line);
                return None;
            }
            Some(line)
        });
        let address = line.split("address=").nth(1).unwrap();
        address.split(' ').next().unwrap().to_owned()
    }

    /// Its number.
    pub(crate) fn process_id(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Sends a signal.
    pub(crate) fn send_signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.process_id(), signal).unwrap();
    }

    /// Sends SIGTERM, and returns all lines that were not read before.
    pub(crate) fn lines_until_end(self) -> String {
        self.send_signal(rustix::process::Signal::TERM);
        let mut lines: Vec<String> = self.unread_lines.take().into();
        // The channel ends with the program's standard error.
        lines.extend(std::iter::from_fn(|| self.lines.recv_timeout(DEADLINE).ok()));
        lines.join("\n")
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn terminate_and_wait(mut self) -> std::process::ExitStatus {
        self.send_signal(rustix::process::Signal::TERM);
        wait_for("the program ends", || self.child.try_wait().unwrap())
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Programs that run to completion.
pub(crate) trait RunToEnd {
    /// Runs it to completion, and fails the test with its output if it does not finish.
    fn run_to_end(&mut self) -> Output;
}

impl RunToEnd for Command {
    fn run_to_end(&mut self) -> Output {
        let piped = self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap_or_else(|error| panic!("cannot start it: {error}"));
        let pid = rustix::process::Pid::from_child(&child);
        let outputs: [Box<dyn io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        let readers = outputs.map(|mut pipe| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).map(|_| bytes)
            })
        });
        let (send, ended) = channel();
        let waiter = thread::spawn(move || {
            let status = child.wait();
            // The receiver is gone after the time limit.
            _ = send.send(());
            status
        });
        let timed_out = ended.recv_timeout(ENDING).is_err();
        if timed_out {
            // It may end at this very moment.
            _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let status = waiter.join().unwrap().unwrap();
        let [stdout, stderr] = readers.map(|reader| reader.join().unwrap().unwrap());
        let texts = [&stdout, &stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        assert!(!timed_out, "{self:?} does not end within {ENDING:?}: {texts:?}");
        Output { status, stdout, stderr }
    }
}

/// Starts a VictoriaMetrics from Debian with its data in this folder, and waits until it answers at this address.
pub(crate) fn start_victoria(folder: &Path, address: &str, flags: &[&str]) -> TestProcess {
    let process = TestProcess::start_command(
        debian_program("victoria-metrics")
            .arg(format!("-storageDataPath={}", folder.join("data").display()))
            .arg(format!("-httpListenAddr={address}"))
            .args(flags),
    );
    wait_for("VictoriaMetrics", || get(address, "/health").filter(|(status, _)| *status == 200));
    process
}

/// The flag by which a VictoriaMetrics answers with the newest samples at once.
pub(crate) const NO_LATENCY: &str = "-search.latencyOffset=0s";

/// A program from Debian, which must be installed.
pub(crate) fn debian_program(name: &str) -> Command {
    let path = Path::new("/usr/bin").join(name);
    assert!(path.exists(), "{} is not installed: run tests/run, which installs it", path.display());
    Command::new(path)
}

/// A port for programs that cannot choose one themselves: given to one test only, and below those that the kernel gives
/// to connections and to listeners on port 0, so that nothing else takes it before the program listens.
pub(crate) fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    const LOWEST: u16 = 10_000;
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let end: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
    assert!(end > LOWEST, "the kernel gives ports from {end} on: raise ip_local_port_range");
    // Tests may also run as a process each.
    let start = std::process::id().wrapping_mul(61) as u16;
    loop {
        let number = start.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        let port = LOWEST + number % (end - LOWEST);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Runs `gaunt` to completion.
pub(crate) fn run_gaunt(args: &[&str]) -> Output {
    let mut command = Command::new(program_path("gaunt"));
    command.args(args).env("NO_COLOR", "1").env_remove("RUST_LOG").stdin(Stdio::null());
    command.run_to_end()
}

/// Runs `gaunt` again and again until its output is as expected: for commands that sample for a moment, which on a busy
/// machine may be over before everything is read and judged.
pub(crate) fn run_gaunt_until(args: &[&str], is_expected: impl Fn(&Output) -> bool) -> Output {
    let mut last = None;
    let end = Instant::now() + DEADLINE;
    while Instant::now() < end {
        let output = run_gaunt(args);
        if is_expected(&output) {
            return output;
        }
        last = Some(output);
    }
    panic!("{args:?} has no such output within {DEADLINE:?}: {last:?}");
}

/// Status and body of one GET; none while the server does not answer.
pub(crate) fn get(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// Waits until there is an answer.
pub(crate) fn wait_for<T>(what: &str, attempt: impl FnMut() -> Option<T>) -> T {
    wait_within(DEADLINE, what, attempt)
}

/// Waits for an answer that takes longer than others.
pub(crate) fn wait_within<T>(
    limit: Duration,
    what: &str,
    mut attempt: impl FnMut() -> Option<T>,
) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = attempt() {
            return answer;
        }
        assert!(Instant::now() < end, "{what}: not within {limit:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Feeds a page to `promtool check metrics`.
pub(crate) fn check_with_promtool(page: &str) {
    let mut child = debian_program("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && stderr.is_empty(), "promtool says\n{stderr}\nof\n{page}");
}
