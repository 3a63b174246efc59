//! Faults and harmless look-alikes in virtual time: the demo names faults, and has no findings for look-alikes.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::time::Duration;

use gaunt::command::{
    demo_command::{DemoCapture, DemoOptions, capture_demo},
    judge_command::FindingEpisode,
};
use gaunt_schema::{Entity, Severity, UnixMs};
use gaunt_sim::{GroundTruth, suite::FaultLevel};

/// 2025-10-09 13:41:51 UTC.
const START: UnixMs = UnixMs(1_760_017_311_000);

/// Time of the check: over a minute after the onset of a fault, so that the explanation is complete.
const SNAPSHOT_AFTER: Duration = Duration::from_secs(150);

fn capture_scenario(
    scenario: &str,
    nodes: Option<usize>,
    snapshot_after: Option<Duration>,
) -> DemoCapture {
    let (scenario, level) = (scenario.to_owned(), FaultLevel::Hard);
    let options = DemoOptions { nodes, scenario, seed: 1, level, snapshot_after };
    capture_demo(&options, START, gaunt_engine::EngineOptions::default()).unwrap()
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
fn check_named(scenario: &str, nodes: usize) {
    let capture = capture_scenario(scenario, Some(nodes), Some(SNAPSHOT_AFTER));
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

/// The same of a scenario without a fault.
fn check_calm_capture(scenario: &str) {
    let page = capture_scenario(scenario, Some(CAPTURED_NODES), Some(SNAPSHOT_AFTER)).page;
    check_captured(scenario, &page);
}

/// Nothing is wrong, and there is no finding that needs attention.
fn check_quiet(scenario: &str, nodes: Option<usize>) {
    let capture = capture_scenario(scenario, nodes, None);
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
    healthy_fleet_is_quiet: check_quiet("healthy", Some(8));
    checkpoints_are_quiet: check_quiet("checkpoint", Some(8));
    calm_job_matches_its_capture: check_calm_capture("checkpoint");
}
