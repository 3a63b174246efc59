//! Starts, queries and ends gaunt-node for the tests.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use gaunt_schema::{Device, MetricId, Reading, Report, catalogue::exporter, text};

use crate::{
    binaries::{fake_driver, program_path},
    test_process::RunToEnd,
};

/// Time limit for anything that a test waits for.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The pause between two attempts: it yields to the node, and nothing depends on its duration.
const POLL: Duration = Duration::from_millis(20);

/// A library name that no loader finds.
pub(super) const NO_LIBRARY: &str = "libgaunt-absent.so.1";

/// A file among the fixtures.
pub(crate) fn fixture_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

/// gaunt-node over the fixture trees, with this driver library.
pub(super) fn over_fixture(library: &str) -> Command {
    let mut command = Command::new(program_path("gaunt-node"));
    command
        .arg("--sys-root")
        .arg(fixture_path("sysroot/sys"))
        .arg("--proc-root")
        .arg(fixture_path("sysroot/proc"))
        .args(["--nvml-library", library]);
    command
}

/// gaunt-node over the fixture trees, with the fake driver in this scenario.
fn with_scenario(scenario: &str) -> Command {
    let mut command = over_fixture(fake_driver().to_str().unwrap());
    command.env("GAUNT_FAKE_DRIVER", fixture_path("scenarios").join(scenario));
    command
}

/// The same with settings. The scenario is copied to the folder, where files trigger its faults.
pub(super) fn with_settings(folder: &Path, scenario: &str, settings: &str) -> Command {
    let copy = folder.join("scenario.toml");
    fs::copy(fixture_path("scenarios").join(scenario), &copy).unwrap();
    let config = folder.join("node.toml");
    fs::write(&config, settings).unwrap();
    let mut command = with_scenario(scenario);
    command.env("GAUNT_FAKE_DRIVER", copy).arg("--config").arg(config);
    command
}

/// The page of a run with `--once` over the fixture trees. A period as long as the deadline of a collector is the
/// shortest that leaves this deadline as it is.
pub(super) fn print_page_once(library: &str) -> String {
    success_stdout(over_fixture(library).args(["--once", "--period", "500ms"]).run_to_end())
}

/// The report of a run with `--once` in a scenario.
pub(crate) fn run_once(scenario: &str) -> Report {
    let output = with_scenario(scenario).arg("--once").run_to_end();
    decode_report(&success_stdout(output))
}

/// The standard output of a run that succeeded.
pub(crate) fn success_stdout(output: Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn decode_report(page: &str) -> Report {
    let page = text::decode_page(page.as_bytes(), &text::PageLimits::default()).unwrap();
    assert_eq!(page.rejected.total_count(), 0, "{:?}", page.rejected);
    page.report
}

/// A running gaunt-node, killed on drop.
pub(crate) struct NodeProcess {
    pub(super) child: Child,
    pub(crate) address: String,
    log: Receiver<String>,
    logged_lines: Vec<String>,
}

impl NodeProcess {
    /// Starts it in a scenario and waits for its address.
    pub(crate) fn start_scenario(scenario: &str) -> Self {
        Self::run(with_scenario(scenario))
    }

    pub(crate) fn run(mut command: Command) -> Self {
        command.args(["--listen", "127.0.0.1:0"]).env("RUST_LOG", "info");
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (line_sender, log) = mpsc::channel();
        thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| line_sender.send(line))
        });
        let mut node = Self { child, address: String::new(), log, logged_lines: Vec::new() };
        node.address = node.logged_value("address=");
        node
    }

    /// The value after `key` in the log, once it appears.
    pub(super) fn logged_value(&mut self, key: &str) -> String {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            if let Some((_, rest)) = self.logged_lines.iter().find_map(|line| line.split_once(key))
            {
                return rest.split(' ').next().unwrap().to_owned();
            }
            let wait = deadline.saturating_duration_since(Instant::now());
            match self.log.recv_timeout(wait) {
                Ok(line) => self.logged_lines.push(line),
                Err(error) => panic!("no {key} in the log ({error}): {:#?}", self.logged_lines),
            }
        }
    }

    /// Sends a request line and returns the whole answer.
    pub(super) fn send_request(&self, line: &str) -> String {
        self.try_request(line).unwrap()
    }

    /// The same, or `None` if the connection broke.
    pub(super) fn try_request(&self, line: &str) -> Option<String> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
        write!(stream, "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// The page, once there is one.
    pub(super) fn fetch_report(&self) -> Report {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            let answer = self.send_request("GET /metrics");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            if head.starts_with("HTTP/1.1 200 ") {
                return decode_report(body);
            }
            assert!(head.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(Instant::now() < deadline, "the first sample never came");
            thread::park_timeout(POLL);
        }
    }

    /// Polls pages until one fits.
    pub(crate) fn wait_for_report(&self, what: &str, fits: impl Fn(&Report) -> bool) -> Report {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            let report = self.fetch_report();
            if fits(&report) {
                return report;
            }
            assert!(Instant::now() < deadline, "{what} never came: {report:#?}");
            thread::park_timeout(POLL);
        }
    }

    pub(super) fn send_signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    pub(super) fn wait_for_exit(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the end of gaunt-node", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIME_LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} never came");
        thread::park_timeout(POLL);
    }
}

/// Whether a process runs; a zombie does not.
pub(crate) fn is_running(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// The reading of a device, which the page must have.
pub(crate) fn expect_reading(report: &Report, device: &Device, metric: MetricId) -> Reading {
    let reading = report.find_reading(device, metric);
    reading.unwrap_or_else(|| panic!("{} of {device} is not on the page", metric.series_key()))
}

/// Whether a collector succeeded, if it has run.
pub(crate) fn collector_success(report: &Report, collector: &str) -> Option<f64> {
    report.find_reading(&Device::new_collector(collector), exporter::COLLECTOR_SUCCESS)?.value()
}

/// The message of a collector.
pub(crate) fn collector_message(report: &Report, collector: &str) -> String {
    let device = Device::new_collector(collector);
    let info = report.infos.iter().find(|info| {
        info.metric == exporter::COLLECTOR_INFO && report.devices[info.device as usize] == device
    });
    info.map(|info| info.labels[0].1.to_string()).unwrap_or_default()
}
