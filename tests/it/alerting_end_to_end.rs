//! Alerting end to end: a fault on a node → its page → the aggregator → Prometheus → Alertmanager → a webhook.

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

use gaunt_schema::time;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    binaries::program_path,
    prometheus_rules::alert_rules,
    prometheus_scrape,
    test_process::{RunToEnd, TestProcess, debian_program, free_port, get, run_gaunt, wait_for},
};

/// Time limit for what takes half a minute on an idle machine.
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// The shipped configuration with shorter waits and no other change.
const SHORTER: &[(&str, &str)] = &[
    ("for: 15s", "for: 1s"),
    ("for: 2m", "for: 12s"),
    ("group_wait: 15s", "group_wait: 1s"),
    ("group_interval: 1m", "group_interval: 1s"),
];

/// Settings of an aggregator whose findings close soon after their evidence is gone.
const CLOSE_SOON: &str = "[judge]\nclose_seconds = 1.0\n";

pub(crate) fn read_shipped(path: &str) -> String {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    SHORTER.iter().fold(text, |text, (long, short)| text.replace(long, short))
}

/// A post by Alertmanager: the path, and its JSON.
pub(crate) type WebhookPost = (String, Value);

/// A webhook that accepts everything.
pub(crate) fn serve_webhook() -> (String, Receiver<WebhookPost>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (send, posted) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let send = send.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut stream = stream;
                while let Some((path, body)) = read_request(&mut reader) {
                    // The test may have ended.
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
fn read_request(reader: &mut BufReader<std::net::TcpStream>) -> Option<(String, Vec<u8>)> {
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
pub(crate) fn start_alertmanager(webhook: &str, address: &str) -> (TestProcess, TempDir) {
    let started = spawn_alertmanager(webhook, address, None);
    wait_for("Alertmanager", || get(address, "/-/ready").filter(|(status, _)| *status == 200));
    started
}

/// The same without waiting; `web` is its file of TLS and users.
pub(crate) fn spawn_alertmanager(
    webhook: &str,
    address: &str,
    web: Option<&Path>,
) -> (TestProcess, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("alertmanager.yml");
    let text =
        read_shipped("config/prometheus/alertmanager.yml").replace("127.0.0.1:9099", webhook);
    assert!(text.contains(webhook));
    fs::write(&config, text).unwrap();
    let mut command = debian_program("prometheus-alertmanager");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .arg("--cluster.listen-address=");
    command.args(web.map(|web| format!("--web.config.file={}", web.display())));
    (TestProcess::start_command(&mut command), folder)
}

/// A machine with four ports whose links a test can take down.
pub(crate) struct FourPortNode {
    tree: TempDir,
    pub(crate) address: String,
    _exporter: TestProcess,
}

impl FourPortNode {
    pub(crate) fn start_node(name: &str) -> Self {
        let tree = tempfile::tempdir().unwrap();
        for port in 0..4 {
            let port = port_folder(tree.path(), port);
            fs::create_dir_all(port.join("counters")).unwrap();
            fs::write(port.join("phys_state"), "5: LinkUp\n").unwrap();
            fs::write(port.join("link_layer"), "InfiniBand\n").unwrap();
            fs::write(port.join("rate"), "400 Gb/sec (4X NDR)\n").unwrap();
            fs::write(port.join("counters/port_xmit_data"), "1000\n").unwrap();
            fs::write(port.join("state"), "4: ACTIVE\n").unwrap();
        }
        let mut command = Command::new(program_path("gaunt-node"));
        command.args(["--listen", "127.0.0.1:0", "--node", name, "--nvml-library", "libnone.so"]);
        command.args(["--period", "500ms"]);
        let exporter = TestProcess::start_command(command.arg("--sys-root").arg(tree.path()));
        let address = exporter.served_address();
        Self { tree, address, _exporter: exporter }
    }

    /// Takes the link of a port down, or up again.
    pub(crate) fn set_link(&self, port: usize, up: bool) {
        self.set_physical_state(port, up);
        self.set_logical_state(port, up);
    }

    fn set_physical_state(&self, port: usize, up: bool) {
        let state = if up { "5: LinkUp\n" } else { "2: Polling\n" };
        fs::write(port_folder(self.tree.path(), port).join("phys_state"), state).unwrap();
    }

    fn set_logical_state(&self, port: usize, up: bool) {
        let state = if up { "4: ACTIVE\n" } else { "1: DOWN\n" };
        fs::write(port_folder(self.tree.path(), port).join("state"), state).unwrap();
    }
}

fn port_folder(tree: &Path, port: usize) -> PathBuf {
    tree.join(format!("class/infiniband/mlx5_{port}/ports/1"))
}

/// The labels of the alert about the port that goes down, from every sender.
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

type NotificationLabels = BTreeMap<String, String>;

/// The next notification: its path, its status, and the labels of each of its alerts.
pub(crate) fn next(
    posted: &Receiver<WebhookPost>,
    what: &str,
) -> (String, String, Vec<NotificationLabels>) {
    let (path, body) =
        posted.recv_timeout(TIME_LIMIT).unwrap_or_else(|_| panic!("{what}: nothing"));
    let labels = |alert: &Value| serde_json::from_value(alert["labels"].clone()).unwrap();
    let alerts = body["alerts"].as_array().unwrap().iter().map(labels);
    (path, body["status"].as_str().unwrap().to_owned(), alerts.collect())
}

/// The one notification that is expected.
pub(crate) fn expected_notification(status: &str) -> (String, String, Vec<NotificationLabels>) {
    let labels = LABELS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    ("/day".to_owned(), status.to_owned(), vec![labels.into()])
}

/// The signal that reads the logical state of a port.
const SIGNAL: &str = "GauntPortInactive";

/// The rules with a shorter wait of the signal: the test lets it come after the finding that suppresses it.
fn shorten_signal(rules: &str) -> String {
    let (before, rule) = rules.split_once(&format!("alert: {SIGNAL}\n")).unwrap();
    let shorter = rule.replacen("for: 12s", "for: 1s", 1);
    assert_ne!(shorter, rule);
    format!("{before}alert: {SIGNAL}\n{shorter}")
}

/// The wait of an alert in the shipped rules.
fn shipped_wait(alert: &str) -> Duration {
    time::parse_duration(alert_rules()[alert]["for"].as_str().unwrap()).unwrap()
}

/// Prometheus with the shipped rules and shorter waits, scraping these aggregators and the nodes that they name.
fn start_prometheus(
    aggregators: &[String; 2],
    manager: &str,
) -> (String, (TestProcess, TempDir), TempDir) {
    let rules = tempfile::tempdir().unwrap();
    for name in ["recording", "findings", "hardware", "network", "health", "probe"] {
        let text = read_shipped(&format!("config/prometheus/rules/gaunt/{name}.yml"));
        let text = if name == "network" { shorten_signal(&text) } else { text };
        fs::write(rules.path().join(format!("{name}.yml")), text).unwrap();
    }
    let [one, other] = aggregators;
    let (prometheus, running) = prometheus_scrape::start_with_config(&format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 500ms}}\n\
         rule_files: ['{}/*.yml']\n\
         alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{manager}']}}]}}]}}\n\
         scrape_configs:\n\
         - {{job_name: gaunt, static_configs: [{{targets: ['{one}', '{other}']}}]}}\n\
         - {{job_name: gaunt-node, http_sd_configs: [{{url: 'http://{one}/sd/http', refresh_interval: 1s}}]}}\n",
        rules.path().display(),
    ));
    (prometheus, running, rules)
}

/// The signal in Alertmanager; an empty list once it has ended.
fn fetch_signal(manager: &str) -> Option<Value> {
    let path = format!("/api/v2/alerts?filter=alertname%3D{SIGNAL}");
    Some(serde_json::from_str(&get(manager, &path)?.1).unwrap())
}

/// The signal fires too, soon; it is inhibited, because a finding already reports it.
fn check_suppressed(prometheus: &str, manager: &str) {
    wait_for("the signal", || {
        let firing = format!("ALERTS{{alertname=\"{SIGNAL}\", alertstate=\"firing\"}}");
        (prometheus_scrape::query_instant(prometheus, &firing).len() == 1).then_some(())
    });
    wait_for("the signal is kept quiet", || {
        (fetch_signal(manager)?[0]["status"]["state"] == "suppressed").then_some(())
    });
}

/// Logs a measurement, whether the test passes or not.
fn log_line(line: &str) {
    writeln!(std::io::stdout().lock(), "{line}").unwrap();
}

#[test]
fn port_down_alert_is_sent_once_and_resolved() {
    let machine = FourPortNode::start_node("gpu003");
    let targets = format!("gpu003={}", machine.address);
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("gaunt.toml");
    fs::write(&settings, CLOSE_SOON).unwrap();
    let settings = settings.to_str().unwrap();
    // A standby scrapes and reports the same.
    let aggregators = [(); 2]
        .map(|()| TestProcess::start_aggregator(&["--config", settings, "--targets", &targets]));
    let addresses = aggregators.each_ref().map(TestProcess::served_address);
    wait_for("the node is known", || {
        get(&addresses[1], "/node/gpu003/metrics").filter(|(status, _)| *status == 200)
    });
    let (hook, posted) = serve_webhook();
    let manager = format!("127.0.0.1:{}", free_port());
    // Prometheus scrapes nothing in its first five seconds; Alertmanager starts meanwhile.
    let (prometheus, _prometheus, _rules) = start_prometheus(&addresses, &manager);
    let _manager = start_alertmanager(&hook, &manager);
    wait_for("Prometheus has read all", || {
        let active_ports = prometheus_scrape::query_instant(
            &prometheus,
            "gaunt_port_state_id{node=\"gpu003\"} == 4",
        );
        let aggregators_up =
            prometheus_scrape::query_instant(&prometheus, "up{job=\"gaunt\"} == 1").len() == 2;
        (aggregators_up && active_ports.len() == 4).then_some(())
    });

    // A finding is faster than the signal that it suppresses. Here the logical state follows only when the finding was
    // notified, so that the order does not depend on the speed of the machine.
    assert!(shipped_wait("GauntPortDown") * 4 < shipped_wait(SIGNAL));
    let cut = Instant::now();
    machine.set_physical_state(1, false);
    let first = next(&posted, "the alert");
    let fired = cut.elapsed();
    // No job runs on the node: no page is sent.
    assert_eq!(first, expected_notification("firing"));
    machine.set_logical_state(1, false);
    check_suppressed(&prometheus, &manager);

    // The signal ends first: without the finding it would be notified.
    machine.set_logical_state(1, true);
    wait_for("the signal has ended", || {
        fetch_signal(&manager)?.as_array()?.is_empty().then_some(())
    });
    let mended = Instant::now();
    machine.set_physical_state(1, true);
    let last = next(&posted, "the end of it");
    let resolved = mended.elapsed();
    // One notification for one fault: between the two nothing else came.
    assert_eq!(last, expected_notification("resolved"));
    log_line(&format!(
        "fault to webhook {:.1} s, mended to webhook {:.1} s; waits shortened by settings",
        fired.as_secs_f64(),
        resolved.as_secs_f64()
    ));
}

/// The alerts that an aggregator reports.
pub(crate) fn fetch_alerts(aggregator: &str) -> Option<Value> {
    serde_json::from_str(&get(aggregator, "/api/gaunt/v1/alerts")?.1).ok()
}

/// What amtool prints.
fn run_amtool(manager: &str, arguments: &[&str]) -> String {
    let url = format!("--alertmanager.url=http://{manager}");
    let output = debian_program("amtool").arg(url).args(arguments).run_to_end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A silence of Alertmanager appears in the API and on the command line.
fn check_read_back(aggregator: &str, silence: &str) {
    let line = wait_for("the silence is read back", || {
        let line = fetch_alerts(aggregator)?["alerts"][0].clone();
        (line["state"] == "suppressed").then_some(line)
    });
    assert_eq!(line["finding"], "port_down/gpu003/mlx5_1/1");
    let listed = &line["silences"][0];
    assert_eq!((&listed["id"], &listed["by"]), (&silence.into(), &"mira".into()));
    assert_eq!(listed["comment"], "cable ordered");
    let shown = run_gaunt(&["snapshot", "--aggregator", aggregator, "--ask", "alerts"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("silenced") && shown.contains("cable ordered"), "{shown}");
}

#[test]
fn findings_reach_alertmanager_once_without_prometheus_and_silences_are_read_back() {
    let machine = FourPortNode::start_node("gpu003");
    let manager = format!("127.0.0.1:{}", free_port());
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("gaunt.toml");
    fs::write(
        &settings,
        format!("{CLOSE_SOON}[alertmanager]\nurls = [\"http://{manager}\"]\nevery = \"2s\"\n"),
    )
    .unwrap();
    let targets = format!("gpu003={}", machine.address);
    let settings = settings.to_str().unwrap();
    // A standby posts the same.
    let aggregators = [(); 2]
        .map(|()| TestProcess::start_aggregator(&["--config", settings, "--targets", &targets]));
    let addresses = aggregators.each_ref().map(TestProcess::served_address);
    let alerts = |index: usize| fetch_alerts(&addresses[index]);
    for address in &addresses {
        wait_for("the node is known", || {
            get(address, "/node/gpu003/metrics").filter(|(status, _)| *status == 200)
        });
    }
    // Alertmanager is down at first: posting is retried, and the failure is reported with the next step.
    machine.set_link(1, false);
    let failure = wait_for("the failure is told", || {
        Some(alerts(1)?["servers"][0]["failure"].as_str()?.to_owned())
    });
    assert!(failure.ends_with("is Alertmanager running there?"), "{failure}");
    let (hook, posted) = serve_webhook();
    let back = Instant::now();
    let _manager = start_alertmanager(&hook, &manager);
    assert_eq!(next(&posted, "the alert"), expected_notification("firing"));
    let fired = back.elapsed();
    wait_for("both are heard", || {
        let is_delivered = |index| Some(alerts(index)?["servers"][0]["failure"].is_null());
        (is_delivered(0)? && is_delivered(1)?).then_some(())
    });
    let (_, body) = get(&manager, "/api/v2/alerts").unwrap();
    let listed: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1, "two aggregators, one alert: {listed}");

    let arguments =
        ["silence", "add", "node=gpu003", "-a", "mira", "-c", "cable ordered", "-d", "1h"];
    let silence = run_amtool(&manager, &arguments);
    check_read_back(&addresses[0], &silence);

    run_amtool(&manager, &["silence", "expire", &silence]);
    machine.set_link(1, true);
    let mended = Instant::now();
    assert_eq!(next(&posted, "the end of it"), expected_notification("resolved"));
    log_line(&format!(
        "without Prometheus: Alertmanager back to webhook {:.1} s, mended to webhook {:.1} s",
        fired.as_secs_f64(),
        mended.elapsed().as_secs_f64()
    ));
}
