//! Two equal aggregators of one cluster: actions reach both, one that starts takes over, clients move, one notification.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use gaunt_schema::UnixMs;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    acknowledgement_access::{FINDING, fetch_json, wait_for_finding},
    alerting_end_to_end::{
        FourPortNode, expected_notification, fetch_alerts, next, serve_webhook, spawn_alertmanager,
        start_alertmanager,
    },
    binaries::program_path,
    pty::TestPty,
    test_process::{DEADLINE, TestProcess, debian_program, free_port, get, run_gaunt, wait_for},
};

/// The settings of two aggregators that name each other.
struct AggregatorPair {
    folder: TempDir,
    addresses: [String; 2],
}

impl AggregatorPair {
    /// Writes the settings; `others` are appended to both.
    fn new(others: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        fs::write(&token, "correct-horse-battery-staple").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let addresses = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
        // One list for both: each leaves itself out.
        let peers = addresses.each_ref().map(|address| format!("http://{address}"));
        for (name, own) in ["a", "b"].into_iter().zip(&addresses) {
            let settings = format!(
                "[cluster]\nname = \"hall\"\n[gather]\nperiod = \"500ms\"\n[serve]\nlisten = \
                 \"{own}\"\ntoken_file = \"token\"\n[serve.peers]\nurls = {peers:?}\n{others}"
            );
            fs::write(folder.path().join(format!("{name}.toml")), settings).unwrap();
        }
        Self { folder, addresses }
    }

    fn token_path(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    /// Starts one of them; with a state folder if `state` is set.
    fn spawn(&self, name: &str, targets: &str, state: bool) -> TestProcess {
        let settings = self.folder.path().join(format!("{name}.toml"));
        let mut command = Command::new(program_path("gaunt"));
        command.args(["serve", "--targets", targets, "--config"]).arg(settings);
        if state {
            command.arg("--state").arg(self.folder.path().join(format!("state-{name}")));
        }
        TestProcess::start_command(&mut command)
    }

    /// The same, once it serves.
    fn start(&self, name: &str, targets: &str, state: bool) -> TestProcess {
        let running = self.spawn(name, targets, state);
        running.line_with("serving address=");
        running
    }

    /// Both addresses, as a client names them.
    fn both(&self) -> String {
        self.addresses.join(",")
    }
}

/// Runs `gaunt ack` at these aggregators.
fn run_ack(aggregators: &str, token: &Path, arguments: &[&str]) -> Output {
    let token = token.to_str().unwrap();
    let all = ["ack", "--aggregator", aggregators, "--token-file", token, "--by", "alice"];
    let output = run_gaunt(&[&all, arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Who acknowledged the finding at this aggregator, once it is as expected.
fn wait_for_acknowledgement(address: &str, finding: &str, by: Option<&str>) {
    wait_for("the acknowledgement", || {
        let open = fetch_json(address, "findings");
        let found = open["findings"].as_array()?.iter().find(|open| open["id"] == finding)?;
        (found["acknowledged"]["by"].as_str() == by).then_some(())
    });
}

/// The state of the only peer.
fn wait_for_peer(address: &str, state: &str) -> Value {
    wait_for(state, || {
        let peer = fetch_json(address, "targets")["peers"][0].clone();
        (peer["state"] == state).then_some(peer)
    })
}

fn kill_hard(process: TestProcess) {
    process.send_signal(Signal::KILL);
    // Waits for its end.
    drop(process);
}

#[test]
fn acknowledgement_reaches_the_peer_before_and_after_a_kill() {
    let pair = AggregatorPair::new("");
    let [a, b] = pair.addresses.each_ref().map(String::as_str);
    let [first, second] = ["a", "b"].map(|name| pair.start(name, "127.0.0.1:9", name == "a"));
    for address in [a, b] {
        wait_for_finding(address, FINDING);
        wait_for_peer(address, "live");
    }
    run_ack(&pair.both(), &pair.token_path(), &[FINDING, "--note", "being repaired"]);
    wait_for_acknowledgement(b, FINDING, Some("alice"));
    let passed = format!("gaunt_peer_passed_actions_total{{peer=\"http://{b}\"}} 1");
    wait_for("the passed action in /metrics", || {
        get(a, "/metrics")?.1.contains(&passed).then_some(())
    });

    // One is killed: the other says so, and takes the next action alone.
    kill_hard(first);
    let peer = wait_for_peer(b, "down");
    let failure = peer["failure"].as_str().unwrap();
    assert!(failure.ends_with("is `gaunt serve` running there?"), "{failure}");
    wait_for("the trouble in the overview", || {
        let overview = fetch_json(b, "overview");
        let troubles = overview["source_trouble"].as_array()?.iter();
        troubles.filter_map(Value::as_str).any(|trouble| trouble.contains(a)).then_some(())
    });
    let down = format!("gaunt_peer_up{{peer=\"http://{a}\"}} 0");
    wait_for("the peer in /metrics", || get(b, "/metrics")?.1.contains(&down).then_some(()));
    let output = run_ack(&pair.both(), &pair.token_path(), &[FINDING, "--withdraw"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let moved = stderr.lines().find(|line| line.starts_with("gaunt: ")).unwrap();
    assert!(moved.contains(a) && moved.ends_with(&format!("using {b}")), "{moved}");
    wait_for_acknowledgement(b, FINDING, None);

    // It comes back with its own state, in which the acknowledgement still was.
    let first = pair.start("a", "127.0.0.1:9", true);
    wait_for_acknowledgement(a, FINDING, None);
    run_ack(a, &pair.token_path(), &[FINDING, "--note", "again"]);
    wait_for_acknowledgement(b, FINDING, Some("alice"));

    // The other one keeps no state: it starts with what its peer knows.
    kill_hard(second);
    let opened = wait_for_finding(a, FINDING)["life"]["opened"].clone();
    let second = pair.spawn("b", "127.0.0.1:9", false);
    second.line_with("took over the state of a peer findings=1 actions=1");
    second.line_with("serving address=");
    let finding = wait_for_finding(b, FINDING);
    assert_eq!(
        (&finding["life"]["opened"], &finding["acknowledged"]["by"]),
        (&opened, &"alice".into())
    );
    drop((first, second));
}

#[test]
fn peers_need_the_same_token_and_cluster_and_settings_say_so() {
    let pair = AggregatorPair::new("");
    let [a, _] = pair.addresses.each_ref().map(String::as_str);
    let other = pair.folder.path().join("b.toml");
    let text = fs::read_to_string(&other).unwrap();
    fs::write(&other, text.replace("\"hall\"", "\"other\"")).unwrap();
    let running = ["a", "b"].map(|name| pair.start(name, "127.0.0.1:9", false));
    let peer = wait_for("the cluster differs", || {
        let peer = fetch_json(a, "targets")["peers"][0].clone();
        peer["failure"].as_str().is_some_and(|why| why.contains("set cluster.name")).then_some(peer)
    });
    assert_eq!(peer["state"], "down");
    drop(running);
    let api = get(a, "/api/gaunt/v1/peer");
    assert!(api.is_none(), "it has ended");
    // Without a token nobody could pass anything on.
    let settings = pair.folder.path().join("a.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replace("token_file = \"token\"\n", "")).unwrap();
    let settings = settings.to_str().unwrap();
    let output = run_gaunt(&["serve", "--targets", "127.0.0.1:9", "--config", settings]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr.contains("serve.peers needs serve.token_file"), "{stderr}");
}

#[test]
fn peer_requests_need_the_token() {
    let pair = AggregatorPair::new("");
    let [a, _] = pair.addresses.each_ref().map(String::as_str);
    let _running = pair.start("a", "127.0.0.1:9", false);
    for path in ["peer", "peer/state"] {
        let (status, _) = get(a, &format!("/api/gaunt/v1/{path}")).unwrap();
        assert_eq!(status, 401, "{path}");
    }
}

/// An aggregator that accepts connections and says nothing does not keep a client for long.
#[test]
fn client_moves_from_an_aggregator_that_hangs() {
    let hung = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = hung.local_addr().unwrap().to_string();
    let running = TestProcess::start_aggregator(&["--targets", "127.0.0.1:9"]);
    let address = running.served_address();
    wait_for_finding(&address, FINDING);
    let both = format!("{silent},{address}");
    let output = run_gaunt(&["snapshot", "--aggregator", &both, "--ask", "findings"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains(&format!("using {address}")), "{stderr}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("target_down"));
    drop(running);
    let output = run_gaunt(&["snapshot", "--aggregator", &both, "--ask", "findings"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr.contains(&format!("{silent} and {address} unreachable")), "{stderr}");
    drop(hung);
}

/// What makes "one page" possible, of a real Alertmanager: alerts with equal labels are one, whatever else differs, and
/// one that nobody posts as resolved is not notified again. Resolved by one and open at the other it would be: therefore
/// an aggregator posts that an alert has ended only when its peers said that they do not post it.
#[test]
fn alertmanager_counts_equal_labels_of_two_senders_once() {
    let manager = format!("127.0.0.1:{}", free_port());
    let (hook, posted) = serve_webhook();
    let (manager_running, folder) = spawn_alertmanager(&hook, &manager, None);
    drop(manager_running);
    // The shipped file waits for a minute between two notifications of a group.
    let config = folder.path().join("alertmanager.yml");
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace("group_wait: 15s", "group_wait: 1s");
    fs::write(&config, text.replace("group_interval: 1m", "group_interval: 1s")).unwrap();
    let mut command = debian_program("prometheus-alertmanager");
    let _running = TestProcess::start_command(
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={manager}"))
            .arg("--cluster.listen-address="),
    );
    wait_for("Alertmanager", || get(&manager, "/-/ready").filter(|(status, _)| *status == 200));
    let post = |sender: &str, since: i64, ends: i64| {
        let [starts, ends] = [since, ends].map(|seconds| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
            UnixMs(now + seconds * 1_000).to_rfc3339()
        });
        let alert = serde_json::json!([{
            "labels": {"alertname": "GauntPortDown", "severity": "critical", "layer": "finding",
                       "id": "port_down/gpu003/mlx5_1/1", "node": "gpu003", "cluster": "hall"},
            "annotations": {"summary": format!("as {sender} sees it")},
            "startsAt": starts, "endsAt": ends,
        }]);
        let mut curl = Command::new("curl");
        curl.args(["-s", "-f", "-H", "Content-Type: application/json", "-d", &alert.to_string()]);
        let sent = curl.arg(format!("http://{manager}/api/v2/alerts")).output().unwrap();
        assert!(sent.status.success(), "{sent:?}");
    };
    post("one", -30, 240);
    let (path, first) = posted.recv_timeout(DEADLINE).unwrap();
    assert_eq!((&*path, &first["status"]), ("/page", &"firing".into()));
    // The other one has another text and another start; then one of them no longer posts it.
    for turn in 0..3 {
        post("the other", -90 + turn, 240);
        let again = posted.recv_timeout(Duration::from_secs(2));
        assert!(again.is_err(), "a second notification: {again:?}");
    }
    let shown = get(&manager, "/api/v2/alerts").unwrap().1;
    assert_eq!(shown.matches("\"fingerprint\"").count(), 1, "{shown}");
    assert!(shown.contains("as the other sees it"), "the newest text is shown: {shown}");
    // The danger: an end from one while the other goes on is an end and a second page.
    post("one", -30, 0);
    let (_, ended) = posted.recv_timeout(DEADLINE).unwrap();
    assert_eq!(ended["status"], "resolved");
    post("the other", -90, 240);
    let (_, second) = posted.recv_timeout(DEADLINE).unwrap();
    assert_eq!(second["status"], "firing", "what the rule for resolved alerts prevents");
}

#[test]
fn kill_of_one_moves_the_console_and_notifies_once() {
    let machine = FourPortNode::start_node("gpu003");
    let manager = format!("127.0.0.1:{}", free_port());
    let pair = AggregatorPair::new(&format!(
        "[judge]\nclose_seconds = 1.0\n[alertmanager]\nurls = [\"http://{manager}\"]\nevery = \"2s\"\n"
    ));
    let [a, b] = pair.addresses.each_ref().map(String::as_str);
    let (hook, posted) = serve_webhook();
    let _manager = start_alertmanager(&hook, &manager);
    let targets = format!("gpu003={}", machine.address);
    let [first, _second] = ["a", "b"].map(|name| pair.start(name, &targets, false));
    for address in [a, b] {
        wait_for("the node is known", || {
            get(address, "/node/gpu003/metrics").filter(|(status, _)| *status == 200)
        });
    }
    let console = TestPty::start_program(
        "",
        &program_path("gaunt"),
        &format!("--aggregator {}", pair.both()),
    );
    console.wait_for_screen("the node", |screen| screen.contains("mlx5_1/1"));
    machine.set_link(1, false);
    let mut expected = expected_notification("firing");
    expected.2[0].insert("cluster".to_owned(), "hall".to_owned());
    assert_eq!(next(&posted, "the alert"), expected);
    wait_for("both post it", || {
        let posted = |address| Some(fetch_alerts(address)?["servers"][0]["posted"].as_u64()? > 0);
        (posted(a)? && posted(b)?).then_some(())
    });

    let killed = Instant::now();
    kill_hard(first);
    console.wait_for_screen("the move", |screen| screen.contains("does not answer"));
    let moved = killed.elapsed();
    let answers = fetch_alerts(b).unwrap()["servers"][0]["posted"].as_u64().unwrap();
    wait_for("the other one posts on", || {
        (fetch_alerts(b)?["servers"][0]["posted"].as_u64()? > answers + 1).then_some(())
    });
    // The console shows what happens from now on.
    machine.set_link(1, true);
    let (_, status, _) = next(&posted, "the end of it");
    assert_eq!(status, "resolved", "one notification of the fault, whoever was killed");
    console.wait_for_screen("the end of it", |screen| screen.contains("none open"));
    console.press_keys("q");
    console.check_restored("0");
    // Two seconds are the bound on an idle machine; its parts are constants with a test of their own.
    let moved = moved.as_secs_f64();
    writeln!(std::io::stdout().lock(), "console moved after {moved:.2} s").unwrap();
}
