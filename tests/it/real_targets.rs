//! Real exporters and servers as targets of `gaunt serve`: every line of their pages is accepted, in every format they
//! support.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
};

use gaunt_schema::text::{PageLimits, decode_open_metrics, is_open_metrics};
use serde_json::Value;

use crate::test_process::{TestProcess, debian_program, free_port, get, wait_for};

/// A third-party program with a metrics page; killed on drop.
struct RealTarget {
    name: &'static str,
    address: String,
    _running: TestProcess,
}

impl RealTarget {
    fn new(name: &'static str, port: u16, running: TestProcess) -> Self {
        Self { name, address: format!("127.0.0.1:{port}"), _running: running }
    }

    fn wait_until_it_answers(&self) {
        wait_for(self.name, || get(&self.address, "/metrics").filter(|(status, _)| *status == 200));
    }
}

fn start_node_exporter() -> RealTarget {
    let port = free_port();
    let mut command = debian_program("prometheus-node-exporter");
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    RealTarget::new("node_exporter", port, TestProcess::start_command(&mut command))
}

fn start_prometheus(folder: &Path) -> RealTarget {
    let (port, config) = (free_port(), folder.join("prometheus.yml"));
    fs::write(&config, "global: {scrape_interval: 1s}\n").unwrap();
    let mut command = debian_program("prometheus");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    RealTarget::new("prometheus", port, TestProcess::start_command(&mut command))
}

fn start_alertmanager(folder: &Path) -> RealTarget {
    let (port, config) = (free_port(), folder.join("alertmanager.yml"));
    fs::write(&config, "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n").unwrap();
    let mut command = debian_program("prometheus-alertmanager");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.path={}", folder.join("alertmanager").display()))
        .args(["--cluster.listen-address="])
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    RealTarget::new("alertmanager", port, TestProcess::start_command(&mut command))
}

/// Prometheus's client library for Python, which supports OpenMetrics: all its types, with exemplars and creation
/// timestamps, and with names that gaunt knows.
const PYTHON: &str = r#"
import sys, threading
from prometheus_client import Counter, Enum, Gauge, Histogram, Info, Summary, start_http_server
gpu = dict(gpu="0", UUID="GPU-5f1c", Hostname="gpu7", modelName='a "b" \\ c')
def of(kind, name):
    return kind(name, "What it is.\nWith a second line.", list(gpu)).labels(**gpu)
of(Gauge, "DCGM_FI_DEV_POWER_USAGE").set(312.5)
of(Gauge, "DCGM_FI_DEV_GPU_TEMP").set(61)
of(Counter, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER").inc(5, exemplar={"trace_id": "abc"})
Info("build", "What was built.").info({"version": "1"})
Enum("mode", "Its mode.", states=["a", "b"]).state("b")
Histogram("took_seconds", "How long.", buckets=[0.1, 1]).observe(0.5, {"trace_id": "def"})
Summary("size_bytes", "How much.").observe(12)
Gauge("odd", "Not a number.").set(float("nan"))
start_http_server(int(sys.argv[1]), addr="127.0.0.1")
threading.Event().wait()
"#;

fn start_python() -> RealTarget {
    let port = free_port();
    let mut command = debian_program("python3");
    command.args(["-c", PYTHON, &port.to_string()]);
    RealTarget::new("python", port, TestProcess::start_command(&mut command))
}

/// Combinations of request formats.
const FORMATS: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

/// Starts an aggregator that scrapes these targets with these formats; its settings are a file of this name.
fn start_aggregator(
    servers: &[RealTarget],
    (compress, open_metrics): (bool, bool),
    settings: &Path,
) -> TestProcess {
    let addresses: Vec<&String> = servers.iter().map(|server| &server.address).collect();
    let text = format!(
        "[gather]\ntargets = {addresses:?}\ncompress = {compress}\nopen_metrics = {open_metrics}\n"
    );
    fs::write(settings, text).unwrap();
    TestProcess::start_aggregator(&["--config", settings.to_str().unwrap()])
}

/// The targets answer of an aggregator once each was scraped.
fn scraped_targets(address: &str, servers: &[RealTarget]) -> Vec<Value> {
    wait_for("every target was read", || {
        let (_, body) = get(address, "/api/gaunt/v1/targets")?;
        let answer: Value = serde_json::from_str(&body).unwrap();
        let targets = answer["targets"].as_array().unwrap().clone();
        let read = |target: &Value| target["last_success"].is_number();
        (targets.len() == servers.len() && targets.iter().all(read)).then_some(targets)
    })
}

#[test]
fn lines_of_real_pages_are_accepted_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let servers = [
        start_node_exporter(),
        start_prometheus(folder.path()),
        start_alertmanager(folder.path()),
        start_python(),
    ];
    servers.iter().for_each(RealTarget::wait_until_it_answers);
    // All at once: each takes a second or two.
    let aggregators: Vec<TestProcess> = (0..)
        .zip(FORMATS)
        .map(|(number, formats): (usize, _)| {
            let settings = folder.path().join(format!("gaunt-{number}.toml"));
            start_aggregator(&servers, formats, &settings)
        })
        .collect();
    for (aggregator, formats) in aggregators.iter().zip(FORMATS) {
        let address = aggregator.served_address();
        let targets = scraped_targets(&address, &servers);
        for (server, target) in servers.iter().zip(&targets) {
            let name = format!("{} {formats:?}", server.name);
            assert_eq!(target["address"], server.address, "{target}");
            assert_eq!(target["rejected"]["by_reason"], serde_json::json!([]), "{name}: {target}");
            assert_eq!(target["failure"], Value::Null, "{name}: {target}");
            assert!(target["bytes"].as_u64().unwrap() > 1_000, "{name}: {target}");
        }
        assert_eq!(targets[0]["dialect"], "node_exporter");
        assert!(targets[0]["samples"].as_u64().unwrap() > 20, "{}", targets[0]);
        assert_eq!(targets[3]["dialect"], "dcgm");
        assert_eq!(targets[3]["samples"], 3, "{}", targets[3]);
        let node = wait_for("the GPU", || {
            get(&address, "/api/gaunt/v1/nodes/gpu7").filter(|(status, _)| *status == 200)
        });
        assert!(node.1.contains("312.5"), "{}", node.1);
    }
}

/// The client library answers in OpenMetrics whenever the request accepts it, and its page is strictly valid.
#[test]
fn client_library_page_is_valid_openmetrics() {
    let python = start_python();
    python.wait_until_it_answers();
    let mut stream = TcpStream::connect(&python.address).unwrap();
    let accept = "text/plain;version=0.0.4, application/openmetrics-text;version=1.0.0;q=0.5";
    write!(stream, "GET /metrics HTTP/1.0\r\nAccept: {accept}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let media = head.lines().find_map(|line| line.strip_prefix("Content-Type: ")).unwrap();
    assert!(is_open_metrics(media), "{media}");
    for part in
        [" # {trace_id=\"abc\"} 5.0 ", "_created ", "mode{mode=\"b\"} 1.0", "odd NaN", "# EOF"]
    {
        assert!(body.contains(part), "no {part} in\n{body}");
    }
    let page = decode_open_metrics(body.as_bytes(), &PageLimits::default()).unwrap();
    assert_eq!((page.report.samples.len(), page.rejected.total_count()), (3, 0));
    // A truncated page is rejected.
    let cut = &body.as_bytes()[..body.len() - 6];
    decode_open_metrics(cut, &PageLimits::default()).unwrap_err();
}
