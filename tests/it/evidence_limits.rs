//! Shown evidence passes its shown limit: at every second of every scenario, the numbers of each open warning prove it.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use gaunt::command::{
    demo_command::{DemoOptions, capture_reports},
    judge_command::VirtualRun,
};
use gaunt_api::{Answer, Question};
use gaunt_schema::{Dialect, Severity, UnixMs};
use gaunt_sim::{ScenarioRun, suite::FaultLevel};

/// 2025-10-09 13:41:51 UTC.
const START: UnixMs = UnixMs(1_760_017_311_000);

/// Nodes of a scenario without a fleet of its own.
const NODES: usize = 8;

/// Most faults that are listed.
const LISTED: usize = 20;

/// Plays a scenario until its fault is found; returns how many warnings were checked, and what was wrong with
/// their evidence.
fn play_scenario(name: &str, seed: u64, level: FaultLevel) -> (usize, Vec<String>) {
    let nodes = (!name.starts_with(['F', 'H'])).then_some(NODES);
    let run = ScenarioRun { name: name.to_owned(), nodes, seed, level, dialect: Dialect::Gaunt };
    let after = run.run_timing().unwrap().look;
    let scenario = name.to_owned();
    let options = DemoOptions { nodes, scenario, seed, level, snapshot_after: Some(after) };
    let (mut warned, mut faults) = (0, Vec::new());
    let observe = |second: u32, run: &mut VirtualRun| {
        let Answer::Findings(list) = run.answer_question(&Question::Findings) else {
            panic!("no list")
        };
        for finding in list.findings.iter().filter(|it| it.severity > Severity::Info) {
            warned += 1;
            let fault = finding.evidence_fault();
            faults.extend(fault.map(|it| format!("{name} {level:?}, second {second}: {it}")));
        }
    };
    capture_reports(&options, START, gaunt_engine::EngineOptions::default(), observe).unwrap();
    (warned, faults)
}

/// Plays scenarios; nearly all of them must warn, or nothing is checked.
#[track_caller]
fn check_evidence(names: &[&str], seed: u64, level: FaultLevel) {
    let mut quiet: Vec<&str> = Vec::new();
    for name in names {
        let (warned, faults) = play_scenario(name, seed, level);
        let listed = faults.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join("\n");
        assert!(faults.is_empty(), "{} times:\n{listed}", faults.len());
        quiet.extend((warned == 0).then_some(*name));
    }
    assert!(quiet.len() * 4 <= names.len(), "without a warning: {quiet:?}");
}

/// Scenarios of the demo.
const NAMED: [&str; 9] = [
    "data_starved",
    "storage_slow",
    "slow_gpu",
    "throttled",
    "launch_bound",
    "port_down",
    "link_errors",
    "hang",
    "gpu_lost",
];

/// Faults of links, of the network and of GPUs.
const DEVICES: [&str; 9] = ["F3", "F4", "F6", "F7", "F8", "F9", "F10", "F14", "F15"];

/// Faults of hosts, storage and the network, which are inferred.
const SHARED: [&str; 6] = ["F1", "F2", "F5", "F11", "F12", "F13"];

#[test]
fn evidence_of_named_scenarios_passes_its_limits() {
    check_evidence(&NAMED, 1, FaultLevel::Hard);
}

#[test]
fn evidence_of_hard_device_faults_passes_its_limits() {
    check_evidence(&DEVICES, 1, FaultLevel::Hard);
}

#[test]
fn evidence_of_mild_device_faults_passes_its_limits() {
    check_evidence(&DEVICES, 2, FaultLevel::Mild);
}

#[test]
fn evidence_of_hard_shared_faults_passes_its_limits() {
    check_evidence(&SHARED, 1, FaultLevel::Hard);
}

#[test]
fn evidence_of_mild_shared_faults_passes_its_limits() {
    check_evidence(&SHARED, 2, FaultLevel::Mild);
}
