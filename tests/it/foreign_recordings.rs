//! `gaunt judge` on recordings of dcgm-exporter and node_exporter with names, sizes and periods unlike the simulator's.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::path::Path;

use serde_json::Value;

use crate::{
    foreign_site::{
        BAD_CABLE, FEEDING, ForeignGpuActivity, ForeignHostActivity, ForeignSite, IDLE, QUIET,
        START_MS, TRAINING, WAITING, bad_link_activity, slow_clock_activity, write_page,
    },
    test_process::run_gaunt,
};

/// The findings of a recording: kind, entity as text, worst severity, seconds until it was opened.
fn judged_findings(folder: &Path) -> Vec<(String, String, String, i64)> {
    judge_with(&["--from", folder.to_str().unwrap()])
}

/// The same of any source.
pub(crate) fn judge_with(source: &[&str]) -> Vec<(String, String, String, i64)> {
    let output = run_gaunt(&[&["judge", "--format", "json"], source].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let judgement: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(judgement["totals"]["rejected"], serde_json::json!({}));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let summarise = |episode: &Value| {
        let finding = &episode["finding"];
        let entity = &finding["entity"];
        let parts = ["job", "leaf", "rail", "node", "gpu", "device"];
        let parts: Vec<_> = parts.iter().filter_map(|part| entity[part].as_str()).collect();
        let opened = (episode["opened"].as_i64().unwrap() - START_MS) / 1_000;
        (text(&finding["kind"]), parts.join("/"), text(&episode["worst"]), opened)
    };
    judgement["findings"].as_array().unwrap().iter().map(summarise).collect()
}

/// Asserts that one finding exists, and that no other entity is blamed.
fn check_finding(folder: &Path, kind: &str, entity: &str, within: std::ops::Range<i64>) {
    let found = judged_findings(folder);
    let matching = found.iter().find(|row| row.0 == kind && row.1 == entity);
    let Some((_, _, worst, opened)) = matching else { panic!("no {kind} of {entity}: {found:?}") };
    assert!(worst == "critical", "{found:?}");
    assert!(within.contains(opened), "{found:?}");
    let others = found.iter().filter(|row| row.1 != entity && row.2 != "info");
    assert_eq!(others.count(), 0, "{found:?}");
}

#[test]
fn slow_gpu_is_found_as_compute_straggler() {
    let site = ForeignSite {
        nodes: vec!["r07-c12", "r07-c14", "r08-c01", "r08-c03", "r09-c11"],
        gpus: 7,
        period: 10,
        job: Some("llm.sweep-0044"),
        profiled: false,
        model: "NVIDIA A100-SXM4-40GB",
    };
    let folder = tempfile::tempdir().unwrap();
    site.write_recording(folder.path(), 420, |second, node, gpu| {
        slow_clock_activity(second, (node, gpu) == (3, 5))
    });
    check_finding(folder.path(), "compute_straggler", "r08-c03/5", 240..345);
}

#[test]
fn slow_loader_is_found_as_data_starved() {
    let site = ForeignSite {
        nodes: vec!["trn-a", "trn-bb", "trn-ccc", "trn-d"],
        gpus: 4,
        period: 15,
        job: Some("vision"),
        profiled: true,
        model: "NVIDIA H100 PCIe",
    };
    let folder = tempfile::tempdir().unwrap();
    site.write_recording(folder.path(), 480, |second, node, _| match (second >= 270, node) {
        (true, 1) => (
            ForeignHostActivity { io: 0.55, gigabytes: 2.0, ..FEEDING },
            ForeignGpuActivity { busy: 48.0, tensor: 0.19, watts: 200.0, ..TRAINING },
        ),
        (true, _) => (
            ForeignHostActivity { gigabytes: 2.0, ..FEEDING },
            ForeignGpuActivity { busy: 98.0, tensor: 0.19, watts: 210.0, ..TRAINING },
        ),
        _ => (FEEDING, ForeignGpuActivity { watts: 300.0, ..TRAINING }),
    });
    check_finding(folder.path(), "data_starved", "trn-bb", 270..390);
}

#[test]
fn slow_storage_of_all_nodes_is_found_as_storage_slow() {
    let site = ForeignSite {
        nodes: vec!["n1", "n2", "n3", "n4", "n5", "n6"],
        gpus: 4,
        period: 30,
        job: Some("77123"),
        profiled: true,
        model: "NVIDIA A100-SXM4-80GB",
    };
    let folder = tempfile::tempdir().unwrap();
    site.write_recording(folder.path(), 900, |second, _, _| {
        if second < 450 {
            return (FEEDING, TRAINING);
        }
        (
            ForeignHostActivity { io: 0.45, gigabytes: 2.4, ..FEEDING },
            ForeignGpuActivity { busy: 55.0, tensor: 0.21, watts: 230.0, ..TRAINING },
        )
    });
    check_finding(folder.path(), "storage_slow", "", 450..600);
}

#[test]
fn bad_cable_is_found_as_link_errors_and_port_rate_low() {
    let (site, folder) = (ForeignSite::of_one_job(), tempfile::tempdir().unwrap());
    site.write_recording(folder.path(), 480, |second, node, _| {
        bad_link_activity(second, (node == 2).then_some(BAD_CABLE))
    });
    check_finding(folder.path(), "link_errors", "hgx03/ibp65s0", 240..330);

    let folder = tempfile::tempdir().unwrap();
    let slow_port = ForeignHostActivity { gigabits: 100.0, ..FEEDING };
    site.write_recording(folder.path(), 480, |second, node, _| {
        bad_link_activity(second, (node == 0).then_some(slow_port))
    });
    check_finding(folder.path(), "port_rate_low", "hgx01/ibp65s0", 240..300);
}

#[test]
fn hung_collective_is_found_without_profiling_counters() {
    for job in [Some("4711"), None] {
        let site = ForeignSite {
            nodes: vec!["west-3", "west-4", "west-9", "west-21"],
            gpus: 4,
            period: 15,
            job,
            profiled: false,
            model: "NVIDIA A100-SXM4-40GB",
        };
        let folder = tempfile::tempdir().unwrap();
        site.write_recording(folder.path(), 600, |second, node, gpu| {
            match (second >= 300, (node, gpu)) {
                (true, (2, 1)) => (QUIET, ForeignGpuActivity { busy: 0.0, watts: 92.0, ..WAITING }),
                (true, _) => (QUIET, WAITING),
                _ => (FEEDING, TRAINING),
            }
        });
        let found = judged_findings(folder.path());
        let hangs: Vec<_> = found.iter().filter(|(kind, ..)| kind == "collective_hang").collect();
        let [(_, id, worst, opened)] = hangs.as_slice() else { panic!("{job:?}: {found:?}") };
        assert_eq!((worst.as_str(), job.unwrap_or(id)), ("critical", id.as_str()), "{found:?}");
        assert!((360..450).contains(opened), "{found:?}");
        assert!(
            found.iter().all(|(kind, _, worst, _)| kind == "collective_hang" || worst == "info")
        );
    }
}

#[test]
fn hot_gpu_is_found_as_throttled() {
    let site = ForeignSite {
        nodes: vec!["gpu-17.hall2.example", "gpu-18.hall2.example"],
        gpus: 7,
        period: 15,
        job: Some("ft-9"),
        profiled: true,
        model: "NVIDIA H100 80GB HBM3",
    };
    let folder = tempfile::tempdir().unwrap();
    site.write_recording(folder.path(), 420, |second, node, gpu| {
        match (second >= 240, (node, gpu)) {
            // Hardware slowdown, thermal.
            (true, (0, 6)) => (
                FEEDING,
                ForeignGpuActivity {
                    megahertz: 690.0,
                    celsius: 91.0,
                    reasons: 0x48,
                    watts: 260.0,
                    ..TRAINING
                },
            ),
            (true, _) => (FEEDING, ForeignGpuActivity { tensor: 0.22, watts: 240.0, ..TRAINING }),
            _ => (FEEDING, TRAINING),
        }
    });
    check_finding(folder.path(), "throttled", "gpu-17.hall2.example/6", 240..300);
}

#[test]
fn checkpoints_evaluation_and_job_end_raise_no_finding() {
    for (period, profiled) in [(10, true), (15, false), (30, true)] {
        let site = ForeignSite {
            nodes: vec!["a1", "a2", "a3", "a4", "a5"],
            gpus: 4,
            period,
            job: Some("steady"),
            profiled,
            model: "NVIDIA A100-SXM4-80GB",
        };
        let folder = tempfile::tempdir().unwrap();
        site.write_recording(folder.path(), 1_500, |second, node, _| match second {
            // All are idle while each writes; then all wait for the first to write.
            300..360 => (
                ForeignHostActivity { io: 0.4, ..QUIET },
                ForeignGpuActivity { busy: 0.0, watts: 90.0, ..WAITING },
            ),
            700..790 if node == 0 => (
                ForeignHostActivity { io: 0.5, ..QUIET },
                ForeignGpuActivity { busy: 0.0, ..WAITING },
            ),
            700..790 => (QUIET, WAITING),
            1_000..1_120 => (
                ForeignHostActivity { gigabytes: 0.1, ..FEEDING },
                ForeignGpuActivity { busy: 91.0, tensor: 0.05, watts: 240.0, ..TRAINING },
            ),
            1_350.. => (QUIET, IDLE),
            _ => (FEEDING, TRAINING),
        });
        let found = judged_findings(folder.path());
        let flags = found.iter().filter(|(_, _, worst, _)| worst != "info");
        assert_eq!(flags.count(), 0, "each {period} s: {found:?}");
    }
}

/// The page of a model server.
fn model_server_page(waiting: f64, running: f64, answered: f64) -> String {
    let labels = "{engine=\"0\",model_name=\"acme/chat-13b\"}";
    format!(
        "vllm:num_requests_running{labels} {running}\nvllm:num_requests_waiting{labels} {waiting}\n\
         vllm:request_success_total{{engine=\"0\",finished_reason=\"stop\",model_name=\"acme/chat-13b\"}} {answered}\n"
    )
}

#[test]
fn full_queue_beside_idle_gpus_is_a_finding_and_no_requests_are_none() {
    for stuck in [false, true] {
        let site = ForeignSite {
            nodes: vec!["serve-01", "serve-02"],
            gpus: 4,
            period: 15,
            job: None,
            profiled: true,
            model: "NVIDIA L40S",
        };
        let folder = tempfile::tempdir().unwrap();
        let has_requests = |second: i64, node: usize| (second / 45 + node as i64) % 6 == 0;
        let is_stuck = |second: i64, node: usize| stuck && node == 1 && second >= 600;
        site.write_recording(folder.path(), 1_200, |second, node, _| {
            let idle = ForeignGpuActivity { busy: 0.0, watts: 80.0, megahertz: 2_400.0, ..IDLE };
            let serves = has_requests(second, node) && !is_stuck(second, node);
            let load = if serves {
                ForeignGpuActivity { busy: 70.0, tensor: 0.04, watts: 210.0, ..idle }
            } else {
                idle
            };
            (QUIET, load)
        });
        for (node, name) in site.nodes.iter().enumerate() {
            for second in (15..=1_200).step_by(15) {
                let blocked = is_stuck(second, node);
                let waiting = if blocked { 37.0 } else { 0.0 };
                let running = f64::from(has_requests(second, node) && !blocked);
                let answered = if blocked { 600 } else { second } as f64 * 2.0;
                let at = START_MS + second * 1_000 + 313;
                write_page(
                    folder.path(),
                    &format!("{name}:8000"),
                    at,
                    &model_server_page(waiting, running, answered),
                );
            }
        }
        let found = judged_findings(folder.path());
        let flags: Vec<_> = found.iter().filter(|(_, _, worst, _)| worst != "info").collect();
        match (stuck, flags.as_slice()) {
            (false, []) => {}
            (true, [(kind, id, worst, opened)]) => {
                assert_eq!((kind.as_str(), id.as_str()), ("data_starved", "serve-02"), "{found:?}");
                assert_eq!(worst, "critical", "requests wait, and none is answered: {found:?}");
                assert!((600..700).contains(opened), "{found:?}");
            }
            _ => panic!("{stuck}: {found:?}"),
        }
    }
}
