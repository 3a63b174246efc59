//! Bench `captures`: what the screen shows for every fault and every harmless look-alike, as a documentation page.

use std::{io::Write, time::Duration};

use anyhow::Context;
use gaunt::command::demo_command::{DemoCapture, DemoOptions, capture_demo};
use gaunt_schema::Severity;
use gaunt_sim::{scenario_run, suite::FaultLevel};
use serde_json::json;

use crate::judge_bench::START;

/// The scenarios to capture: demo scenarios, then cases whose name says whether they are faults.
const CAPTURED_SCENARIOS: &[(&str, u64)] = &[
    ("data_starved", 1),
    ("storage_slow", 1),
    ("slow_gpu", 1),
    ("throttled", 1),
    ("launch_bound", 1),
    ("port_down", 1),
    ("link_errors", 1),
    ("leaf_congested", 1),
    ("hang", 1),
    ("gpu_lost", 1),
    ("F6", 1),
    ("F7", 1),
    ("healthy", 1),
    ("checkpoint", 1),
    ("H2", 1),
    ("H4", 1),
    ("H5", 1),
    ("H7", 1),
];

/// Nodes of a fleet: one full leaf switch and a second one.
const NODES: usize = 16;

/// Capture time: over a minute after the onset of a fault, so that the explanation is complete.
const CAPTURE_AFTER: Duration = Duration::from_secs(150);

/// Lines of a snapshot that are shown: the fleet, its findings, and the worst nodes.
const LINES: usize = 34;

pub(crate) fn run(out: &mut dyn Write) -> anyhow::Result<()> {
    let (mut named, mut quiet, mut faults) = (0, 0, 0);
    for (name, seed) in CAPTURED_SCENARIOS {
        // A case has its own size, and defines when it is captured.
        let is_case = name.starts_with(char::is_uppercase);
        let options = DemoOptions {
            nodes: (!is_case).then_some(NODES),
            scenario: (*name).to_owned(),
            seed: *seed,
            level: FaultLevel::Hard,
            snapshot_after: (!is_case).then_some(CAPTURE_AFTER),
        };
        let capture =
            capture_demo(&options, START, gaunt_engine::EngineOptions::default()).context(*name)?;
        let line = scenario_run::list_names()
            .find(|(other, _)| other == name)
            .map_or("", |(_, line)| line);
        write_section(name, line, &capture, out)?;
        faults += usize::from(!capture.truths.is_empty());
        if capture.truths.is_empty() {
            quiet += usize::from(count_warnings(&capture) == 0);
        } else {
            named += usize::from(is_kind_found(&capture));
        }
    }
    let row = json!({
        "bench": "captures",
        "faults": faults,
        "faults_named": named,
        "harmless": CAPTURED_SCENARIOS.len() - faults,
        "harmless_quiet": quiet,
    });
    writeln!(out, "{row}").context("cannot write")
}

fn write_section(
    name: &str,
    line: &str,
    capture: &DemoCapture,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let DemoCapture { page, truths, after, nodes, .. } = capture;
    let truth = truths.first().map_or_else(
        || "no fault".to_owned(),
        |truth| {
            format!(
                "{}, {}, since +{} s",
                truth.kind,
                truth.blamed,
                truth.onset.duration_since(START).as_secs()
            )
        },
    );
    writeln!(out, "### {name}: {line}\n")?;
    writeln!(
        out,
        "`gaunt demo --scenario {name} --snapshot-after {}s`, {nodes} nodes; truth: {truth}.\n",
        whole_seconds(*after)
    )?;
    let shown: Vec<&str> = page.lines().take(LINES).collect();
    writeln!(out, "```\n{}\n```\n", shown.join("\n").trim_end())?;
    Ok(())
}

fn whole_seconds(span: Duration) -> u64 {
    span.as_secs()
}

/// Whether the right kind was found on the right entity.
fn is_kind_found(capture: &DemoCapture) -> bool {
    capture.truths.iter().all(|truth| {
        capture.finding_log.all_episodes().iter().any(|episode| episode.finding.kind == truth.kind)
    })
}

/// Findings of a severity above info.
fn count_warnings(capture: &DemoCapture) -> usize {
    let is_warning = |worst: Severity| worst > Severity::Info;
    capture.finding_log.all_episodes().iter().filter(|episode| is_warning(episode.worst)).count()
}
