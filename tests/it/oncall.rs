//! On call, end to end: a fault on a node → its page → the aggregator → Prometheus → Alertmanager → a webhook.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    binaries::program,
    prometheus,
    running::{Ends, Running, debian, free_port, gaunt, get, until},
};

/// Time for what takes half a minute when nobody else uses the machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// The shipped configuration with shorter waits; nothing else about it is changed. The order of the waits is kept: a
/// finding is faster than the signals that it keeps quiet.
const SHORTER: &[(&str, &str)] = &[
    ("for: 15s", "for: 1s"),
    ("for: 2m", "for: 12s"),
    ("group_wait: 15s", "group_wait: 2s"),
    ("group_interval: 1m", "group_interval: 2s"),
];

pub(crate) fn shipped(path: &str) -> String {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    SHORTER.iter().fold(text, |text, (long, short)| text.replace(long, short))
}

/// What Alertmanager posted: the path, and its JSON.
pub(crate) type Posted = (String, Value);

/// A webhook that takes everything.
pub(crate) fn webhook() -> (String, Receiver<Posted>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (send, posted) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let send = send.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut stream = stream;
                while let Some((path, body)) = request(&mut reader) {
                    // The test may have heard enough.
                    _ = send.send((path, serde_json::from_slice(&body).unwrap()));
                    if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, posted)
}

/// Path and body of the next request; none once the client is gone.
fn request(reader: &mut BufReader<std::net::TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok().filter(|read| *read > 0)?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, body))
}

/// Alertmanager with the shipped configuration, its notifications sent to `webhook`.
pub(crate) fn alertmanager(webhook: &str, address: &str) -> (Running, TempDir) {
    let started = started_alertmanager(webhook, address, None);
    until("Alertmanager", || get(address, "/-/ready").filter(|(status, _)| *status == 200));
    started
}

/// The same, not waited for; `web` is its file of TLS and users.
pub(crate) fn started_alertmanager(
    webhook: &str,
    address: &str,
    web: Option<&Path>,
) -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("alertmanager.yml");
    let text = shipped("config/prometheus/alertmanager.yml").replace("127.0.0.1:9099", webhook);
    assert!(text.contains(webhook));
    fs::write(&config, text).unwrap();
    let mut command = debian("prometheus-alertmanager");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .arg("--cluster.listen-address=");
    command.args(web.map(|web| format!("--web.config.file={}", web.display())));
    (Running::start(&mut command), folder)
}

/// A machine of four ports whose links a test can cut.
pub(crate) struct Machine {
    tree: TempDir,
    pub(crate) address: String,
    _exporter: Running,
}

impl Machine {
    pub(crate) fn start(name: &str) -> Self {
        let tree = tempfile::tempdir().unwrap();
        for port in 0..4 {
            let port = place(tree.path(), port);
            fs::create_dir_all(port.join("counters")).unwrap();
            fs::write(port.join("phys_state"), "5: LinkUp\n").unwrap();
            fs::write(port.join("link_layer"), "InfiniBand\n").unwrap();
            fs::write(port.join("rate"), "400 Gb/sec (4X NDR)\n").unwrap();
            fs::write(port.join("counters/port_xmit_data"), "1000\n").unwrap();
            fs::write(port.join("state"), "4: ACTIVE\n").unwrap();
        }
        let mut command = Command::new(program("gaunt-node"));
        command.args(["--listen", "127.0.0.1:0", "--node", name, "--nvml-library", "libnone.so"]);
        let exporter = Running::start(command.arg("--sys-root").arg(tree.path()));
        let address = exporter.address();
        Self { tree, address, _exporter: exporter }
    }

    /// Takes the link of a port down, or up again.
    pub(crate) fn link(&self, port: usize, up: bool) {
        let port = place(self.tree.path(), port);
        fs::write(port.join("phys_state"), if up { "5: LinkUp\n" } else { "2: Polling\n" })
            .unwrap();
        fs::write(port.join("state"), if up { "4: ACTIVE\n" } else { "1: DOWN\n" }).unwrap();
    }
}

fn place(tree: &Path, port: usize) -> PathBuf {
    tree.join(format!("class/infiniband/mlx5_{port}/ports/1"))
}

/// The labels of the alert about the port that goes down, whoever posts it.
const LABELS: [(&str, &str); 9] = [
    ("alertname", "GauntPortDown"),
    ("device", "mlx5_1"),
    ("entity", "port"),
    ("id", "port_down/gpu003/mlx5_1/1"),
    ("kind", "port_down"),
    ("layer", "finding"),
    ("node", "gpu003"),
    ("port", "1"),
    ("severity", "warning"),
];

type Labels = BTreeMap<String, String>;

/// The next notification: its path, its status, and the labels of each of its alerts.
pub(crate) fn next(posted: &Receiver<Posted>, what: &str) -> (String, String, Vec<Labels>) {
    let (path, body) = posted.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what}: nothing"));
    let labels = |alert: &Value| serde_json::from_value(alert["labels"].clone()).unwrap();
    let alerts = body["alerts"].as_array().unwrap().iter().map(labels);
    (path, body["status"].as_str().unwrap().to_owned(), alerts.collect())
}

/// The one notification that is expected.
pub(crate) fn told(status: &str) -> (String, String, Vec<Labels>) {
    let labels = LABELS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    ("/day".to_owned(), status.to_owned(), vec![labels.into()])
}

/// Prometheus with the shipped rules and shorter waits, reading these aggregators and the nodes that they name.
fn watching(aggregators: &[String; 2], manager: &str) -> (String, (Running, TempDir), TempDir) {
    let rules = tempfile::tempdir().unwrap();
    for name in ["recording", "findings", "hardware", "network", "health", "probe"] {
        let text = shipped(&format!("config/prometheus/rules/gaunt/{name}.yml"));
        fs::write(rules.path().join(format!("{name}.yml")), text).unwrap();
    }
    let [one, other] = aggregators;
    let (prometheus, running) = prometheus::start_with(&format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
         rule_files: ['{}/*.yml']\n\
         alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{manager}']}}]}}]}}\n\
         scrape_configs:\n\
         - {{job_name: gaunt, static_configs: [{{targets: ['{one}', '{other}']}}]}}\n\
         - {{job_name: gaunt-node, http_sd_configs: [{{url: 'http://{one}/sd/http', refresh_interval: 1s}}]}}\n",
        rules.path().display(),
    ));
    (prometheus, running, rules)
}

/// The signal fires too by now or soon; it stays quiet, because a verdict says it already.
fn stays_quiet(prometheus: &str, manager: &str) {
    until("the signal", || {
        let firing = "ALERTS{alertname=\"GauntPortInactive\", alertstate=\"firing\"}";
        (prometheus::query(prometheus, firing).len() == 1).then_some(())
    });
    until("the signal is kept quiet", || {
        let path = "/api/v2/alerts?filter=alertname%3DGauntPortInactive";
        let alerts: Value = serde_json::from_str(&get(manager, path)?.1).unwrap();
        (alerts[0]["status"]["state"] == "suppressed").then_some(())
    });
}

/// Says what was measured, whether the test passes or not.
fn log(line: &str) {
    writeln!(std::io::stdout().lock(), "{line}").unwrap();
}

#[test]
fn a_port_that_goes_down_is_told_once_and_resolved() {
    let machine = Machine::start("gpu003");
    let targets = format!("gpu003={}", machine.address);
    // A standby reads and says the same.
    let aggregators = [(); 2].map(|()| Running::aggregator(&["--targets", &targets]));
    let addresses = aggregators.each_ref().map(Running::address);
    until("the node is known", || {
        get(&addresses[1], "/node/gpu003/metrics").filter(|(status, _)| *status == 200)
    });
    let (hook, posted) = webhook();
    let manager = format!("127.0.0.1:{}", free_port());
    let _manager = alertmanager(&hook, &manager);
    let (prometheus, _prometheus, _rules) = watching(&addresses, &manager);
    until("Prometheus has read all", || {
        let seen = prometheus::query(&prometheus, "gaunt_port_state_id{node=\"gpu003\"} == 4");
        let both = prometheus::query(&prometheus, "up{job=\"gaunt\"} == 1").len() == 2;
        (both && seen.len() == 4).then_some(())
    });

    let cut = Instant::now();
    machine.link(1, false);
    let first = next(&posted, "the alert");
    let fired = cut.elapsed();
    // No job holds the node: nobody is woken.
    assert_eq!(first, told("firing"));
    stays_quiet(&prometheus, &manager);

    let mended = Instant::now();
    machine.link(1, true);
    let last = next(&posted, "the end of it");
    let resolved = mended.elapsed();
    // One notification for one fault: between the two nothing else came.
    assert_eq!(last, told("resolved"));
    log(&format!(
        "fault to webhook {:.1} s, mended to webhook {:.1} s; waits shortened by settings",
        fired.as_secs_f64(),
        resolved.as_secs_f64()
    ));
}

/// What an aggregator says of the alerts.
pub(crate) fn alerts(aggregator: &str) -> Option<Value> {
    serde_json::from_str(&get(aggregator, "/api/gaunt/v1/alerts")?.1).ok()
}

/// What amtool prints.
fn amtool(manager: &str, arguments: &[&str]) -> String {
    let url = format!("--alertmanager.url=http://{manager}");
    let output = debian("amtool").arg(url).args(arguments).ended();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A silence of Alertmanager is in the API and on the command line.
fn is_read_back(aggregator: &str, silence: &str) {
    let line = until("the silence is read back", || {
        let line = alerts(aggregator)?["alerts"][0].clone();
        (line["state"] == "suppressed").then_some(line)
    });
    assert_eq!(line["finding"], "port_down/gpu003/mlx5_1/1");
    let known = &line["silences"][0];
    assert_eq!((&known["id"], &known["by"]), (&silence.into(), &"mira".into()));
    assert_eq!(known["comment"], "cable ordered");
    let shown = gaunt(&["snapshot", "--aggregator", aggregator, "--ask", "alerts"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("silenced") && shown.contains("cable ordered"), "{shown}");
}

#[test]
fn without_prometheus_findings_reach_alertmanager_once_and_its_silences_come_back() {
    let machine = Machine::start("gpu003");
    let manager = format!("127.0.0.1:{}", free_port());
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("gaunt.toml");
    fs::write(
        &settings,
        format!("[alertmanager]\nurls = [\"http://{manager}\"]\nevery = \"5s\"\n"),
    )
    .unwrap();
    let targets = format!("gpu003={}", machine.address);
    let settings = settings.to_str().unwrap();
    // A standby posts the same.
    let aggregators =
        [(); 2].map(|()| Running::aggregator(&["--config", settings, "--targets", &targets]));
    let addresses = aggregators.each_ref().map(Running::address);
    let alerts = |at: usize| alerts(&addresses[at]);
    for address in &addresses {
        until("the node is known", || {
            get(address, "/node/gpu003/metrics").filter(|(status, _)| *status == 200)
        });
    }
    // Alertmanager is away at first: it is asked again, and the failure is told with the next step.
    machine.link(1, false);
    let failure = until("the failure is told", || {
        Some(alerts(1)?["servers"][0]["failure"].as_str()?.to_owned())
    });
    assert!(failure.ends_with("is Alertmanager running there?"), "{failure}");
    let (hook, posted) = webhook();
    let back = Instant::now();
    let _manager = alertmanager(&hook, &manager);
    assert_eq!(next(&posted, "the alert"), told("firing"));
    let fired = back.elapsed();
    until("both are heard", || {
        let heard = |at| Some(alerts(at)?["servers"][0]["failure"].is_null());
        (heard(0)? && heard(1)?).then_some(())
    });
    let (_, body) = get(&manager, "/api/v2/alerts").unwrap();
    let known: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(known.as_array().unwrap().len(), 1, "two aggregators, one alert: {known}");

    let words = ["silence", "add", "node=gpu003", "-a", "mira", "-c", "cable ordered", "-d", "1h"];
    let silence = amtool(&manager, &words);
    is_read_back(&addresses[0], &silence);

    amtool(&manager, &["silence", "expire", &silence]);
    machine.link(1, true);
    let mended = Instant::now();
    assert_eq!(next(&posted, "the end of it"), told("resolved"));
    log(&format!(
        "without Prometheus: Alertmanager back to webhook {:.1} s, mended to webhook {:.1} s",
        fired.as_secs_f64(),
        mended.elapsed().as_secs_f64()
    ));
}
