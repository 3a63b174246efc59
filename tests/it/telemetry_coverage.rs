//! `gaunt doctor` and the answer `coverage`: what is missing of a simulated fleet, and the next step for it.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use serde_json::{Value, json};

use crate::{
    fleet_snapshot::SimulatorProcess,
    test_process::{TestProcess, get, run_gaunt, wait_for},
};

/// The answer of an aggregator, once it is as expected.
fn wait_for_coverage(address: &str, is_expected: impl Fn(&Value) -> bool) -> Value {
    wait_for("the coverage is as expected", || {
        let (_, body) = get(address, "/api/gaunt/v1/coverage")?;
        let coverage: Value = serde_json::from_str(&body).unwrap();
        is_expected(&coverage).then_some(coverage)
    })
}

fn check_of<'a>(coverage: &'a Value, kind: &str) -> &'a Value {
    let checks = coverage["checks"].as_array().unwrap();
    checks.iter().find(|check| check["kind"] == kind).unwrap_or(&Value::Null)
}

/// Runs a command against an aggregator: its exit code and its output.
fn run_against(address: &str, args: &[&str]) -> (Option<i32>, String) {
    let output = run_gaunt(&[args, &["--aggregator", address]].concat());
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// Whether every check that applies to a fleet with ports and jobs is there, each with this state.
fn has_states(coverage: &Value, states: &[(&str, &str)]) -> bool {
    coverage["checks"].as_array().unwrap().len() == 13
        && states.iter().all(|(kind, state)| check_of(coverage, kind)["state"] == *state)
}

#[test]
fn doctor_names_nodes_without_a_host_page_and_the_next_step() {
    let args = ["--nodes", "4", "--scenario", "healthy", "--dialect", "dcgm", "--node-port", "0"];
    let sim = SimulatorProcess::start_with_args(&args);
    // The first node has a page of its GPUs, and none of its host.
    let (gpus, hosts) = sim.list.split_once(',').unwrap();
    let targets = format!("{gpus},{}", hosts.replace("[1-4]", "[2-4]"));
    let aggregator = TestProcess::start_aggregator(&["--targets", &targets]);
    let address = aggregator.served_address();
    let missing = [
        ("targets", "ok"),
        ("host_metrics", "missing"),
        ("joined_nodes", "ok"),
        ("pressure_metrics", "ok"),
        ("exporter_fields", "ok"),
        ("profiling_counters", "ok"),
        ("port_metrics", "missing"),
        ("rails", "missing"),
        ("leaves", "missing"),
    ];
    let coverage = wait_for_coverage(&address, |coverage| {
        has_states(coverage, &missing) && check_of(coverage, "rails")["total"] == 24
    });
    let check = check_of(&coverage, "host_metrics");
    assert_eq!((&check["known"], &check["total"]), (&json!(3), &json!(4)), "{check}");
    assert_eq!(check["missing"], json!(["gpu001"]), "{check}");
    let (code, page) = run_against(&address, &["doctor"]);
    assert_eq!(code, Some(1), "{page}");
    for line in [
        "ok       all 7 targets are read\n",
        "missing  1 of 4 nodes with GPUs has no host metrics: CPU, memory and IO of the host are \
         unknown\n         gpu001\n         → Run node_exporter or gaunt-node there, or give both ",
        "missing  24 of 24 active RDMA ports have no known rail: ports with equal device numbers ",
        "\n4 of 13 checks miss something.\n",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    let (code, page) = run_against(&address, &["doctor", "--format", "json"]);
    let coverage: Value = serde_json::from_str(&page).unwrap();
    assert_eq!((code, &check_of(&coverage, "host_metrics")["state"]), (Some(1), &json!("missing")));
}

#[test]
fn doctor_ends_with_0_where_nothing_is_missing() {
    let sim = SimulatorProcess::start_healthy(4);
    let aggregator = TestProcess::start_aggregator(&["--targets", &sim.list]);
    let address = aggregator.served_address();
    let is_measured = |group: &Value| group["renewal_seconds"].is_number();
    let coverage = wait_for_coverage(&address, |coverage| {
        let groups = coverage["intervals"].as_array().unwrap();
        let known = coverage["checks"].as_array().unwrap();
        known.len() == 13
            && known.iter().all(|check| check["state"] == "ok")
            && groups.len() >= 3
            && groups.iter().all(is_measured)
    });
    let origins = &check_of(&coverage, "leaves")["origins"];
    assert_eq!(origins[0]["origin"], "pages of the nodes", "{coverage}");
    let (code, page) = run_against(&address, &["doctor"]);
    assert_eq!(code, Some(0), "{page}");
    assert!(page.starts_with("ok       all 4 targets are read\n"), "{page}");
    assert!(page.ends_with("\nNothing is missing in 13 checks.\n"), "{page}");
    let (code, page) = run_against(&address, &["snapshot", "--ask", "coverage"]);
    assert_eq!(code, Some(0), "{page}");
    assert!(page.starts_with("CHECK               STATE  KNOWN  TOTAL  STATED_BY"), "{page}");
    assert!(page.contains("\ngaunt     GPUs        "), "{page}");
}
