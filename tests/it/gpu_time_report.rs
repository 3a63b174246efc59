//! `gaunt report`: GPU time, energy and cost from a recording and from a running aggregator.

use std::{fs, process::Command};

use serde_json::Value;

use crate::{
    binaries::program_path,
    fleet_snapshot::SimulatorProcess,
    test_process::{RunToEnd, TestProcess, get, run_gaunt, wait_for},
};

/// GPUs of four nodes.
const GPUS: f64 = 32.0;

fn as_number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn report_of_a_recording_is_exact_to_the_second_and_the_cent() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("pages");
    let mut sim = Command::new(program_path("gaunt-sim"));
    sim.args(["--nodes", "4", "--scenario", "data_starved", "--span", "60s", "--write"]);
    assert!(sim.arg(&pages).run_to_end().status.success());
    let from = pages.to_str().unwrap();
    let report = |flags: &[&str]| {
        let mut args = vec!["report", "--from", from, "--price", "*H100*=2.50", "--co2", "0.4"];
        args.extend(flags);
        let output = run_gaunt(&args);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        String::from_utf8(output.stdout).unwrap()
    };
    let json: Value = serde_json::from_str(&report(&["--format", "json"])).unwrap();
    let total = &json["total"];
    let (watched, hours) = (as_number(&json["watched_seconds"]), as_number(&total["gpu_hours"]));
    assert!((50.0..=62.0).contains(&watched), "{watched}");
    assert!((hours - watched * GPUS / 3_600.0).abs() < hours * 0.05, "{hours} in {watched} s");
    assert!((as_number(&total["cost"]) - hours * 2.5).abs() < 1e-9, "{total}");
    let kwh = as_number(&total["energy_kwh"]);
    // GPUs of 700 W that compute or busy-wait.
    assert!((0.1..=0.7).contains(&(kwh / hours)), "{kwh} kWh in {hours} h");
    assert!((as_number(&total["co2_kg"]) - kwh * 0.4).abs() < 1e-9);
    assert!(as_number(&total["lost_gpu_hours"]) > 0.0, "somebody starved");
    let states: Vec<_> =
        json["by_state"].as_array().unwrap().iter().map(|sum| &sum["of"]).collect();
    assert!(states.iter().any(|state| *state == "data_starved"), "{states:?}");
    for part in ["by_state", "by_job", "by_user", "by_model", "rows"] {
        let sums = json[part].as_array().unwrap().iter().map(|sum| as_number(&sum["gpu_hours"]));
        assert!((sums.sum::<f64>() - hours).abs() < 1e-9, "{part} is not the whole");
    }
    let lost = as_number(&total["lost_gpu_hours"]);
    let causes = json["by_cause"].as_array().unwrap();
    let sums = causes.iter().map(|sum| as_number(&sum["lost_gpu_hours"]));
    assert!((sums.sum::<f64>() - lost).abs() < 1e-9, "what was lost has a cause each");
    assert!(causes.iter().any(|sum| sum["of"] == "data_starved"), "{causes:?}");
    let mira = json["by_user"].as_array().unwrap().iter().any(|sum| sum["of"] == "mira");
    assert!(mira, "{}", json["by_user"]);

    let csv = report(&["--format", "csv"]);
    let mut lines = csv.lines();
    let head = lines.next().unwrap();
    assert_eq!(
        head,
        "job,name,user,account,model,state,lost,cause,gpu_hours,energy_kwh,cost,currency,co2_kg,lost_gpu_hours,cluster"
    );
    let csv_hours: f64 =
        lines.map(|line| line.split(',').nth(8).unwrap().parse::<f64>().unwrap()).sum();
    assert!((csv_hours - hours).abs() < 1e-9);
    let text = report(&[]);
    assert!(text.contains("\nSTATE") && text.contains("\nUSER") && text.contains("USD"), "{text}");
}

#[test]
fn jobs_of_a_recording_come_from_the_file_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, jobs) = (folder.path().join("pages"), folder.path().join("jobs.json"));
    let mut sim = Command::new(program_path("gaunt-sim"));
    sim.args(["--nodes", "2", "--scenario", "healthy", "--span", "20s", "--write"]);
    assert!(sim.arg(&pages).run_to_end().status.success());
    let job = r#"{"jobs":[{"job_id":48211,"job_state":["RUNNING"],"account":"vision","nodes":"gpu[001-002]"}]}"#;
    fs::write(&jobs, job).unwrap();
    let from = ["report", "--format", "json", "--from", pages.to_str().unwrap()];
    let report = |flags: &[&str]| -> Value {
        let output = run_gaunt(&[&from[..], flags].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    assert_eq!(report(&[])["by_job"][0]["account"], Value::Null);
    let named = report(&["--jobs", jobs.to_str().unwrap()]);
    assert_eq!(named["by_job"][0]["account"], "vision", "{named}");
    for (source, why) in [(&["--aggregator", "x:1"][..], "cannot be used with"), (&[], "--from")] {
        let live = run_gaunt(&[&["report", "--jobs", "jobs.json"], source].concat());
        assert!(String::from_utf8_lossy(&live.stderr).contains(why), "{live:?}");
    }
}

#[test]
fn report_of_an_aggregator_covers_what_it_watched() {
    let sim = SimulatorProcess::start_healthy(2);
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("gaunt.toml");
    let prices = "[cluster]\nprice_per_gpu_hour = 3.0\ncurrency = \"EUR\"\n\
                  [[report.prices]]\nmodel = \"NVIDIA*\"\nper_gpu_hour = 2.0\n";
    fs::write(&settings, prices).unwrap();
    let arguments = ["--config", settings.to_str().unwrap(), "--targets", &sim.list];
    let aggregator = TestProcess::start_aggregator(&arguments);
    let address = aggregator.served_address();
    wait_for("GPU time is counted", || {
        let (_, body) = get(&address, "/api/gaunt/v1/usage?last=5m")?;
        let usage: Value = serde_json::from_str(&body).ok()?;
        let has_time = |row: &Value| row["gpu_seconds"].as_f64() > Some(0.0);
        usage["rows"].as_array()?.iter().any(has_time).then_some(())
    });
    let args = ["report", "--aggregator", &address, "--last", "5m", "--format", "json"];
    let report = |price: &[&str]| -> Value {
        serde_json::from_slice(&run_gaunt(&[&args[..], price].concat()).stdout).unwrap()
    };
    for (price, currency, amount) in [(&[][..], "EUR", 2.0), (&["--price", "5"][..], "USD", 5.0)] {
        let report = report(price);
        let (hours, cost) = (&report["total"]["gpu_hours"], &report["total"]["cost"]);
        assert!(as_number(hours) > 0.0, "{report}");
        assert!((as_number(cost) - amount * as_number(hours)).abs() < 1e-9, "{report}");
        assert_eq!(report["currency"], currency);
    }
    let output = run_gaunt(&["report", "--aggregator", &address, "--price", "cheap"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains("MODEL=2.50"), "{stderr}");
}
