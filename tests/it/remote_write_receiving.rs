//! Remote write received: a real Prometheus and a real vmagent send what they scrape, and hostile senders are refused.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
};

use gaunt_store::{StoreSample, compress_request, encode_labels, push_series};

use crate::{
    binaries::{fake_driver, program_path},
    test_process::{DEADLINE, TestProcess, debian_program, free_port, get, wait_for},
};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Writes the token of senders.
fn write_token(folder: &Path) -> String {
    let path = folder.join("receive-token");
    fs::write(&path, TOKEN).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

/// Starts a node with eight GPUs.
fn start_node() -> TestProcess {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/scenarios/eight.toml");
    let mut command = Command::new(program_path("gaunt-node"));
    command.args(["--listen", "127.0.0.1:0", "--node", "node-a", "--nvml-library"]);
    TestProcess::start_command(command.arg(fake_driver()).env("GAUNT_FAKE_DRIVER", scenario))
}

/// Scrape configuration: the node, and a target where nothing listens.
fn scrape_config(node: &str) -> String {
    format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 1s, external_labels: {{ cluster: hall-1, replica: a }} }}\n\
         scrape_configs:\n- job_name: gaunt-node\n  static_configs: [{{ targets: ['{node}', '127.0.0.1:1'] }}]\n"
    )
}

/// Waits until the aggregator shows what its sender scrapes.
fn check_received(gaunt: &str) {
    wait_for("the GPUs of the node", || {
        let (_, body) = get(gaunt, "/api/gaunt/v1/gpus")?;
        (body.contains("\"rows\":8") && body.contains("node-a")).then_some(())
    });
    wait_for("the target that is down", || {
        let (_, body) = get(gaunt, "/api/gaunt/v1/findings")?;
        (body.contains("target_down") && body.contains("127.0.0.1:1")).then_some(())
    });
    let page = wait_for("the counts of samples", || {
        let (_, page) = get(gaunt, "/metrics")?;
        let used = page
            .lines()
            .find(|line| line.starts_with("gaunt_receive_samples_total{outcome=\"used\"}"))?;
        (!used.ends_with(" 0")).then_some(page.clone())
    });
    let count = |outcome: &str| -> u64 {
        let name = format!("gaunt_receive_samples_total{{outcome=\"{outcome}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).expect("its count")
    };
    for outcome in ["old", "future", "over_limit"] {
        assert_eq!(count(outcome), 0, "{outcome}: {page}");
    }
    // On a busy machine one of several connections of a sender may be late.
    assert!(count("late") * 50 <= count("used"), "{page}");
    assert!(!page.contains("gaunt_receive_samples_total{outcome=\"unknown\"} 0\n"), "{page}");
    let notes = wait_for("the note about the source", || {
        let (_, body) = get(gaunt, "/api/gaunt/v1/overview")?;
        body.contains("remote write: ").then_some(body)
    });
    assert!(notes.contains("requests every") && notes.contains("shown 8 s late"), "{notes}");
}

/// An exporter, and an aggregator that receives its pages each second.
struct ReceivingSetup {
    folder: tempfile::TempDir,
    token: String,
    node: TestProcess,
    aggregator: TestProcess,
}

impl ReceivingSetup {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = write_token(folder.path());
        let node = start_node();
        let arguments = ["--receive-token-file", &token, "--period", "1s"];
        let aggregator = TestProcess::start_aggregator(&arguments);
        Self { folder, token, node, aggregator }
    }
}

#[test]
fn prometheus_sends_what_it_scrapes() {
    let ReceivingSetup { folder, token, node, aggregator } = ReceivingSetup::start();
    let gaunt = aggregator.served_address();
    let config = folder.path().join("prometheus.yml");
    let text = scrape_config(&node.served_address());
    let remote = format!(
        "remote_write:\n- url: http://{gaunt}/api/v1/write\n  authorization: {{ credentials_file: {token} }}\n"
    );
    fs::write(&config, text + &remote).unwrap();
    let _sender = TestProcess::start_command(
        debian_program("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{}", free_port())),
    );
    check_received(&gaunt);
}

#[test]
fn vmagent_sends_what_it_scrapes() {
    let ReceivingSetup { folder, token, node, aggregator } = ReceivingSetup::start();
    let gaunt = aggregator.served_address();
    let config = folder.path().join("vmagent.yml");
    fs::write(&config, scrape_config(&node.served_address())).unwrap();
    let _sender = TestProcess::start_command(
        debian_program("vmagent")
            .arg(format!("-promscrape.config={}", config.display()))
            .arg(format!("-remoteWrite.tmpDataPath={}", folder.path().join("queue").display()))
            .arg(format!("-remoteWrite.url=http://{gaunt}/api/v1/write"))
            .arg(format!("-remoteWrite.bearerTokenFile={token}"))
            .arg(format!("-httpListenAddr=127.0.0.1:{}", free_port())),
    );
    check_received(&gaunt);
}

/// Status and body of a write with these headers.
fn post(address: &str, headers: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(
        stream,
        "POST /api/v1/write HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n"
    )
    .unwrap();
    // A server that refuses need not read the body.
    _ = stream.write_all(body);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[test]
fn hostile_writes_are_refused_with_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let token = write_token(folder.path());
    let aggregator = TestProcess::start_aggregator(&["--receive-token-file", &token]);
    let gaunt = aggregator.served_address();
    let (mut labels, mut request) = (Vec::new(), Vec::new());
    encode_labels(&mut [("__name__", "up"), ("instance", "a:1"), ("job", "a")], &mut labels);
    let now = gaunt_engine::monotonic_clock()();
    push_series(&labels, &[StoreSample { at: now, bits: 1.0_f64.to_bits() }], &mut request);
    let whole = compress_request(&request).unwrap();
    let bomb = compress_request(&vec![0; 40 << 20]).unwrap();
    let authorized = format!("Authorization: Bearer {TOKEN}\r\n");
    let snappy = "Content-Encoding: snappy\r\nContent-Type: application/x-protobuf\r\n";
    let second = "Content-Encoding: snappy\r\nContent-Type: application/x-protobuf;proto=io.prometheus.write.v2.Request\r\n";
    let wrong = "Authorization: Bearer 0123456789abcdef0123456789abcdeX\r\n";
    let cut = &whole[..whole.len() - 3];
    let json = compress_request(b"{\"timeseries\":[]}").unwrap();
    let cases: [(&str, &str, &[u8], u16, &str); 9] = [
        (&authorized, snappy, &whole, 204, ""),
        ("", snappy, &whole, 401, "token"),
        (wrong, snappy, &whole, 401, "token"),
        (&authorized, "Content-Encoding: zstd\r\n", &whole, 415, "remote write 1.0"),
        (&authorized, second, &whole, 415, "prometheus.WriteRequest"),
        (&authorized, snappy, cut, 400, "snappy"),
        (&authorized, snappy, &json, 400, "no remote write 1.0 request"),
        (&authorized, snappy, &bomb, 413, "max_samples_per_send"),
        (&authorized, snappy, b"", 400, "snappy"),
    ];
    for (token, form, body, status, text) in cases {
        let headers = format!("{token}{form}Content-Length: {}\r\n", body.len());
        let (answered, why) = post(&gaunt, &headers, body);
        assert_eq!(answered, status, "{form}: {why}");
        assert!(why.contains(text), "{why}");
    }
    let long = format!("{authorized}{snappy}Content-Length: 40000000\r\n");
    assert_eq!(post(&gaunt, &long, b"").0, 413);
    assert_eq!(post(&gaunt, &format!("{authorized}{snappy}"), b"").0, 411);
    let (_, page) = get(&gaunt, "/metrics").unwrap();
    assert!(page.contains("gaunt_receive_requests_total{outcome=\"invalid\"} 4\n"), "{page}");
    assert_eq!(get(&gaunt, "/api/v1/write").unwrap().0, 404);

    let headers = format!("{authorized}{snappy}Content-Length: {}\r\n", whole.len());
    let closed = TestProcess::start_aggregator(&["--targets", "127.0.0.1:1"]);
    let (status, why) = post(&closed.served_address(), &headers, &whole);
    assert!(status != 204 && why.contains("serve.receive_token_file"), "{status} {why}");
}
