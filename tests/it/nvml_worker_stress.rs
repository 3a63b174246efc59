//! Event bursts in the NVML worker's pipe, and consecutive driver calls that never return.

use std::{
    fmt::Write as _,
    fs,
    os::unix::net::UnixDatagram,
    process::Command,
    sync::{Arc, LazyLock},
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
    node_program::{collector_message, collector_success, is_running},
};

fn reading_value(report: &Report, device: &Device, metric: gaunt_schema::MetricId) -> Option<f64> {
    report.find_reading(device, metric)?.value()
}

#[test]
fn xid_storm_is_counted_whole_while_values_stay_live() {
    // 10,000 a second for the first two seconds.
    const STORM: u32 = 20_000;
    let mut xids = String::new();
    for index in 0..STORM {
        write!(xids, "[{:.4}, 13],", f64::from(index) / 10_000.0).unwrap();
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

/// The wait for the first spare; that for the second one is six times as long.
const SPARE_AFTER: Duration = Duration::from_millis(300);

/// The most workers that may hang at a time.
const MAX_HUNG: usize = 3;

/// The reports of a node whose workers hang in driver calls, one after the other.
struct HungWorkerReports {
    /// Values of each worker, with all earlier ones hanging.
    working: Vec<Arc<Report>>,
    /// All workers hang.
    blind: Arc<Report>,
    /// All workers still hang.
    later: Arc<Report>,
    /// The number of workers that were started, and of those that run at the end.
    started: usize,
    running: usize,
}

/// The run that both tests below check.
static HUNG_WORKERS: LazyLock<HungWorkerReports> = LazyLock::new(hang_workers);

/// Lets each worker hang once it has values.
fn hang_workers() -> HungWorkerReports {
    let fault = "[[fault]]\ncall = 'nvmlDeviceGetPowerUsage'\ntrigger = 'hang'\nhang = true\n";
    let node =
        FakeDriverSampler::start_scenario(&(read_scenario("full.toml") + fault), |options, _| {
            options.call_deadline = Duration::from_millis(300);
            options.spare_after = SPARE_AFTER;
            options.max_hung_workers = MAX_HUNG;
        });
    let (nvml, gpu) = (Device::new_collector("nvml"), Device::new_gpu(1));
    let has_hung = |report: &Report, count: usize| {
        reading_value(report, &nvml, exporter::HUNG_WORKERS) == Some(count as f64)
    };
    let mut working = Vec::new();
    for hung in 0..MAX_HUNG {
        working.push(node.wait_for_report(
            &format!("values besides {hung} hung workers"),
            |report| {
                has_hung(report, hung)
                    && collector_success(report, "nvml") == Some(1.0)
                    && reading_value(report, &gpu, gpu::POWER) == Some(300.0)
            },
        ));
        fs::write(node.folder.path().join("hang"), "").expect("the folder of the node");
    }
    let blind = node.wait_for_report("the limit", |report| {
        has_hung(report, MAX_HUNG) && collector_success(report, "nvml") == Some(0.0)
    });
    let later = node.wait_for_report("a later report", |report| {
        report.node_time > blind.node_time && has_hung(report, MAX_HUNG)
    });
    let pids = fs::read_to_string(node.folder.path().join("pids")).expect("the workers' pids");
    let running = pids.lines().filter(|pid| is_running(pid)).count();
    HungWorkerReports { working, blind, later, started: pids.lines().count(), running }
}

#[test]
fn spare_stands_in_for_hung_worker_and_next_one_waits_longer_up_to_a_limit() {
    let reports = &*HUNG_WORKERS;
    for (worker, wait) in [(1, SPARE_AFTER), (2, 6 * SPARE_AFTER)] {
        // The one before hung later than in its last report, and its spare was started before it had values.
        let [before, after] =
            [worker - 1, worker].map(|number: usize| reports.working[number].node_time.unwrap());
        let between = after.duration_since(before);
        assert!(between >= wait, "spare {worker} came {between:?} after the worker before it");
    }
    assert_eq!(collector_success(&reports.later, "nvml"), Some(0.0));
    let message = collector_message(&reports.blind, "nvml");
    assert!(
        message.starts_with("3 NVML workers hang in driver calls, and no more are started"),
        "{message}"
    );
    assert_eq!((reports.started, reports.running), (MAX_HUNG, MAX_HUNG), "none is killed");
}

/// Systemd's watchdog is fed until five minutes after the last worker hung.
#[test]
fn watchdog_is_fed_until_no_worker_is_left_to_read_the_driver() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
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
    let reports = &*HUNG_WORKERS;
    watchdog.note(&reports.working[0], start);
    assert!(watchdog.feed(start));
    assert_eq!(received().as_deref(), Some("WATCHDOG=1"));
    watchdog.note(&reports.blind, start);
    assert!(watchdog.feed(start), "calls that return late are waited for");
    assert_eq!(received().as_deref(), Some("WATCHDOG=1"));
    let end = start + BLIND_FOR;
    watchdog.note(&reports.later, end);
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
        (0..4).map(|_| systemd.recv(&mut buffer).map(|size| buffer[..size].to_owned())).collect();
    node.kill().unwrap();
    node.wait().unwrap();
    let messages: Vec<String> =
        messages.into_iter().map(|message| String::from_utf8(message.unwrap()).unwrap()).collect();
    // It serves, and handles signals, before it is ready.
    assert_eq!(messages, ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"]);
}
