//! gaunt-node as a user runs it: the page of a fixture tree, HTTP behaviour, and a driver that hangs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{env, fs, process::Command, sync::LazyLock, time::Duration};

use gaunt_schema::{
    AbsenceReason, Device, Reading,
    catalogue::{exporter, gpu, host},
    text,
};

use crate::{
    binaries::{fake_driver, program_path},
    test_process::RunToEnd,
};

mod node_process;

use node_process::{NO_LIBRARY, over_fixture, print_page_once, with_settings};
pub(crate) use node_process::{
    NodeProcess, collector_message, collector_success, decode_report, expect_reading, fixture_path,
    is_running, run_once, success_stdout, wait_until,
};

/// The page of the fixture trees without a driver.
static DRIVERLESS_PAGE: LazyLock<String> = LazyLock::new(|| print_page_once(NO_LIBRARY));

#[test]
fn page_of_the_fixture_tree_equals_the_golden_page() {
    let is_stable = |line: &&str| {
        let series = ["node_time_seconds ", "_duration_seconds{", "_timestamp_seconds{"];
        !series.iter().any(|name| line.contains(name)) || line.starts_with('#')
    };
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    let page = DRIVERLESS_PAGE.replace(&version, "version=\"VERSION\"");
    let found: Vec<_> = page.lines().filter(is_stable).collect();
    let path = fixture_path("sysroot/page.prom");
    if env::var_os("GAUNT_BLESS").is_some() {
        fs::write(&path, found.join("\n") + "\n").unwrap();
    }
    let golden = fs::read_to_string(path).unwrap();
    for (index, (found, golden)) in found.iter().zip(golden.lines()).enumerate() {
        assert_eq!(*found, golden, "line {} of tests/fixtures/sysroot/page.prom", index + 1);
    }
    assert_eq!(found.len(), golden.lines().count(), "the page is longer or shorter:\n{page}");
}

#[test]
fn missing_default_library_is_reported_and_the_rest_is_served() {
    let report = decode_report(&DRIVERLESS_PAGE);
    assert_eq!(collector_success(&report, "nvml"), Some(1.0));
    let message =
        format!("no GPU: {NO_LIBRARY} not found; install the NVIDIA driver or pass --nvml-library");
    assert_eq!(collector_message(&report, "nvml"), message);
    assert_eq!(expect_reading(&report, &Device::new_node(), host::CPUS), Reading::of(2.0));
}

#[test]
fn missing_named_library_is_a_failure() {
    let report = decode_report(&print_page_once("/nowhere/libnvidia-ml.so.1"));
    assert_eq!(collector_success(&report, "nvml"), Some(0.0));
    let message = collector_message(&report, "nvml");
    assert!(
        message.starts_with("cannot load the NVML library /nowhere/libnvidia-ml.so.1"),
        "{message}"
    );
}

#[test]
fn hung_call_is_named_while_pages_keep_coming() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "period = \"500ms\"\n[nvml]\ncall_deadline = \"1s\"\n";
    let mut node = NodeProcess::run(with_settings(folder.path(), "hang.toml", settings));
    let worker = node.logged_value("pid=");
    let gpus = [Device::new_gpu(0), Device::new_gpu(1)];
    let before = node
        .wait_for_report("a tick", |report| report.find_reading(&gpus[1], gpu::POWER).is_some());
    assert_eq!(expect_reading(&before, &gpus[1], gpu::POWER), Reading::of(301.0));

    fs::write(folder.path().join("hang"), "").unwrap();
    let flagged =
        node.wait_for_report("the flag", |report| collector_success(report, "nvml") == Some(0.0));
    let message = collector_message(&flagged, "nvml");
    assert!(message.contains("nvmlDeviceGetPowerUsage of GPU 1 does not return"), "{message}");
    for device in &gpus {
        for metric in [gpu::POWER, gpu::UTILIZATION, gpu::PRESENT] {
            assert_eq!(
                expect_reading(&flagged, device, metric),
                AbsenceReason::Stale.into(),
                "{device}"
            );
        }
    }
    assert_eq!(collector_success(&flagged, "cpu"), Some(1.0));
    // The call began up to a period after the last good round, and is flagged two periods after its deadline at most.
    let nvml = Device::new_collector("nvml");
    let last_success =
        expect_reading(&flagged, &nvml, exporter::COLLECTOR_LAST_SUCCESS).value().unwrap();
    let silence = flagged.node_time.unwrap().to_seconds() - last_success;
    assert!((1.0..=2.5).contains(&silence), "flagged {silence} s after the last good round");

    let later =
        node.wait_for_report("the next page", |report| report.node_time > flagged.node_time);
    assert_eq!(collector_success(&later, "nvml"), Some(0.0));

    assert!(is_running(&worker), "a hung worker is left alone");
    node.send_signal("KILL");
    node.wait_for_exit();
    // Its call has five seconds to return.
    wait_until("the end of the orphaned worker", || !is_running(&worker));
}

#[test]
fn late_values_are_not_reported_as_fresh() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "period = \"500ms\"\n[nvml]\ncall_deadline = \"1s\"\n";
    let node = NodeProcess::run(with_settings(folder.path(), "slow.toml", settings));
    let nvml = Device::new_collector("nvml");
    let flagged = node.wait_for_report("the flag", |report| {
        collector_success(report, "nvml") == Some(0.0)
            && collector_message(report, "nvml").contains("nvmlDeviceGetPowerUsage of GPU 0")
    });
    let recovered =
        node.wait_for_report("the return", |report| collector_success(report, "nvml") == Some(1.0));
    let last_success =
        |report| expect_reading(report, &nvml, exporter::COLLECTOR_LAST_SUCCESS).value().unwrap();
    let age = recovered.node_time.unwrap().to_seconds() - last_success(&recovered);
    assert!(age <= 1.5, "called fresh at an age of {age} s");
    assert!(
        last_success(&recovered) > last_success(&flagged) + 1.5,
        "the late round is no success"
    );
    assert_eq!(expect_reading(&recovered, &Device::new_gpu(0), gpu::POWER), Reading::of(300.0));
}

#[test]
fn driver_hanging_at_start_costs_only_the_gpus() {
    let node = NodeProcess::start_scenario("hang_init.toml");
    let report =
        node.wait_for_report("a page", |report| !collector_message(report, "nvml").is_empty());
    assert_eq!(collector_message(&report, "nvml"), "waiting for the NVIDIA driver to initialise");
    assert_eq!(collector_success(&report, "nvml"), None);
    assert_eq!(collector_success(&report, "ports"), Some(1.0));
}

#[test]
fn driver_installed_later_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libnvidia-ml.so.1");
    let mut command = over_fixture(library.to_str().unwrap());
    command.env("GAUNT_FAKE_DRIVER", fixture_path("scenarios/eight.toml"));
    let node = NodeProcess::run(command);
    node.wait_for_report("the failure", |report| collector_success(report, "nvml") == Some(0.0));
    fs::copy(fake_driver(), &library).unwrap();
    let found =
        node.wait_for_report("the GPUs", |report| collector_success(report, "nvml") == Some(1.0));
    assert_eq!(expect_reading(&found, &Device::new_gpu(7), gpu::POWER), Reading::of(620.078));
}

#[test]
fn in_process_sampler_publishes_each_tick_and_ends_when_dropped() {
    let sampler = gaunt_node::NodeSampler::start_sampling(gaunt_node::SamplerOptions {
        sys_root: fixture_path("sysroot/sys"),
        proc_root: fixture_path("sysroot/proc"),
        nvml_library: Some(NO_LIBRARY.into()),
        node_name: Some("this box".to_owned()),
        period: Duration::from_millis(100),
        worker_program: Some(program_path("gaunt-node")),
        ..gaunt_node::SamplerOptions::default()
    });
    let mut reports = sampler.watch_reports();
    let mut last = None;
    for _ in 0..3 {
        wait_until("a tick", || reports.borrow().node_time > last);
        last = reports.borrow_and_update().node_time;
    }
    wait_until("the worker's word", || collector_success(&reports.borrow(), "nvml") == Some(1.0));
    assert_eq!(reports.borrow().node.as_deref(), Some("this box"));
    drop(sampler);
    wait_until("the end", || reports.has_changed().is_err());
}

#[test]
fn dead_worker_is_reported_and_restarted() {
    let mut node = NodeProcess::start_scenario("eight.toml");
    let worker = node.logged_value("pid=");
    let gpu = Device::new_gpu(7);
    node.wait_for_report("a tick", |report| report.find_reading(&gpu, gpu::POWER).is_some());
    assert!(Command::new("kill").args(["-s", "KILL", &worker]).status().unwrap().success());
    let down =
        node.wait_for_report("the flag", |report| collector_success(report, "nvml") == Some(0.0));
    assert!(
        collector_message(&down, "nvml")
            .starts_with("the NVML worker ended unexpectedly (signal: 9")
    );
    assert_eq!(expect_reading(&down, &gpu, gpu::POWER), AbsenceReason::Stale.into());
    let recovered =
        node.wait_for_report("the return", |report| collector_success(report, "nvml") == Some(1.0));
    assert_eq!(expect_reading(&recovered, &gpu, gpu::POWER), Reading::of(620.078));
}

#[test]
fn server_answers_each_request_line_with_its_status() {
    let node = NodeProcess::start_scenario("none.toml");
    node.fetch_report();
    for (line, status, expected) in [
        ("GET /", "200 OK", "/metrics"),
        ("GET /healthz", "200 OK", "ok"),
        ("GET /metrics", "200 OK", "# TYPE gaunt_node_info gauge"),
        ("GET /metrics?x=1", "200 OK", "gaunt_node_info"),
        ("GET /other", "404 Not Found", "see /"),
        ("POST /metrics", "405 Method Not Allowed", "allow: GET, HEAD"),
        ("nonsense", "400 Bad Request", ""),
    ] {
        let answer = node.send_request(line);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{line}: {answer}");
        assert!(answer.contains(expected), "{line}: {answer}");
    }
    let head = node.send_request("HEAD /metrics");
    assert!(head.contains(&format!("content-type: {}", text::CONTENT_TYPE)), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "a HEAD has no body: {head}");
    let long = node.send_request(&format!("GET /{}", "x".repeat(100_000)));
    assert!(long.starts_with("HTTP/1.1 4"), "{}", &long[..long.len().min(80)]);
}

#[test]
fn node_ends_cleanly_with_its_worker() {
    for name in ["TERM", "INT"] {
        let mut node = NodeProcess::start_scenario("eight.toml");
        let worker = node.logged_value("pid=");
        node.send_signal(name);
        assert!(node.wait_for_exit().success(), "{name}");
        wait_until("the end of the worker", || !is_running(&worker));
    }
}

/// A worker in a driver call that never returns cannot even be killed: the program and its port do not wait for it.
#[test]
fn node_ends_while_its_worker_is_stopped() {
    let mut node = NodeProcess::start_scenario("eight.toml");
    let worker = node.logged_value("pid=");
    let signal = |name: &str| Command::new("kill").args(["-s", name, &worker]).status().unwrap();
    assert!(signal("STOP").success());
    node.send_signal("TERM");
    assert!(node.wait_for_exit().success());
    std::net::TcpListener::bind(&node.address).unwrap();
    // It may be gone already.
    _ = signal("CONT");
    wait_until("the end of the worker", || !is_running(&worker));
}

#[test]
fn invalid_flags_are_rejected_with_the_next_step() {
    let node = NodeProcess::start_scenario("none.toml");
    let refused = |arguments: &[&str]| {
        let output = Command::new(program_path("gaunt-node")).args(arguments).run_to_end();
        assert!(!output.status.success(), "{arguments:?} was taken");
        String::from_utf8(output.stderr).unwrap()
    };
    let taken = node.address.as_str();
    assert_eq!(
        refused(&["--listen", taken]),
        format!(
            "gaunt-node: cannot listen on {taken}: address in use; pass --listen ADDRESS:PORT\n"
        )
    );
    assert_eq!(
        refused(&["--sys-root", "/nowhere"]),
        "gaunt-node: --sys-root: /nowhere is not a folder; correct the path\n"
    );
    assert!(refused(&["--period", "0s"]).contains("must be between 100ms and 60s"));
    assert!(refused(&["--period", "5"]).contains("write a duration with its unit: 1s, 500ms"));
    assert!(refused(&["--listen", "here"]).contains("--listen <ADDRESS:PORT>"));
    assert!(refused(&["--speed", "9"]).contains("--speed"));
}
