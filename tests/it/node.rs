//! gaunt-node as a user runs it: the page of a made tree, the server's manners, and a driver that hangs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

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

use gaunt_schema::{
    Absent, Device, MetricId, Reading, Report,
    catalogue::{exporter, gpu, host},
    text,
};

use crate::binaries::{fake_driver, program};

/// How long anything may take before the test says that it never came.
const PATIENCE: Duration = Duration::from_secs(30);

/// A name that no loader finds.
const NO_LIBRARY: &str = "libgaunt-absent.so.1";

/// A file among the fixtures.
pub(crate) fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

/// gaunt-node over the made trees, with the library that is named.
fn over_fixture(library: &str) -> Command {
    let mut command = Command::new(program("gaunt-node"));
    command
        .arg("--sys-root")
        .arg(fixture("sysroot/sys"))
        .arg("--proc-root")
        .arg(fixture("sysroot/proc"))
        .args(["--nvml-library", library]);
    command
}

/// gaunt-node over the made trees, with the fake driver in this scenario.
fn with_scenario(scenario: &str) -> Command {
    let mut command = over_fixture(fake_driver().to_str().unwrap());
    command.env("GAUNT_FAKE_DRIVER", fixture("scenarios").join(scenario));
    command
}

/// What a run with `--once` prints about a scenario.
pub(crate) fn once(scenario: &str) -> Report {
    let output = with_scenario(scenario).arg("--once").output().unwrap();
    decode(&success(output))
}

/// The standard output of a run that succeeded.
fn success(output: Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn decode(page: &str) -> Report {
    let page = text::decode(page.as_bytes(), &text::Limits::default()).unwrap();
    assert_eq!(page.rejected.total(), 0, "{:?}", page.rejected);
    page.report
}

/// A running gaunt-node, ended when it goes out of scope.
pub(crate) struct Node {
    child: Child,
    address: String,
    log: Receiver<String>,
    seen: Vec<String>,
}

impl Node {
    /// Starts it in a scenario and waits for its address.
    pub(crate) fn start(scenario: &str) -> Self {
        Self::run(with_scenario(scenario))
    }

    fn run(mut command: Command) -> Self {
        command.args(["--listen", "127.0.0.1:0"]).env("RUST_LOG", "info");
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (tell, log) = mpsc::channel();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        let mut node = Self { child, address: String::new(), log, seen: Vec::new() };
        node.address = node.logged("address=");
        node
    }

    /// What stands after `key` in the log, once it does.
    fn logged(&mut self, key: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some((_, rest)) = self.seen.iter().find_map(|line| line.split_once(key)) {
                return rest.split(' ').next().unwrap().to_owned();
            }
            let wait = deadline.saturating_duration_since(Instant::now());
            match self.log.recv_timeout(wait) {
                Ok(line) => self.seen.push(line),
                Err(error) => panic!("no {key} in the log ({error}): {:#?}", self.seen),
            }
        }
    }

    /// Sends a request's first line and returns the whole answer.
    fn request(&self, line: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "{line} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The page, once there is one.
    fn page(&self) -> Report {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.request("GET /metrics");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            if head.starts_with("HTTP/1.1 200 ") {
                return decode(body);
            }
            assert!(head.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(Instant::now() < deadline, "the first sample never came");
        }
    }

    /// Reads pages until one fits.
    pub(crate) fn until(&self, what: &str, fits: impl Fn(&Report) -> bool) -> Report {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let report = self.page();
            if fits(&report) {
                return report;
            }
            assert!(Instant::now() < deadline, "{what} never came: {report:#?}");
            // Lets the node work; nothing depends on how long.
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    fn exit(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the end of gaunt-node", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} never came");
        thread::park_timeout(Duration::from_millis(20));
    }
}

/// Whether a process runs; one that ended and was not yet waited for does not.
fn runs(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// The reading of a device, which the page must have.
pub(crate) fn read(report: &Report, device: &Device, metric: MetricId) -> Reading {
    let reading = report.reading(device, metric);
    reading.unwrap_or_else(|| panic!("{} of {device} is not on the page", metric.key()))
}

/// Whether a collector succeeded, if it has run.
pub(crate) fn succeeded(report: &Report, collector: &str) -> Option<f64> {
    report.reading(&Device::collector(collector), exporter::COLLECTOR_SUCCESS)?.value()
}

/// What a collector says.
pub(crate) fn message(report: &Report, collector: &str) -> String {
    let device = Device::collector(collector);
    let info = report.infos.iter().find(|info| {
        info.metric == exporter::COLLECTOR_INFO && report.devices[info.device as usize] == device
    });
    info.map(|info| info.labels[0].1.to_string()).unwrap_or_default()
}

#[test]
fn the_page_of_the_made_tree_is_the_golden_one() {
    let page = success(over_fixture(NO_LIBRARY).arg("--once").output().unwrap());
    let varies = |line: &&str| {
        let series = ["node_time_seconds ", "_duration_seconds{", "_timestamp_seconds{"];
        !series.iter().any(|name| line.contains(name)) || line.starts_with('#')
    };
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    let page = page.replace(&version, "version=\"VERSION\"");
    let found: Vec<_> = page.lines().filter(varies).collect();
    let golden = fs::read_to_string(fixture("sysroot/page.prom")).unwrap();
    for (at, (found, golden)) in found.iter().zip(golden.lines()).enumerate() {
        assert_eq!(*found, golden, "line {} of tests/fixtures/sysroot/page.prom", at + 1);
    }
    assert_eq!(found.len(), golden.lines().count(), "the page is longer or shorter:\n{page}");
}

#[test]
fn without_a_library_the_rest_is_served_and_the_reason_said() {
    let page = success(over_fixture(NO_LIBRARY).arg("--once").output().unwrap());
    let report = decode(&page);
    assert_eq!(succeeded(&report, "nvml"), Some(1.0));
    let said =
        format!("no GPU: {NO_LIBRARY} not found; install the NVIDIA driver or pass --nvml-library");
    assert_eq!(message(&report, "nvml"), said);
    assert_eq!(read(&report, &Device::node(), host::CPUS), Reading::of(2.0));
}

#[test]
fn a_library_that_is_named_and_not_there_is_a_failure() {
    let page = success(over_fixture("/nowhere/libnvidia-ml.so.1").arg("--once").output().unwrap());
    let report = decode(&page);
    assert_eq!(succeeded(&report, "nvml"), Some(0.0));
    let said = message(&report, "nvml");
    assert!(said.starts_with("cannot load the NVML library /nowhere/libnvidia-ml.so.1"), "{said}");
}

#[test]
fn a_hung_call_is_named_while_pages_keep_coming() {
    let mut node = Node::start("hang.toml");
    let worker = node.logged("pid=");
    let both = [Device::gpu(0), Device::gpu(1)];
    let before = node.until("a tick", |report| report.reading(&both[1], gpu::POWER).is_some());
    assert_eq!(read(&before, &both[1], gpu::POWER), Reading::of(301.0));

    let flagged = node.until("the flag", |report| succeeded(report, "nvml") == Some(0.0));
    let said = message(&flagged, "nvml");
    assert!(said.contains("nvmlDeviceGetPowerUsage of GPU 1 does not return"), "{said}");
    for device in &both {
        for metric in [gpu::POWER, gpu::UTILIZATION, gpu::PRESENT] {
            assert_eq!(read(&flagged, device, metric), Absent::Stale.into(), "{device}");
        }
    }
    assert_eq!(succeeded(&flagged, "cpu"), Some(1.0));
    // The call began up to a period after the last good round, and is flagged three seconds later at most.
    let nvml = Device::collector("nvml");
    let last = read(&flagged, &nvml, exporter::COLLECTOR_LAST_SUCCESS).value().unwrap();
    let silence = flagged.node_time.unwrap().seconds() - last;
    assert!((2.0..=4.2).contains(&silence), "flagged {silence} s after the last good round");

    let later = node.until("the next page", |report| report.node_time > flagged.node_time);
    assert_eq!(succeeded(&later, "nvml"), Some(0.0));

    assert!(runs(&worker), "a hung worker is left alone");
    node.signal("KILL");
    node.exit();
    eventually("the end of the orphaned worker", || !runs(&worker));
}

#[test]
fn a_driver_that_hangs_at_once_costs_only_the_gpus() {
    let node = Node::start("hang_init.toml");
    let report = node.until("a page", |report| !message(report, "nvml").is_empty());
    assert_eq!(message(&report, "nvml"), "waiting for the NVIDIA driver to initialise");
    assert_eq!(succeeded(&report, "nvml"), None);
    assert_eq!(succeeded(&report, "ports"), Some(1.0));
}

#[test]
fn a_worker_that_dies_is_said_and_started_again() {
    let mut node = Node::start("eight.toml");
    let worker = node.logged("pid=");
    let gpu = Device::gpu(7);
    node.until("a tick", |report| report.reading(&gpu, gpu::POWER).is_some());
    assert!(Command::new("kill").args(["-s", "KILL", &worker]).status().unwrap().success());
    let down = node.until("the flag", |report| succeeded(report, "nvml") == Some(0.0));
    assert!(message(&down, "nvml").starts_with("the NVML worker ended unexpectedly (signal: 9"));
    assert_eq!(read(&down, &gpu, gpu::POWER), Absent::Stale.into());
    let back = node.until("the return", |report| succeeded(report, "nvml") == Some(1.0));
    assert_eq!(read(&back, &gpu, gpu::POWER), Reading::of(620.078));
}

#[test]
fn the_server_has_manners() {
    let node = Node::start("none.toml");
    node.page();
    for (line, status, says) in [
        ("GET /", "200 OK", "/metrics"),
        ("GET /healthz", "200 OK", "ok"),
        ("GET /metrics", "200 OK", "# TYPE gaunt_node_info gauge"),
        ("GET /metrics?x=1", "200 OK", "gaunt_node_info"),
        ("GET /other", "404 Not Found", "see /"),
        ("POST /metrics", "405 Method Not Allowed", "allow: GET, HEAD"),
        ("nonsense", "400 Bad Request", ""),
    ] {
        let answer = node.request(line);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{line}: {answer}");
        assert!(answer.contains(says), "{line}: {answer}");
    }
    let head = node.request("HEAD /metrics");
    assert!(head.contains(&format!("content-type: {}", text::CONTENT_TYPE)), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "a HEAD has no body: {head}");
    let long = node.request(&format!("GET /{}", "x".repeat(100_000)));
    assert!(long.starts_with("HTTP/1.1 4"), "{}", &long[..long.len().min(80)]);
}

#[test]
fn it_ends_cleanly_and_its_worker_with_it() {
    for name in ["TERM", "INT"] {
        let mut node = Node::start("eight.toml");
        let worker = node.logged("pid=");
        node.signal(name);
        assert!(node.exit().success(), "{name}");
        eventually("the end of the worker", || !runs(&worker));
    }
}

#[test]
fn what_cannot_work_is_refused_with_the_next_step() {
    let node = Node::start("none.toml");
    let refused = |arguments: &[&str]| {
        let output = Command::new(program("gaunt-node")).args(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?} was taken");
        String::from_utf8(output.stderr).unwrap()
    };
    let taken = node.address.as_str();
    assert_eq!(
        refused(&["--listen", taken]),
        format!(
            "gaunt-node: cannot listen on {taken}: address in use; pass --listen ADDRESS:PORT\n"
        )
    );
    assert_eq!(
        refused(&["--sys-root", "/nowhere"]),
        "gaunt-node: /nowhere is no folder; check --sys-root\n"
    );
    assert!(refused(&["--period", "0s"]).contains("it must be between 100ms and 60s"));
    assert!(refused(&["--period", "5"]).contains("write a time with its unit: 1s, 500ms"));
    assert!(refused(&["--listen", "here"]).contains("--listen <ADDRESS:PORT>"));
    assert!(refused(&["--speed", "9"]).contains("--speed"));
}
