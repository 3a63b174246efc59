//! A real Prometheus scrapes a node and the aggregator: it accepts every line, and has the same values.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{collections::BTreeMap, fmt::Write as _, fs, process::Command};

use serde_json::Value;

use crate::{
    binaries::{fake_driver, program_path},
    test_process::{TestProcess, check_with_promtool, debian_program, free_port, get, wait_for},
};

/// Status and body of the answer to an instant query.
pub(crate) fn send_query(server: &str, expression: &str) -> Option<(u16, String)> {
    let mut escaped = String::new();
    for byte in expression.bytes() {
        write!(escaped, "%{byte:02X}").unwrap();
    }
    get(server, &format!("/api/v1/query?query={escaped}"))
}

/// The result of an instant query: labels and value.
pub(crate) fn query_instant(
    prometheus: &str,
    expression: &str,
) -> Vec<(BTreeMap<String, String>, f64)> {
    let Some((200, body)) = send_query(prometheus, expression) else {
        return Vec::new();
    };
    let json: Value = serde_json::from_str(&body).unwrap();
    let row = |row: &Value| {
        let labels = row["metric"].as_object().unwrap().iter();
        let labels = labels.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
        (labels.collect(), row["value"][1].as_str().unwrap().parse().unwrap())
    };
    json["data"]["result"].as_array().unwrap().iter().map(row).collect()
}

/// The value of the one series of an expression.
pub(crate) fn query_value(prometheus: &str, expression: &str) -> f64 {
    let found = query_instant(prometheus, expression);
    assert_eq!(found.len(), 1, "{expression}: {found:?}");
    found[0].1
}

/// Starts Prometheus with these scrape jobs, once a second; it runs until the returned value is dropped.
pub(crate) fn start_prometheus(jobs: &str) -> (String, (TestProcess, tempfile::TempDir)) {
    start_with_config(&format!("global: {{scrape_interval: 1s}}\nscrape_configs:\n{jobs}"))
}

/// The same with this whole configuration.
pub(crate) fn start_with_config(settings: &str) -> (String, (TestProcess, tempfile::TempDir)) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("prometheus.yml");
    fs::write(&config, settings).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let running = TestProcess::start_command(
        debian_program("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}")),
    );
    (address, (running, folder))
}

#[test]
fn prometheus_reads_a_node_and_the_aggregator() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/scenarios/eight.toml");
    let mut command = Command::new(program_path("gaunt-node"));
    command.args(["--listen", "127.0.0.1:0", "--node", "node-a", "--nvml-library"]);
    let node =
        TestProcess::start_command(command.arg(fake_driver()).env("GAUNT_FAKE_DRIVER", scenario));
    let node_address = node.served_address();
    wait_for("the driver's values", || {
        get(&node_address, "/metrics").filter(|(_, page)| page.contains("gaunt_gpu_power_watts{"))
    });
    // Nothing listens at the second target, so that the page has a target that is down.
    let aggregator =
        TestProcess::start_aggregator(&["--targets", &format!("{node_address},127.0.0.1:1")]);
    let aggregator_address = aggregator.served_address();
    // Prometheus scrapes nothing in its first five seconds; the finding opens meanwhile.
    let (prometheus, _running) = start_prometheus(&format!(
        "- {{job_name: node, static_configs: [{{targets: ['{node_address}']}}]}}\n\
         - {{job_name: gaunt, honor_labels: true, static_configs: [{{targets: ['{aggregator_address}']}}]}}\n"
    ));
    wait_for("the finding of the target that is down", || {
        get(&aggregator_address, "/metrics").filter(|(_, page)| page.contains("gaunt_finding{"))
    });
    check_with_promtool(&get(&node_address, "/metrics").unwrap().1);
    check_with_promtool(&get(&aggregator_address, "/metrics").unwrap().1);

    wait_for("both targets are up", || {
        (query_instant(&prometheus, "up == 1").len() == 2).then_some(())
    });
    wait_for("Prometheus has read the finding", || {
        let finding = query_instant(&prometheus, "gaunt_finding{kind=\"target_down\"}");
        (finding.len() == 1).then_some(())
    });
    // Values of the scenario, and of a fleet of one node with 8 GPUs and one target that is down.
    for (expression, expected) in [
        ("gaunt_gpu_power_watts{gpu=\"0\"}", 612.301),
        ("gaunt_gpu_power_watts{gpu=\"1\"}", 613.412),
        ("gaunt_gpu_energy_joules_total{gpu=\"1\"}", 9_876_544_210.001),
        ("gaunt_gpu_sm_clock_hertz{gpu=\"2\"}", 1.95e9),
        ("count(gaunt_gpu_utilization_ratio)", 8.0),
        ("gaunt_targets{state=\"live\"}", 1.0),
        ("gaunt_targets{state=\"down\"}", 1.0),
        ("gaunt_target_up{node=\"node-a\"}", 1.0),
        ("gaunt_target_up{target=\"127.0.0.1:1\"}", 0.0),
        ("sum(gaunt_gpus)", 8.0),
        ("count(gaunt_gpu_state{node=\"node-a\"})", 8.0),
        ("gaunt_finding{kind=\"target_down\"}", 1.0),
        ("gaunt_build_info", 1.0),
    ] {
        assert_eq!(
            query_value(&prometheus, expression).to_string(),
            expected.to_string(),
            "{expression}"
        );
    }
    let scraped = |outcome| {
        query_value(&prometheus, &format!("gaunt_scrapes_total{{outcome=\"{outcome}\"}}"))
    };
    assert!(scraped("ok") >= 1.0 && scraped("connect") >= 2.0);
}
