//! Faults and harmless look-alikes in virtual time: the demo names faults, and has no findings for look-alikes.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    collections::BTreeMap,
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use gaunt::command::{
    demo_command::{DemoCapture, DemoOptions, capture_reports},
    judge_command::{FindingEpisode, VirtualRun},
};
use gaunt_api::{Answer, Explanation, Question};
use gaunt_schema::{Dialect, Entity, Severity, UnixMs};
use gaunt_sim::{GroundTruth, ScenarioRun, suite::FaultLevel};

/// 2025-10-09 13:41:51 UTC.
const START: UnixMs = UnixMs(1_760_017_311_000);

/// Time of the check: over a minute after the onset of a fault, so that the explanation is complete.
const SNAPSHOT_AFTER: Duration = Duration::from_secs(150);

/// Sampling interval of explanations in seconds: their texts change with their numbers.
const SAMPLE_S: u32 = 10;

/// Name and number of nodes.
type ScenarioKey = (&'static str, Option<usize>);

/// A scenario, simulated once for all tests of this program.
pub(crate) struct SimulatedScenario {
    capture: DemoCapture,
    /// Explanations of all open findings at every tenth second and at the end.
    pub(crate) explanations: Vec<Explanation>,
}

/// The scenario of this name, simulated by the first test that needs it.
pub(crate) fn simulated_scenario(
    scenario: &'static str,
    nodes: Option<usize>,
) -> &'static SimulatedScenario {
    static SIMULATED: Mutex<BTreeMap<ScenarioKey, &OnceLock<SimulatedScenario>>> =
        Mutex::new(BTreeMap::new());
    let mut simulated = SIMULATED.lock().unwrap_or_else(PoisonError::into_inner);
    let cell =
        *simulated.entry((scenario, nodes)).or_insert_with(|| Box::leak(Box::new(OnceLock::new())));
    drop(simulated);
    cell.get_or_init(|| simulate_scenario(scenario, nodes))
}

/// Simulates a scenario until the time of the check; a case with a delayed finding until that is open.
fn simulate_scenario(scenario: &str, nodes: Option<usize>) -> SimulatedScenario {
    let (name, seed, level) = (scenario.to_owned(), 1, FaultLevel::Hard);
    let run = ScenarioRun { name, nodes, seed, level, dialect: Dialect::Gaunt };
    let after = run.run_timing().unwrap().look.max(SNAPSHOT_AFTER);
    let scenario = scenario.to_owned();
    let options = DemoOptions { nodes, scenario, seed, level, snapshot_after: Some(after) };
    let mut explanations = Vec::new();
    let observe = |second: u32, virtual_run: &mut VirtualRun| {
        if second.is_multiple_of(SAMPLE_S) || u64::from(second) == after.as_secs() {
            explanations.extend(explain_findings(virtual_run));
        }
    };
    let engine_options = gaunt_engine::EngineOptions::default();
    let capture = capture_reports(&options, START, engine_options, observe).unwrap();
    SimulatedScenario { capture, explanations }
}

/// Explanations of all open findings.
fn explain_findings(virtual_run: &mut VirtualRun) -> Vec<Explanation> {
    let Answer::Findings(list) = virtual_run.answer_question(&Question::Findings) else {
        panic!("no list")
    };
    let explain = |finding: &gaunt_api::Finding| match virtual_run
        .answer_question(&Question::Finding(finding.id.clone()))
    {
        Answer::Finding(explanation) => (*explanation).clone(),
        _ => panic!("{} is not explained", finding.id),
    };
    list.findings.iter().map(explain).collect()
}

/// Whether both entities have the same key; jobs count only where there is nothing else.
fn is_same_entity(a: &Entity, b: &Entity) -> bool {
    let key = |e: &Entity| {
        (
            e.node.clone(),
            e.gpu.clone(),
            e.device.clone(),
            e.port.clone(),
            e.leaf.clone(),
            e.rail.clone(),
        )
    };
    let has_empty_key = key(a) == key(&Entity::new(a.kind));
    a.kind == b.kind && key(a) == key(b) && (!has_empty_key || a.job == b.job)
}

fn names_fault(episode: &FindingEpisode, truth: &GroundTruth) -> bool {
    let finding = &episode.finding;
    let kind = finding.kind == truth.kind || truth.kinds.contains(&finding.kind);
    kind && std::iter::once(&truth.blamed)
        .chain(&truth.also)
        .any(|blamed| is_same_entity(blamed, &finding.entity))
}

/// The finding is open at the check, the page shows it first, and no other entity is blamed by a warning.
fn check_named(scenario: &'static str, nodes: usize) {
    let capture = &simulated_scenario(scenario, Some(nodes)).capture;
    let truth = capture.truths.first().unwrap_or_else(|| panic!("{scenario} has no fault"));
    let open: Vec<&FindingEpisode> = capture
        .finding_log
        .all_episodes()
        .iter()
        .filter(|episode| episode.closed.is_none())
        .collect();
    let named = open.iter().find(|episode| names_fault(episode, truth));
    let named =
        named.unwrap_or_else(|| panic!("{:?} is not named in\n{}", truth.blamed, capture.page));
    assert!(named.finding.life.opened >= truth.onset, "{scenario}: {:?}", named.finding);
    let line =
        format!("{:<9} {:<16} ", named.finding.severity.as_str(), named.finding.kind.as_str());
    let lines: Vec<&str> = capture.page.lines().collect();
    let heading = lines.iter().position(|line| line.starts_with("FINDINGS")).unwrap();
    assert!(lines[heading + 1].starts_with(&line), "{line:?} is not first in\n{}", capture.page);
    for other in capture.finding_log.all_episodes().iter().filter(|e| e.worst == Severity::Critical)
    {
        let follows = truth.follows.iter().any(|(kind, entity)| {
            other.finding.kind == *kind && is_same_entity(entity, &other.finding.entity)
        });
        assert!(names_fault(other, truth) || follows, "{scenario}: {} pages too", other.finding.id);
    }
    if nodes == CAPTURED_NODES {
        check_captured(scenario, &capture.page);
    }
}

/// The page of a scenario without a fault is the captured one.
fn check_calm_capture(scenario: &'static str) {
    check_captured(scenario, &simulated_scenario(scenario, Some(CAPTURED_NODES)).capture.page);
}

/// Nothing is wrong, and there is no finding that needs attention.
fn check_quiet(scenario: &'static str, nodes: usize) {
    let capture = &simulated_scenario(scenario, Some(nodes)).capture;
    assert!(capture.truths.is_empty(), "{scenario} has a fault");
    let raised = capture.finding_log.all_episodes().iter().filter(|e| e.worst > Severity::Info);
    let raised: Vec<&str> = raised.map(|episode| episode.finding.id.as_str()).collect();
    assert_eq!(raised, [""; 0], "{scenario}\n{}", capture.page);
}

/// Output of `gaunt-bench captures` for each scenario.
const CAPTURES: &str = include_str!("../../exporters/sim/CAPTURES.md");

/// Nodes of the captured fleets, and lines shown of each.
const CAPTURED_NODES: usize = 16;
const CAPTURED_LINES: usize = 34;

/// The screen still matches its capture.
fn check_captured(scenario: &str, page: &str) {
    let shown: Vec<&str> = page.lines().take(CAPTURED_LINES).collect();
    let shown = shown.join("\n");
    let shown = shown.trim_end();
    let heading = format!("### {scenario}: ");
    assert!(CAPTURES.contains(&heading), "{scenario} is not in exporters/sim/CAPTURES.md");
    assert!(
        CAPTURES.contains(shown),
        "exporters/sim/CAPTURES.md is not current; regenerate it with `gaunt-bench captures`:\n{shown}"
    );
}

macro_rules! scenario_tests {
    ($($test:ident: $how:ident($($what:expr),+);)*) => {
        $(
            #[test]
            fn $test() {
                $how($($what),+);
            }
        )*
    };
}

scenario_tests! {
    slow_loader_is_named: check_named("data_starved", CAPTURED_NODES);
    slow_storage_is_named: check_named("storage_slow", 8);
    slow_gpu_is_named: check_named("slow_gpu", 8);
    hot_gpu_is_named: check_named("throttled", 8);
    slowly_launching_host_is_named: check_named("launch_bound", 8);
    port_down_is_named: check_named("port_down", CAPTURED_NODES);
    bad_cable_is_named: check_named("link_errors", 8);
    congested_leaf_is_named: check_named("leaf_congested", CAPTURED_NODES);
    hung_job_is_named: check_named("hang", 8);
    lost_gpu_is_named: check_named("gpu_lost", 8);
    healthy_fleet_is_quiet: check_quiet("healthy", 8);
    checkpoints_are_quiet: check_quiet("checkpoint", CAPTURED_NODES);
    calm_job_matches_its_capture: check_calm_capture("checkpoint");
}
