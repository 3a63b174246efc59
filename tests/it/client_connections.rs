//! Connection limits of gaunt-node and of `gaunt serve`: silent clients, clients that read nothing and clients that
//! closed their sending side never keep others out.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    process::Command,
    time::Duration,
};

use flate2::read::GzDecoder;
use gaunt_schema::text;
use rustix::net::sockopt;

use crate::{
    api_schema::start_fleet_aggregator,
    binaries::program_path,
    fleet_snapshot::SimulatorProcess,
    prometheus_scrape,
    test_process::{DEADLINE, TestProcess, get, wait_for},
};

/// More than the connection limit of either program.
const SILENT: usize = 700;

/// gaunt-node without a driver, and its address.
fn start_node(arguments: &[&str]) -> (TestProcess, String) {
    let mut command = Command::new(program_path("gaunt-node"));
    command
        .args(["--listen", "127.0.0.1:0", "--nvml-library", "libgaunt-absent.so.1"])
        .args(arguments);
    let node = TestProcess::start_command(&mut command);
    let address = node.served_address();
    wait_for("the first sample", || get(&address, "/metrics").filter(|(status, _)| *status == 200));
    (node, address)
}

/// An aggregator without a target that answers, and its address.
fn start_aggregator() -> (TestProcess, String) {
    let running = TestProcess::start_aggregator(&["--targets", "127.0.0.1:9", "--log", "info"]);
    let address = running.served_address();
    wait_for("it serves", || get(&address, "/healthz"));
    (running, address)
}

/// Head and body of the answer to a raw request.
fn send_request(address: &str, request: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    read_response(&mut stream)
}

fn read_response(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let body = answer.split_off(end + 4);
    (String::from_utf8(answer).unwrap().to_ascii_lowercase(), body)
}

/// Connections on which nothing is sent.
fn open_silent(address: &str) -> Vec<TcpStream> {
    (0..SILENT).map(|_| TcpStream::connect(address).unwrap()).collect()
}

/// Connections with more requests than fit into the socket buffers, and nothing read.
fn open_never_reading(address: &str, path: &str, count: usize) -> Vec<TcpStream> {
    let ask = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").repeat(400);
    let open = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        sockopt::set_socket_recv_buffer_size(&stream, 4 << 10).unwrap();
        // A connection that is evicted is closed while the client still sends.
        _ = stream.write_all(ask.as_bytes());
        stream
    };
    (0..count).map(open).collect()
}

#[test]
fn scrape_gets_in_beside_silent_connections() {
    let (_node, node) = start_node(&[]);
    let (_aggregator, serving) = start_aggregator();
    for (address, paths) in [
        (&node, &["/metrics", "/healthz"][..]),
        (&serving, &["/metrics", "/healthz", "/api/gaunt/v1/overview"]),
    ] {
        let silent = open_silent(address);
        for path in paths {
            let status = get(address, path).map(|(status, _)| status);
            assert_eq!(status, Some(200), "{path} beside {} silent connections", silent.len());
        }
    }
}

#[test]
fn scrape_gets_in_beside_clients_that_never_read() {
    let (_node, node) = start_node(&[]);
    let clients = open_never_reading(&node, "/metrics", 64);
    assert_eq!(get(&node, "/metrics").map(|(status, _)| status), Some(200));
    drop(clients);
}

#[test]
fn health_is_answered_beside_streams_on_every_seat() {
    let (_aggregator, address) = start_aggregator();
    let stream = |_| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let ask =
            format!("GET /api/gaunt/v1/stream?ask=overview HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(ask.as_bytes()).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200", "a stream within the seats of one address");
        stream
    };
    // As many as one address may have: none of them is idle, and none is evicted.
    let streams: Vec<_> = (0..256).map(stream).collect();
    for path in ["/healthz", "/metrics"] {
        let (head, _) =
            send_request(&address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
        assert!(head.starts_with("http/1.1 200"), "{path}: {head}");
        assert!(head.contains("connection: close"), "a place of the reserve is free again: {head}");
    }
    let (status, why) = get(&address, "/api/gaunt/v1/nodes").unwrap();
    assert_eq!((status, why.as_str()), (503, "all connections are busy; try again later\n"));
    drop(streams);
    wait_for("seats are free again", || {
        get(&address, "/api/gaunt/v1/nodes").filter(|(status, _)| *status == 200)
    });
}

#[test]
fn client_that_closed_its_sending_side_is_answered() {
    let (_node, node) = start_node(&[]);
    let (_aggregator, serving) = start_aggregator();
    for address in [&node, &serving] {
        for version in ["1.0", "1.1"] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            write!(stream, "GET /metrics HTTP/{version}\r\nHost: {address}\r\n\r\n").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let (head, body) = read_response(&mut stream);
            assert!(head.contains(" 200 ") && body.len() > 500, "{version}: {head}");
        }
    }
}

#[test]
fn exporter_answers_only_who_names_this_host() {
    let (_node, address) = start_node(&["--name", "exporter.example"]);
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for (host, status) in [
        (address.as_str(), "200"),
        ("localhost:9770", "200"),
        ("exporter.example:9770", "200"),
        (&machine, "200"),
        ("evil.example", "421"),
        ("127.0.0.1.evil.example:9770", "421"),
    ] {
        let (head, body) =
            send_request(&address, &format!("GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n"));
        assert!(
            head.starts_with(&format!("http/1.1 {status}"))
                || head.starts_with(&format!("http/1.0 {status}")),
            "{host}: {head}"
        );
        assert!(head.contains("x-content-type-options: nosniff"), "{head}");
        let message = String::from_utf8(body).unwrap();
        assert!(
            status == "200" || message.contains("add the name with --name or names"),
            "{message}"
        );
    }
    let other = "GET /metrics HTTP/1.0\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n";
    assert!(send_request(&address, other).0.contains(" 403 "));
}

#[test]
fn aggregator_writes_its_page_in_the_form_that_is_asked_for() {
    let (_sim, _aggregator, address) = start_fleet_aggregator(2);
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    let node = {
        let (_, nodes) = get(&address, "/api/gaunt/v1/nodes").unwrap();
        let nodes: serde_json::Value = serde_json::from_str(&nodes).unwrap();
        format!("/node/{}/metrics", nodes["nodes"][0]["node"].as_str().unwrap())
    };
    for path in ["/metrics", &node] {
        for (headers, form, gzip) in [
            (String::new(), text::ExpositionFormat::Text, false),
            ("Accept-Encoding: gzip\r\n".to_owned(), text::ExpositionFormat::Text, true),
            (accept.to_owned(), text::ExpositionFormat::OpenMetrics, false),
            (
                format!("{accept}Accept-Encoding: gzip\r\n"),
                text::ExpositionFormat::OpenMetrics,
                true,
            ),
        ] {
            let ask = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{headers}\r\n");
            let (head, body) = send_request(&address, &ask);
            assert!(head.contains(&format!("content-type: {}\r\n", form.content_type())), "{head}");
            assert!(head.contains("vary: accept, accept-encoding\r\n"), "{head}");
            assert_eq!(head.contains("content-encoding: gzip\r\n"), gzip, "{head}");
            let mut page = String::new();
            if gzip {
                GzDecoder::new(&*body).read_to_string(&mut page).unwrap();
                assert!(body.len() * 2 < page.len(), "{} of {} bytes", body.len(), page.len());
            } else {
                page = String::from_utf8(body).unwrap();
            }
            assert_eq!(
                page.ends_with("\n# EOF\n"),
                form == text::ExpositionFormat::OpenMetrics,
                "{page}"
            );
            assert!(page.contains("\ngaunt_"), "{page}");
        }
    }
}

#[test]
fn prometheus_reads_open_metrics_of_the_aggregator() {
    let sim = SimulatorProcess::start_healthy(2);
    // Nothing listens at the last target, so that the page has a finding.
    let targets = format!("{},127.0.0.1:9", sim.list);
    let aggregator = TestProcess::start_aggregator(&["--targets", &targets]);
    let address = aggregator.served_address();
    // Prometheus scrapes nothing in its first five seconds; the aggregator reads the fleet meanwhile.
    let job = format!("- {{job_name: gaunt, static_configs: [{{targets: ['{address}']}}]}}\n");
    let (prometheus, _running) = prometheus_scrape::start_prometheus(&job);
    wait_for("the target is up and its page is complete", || {
        let row_count = |query| prometheus_scrape::query_instant(&prometheus, query).len();
        let is_complete = row_count("gaunt_gpu_state") == 16 && row_count("gaunt_finding") > 0;
        (row_count("up == 1") == 1 && is_complete).then_some(())
    });
    // An OpenMetrics page is accepted as a whole or not at all.
    assert!(prometheus_scrape::query_value(&prometheus, "gaunt_samples_total") > 0.0);
    let (_, metadata) = get(&prometheus, "/api/v1/metadata").unwrap();
    assert!(metadata.contains("\"gaunt_samples\":[{\"type\":\"counter\""), "{metadata}");
    assert!(metadata.contains("\"gaunt_build\":[{\"type\":\"info\""), "{metadata}");
}

#[test]
fn silent_connection_ends_after_seconds() {
    let (_node, node) = start_node(&[]);
    let mut stream = TcpStream::connect(&node).unwrap();
    // The former timeout was 90 seconds; the deadline is five.
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(b"GET /metrics HT").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
}
