//! Automatic probes: when they run, the baselines that they save, and what gaunt-node shows of them.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{fs, process::Command};

use gaunt_schema::{Device, Reading, Report, catalogue::probe_results as rows, text};

use crate::{
    binaries::{fake_driver, program_path},
    probe_program::{ProbeFixture, ProbeOutput, parse_output},
    test_process::{RunToEnd, TestProcess, get, wait_for},
};

/// One automatic probe; GPU time is host time here, hence the generous limits.
fn run_auto(probe: &ProbeFixture, flags: &[&str]) -> ProbeOutput {
    let state = probe.file_path("state");
    let mut command = probe.probe_command(&["auto", "--state", state.to_str().unwrap()]);
    command.args(["--bytes", "64KiB", "--runs", "2", "--busy", "60s", "--within", "60s"]);
    parse_output(&command.args(flags).run_to_end())
}

fn read_page(probe: &ProbeFixture) -> Report {
    let body = fs::read(probe.file_path("state/probe.prom")).unwrap();
    let page = text::decode_page(&body, &text::PageLimits::default()).unwrap();
    assert_eq!(page.rejected.total_count(), 0, "{:?}", page.rejected.first);
    page.report
}

fn reading_value(report: &Report, device: &Device, metric: gaunt_schema::MetricId) -> Option<f64> {
    report.find_reading(device, metric).and_then(Reading::value)
}

#[test]
fn baseline_is_learned_and_a_drop_is_reported() {
    let probe = ProbeFixture::with_gpus(2, "", "");
    let node = Device::new_node();
    for _ in 0..3 {
        assert_eq!(run_auto(&probe, &["--cool-down", "1ms"]).code, 0);
    }
    let ring = Device::new_probe("all_reduce", "gpu0..1");
    let report = read_page(&probe);
    assert!(reading_value(&report, &ring, rows::BUS_BANDWIDTH).unwrap() > 1e9);
    assert_eq!(
        reading_value(&report, &ring, rows::BASELINE_RATIO),
        None,
        "the baseline needs three"
    );
    let pair = Device::new_probe("read", "gpu0>gpu1");
    assert!(reading_value(&report, &pair, rows::BUS_BANDWIDTH).unwrap() > 1e9);
    assert_eq!(reading_value(&report, &pair, rows::WRONG), Some(0.0));
    assert_eq!(reading_value(&report, &node, rows::RUNS), Some(3.0));

    // The same node with a slow link.
    let scenario = probe.file_path("scenario.toml");
    let slow = fs::read_to_string(&scenario).unwrap()
        + "[[cuda.link]]\nfrom = 0\nto = 1\ngigabytes_per_second = 4\n";
    fs::write(&scenario, slow).unwrap();
    let dropped = run_auto(&probe, &["--cool-down", "1ms"]);
    assert_eq!(dropped.code, 5, "{}", dropped.ending_message());
    assert!(dropped.ending_message().contains("% of its baseline"), "{}", dropped.ending_message());
    let report = read_page(&probe);
    assert!(reading_value(&report, &pair, rows::BASELINE_RATIO).unwrap() < 0.5);
    let reverse = Device::new_probe("read", "gpu1>gpu0");
    assert!((reading_value(&report, &reverse, rows::BASELINE_RATIO).unwrap() - 1.0).abs() < 0.01);
    assert_eq!(reading_value(&report, &node, rows::LAST_CODE), Some(5.0));
}

#[test]
fn skipped_runs_are_counted_by_reason() {
    let probe = ProbeFixture::with_gpus(2, "", "");
    let node = Device::new_node();
    assert_eq!(run_auto(&probe, &[]).code, 0);
    let cooling_down = run_auto(&probe, &[]);
    assert_eq!(cooling_down.code, 13, "{}", cooling_down.ending_message());
    assert!(
        cooling_down.ending_message().contains("the cool-down ends in"),
        "{}",
        cooling_down.ending_message()
    );
    let over_budget = run_auto(&probe, &["--cool-down", "1ms", "--daily-busy", "1ms"]);
    assert_eq!((over_budget.code, &over_budget.answer["ending"]["reason"]), (13, &"budget".into()));
    let job = probe.file_path("job");
    fs::write(&job, "").unwrap();
    let with_job =
        run_auto(&probe, &["--cool-down", "1ms", "--unless-exists", job.to_str().unwrap()]);
    assert_eq!(with_job.code, 3, "{}", with_job.ending_message());
    let report = read_page(&probe);
    for metric in [rows::SKIPPED_COOL_DOWN, rows::SKIPPED_BUDGET, rows::SKIPPED_JOB] {
        assert_eq!(reading_value(&report, &node, metric), Some(1.0), "{}", metric.series_key());
    }
    assert_eq!(reading_value(&report, &node, rows::SKIPPED_PROCESS), Some(0.0));
    // The earlier measurement is still present, with its time.
    assert!(reading_value(&report, &node, rows::LAST_RUN).is_some());
}

#[test]
fn gaunt_node_starts_the_probe_and_shows_its_results() {
    let probe = ProbeFixture::with_gpus(2, "", "");
    let state = probe.file_path("state");
    assert_eq!(run_auto(&probe, &[]).code, 0);
    let settings = probe.file_path("node.toml");
    let text = format!(
        "[probe]\nevery = \"60s\"\nprogram = {:?}\nstate = {state:?}\n",
        program_path("gaunt-probe")
    );
    fs::write(&settings, text).unwrap();
    let mut command = Command::new(program_path("gaunt-node"));
    command.args(["--listen", "127.0.0.1:0", "--config"]).arg(&settings);
    command.arg("--nvml-library").arg(fake_driver());
    command.env("GAUNT_FAKE_DRIVER", probe.file_path("scenario.toml"));
    let node = TestProcess::start_command(&mut command);
    let address = node.served_address();
    let page = wait_for("the page shows the probe", || {
        let (_, page) = get(&address, "/metrics")?;
        page.contains("gaunt_probe_busbw_bytes_per_second{").then_some(page)
    });
    for line in [
        "gaunt_probe_busbw_bytes_per_second{collective=\"all_reduce\",between=\"gpu0..1\"} ",
        "gaunt_probe_skipped_total{reason=\"process\"} 0",
        "gaunt_probe_last_run_timestamp_seconds ",
        "gaunt_collector_success{collector=\"probe\"} 1",
    ] {
        assert!(page.contains(line), "{line} is missing from\n{page}");
    }
}
