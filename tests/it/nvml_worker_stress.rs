//! Event bursts in the NVML worker's pipe, and consecutive driver calls that never return.

use std::{
    fmt::Write as _,
    fs,
    os::unix::net::UnixDatagram,
    process::Command,
    time::{Duration, Instant},
};

use gaunt_node::watchdog::{BLIND_FOR, Watchdog};
use gaunt_schema::{
    Device, DeviceClass, Report,
    catalogue::{exporter, gpu, gpu_parts as parts},
};

use crate::{
    binaries::program_path,
    gpu_sampling::{FakeDriverSampler, read_scenario},
    node_program::{collector_message, collector_success},
};

fn reading_value(report: &Report, device: &Device, metric: gaunt_schema::MetricId) -> Option<f64> {
    report.find_reading(device, metric)?.value()
}

#[test]
fn xid_storm_is_counted_whole_while_values_stay_live() {
    // 10,000 a second for two seconds.
    const STORM: u32 = 20_000;
    let mut xids = String::new();
    for index in 0..STORM {
        write!(xids, "[{:.4}, 13],", 1.0 + f64::from(index) / 10_000.0).unwrap();
    }
    let text = read_scenario("full.toml").replacen("vbios", &format!("xids = [{xids}]\nvbios"), 1);
    let node = FakeDriverSampler::start_scenario(&text, |options, _| {
        options.period = Duration::from_secs(1);
        // The test does not depend on the speed of the machine.
        options.call_deadline = Duration::from_secs(20);
        options.init_deadline = Duration::from_mins(2);
    });
    let xid = Device::new_gpu_part(DeviceClass::Xid, 0, 13);
    let counted = node.wait_for_report("all errors", |report| {
        reading_value(report, &xid, parts::XID_ERRORS) == Some(f64::from(STORM))
    });
    assert_eq!(
        collector_success(&counted, "nvml"),
        Some(1.0),
        "{}",
        collector_message(&counted, "nvml")
    );
    assert!(reading_value(&counted, &Device::new_gpu(0), gpu::POWER).is_some());
    assert_eq!(reading_value(&counted, &xid, parts::XID_RECENT), Some(f64::from(STORM)));
}

#[test]
fn kernel_log_storm_is_counted_whole() {
    const STORM: usize = 30_000;
    let node = FakeDriverSampler::start_scenario(&read_scenario("full.toml"), |options, folder| {
        let log = folder.join("kmsg");
        let uptime = fs::read_to_string("/proc/uptime").unwrap();
        let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let micros = (seconds * 1e6) as u64;
        let line = format!("4,812,{micros},-;NVRM: Xid (PCI:0000:19:00): 13, pid=1, name=x\n");
        fs::write(&log, line.repeat(STORM)).unwrap();
        options.kernel_log = Some(log);
        options.call_deadline = Duration::from_secs(20);
    });
    let xid = Device::new_gpu_part(DeviceClass::Xid, 0, 13);
    node.wait_for_report("all errors", |report| {
        reading_value(report, &xid, parts::XID_ERRORS) == Some(STORM as f64)
    });
}

#[test]
fn third_worker_takes_over_after_two_hung_calls_and_their_number_is_limited() {
    // Every worker hangs a second after its start.
    let fault = "[[fault]]\ncall = 'nvmlDeviceGetPowerUsage'\nfrom = 1.0\nhang = true\n";
    let node =
        FakeDriverSampler::start_scenario(&(read_scenario("full.toml") + fault), |options, _| {
            options.call_deadline = Duration::from_millis(300);
            options.spare_after = Duration::from_millis(50);
            options.max_hung_workers = 3;
        });
    let nvml = Device::new_collector("nvml");
    let pids = node.folder.path().join("pids");
    let started = || fs::read_to_string(&pids).unwrap_or_default().lines().count();
    node.wait_for_report("values of the third worker", |report| {
        started() == 3
            && collector_success(report, "nvml") == Some(1.0)
            && reading_value(report, &nvml, exporter::HUNG_WORKERS) == Some(2.0)
            && reading_value(report, &Device::new_gpu(0), gpu::POWER).is_some()
    });
    let last = node.wait_for_report("the limit", |report| {
        reading_value(report, &nvml, exporter::HUNG_WORKERS) == Some(3.0)
            && collector_success(report, "nvml") == Some(0.0)
    });
    let message = collector_message(&last, "nvml");
    assert!(
        message.starts_with("3 NVML workers hang in driver calls, and no more are started"),
        "{message}"
    );
    node.wait_for_report("later reports", |report| report.node_time > last.node_time);
    assert_eq!(started(), 3);
}

/// Every worker hangs a second after its start, and systemd's watchdog is fed until five minutes after the last one did.
#[test]
fn watchdog_is_fed_until_no_worker_is_left_to_read_the_driver() {
    const MAX_HUNG: usize = 2;
    let fault = "[[fault]]\ncall = 'nvmlDeviceGetPowerUsage'\nfrom = 1.0\nhang = true\n";
    let node =
        FakeDriverSampler::start_scenario(&(read_scenario("full.toml") + fault), |options, _| {
            options.call_deadline = Duration::from_millis(300);
            options.spare_after = Duration::from_millis(50);
            options.max_hung_workers = MAX_HUNG;
        });
    let socket = node.folder.path().join("notify");
    let systemd = UnixDatagram::bind(&socket).unwrap();
    systemd.set_nonblocking(true).unwrap();
    let received = || {
        let mut buffer = [0; 64];
        let size = systemd.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..size]).into_owned())
    };
    let variable = |name: &str| match name {
        "NOTIFY_SOCKET" => Some(socket.clone().into_os_string()),
        "WATCHDOG_USEC" => Some("60000000".into()),
        _ => None,
    };
    let start = Instant::now();
    let mut watchdog = Watchdog::from_environment(variable, start).unwrap().unwrap();
    watchdog.expect(MAX_HUNG, Duration::from_millis(200), start);
    let nvml = Device::new_collector("nvml");
    let healthy =
        node.wait_for_report("values", |report| collector_success(report, "nvml") == Some(1.0));
    watchdog.note(&healthy, start);
    assert!(watchdog.feed(start));
    assert_eq!(received().as_deref(), Some("WATCHDOG=1"));
    let blind = node.wait_for_report("all workers hanging", |report| {
        reading_value(report, &nvml, exporter::HUNG_WORKERS) == Some(MAX_HUNG as f64)
    });
    watchdog.note(&blind, start);
    assert!(watchdog.feed(start), "calls that return late are waited for");
    assert_eq!(received().as_deref(), Some("WATCHDOG=1"));
    let later = node.wait_for_report("a later report", |report| {
        report.node_time > blind.node_time
            && reading_value(report, &nvml, exporter::HUNG_WORKERS) == Some(MAX_HUNG as f64)
    });
    let end = start + BLIND_FOR;
    watchdog.note(&later, end);
    assert!(!watchdog.feed(end));
    assert_eq!(received(), None);
}

/// The program itself, as systemd starts it.
#[test]
fn watchdog_of_the_program_is_fed() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&socket).unwrap();
    systemd.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let mut node = Command::new(program_path("gaunt-node"))
        .args(["--listen", "127.0.0.1:0", "--without", "nvml"])
        .env("NOTIFY_SOCKET", &socket)
        .env("WATCHDOG_USEC", "300000")
        .spawn()
        .unwrap();
    let mut buffer = [0; 64];
    let messages: Vec<_> =
        (0..3).map(|_| systemd.recv(&mut buffer).map(|size| buffer[..size].to_owned())).collect();
    node.kill().unwrap();
    node.wait().unwrap();
    assert!(
        messages
            .iter()
            .all(|message| message.as_ref().is_ok_and(|message| message == b"WATCHDOG=1")),
        "{messages:?}"
    );
}
