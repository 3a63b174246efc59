//! A hung job whose rank NCCL's RAS names: gaunt serve asks gaunt-node, which asks the job.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    binaries::program_path,
    node_program::NodeProcess,
    test_process::{TestProcess, get},
};

/// Time limit for a hang to be found: its baseline is learned first, and RAS is asked twice, ten seconds apart.
const FOUND_WITHIN: Duration = Duration::from_mins(3);

/// The pages that each node serves before its job hangs: at five a second, twice as long as a baseline is learned.
const BUSY_PAGES: usize = 80;

/// The address of the first node in the state of RAS.
const ADDRESS: &str = "10.1.0.7";

/// The state of a job of four ranks on two nodes, of which one launched an operation less than the others.
fn job_state() -> String {
    let rank = |rank: u64| {
        json!({
            "rank": rank, "host": if rank < 2 { ADDRESS } else { "10.1.0.8" }, "pid": 4_000 + rank,
            "cuda_dev": rank % 2, "nvml_dev": rank % 2, "status": {"init_state": 0, "async_error": 0},
            "collective_counts": {"AllReduce": if rank == 1 { 41 } else { 42 }, "Broadcast": 3},
        })
    };
    let communicator = json!({
        "hash": "0xae94423cfbb2ef4a", "secondary_hash": "0xb7:0xb8", "size": 4,
        "ranks": (0..4).map(rank).collect::<Vec<_>>(), "missing_ranks": [],
    });
    json!({"nccl_version": "2.29.3", "communicators_count": 1, "communicators": [communicator]})
        .to_string()
}

/// Serves NCCL's RAS protocol, and reports every command.
fn serve_ras() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (send, commands) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let send = send.clone();
            thread::spawn(move || answer_commands(stream, &send));
        }
    });
    (address, commands)
}

fn answer_commands(mut stream: TcpStream, commands: &Sender<String>) {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        let answer = match line.as_str() {
            "VERBOSE STATUS" => job_state(),
            line if line.starts_with("CLIENT PROTOCOL ") => "SERVER PROTOCOL 2\n".to_owned(),
            "SET FORMAT json" | "MONITOR all" | "TIMEOUT 5" => "OK\n".to_owned(),
            line => format!("ERROR: Unknown command {line}\n"),
        };
        let is_status = line == "VERBOSE STATUS";
        // The test may have ended.
        _ = commands.send(line);
        if stream.write_all(answer.as_bytes()).is_err() || is_status {
            return;
        }
    }
}

/// A dcgm-exporter of two GPUs that compute and, after some pages, busy-wait.
fn serve_gpus(node: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for (nth, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let (mut stream, mut head, mut byte) = (stream, Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            // A page that does not change at all would be taken for a stale one.
            let activity = if nth < BUSY_PAGES { 0.4 } else { 0.0 } + (nth % 7) as f64 * 1e-4;
            let body = gpu_page(node, activity);
            _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

fn gpu_page(node: &str, activity: f64) -> String {
    let line = |gpu: u32, name: &str, value: f64| {
        format!(
            "{name}{{gpu=\"{gpu}\",UUID=\"GPU-{node}-{gpu}\",Hostname=\"{node}\",hpc_job=\"8812\"}} {value}\n"
        )
    };
    let gpu = |gpu: u32| {
        [
            line(gpu, "DCGM_FI_DEV_GPU_UTIL", 100.0),
            line(gpu, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", activity),
            line(gpu, "DCGM_FI_PROF_SM_ACTIVE", activity),
            line(gpu, "DCGM_FI_DEV_POWER_USAGE", 400.0 + activity),
        ]
    };
    (0..2).flat_map(gpu).collect()
}

/// gaunt-node of the first node: it has this node's address, and reads RAS alone.
fn start_node(folder: &Path, ras: &str) -> NodeProcess {
    let network = folder.join("proc/1/net");
    fs::create_dir_all(&network).unwrap();
    fs::write(network.join("fib_trie"), format!("  |-- {ADDRESS}\n     /32 host LOCAL\n")).unwrap();
    let config = folder.join("node.toml");
    fs::write(
        &config,
        format!("period = \"200ms\"\nnode = \"ash\"\n[ras]\nenabled = true\naddress = \"{ras}\"\n"),
    )
    .unwrap();
    let off = "cpu,memory,pressure,tasks,disks,mounts,sensors,energy,netdev,ethernet,ports,amd,kubelet,nvml";
    let mut command = Command::new(program_path("gaunt-node"));
    command.args(["--disable", off]).arg("--config").arg(config);
    command.arg("--proc-root").arg(folder.join("proc"));
    NodeProcess::run(command)
}

fn start_aggregator(folder: &Path, targets: &str) -> TestProcess {
    let config = folder.join("gaunt.toml");
    let settings =
        "[gather]\nperiod = \"200ms\"\n[judge]\nusual_learned_seconds = 5.0\nhung_seconds = 4.0\n";
    fs::write(&config, settings).unwrap();
    TestProcess::start_aggregator(&["--config", config.to_str().unwrap(), "--targets", targets])
}

/// Waits for the finding about the hang that names a rank, until it pages: RAS answers after it opened.
fn wait_for_hang(aggregator: &str) -> Value {
    let end = Instant::now() + FOUND_WITHIN;
    let mut last = String::new();
    while Instant::now() < end {
        if let Some((200, body)) = get(aggregator, "/api/gaunt/v1/findings") {
            let answer: Value = serde_json::from_str(&body).unwrap();
            let findings = answer["findings"].as_array().unwrap();
            let is_named = |finding: &&Value| {
                finding["kind"] == "collective_hang"
                    && finding["severity"] == "critical"
                    && finding["summary"].as_str().unwrap().contains("of communicator")
            };
            if let Some(found) = findings.iter().find(is_named) {
                return found.clone();
            }
            last = body;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("no finding names a rank: {last}");
}

#[test]
fn finding_about_a_hung_job_names_the_rank_that_ras_states() {
    let folder = tempfile::tempdir().unwrap();
    let (ras, commands) = serve_ras();
    let node = start_node(folder.path(), &ras);
    let (ash, birch) = (serve_gpus("ash"), serve_gpus("birch"));
    let targets = format!("ash={},ash={ash},birch={birch}", node.address);
    let aggregator = start_aggregator(folder.path(), &targets);
    let hang = wait_for_hang(&aggregator.served_address());
    let summary = hang["summary"].as_str().unwrap();
    let expected = "rank 1 of communicator 0xae94423cfbb2ef4a on ash · GPU 1 launched 41 of 42 AllReduce, 3 ranks waiting.";
    assert!(summary.ends_with(expected), "{summary}");
    assert_eq!(hang["id"], "collective_hang/8812");
    let entity = json!({"type": "gpu", "node": "ash", "gpu": "1", "job": "8812"});
    assert_eq!(hang["entity"], entity, "{hang}");
    assert!(
        hang["next"].as_str().unwrap().starts_with("Inspect process 4001 of ash · GPU 1"),
        "{hang}"
    );
    // The job was asked for nothing but events and its status.
    let commands: Vec<String> = commands.try_iter().collect();
    let known =
        ["CLIENT PROTOCOL 2", "TIMEOUT 5", "MONITOR all", "SET FORMAT json", "VERBOSE STATUS"];
    assert!(commands.iter().all(|command| known.contains(&command.as_str())), "{commands:?}");
    assert!(commands.iter().any(|command| command == "MONITOR all"), "{commands:?}");
    let statuses = commands.iter().filter(|command| *command == "VERBOSE STATUS");
    assert!(statuses.count() >= 2, "two states are compared: {commands:?}");
}
