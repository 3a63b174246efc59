//! Verdicts in real stores: Prometheus takes every sample, and VictoriaMetrics those of a killed aggregator.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    acknowledgement_access::fetch_json,
    alerting_end_to_end::FourPortNode,
    binaries::{fake_driver, program_path},
    prometheus_scrape::{query_instant, query_value},
    test_process::{
        NO_LATENCY, TestProcess, debian_program, free_port, get, start_victoria, wait_for,
        wait_within,
    },
    victoria_metrics::drop_filter_cache,
};

/// Settings of an aggregator that writes to `url` each second.
fn write_settings(folder: &tempfile::TempDir, url: &str, level: &str) -> String {
    let path = folder.path().join("gaunt.toml");
    let text = format!(
        "[cluster]\nname = \"hall-1\"\n[serve]\nstate_folder = \"state\"\n\
         [store]\nurl = \"{url}\"\nevery = \"1s\"\nlevel = \"{level}\"\n"
    );
    fs::write(&path, text).expect("a temporary folder can be written");
    path.display().to_string()
}

/// The network by leaf and rail is stored, and the port that is not active.
fn check_network(prometheus: &str) {
    let of_fabric = "sum(gaunt_fabric_ports) == 4 and sum(gaunt_fabric_active_ports) == 3";
    wait_for("the ports", || query_instant(prometheus, of_fabric).pop());
    let flagged = wait_for("the port that is down", || {
        query_instant(prometheus, "gaunt_flagged_port_state == 1").pop()
    });
    assert_eq!((&*flagged.0["node"], &*flagged.0["device"]), ("node-b", "mlx5_1"));
}

#[test]
fn prometheus_stores_the_verdicts() {
    let folder = tempfile::tempdir().unwrap();
    let prometheus = format!("127.0.0.1:{}", free_port());
    let config = folder.path().join("prometheus.yml");
    fs::write(&config, "scrape_configs: []\n").unwrap();
    let _store = TestProcess::start_command(
        debian_program("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg("--web.enable-remote-write-receiver")
            .arg(format!("--web.listen-address={prometheus}")),
    );
    wait_for("the store", || get(&prometheus, "/-/ready").filter(|(status, _)| *status == 200));

    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/scenarios/eight.toml");
    let mut command = Command::new(program_path("gaunt-node"));
    command.args(["--listen", "127.0.0.1:0", "--node", "node-a", "--nvml-library"]);
    let node =
        TestProcess::start_command(command.arg(fake_driver()).env("GAUNT_FAKE_DRIVER", scenario));
    let settings = write_settings(&folder, &format!("http://{prometheus}/api/v1/write"), "screens");
    let ports = FourPortNode::start_node("node-b");
    ports.set_link(1, false);
    let targets = format!("{},{},127.0.0.1:1", node.served_address(), ports.address);
    let aggregator = TestProcess::start_aggregator(&["--config", &settings, "--targets", &targets]);
    let gaunt = aggregator.served_address();

    wait_for("the states of all GPUs", || {
        let states = query_instant(
            &prometheus,
            "gaunt_gpu_state_code{cluster=\"hall-1\", job=\"gaunt\", node=\"node-a\"}",
        );
        (states.len() == 8).then_some(())
    });
    let finding = wait_for("the finding", || {
        query_instant(&prometheus, "gaunt_finding{kind=\"target_down\"}").pop()
    });
    assert_eq!(finding.0["cluster"], "hall-1");
    assert!(!finding.0.contains_key("instance"), "{finding:?}");
    check_network(&prometheus);
    let counters =
        query_instant(&prometheus, "{__name__=~\"gaunt_.+_total\", node=\"\"} or gaunt_gpu_state");
    assert!(counters.is_empty(), "two writers cannot share a counter: {counters:?}");
    assert!((query_value(&prometheus, "gaunt_targets{state=\"live\"}") - 2.0).abs() < f64::EPSILON);
    let grid = query_value(&prometheus, "timestamp(gaunt_lost_gpus) % 1");
    assert!(grid.abs() < 1e-9, "instants are on the grid: {grid}");

    let (_, page) = get(&gaunt, "/metrics").unwrap();
    let sent = page.lines().find(|line| line.starts_with("gaunt_store_sent_samples_total "));
    assert!(sent.is_some_and(|line| !line.ends_with(" 0")), "{page}");
    assert!(!page.contains("gaunt_store_refused_samples_total"), "every sample is taken:\n{page}");
    assert!(
        page.contains("gaunt_store_dropped_samples_total{reason=\"backlog_full\"} 0"),
        "{page}"
    );

    // What it wrote is its history after a kill, read from the same store.
    // Old enough to be told from what is scraped after the restart.
    let power = "time() - timestamp(gaunt_gpu_power_watts{node=\"node-a\",gpu=\"0\"}) > 4";
    // Those of screens are written once a minute.
    let limit = Duration::from_mins(2);
    wait_within(limit, "a metric with history", || query_instant(&prometheus, power).pop());
    aggregator.send_signal(Signal::KILL);
    drop(aggregator);
    let killed_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let restarted = TestProcess::start_aggregator(&["--config", &settings, "--targets", &targets]);
    let gaunt = restarted.served_address();
    restarted.line_with("read the history from the store");
    let query = "history?metric=power&points=900&filter=node%3Dnode-a%20and%20gpu%3D0";
    let before = wait_for("history from before the kill", || {
        let history = fetch_json(&gaunt, query);
        let (at, means) = (history["at"].as_i64()?, history["mean"].as_array()?);
        let age = |index: usize| (means.len() - 1 - index) as i64 * 1_000;
        let first = means.iter().position(|mean| !mean.is_null())?;
        (at - age(first) < killed_at - 2_000).then(|| means[first].as_f64())
    });
    assert!(before.is_some_and(|watts| watts > 0.0), "{before:?}");
}

/// Requests, and steps of the window that is not full, in the folder of a backlog.
fn count_steps(folder: &Path) -> (usize, usize) {
    let (mut requests, mut steps) = (0, 0);
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry of the folder").path();
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("rw") => requests += 1,
            Some("window") => {
                let bytes = fs::read(&path).unwrap_or_default();
                let mut rest = bytes.get(4..).unwrap_or_default();
                while let Some((length, others)) = rest.split_first_chunk::<4>() {
                    let end = 4 + u32::from_le_bytes(*length) as usize;
                    let Some(others) = others.get(end..) else { break };
                    (rest, steps) = (others, steps + 1);
                }
            }
            _ => {}
        }
    }
    (requests, steps)
}

#[test]
fn samples_of_a_killed_aggregator_arrive_when_the_store_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("127.0.0.1:{}", free_port());
    let settings = write_settings(&folder, &format!("http://{store}/api/v1/write"), "verdicts");
    let arguments = ["--config", &settings, "--targets", "127.0.0.1:1"];
    let killed = TestProcess::start_aggregator(&arguments);
    let gaunt = killed.served_address();
    // A request waits a moment before its first try has failed.
    wait_for("requests that wait and have failed", || {
        let (_, page) = get(&gaunt, "/metrics")?;
        let counts = ["gaunt_store_waiting_bytes ", "gaunt_store_failed_requests_total "];
        let is_counted = |name: &str| {
            let line = page.lines().find(|line| line.starts_with(name));
            line.is_some_and(|line| !line.ends_with(" 0"))
        };
        counts.into_iter().all(is_counted).then_some(())
    });
    let backlog = folder.path().join("state/store");
    wait_for("a step of the next window", || (count_steps(&backlog).1 > 0).then_some(()));
    killed.send_signal(Signal::KILL);
    drop(killed);
    let (requests, steps) = count_steps(&backlog);
    assert!(requests > 0 && steps > 0, "{requests} requests and {steps} steps are on disk");
    let killed_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;

    let _store = start_victoria(folder.path(), &store, &[NO_LATENCY]);
    let restarted = TestProcess::start_aggregator(&arguments);
    restarted.served_address();
    let instants = wait_for("samples of both runs", || {
        drop_filter_cache(&store);
        let (_, body) = get(&store, "/api/v1/export?match[]=gaunt_lost_gpus")?;
        let series: Value = serde_json::from_str(body.lines().next()?).ok()?;
        let instants = series["timestamps"].as_array()?.iter().filter_map(Value::as_i64);
        Some(instants.collect::<Vec<_>>()).filter(|instants| instants.len() >= 8)
    });
    assert!(instants.is_sorted_by(|one, next| one < next), "{instants:?}");
    // All that was on disk arrives: a kill costs at most the step that was being written.
    let before = instants.iter().filter(|at| **at < killed_at).count();
    assert_eq!(before, requests * 4 + steps, "{instants:?}, killed at {killed_at}");
    assert!(instants.iter().all(|at| at % 1_000 == 0), "{instants:?}");
}
