//! gaunt-sim, run as a user runs it: thirty nodes at thirty addresses, for local clients only.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    process::{Child, Command, Output, Stdio},
};

use gaunt_schema::{
    Device, Dialect,
    catalogue::{gpu, port},
    text,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    binaries::program_path,
    test_process::{DEADLINE, RunToEnd, wait_for},
};

/// A running gaunt-sim, killed when the test is over.
struct GauntSimProcess {
    child: Child,
    /// The first line that it printed.
    line: String,
    port: u16,
}

impl GauntSimProcess {
    fn start_with_args(args: &[&str]) -> Self {
        let mut child = Command::new(program_path("gaunt-sim"))
            .args(["--listen-port", "0"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port =
            line.trim().rsplit(':').next().unwrap().parse().expect("the line ends in a port");
        Self { child, line, port }
    }
}

impl Drop for GauntSimProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect_to(address: IpAddr, port: u16) -> TcpStream {
    let stream = TcpStream::connect(SocketAddr::new(address, port)).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// One GET over a keep-alive connection: status and body.
fn get(stream: &mut TcpStream, path: &str) -> (u16, Vec<u8>) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "closed after {head:?}");
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    (status, body)
}

fn scrape_page(stream: &mut TcpStream) -> gaunt_schema::ScrapedPage {
    let (status, body) = get(stream, "/metrics");
    assert_eq!(status, 200);
    let page = text::decode_page(&body, &text::PageLimits::default()).unwrap();
    assert_eq!(page.rejected.total_count(), 0, "{:?}", page.rejected);
    page
}

fn run_sim(args: &[&str]) -> Output {
    Command::new(program_path("gaunt-sim")).args(args).run_to_end()
}

#[test]
fn thirty_nodes_answer_at_thirty_addresses() {
    let sim = GauntSimProcess::start_with_args(&["--nodes", "30", "--seed", "5"]);
    assert_eq!(sim.line, format!("127.1.0.[1-30]:{}\n", sim.port));
    let mut names = BTreeSet::new();
    let mut energy = BTreeSet::new();
    for node in 1..=30 {
        let mut stream = connect_to(Ipv4Addr::new(127, 1, 0, node).into(), sim.port);
        let report = scrape_page(&mut stream).report;
        let read =
            |device: &Device, metric| report.find_reading(device, metric).unwrap().value().unwrap();
        names.insert(report.node.as_ref().unwrap().to_string());
        energy.insert(read(&Device::new_gpu(7), gpu::ENERGY).to_bits());
        assert!((read(&Device::new_port("mlx5_7", "1"), port::RATE) - 50e9).abs() < 0.5);
    }
    assert_eq!((names.len(), energy.len()), (30, 30));
    assert_eq!(names.first().map(String::as_str), Some("gpu001"));
    assert_eq!(names.last().map(String::as_str), Some("gpu030"));
    let mut no_node = connect_to(Ipv4Addr::LOCALHOST.into(), sim.port);
    let (status, body) = get(&mut no_node, "/metrics");
    assert_eq!(status, 404);
    assert!(String::from_utf8(body).unwrap().contains("the nodes are at 127.1.0.[1-30]:"));
}

#[test]
fn time_passes_on_one_connection_that_stays_open() {
    let sim = GauntSimProcess::start_with_args(&["--nodes", "2", "--period", "50ms"]);
    let mut stream = connect_to(Ipv4Addr::new(127, 1, 0, 1).into(), sim.port);
    let first = scrape_page(&mut stream).report;
    let later = wait_for("the fleet advances", || {
        Some(scrape_page(&mut stream).report).filter(|report| report.node_time > first.node_time)
    });
    let energy = |report: &gaunt_schema::Report| {
        report.find_reading(&Device::new_gpu(0), gpu::ENERGY).unwrap().value().unwrap()
    };
    assert!(energy(&later) > energy(&first));
}

#[test]
fn target_list_is_written_where_the_user_wants_it() {
    let sim = GauntSimProcess::start_with_args(&["--nodes", "2", "--targets", "-"]);
    assert_eq!(sim.line, format!("gpu001=127.1.0.1:{}\n", sim.port));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("targets");
    let sim =
        GauntSimProcess::start_with_args(&["--nodes", "2", "--targets", file.to_str().unwrap()]);
    let port = sim.port;
    let lines = std::fs::read_to_string(&file).unwrap();
    assert_eq!(lines, format!("gpu001=127.1.0.1:{port}\ngpu002=127.1.0.2:{port}\n"));
}

#[test]
fn sim_ends_cleanly_on_sigterm() {
    let mut sim = GauntSimProcess::start_with_args(&["--nodes", "1"]);
    assert_eq!(sim.line, format!("127.1.0.1:{}\n", sim.port));
    kill_process(Pid::from_child(&sim.child), Signal::TERM).unwrap();
    let status = wait_for("the simulator ends", || sim.child.try_wait().unwrap());
    assert!(status.success(), "{status}");
}

#[test]
fn one_page_is_printed_once() {
    let once = run_sim(&["--nodes", "12", "--once", "gpu012"]);
    let page = text::decode_page(&once.stdout, &text::PageLimits::default()).unwrap();
    assert_eq!(page.report.node.unwrap().as_str(), "gpu012");
}

#[test]
fn invalid_flags_are_rejected_with_the_next_step() {
    let rejection = |args: &[&str]| {
        let output = run_sim(args);
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(
        rejection(&["--scenario", "meltdown"]),
        "gaunt-sim: no scenario is called \"meltdown\"; \
         choose one of demo, healthy, port_down, data_starved, storage_slow, slow_gpu, throttled, \
         launch_bound, leaf_congested, link_errors, hang, gpu_lost, checkpoint, \
         tour, or a case F1 to F19 or H1 to H16\n"
    );
    assert_eq!(
        rejection(&["--nodes", "64001"]),
        "gaunt-sim: --nodes is 64001; it must be between 1 and 64000\n"
    );
    assert_eq!(
        rejection(&["--nodes", "2", "--once", "gpu003"]),
        "gaunt-sim: no node is called \"gpu003\"; the nodes are gpu001 to gpu002\n"
    );
    let sim = GauntSimProcess::start_with_args(&["--nodes", "1"]);
    let port = sim.port.to_string();
    assert_eq!(
        rejection(&["--nodes", "1", "--listen-port", &port]),
        format!(
            "gaunt-sim: cannot listen on port {port}: it is in use; \
             stop what listens there, or pass another --listen-port\n"
        )
    );
}

#[test]
fn case_is_written_with_its_truth_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let args = ["--scenario", "F8", "--seed", "2", "--dialect", "dcgm", "--truth"];
    let written =
        run_sim(&[&args[..], &["--write", path, "--span", "4s", "--period", "2s"]].concat());
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let truth = std::fs::read_to_string(folder.path().join("truth.json")).unwrap();
    let truth: serde_json::Value = serde_json::from_str(&truth).unwrap();
    assert_eq!(truth[0]["kind"], "port_down");
    let printed = run_sim(&args);
    let printed: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(printed[0]["entity"], truth[0]["entity"], "the same seed gives the same truth");
    for (target, device) in [
        ("gpu001.dcgm", Device::new_gpu(0)),
        ("gpu001.node_exporter", Device::new_port("mlx5_0", "1")),
    ] {
        let pages = std::fs::read_dir(folder.path().join(target)).unwrap();
        let pages: Vec<_> = pages.map(|page| page.unwrap().path()).collect();
        assert_eq!(pages.len(), 2, "{target}");
        for page in pages {
            let body = std::fs::read(page).unwrap();
            let page = text::decode_page(&body, &text::PageLimits::default()).unwrap();
            assert_eq!(page.rejected.total_count(), 0, "{:?}", page.rejected);
            assert!(page.report.devices.contains(&device), "{target}");
        }
    }
}

#[test]
fn dialects_are_served_on_a_port_each() {
    let sim = GauntSimProcess::start_with_args(&[
        "--scenario",
        "healthy",
        "--nodes",
        "3",
        "--dialect",
        "dcgm",
    ]);
    let lists: Vec<_> = sim.line.trim().split(',').collect();
    assert_eq!(lists.len(), 2, "{}", sim.line);
    for (list, dialect) in lists.iter().zip([Dialect::Dcgm, Dialect::NodeExporter]) {
        let port = list.rsplit(':').next().unwrap().parse().unwrap();
        let mut stream = connect_to(Ipv4Addr::new(127, 1, 0, 2).into(), port);
        let (status, body) = get(&mut stream, "/metrics");
        let page = text::decode_page(&body, &text::PageLimits::default()).unwrap();
        assert_eq!((status, page.dialect, page.rejected.total_count()), (200, dialect, 0));
        assert_eq!(page.report.node.unwrap().as_str(), "gpu002");
    }
}

#[test]
fn page_ring_is_served_to_many_keep_alive_connections() {
    let sim =
        GauntSimProcess::start_with_args(&["--load", "--scenario", "healthy", "--nodes", "260"]);
    let page = |stream: &mut TcpStream| {
        let (status, body) = get(stream, "/metrics");
        let page = text::decode_page(&body, &text::PageLimits::default()).unwrap();
        assert_eq!((status, page.rejected.total_count()), (200, 0));
        page.report
    };
    // On both sides of the end of an address block.
    let nodes = || (0..6_usize).chain(247..253);
    let mut streams: Vec<_> = nodes()
        .map(|node| Ipv4Addr::new(127, 1, (node / 250) as u8, (node % 250 + 1) as u8))
        .map(|address| connect_to(address.into(), sim.port))
        .collect();
    let sent = |report: &gaunt_schema::Report| {
        report
            .find_reading(&Device::new_port("mlx5_3", "1"), port::TRANSMIT_BYTES)
            .unwrap()
            .value()
            .unwrap()
    };
    let first: Vec<_> = streams.iter_mut().map(page).collect();
    for (node, (stream, before)) in nodes().zip(streams.iter_mut().zip(&first)) {
        let now = page(stream);
        assert_eq!(now.node.as_deref(), Some(&*format!("gpu{:05}", node + 1)));
        assert!(sent(&now) > sent(before) && now.node_time >= before.node_time);
        let (status, _) = get(stream, "/nothing");
        assert_eq!(status, 404);
    }
    // Two pipelined requests give two answers.
    let stream = &mut streams[0];
    write!(stream, "GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    page(stream);
}

#[test]
fn too_few_open_files_are_named_with_the_way_out() {
    let program = program_path("gaunt-sim");
    let limited =
        format!("ulimit -n 64; exec {} --load --nodes 200 --listen-port 0", program.display());
    let output = Command::new("sh").args(["-c", &limited]).run_to_end();
    assert!(!output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    let last = stderr.lines().last().unwrap();
    assert_eq!(
        last,
        "gaunt-sim: 200 nodes need 232 open files and the hard limit is 64; raise it with \
         `ulimit -Hn 232` as root, or pass --nodes 32"
    );
}

#[test]
fn case_brings_its_own_fleet() {
    let refused = run_sim(&["--scenario", "F3", "--nodes", "4"]);
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && stderr.contains("leave out --nodes"), "{stderr}");
}
