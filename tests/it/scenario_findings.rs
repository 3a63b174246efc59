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
const LOOK: Duration = Duration::from_secs(150);

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
    let place = |e: &Entity| {
        (
            e.node.clone(),
            e.gpu.clone(),
            e.device.clone(),
            e.port.clone(),
            e.leaf.clone(),
            e.rail.clone(),
        )
    };
    let bare = place(a) == place(&Entity::new(a.kind));
    a.kind == b.kind && place(a) == place(b) && (!bare || a.job == b.job)
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
    let seen = capture_scenario(scenario, Some(nodes), Some(LOOK));
    let truth = seen.truths.first().unwrap_or_else(|| panic!("{scenario} has no fault"));
    let open: Vec<&FindingEpisode> =
        seen.finding_log.all_episodes().iter().filter(|episode| episode.closed.is_none()).collect();
    let named = open.iter().find(|episode| names_fault(episode, truth));
    let named =
        named.unwrap_or_else(|| panic!("{:?} is not named in\n{}", truth.blamed, seen.page));
    assert!(named.finding.life.opened >= truth.onset, "{scenario}: {:?}", named.finding);
    let line =
        format!("{:<9} {:<16} ", named.finding.severity.as_str(), named.finding.kind.as_str());
    let lines: Vec<&str> = seen.page.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("FINDINGS")).unwrap();
    assert!(lines[at + 1].starts_with(&line), "{line:?} is not first in\n{}", seen.page);
    for other in seen.finding_log.all_episodes().iter().filter(|e| e.worst == Severity::Critical) {
        let follows = truth.follows.iter().any(|(kind, entity)| {
            other.finding.kind == *kind && is_same_entity(entity, &other.finding.entity)
        });
        assert!(names_fault(other, truth) || follows, "{scenario}: {} pages too", other.finding.id);
    }
}

/// Nothing is wrong, and there is no finding that needs attention.
fn check_quiet(scenario: &str, nodes: Option<usize>) {
    let seen = capture_scenario(scenario, nodes, None);
    assert!(seen.truths.is_empty(), "{scenario} has a fault");
    let loud = seen.finding_log.all_episodes().iter().filter(|e| e.worst > Severity::Info);
    let loud: Vec<&str> = loud.map(|episode| episode.finding.id.as_str()).collect();
    assert_eq!(loud, [""; 0], "{scenario}\n{}", seen.page);
}

/// Output of `gaunt-bench captures` for each scenario.
const CAPTURES: &str = include_str!("../../exporters/sim/CAPTURES.md");

/// Nodes of the captured fleets, and lines shown of each.
const CAPTURED_NODES: usize = 16;
const CAPTURED_LINES: usize = 34;

/// The screen still matches its capture.
fn check_captured(scenario: &str) {
    let page = capture_scenario(scenario, Some(CAPTURED_NODES), Some(LOOK)).page;
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
    a_slow_loader_is_named: check_named("data_starved", 8);
    slow_storage_is_named: check_named("storage_slow", 8);
    a_slow_gpu_is_named: check_named("slow_gpu", 8);
    a_hot_gpu_is_named: check_named("throttled", 8);
    a_host_that_launches_too_slowly_is_named: check_named("launch_bound", 8);
    a_port_that_is_down_is_named: check_named("port_down", 8);
    a_bad_cable_is_named: check_named("link_errors", 8);
    a_congested_leaf_is_named: check_named("leaf_congested", 16);
    a_job_that_hangs_is_named: check_named("hang", 8);
    a_gpu_that_is_lost_is_named: check_named("gpu_lost", 8);
    a_healthy_fleet_is_quiet: check_quiet("healthy", Some(8));
    checkpoints_are_quiet: check_quiet("checkpoint", Some(8));
    a_dead_port_is_as_captured: check_captured("port_down");
    a_starving_host_is_as_captured: check_captured("data_starved");
    a_calm_job_is_as_captured: check_captured("checkpoint");
}
