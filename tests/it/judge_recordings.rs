//! `gaunt judge` on recordings of simulated fleets and of foreign exporters.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{fs, path::Path, process::Output, time::Duration};

use gaunt_schema::{Dialect, UnixMs, text};
use gaunt_sim::{GroundTruth, Scenario, SimFleet, suite};
use serde_json::Value;

use crate::test_process::run_gaunt;

const START: UnixMs = UnixMs(1_760_017_311_000);

fn write_page(folder: &Path, target: &str, at: UnixMs, page: &str) {
    let folder = folder.join(target);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{}.prom", at.0)), page).unwrap();
}

/// Records a fleet of gaunt-nodes, a page a second; returns the ground truth.
fn record_fleet(folder: &Path, scenario: &str, nodes: usize, seconds: i64) -> Vec<GroundTruth> {
    let mut fleet = SimFleet::new(Scenario::from_name(scenario).unwrap(), nodes, 7, START);
    for second in 1..=seconds {
        let at = UnixMs(START.0 + second * 1_000);
        fleet.advance_to(at);
        for node in 0..fleet.node_count() {
            let mut page = String::new();
            text::write_text(&fleet.node_report(node), &mut page);
            // Each target is scraped at its own offset.
            let at = UnixMs(at.0 + node as i64 * 37);
            write_page(folder, fleet.node_name(node), at, &page);
        }
    }
    fleet.ground_truths().to_vec()
}

fn run_judge(folder: &Path, flags: &[&str]) -> Output {
    let args = [&["judge", "--from", folder.to_str().unwrap()], flags].concat();
    run_gaunt(&args)
}

fn judge_json(folder: &Path) -> Value {
    let output = run_judge(folder, &["--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn recorded_fault_is_found_with_its_opening_time() {
    let folder = tempfile::tempdir().unwrap();
    let truths = record_fleet(folder.path(), "port_down", 4, 75);
    let [truth] = truths.as_slice() else { panic!("{truths:?}") };
    let judgement = judge_json(folder.path());
    let [finding] = judgement["findings"].as_array().unwrap().as_slice() else {
        panic!("{judgement}")
    };
    assert_eq!(finding["finding"]["kind"], "port_down");
    assert_eq!(finding["finding"]["entity"]["node"], truth.blamed.node.as_ref().unwrap().as_str());
    let opened = UnixMs(finding["opened"].as_i64().unwrap());
    assert!(opened >= truth.onset, "{finding}");
    assert!(opened.duration_since(truth.onset) < Duration::from_secs(10), "{finding}");
    assert_eq!((&finding["closed"], &finding["worst"]), (&Value::Null, &"critical".into()));
    assert_eq!((&judgement["period_ms"], &judgement["targets"]), (&1_000.into(), &4.into()));
    assert_eq!(judgement["totals"]["scrapes"]["ok"], 4 * 75);

    let output = run_judge(folder.path(), &[]);
    let page = String::from_utf8(output.stdout).unwrap();
    let mut lines = page.lines();
    assert_eq!(
        lines.next().unwrap(),
        "gaunt judge  4 targets · 300 pages every 1 s · 2025-10-09 13:41:52 UTC to 2025-10-09 13:43:06 UTC (74 s)"
    );
    assert_eq!(lines.next().unwrap(), "FINDINGS     1");
    let line = lines.next().unwrap();
    for word in [" s to    the end  critical  port_down ", "mlx5_", "  confidence ", " GPUs lost"] {
        assert!(line.contains(word), "{word:?} in {page}");
    }
    assert!(lines.nth(1).unwrap().starts_with("             next: Check the cable"), "{page}");

    let from = folder.path().to_str().unwrap();
    let output = run_gaunt(&["explain", "port_down", "--from", from]);
    let page = String::from_utf8(output.stdout).unwrap();
    let end = page.lines().position(|line| line == "LIFECYCLE").unwrap();
    assert!(page.lines().nth(end + 1).unwrap().ends_with("opened        as critical"), "{page}");
    for word in
        ["\nEVIDENCE  ", "\nSIGNALS at ", ", peers: 7 other ports of its node\n", "\nRULED OUT  "]
    {
        assert!(page.contains(word), "{word:?} in {page}");
    }
}

#[test]
fn recording_of_foreign_exporters_is_judged_at_its_own_period() {
    let case = suite::list_cases(suite::SuiteSplit::Tune)
        .into_iter()
        .find(|case| case.scenario == "F8" && case.dialect == Dialect::Dcgm)
        .unwrap();
    let mut fleet = case.build_fleet(START);
    let truth = fleet.ground_truths()[0].clone();
    let folder = tempfile::tempdir().unwrap();
    let end = truth.onset.duration_since(START).as_secs() as i64 + 90;
    for second in (15..=end).step_by(15) {
        let at = UnixMs(START.0 + second * 1_000);
        fleet.advance_to(at);
        for node in 0..fleet.node_count() {
            for (dialect, page) in fleet.scraped_pages(node) {
                let target = format!("{}.{}", fleet.node_name(node), dialect.as_str());
                write_page(folder.path(), &target, at, &page);
            }
        }
    }
    let judgement = judge_json(folder.path());
    assert_eq!(judgement["period_ms"], 15_000);
    assert_eq!(judgement["targets"], 2 * fleet.node_count());
    assert_eq!(judgement["totals"]["rejected"], serde_json::json!({}));
    let blamed = truth.blamed.node.unwrap();
    let finding = judgement["findings"].as_array().unwrap().iter().find(|episode| {
        let finding = &episode["finding"];
        finding["kind"] == "port_down" && finding["entity"]["node"] == blamed.as_str()
    });
    let opened = finding.unwrap_or_else(|| panic!("{judgement}"))["opened"].as_i64().unwrap();
    assert!(UnixMs(opened).duration_since(truth.onset) <= Duration::from_mins(1), "{judgement}");
}

#[test]
fn target_with_invalid_pages_is_reported_as_down() {
    let folder = tempfile::tempdir().unwrap();
    let page = "gaunt_node_info{node=\"box\"} 1\ngaunt_node_cpus 64\n";
    for second in 0..30 {
        let at = UnixMs(START.0 + second * 1_000);
        write_page(folder.path(), "steady", at, &page.replace("box", "steady"));
        let body = if (10..20).contains(&second) { "" } else { page };
        write_page(folder.path(), "broken", at, body);
    }
    let judgement = judge_json(folder.path());
    let [down] = judgement["findings"].as_array().unwrap().as_slice() else {
        panic!("{judgement}")
    };
    assert_eq!(down["finding"]["kind"], "target_down");
    let opened = down["opened"].as_i64().unwrap() - START.0;
    let closed = down["closed"].as_i64().unwrap() - START.0;
    assert!((10_000..15_000).contains(&opened) && closed >= 20_000, "{down}");
    assert_eq!(judgement["totals"]["scrapes"]["not_a_page"], 10);
    let text = String::from_utf8(run_judge(folder.path(), &[]).stdout).unwrap();
    assert!(text.contains("\nfailed       10 pages: not_a_page\n"), "{text}");
    let from = folder.path().to_str().unwrap();
    let output = run_gaunt(&["explain", "--from", from]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.starts_with("target_down  box\nwarning · closed at "), "{page}");
    assert!(page.contains("  closed        the target answers again\n"), "{page}");
}

#[test]
fn missing_or_empty_recording_ends_with_3() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let none = run_gaunt(&["judge", "--from", root]);
    assert_eq!(none.status.code(), Some(3));
    assert_eq!(
        String::from_utf8(none.stderr).unwrap(),
        format!("gaunt: no pages in {root}; expected {root}/TARGET/UNIX_MS.prom\n")
    );
    assert_eq!(run_gaunt(&["judge"]).status.code(), Some(3));
    assert_eq!(run_gaunt(&["judge", "--from", "/nowhere"]).status.code(), Some(3));
}

#[test]
fn recording_of_the_last_release_is_judged() {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/release-0.1.0/recording");
    let judgement = judge_json(&folder);
    let findings = judgement["findings"].as_array().unwrap();
    let kinds: Vec<_> = findings.iter().map(|finding| &finding["finding"]["kind"]).collect();
    assert_eq!(kinds, ["port_down"], "{judgement}");
}
