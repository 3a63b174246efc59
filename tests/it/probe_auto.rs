//! Probes that nobody asks for: when they run, what they remember, and what gaunt-node shows of them.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{fs, process::Command};

use gaunt_schema::{Device, Reading, Report, catalogue::probe as rows, text};

use crate::{
    binaries::{fake_driver, program},
    probe::{Probe, Said, said},
    running::{Ends, Running, get, until},
};

/// One automatic probe; the host's time is the GPUs' here, hence the generous limits.
fn auto(probe: &Probe, more: &[&str]) -> Said {
    let state = probe.path("state");
    let mut command = probe.command(&["auto", "--state", state.to_str().unwrap()]);
    command.args(["--bytes", "64KiB", "--runs", "2", "--busy", "60s", "--within", "60s"]);
    said(&command.args(more).ended())
}

fn page(probe: &Probe) -> Report {
    let body = fs::read(probe.path("state/probe.prom")).unwrap();
    let page = text::decode(&body, &text::Limits::default()).unwrap();
    assert_eq!(page.rejected.total(), 0, "{:?}", page.rejected.first);
    page.report
}

fn value(report: &Report, device: &Device, metric: gaunt_schema::MetricId) -> Option<f64> {
    report.reading(device, metric).and_then(Reading::value)
}

#[test]
fn what_is_usual_is_learnt_and_a_drop_is_told() {
    let probe = Probe::on(2, "", "");
    let node = Device::node();
    for _ in 0..3 {
        assert_eq!(auto(&probe, &["--cool-down", "1ms"]).code, 0);
    }
    let ring = Device::probe("all_reduce", "gpu0..1");
    let report = page(&probe);
    assert!(value(&report, &ring, rows::BUS_BANDWIDTH).unwrap() > 1e9);
    assert_eq!(value(&report, &ring, rows::BASELINE_RATIO), None, "three are needed first");
    let pair = Device::probe("read", "gpu0>gpu1");
    assert!(value(&report, &pair, rows::BUS_BANDWIDTH).unwrap() > 1e9);
    assert_eq!(value(&report, &pair, rows::WRONG), Some(0.0));
    assert_eq!(value(&report, &node, rows::RUNS), Some(3.0));

    // The same node, and a link that became slow.
    let scenario = probe.path("scenario.toml");
    let slow = fs::read_to_string(&scenario).unwrap()
        + "[[cuda.link]]\nfrom = 0\nto = 1\ngigabytes_per_second = 4\n";
    fs::write(&scenario, slow).unwrap();
    let dropped = auto(&probe, &["--cool-down", "1ms"]);
    assert_eq!(dropped.code, 5, "{}", dropped.message());
    assert!(dropped.message().contains("% of what is usual here"), "{}", dropped.message());
    let report = page(&probe);
    assert!(value(&report, &pair, rows::BASELINE_RATIO).unwrap() < 0.5);
    let back = Device::probe("read", "gpu1>gpu0");
    assert!((value(&report, &back, rows::BASELINE_RATIO).unwrap() - 1.0).abs() < 0.01);
    assert_eq!(value(&report, &node, rows::LAST_CODE), Some(5.0));
}

#[test]
fn it_rests_and_counts_why() {
    let probe = Probe::on(2, "", "");
    let node = Device::node();
    assert_eq!(auto(&probe, &[]).code, 0);
    let resting = auto(&probe, &[]);
    assert_eq!(resting.code, 13, "{}", resting.message());
    assert!(resting.message().contains("s to wait"), "{}", resting.message());
    let spent = auto(&probe, &["--cool-down", "1ms", "--daily-busy", "1ms"]);
    assert_eq!((spent.code, &spent.answer["ending"]["reason"]), (13, &"budget".into()));
    let job = probe.path("job");
    fs::write(&job, "").unwrap();
    let taken = auto(&probe, &["--cool-down", "1ms", "--unless-exists", job.to_str().unwrap()]);
    assert_eq!(taken.code, 3, "{}", taken.message());
    let report = page(&probe);
    for metric in [rows::SKIPPED_COOL_DOWN, rows::SKIPPED_BUDGET, rows::SKIPPED_JOB] {
        assert_eq!(value(&report, &node, metric), Some(1.0), "{}", metric.key());
    }
    assert_eq!(value(&report, &node, rows::SKIPPED_PROCESS), Some(0.0));
    // What was measured before is still there, with its time.
    assert!(value(&report, &node, rows::LAST_RUN).is_some());
}

#[test]
fn gaunt_node_starts_it_and_shows_what_it_found() {
    let probe = Probe::on(2, "", "");
    let state = probe.path("state");
    assert_eq!(auto(&probe, &[]).code, 0);
    let settings = probe.path("node.toml");
    let text = format!(
        "[probe]\nevery = \"60s\"\nprogram = {:?}\nstate = {state:?}\n",
        program("gaunt-probe")
    );
    fs::write(&settings, text).unwrap();
    let mut command = Command::new(program("gaunt-node"));
    command.args(["--listen", "127.0.0.1:0", "--config"]).arg(&settings);
    command.arg("--nvml-library").arg(fake_driver());
    command.env("GAUNT_FAKE_DRIVER", probe.path("scenario.toml"));
    let node = Running::start(&mut command);
    let address = node.address();
    let page = until("the page shows the probe", || {
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
