//! The reported status of collectors that succeed, fail, wait, hang, break, or have nothing to do.

use gaunt_schema::{
    Device, Reading,
    catalogue::{exporter, host},
};

use super::*;

/// Longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(30);

struct ScriptedCollector(Vec<Result<CollectOutcome, CollectError>>);

impl Collector for ScriptedCollector {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn collect_readings(&mut self, _: &mut Report) -> Result<CollectOutcome, CollectError> {
        self.0.remove(0)
    }
}

#[test]
fn collector_failure_is_reported_and_later_runs_go_on() {
    let broken = || Err(CollectError::Driver("it hangs".to_owned()));
    let script = vec![
        Ok(CollectOutcome::Pending("wait".to_owned())),
        Ok(CollectOutcome::Found),
        broken(),
        Ok(CollectOutcome::Nothing("no card".to_owned())),
        Ok(CollectOutcome::FoundThat { message: "two".to_owned(), at: Some(UnixMs(4_500)) }),
    ];
    let mut collectors = CollectorRunner::new(vec![Box::new(ScriptedCollector(script))], PATIENCE);
    let device = Device::new_collector("scripted");
    let mut statuses = Vec::new();
    for second in 1..=5 {
        let mut report = Report::default();
        collectors.run(UnixMs(second * 1000), &mut report);
        let read = |metric| report.find_reading(&device, metric).and_then(Reading::value);
        assert!(read(exporter::COLLECTOR_DURATION).is_some());
        let message = report.infos.first().map(|info| info.labels[0].1.to_string());
        let message = message.unwrap_or_default();
        statuses.push((
            read(exporter::COLLECTOR_SUCCESS),
            read(exporter::COLLECTOR_LAST_SUCCESS),
            message,
        ));
    }
    let expected = [
        (None, None, "wait"),
        (Some(1.0), Some(2.0), ""),
        (Some(0.0), Some(2.0), "it hangs"),
        (Some(1.0), Some(4.0), "no card"),
        (Some(1.0), Some(4.5), "two"),
    ];
    assert_eq!(
        statuses,
        expected.map(|(ok, last_success, text)| (ok, last_success, text.to_owned()))
    );
}

/// Follows a command for each run.
struct ControlledCollector {
    orders: Receiver<CollectorOrder>,
    max_age: Duration,
}

enum CollectorOrder {
    Count(f64),
    HangUntil(Receiver<()>),
    Break,
}

impl Collector for ControlledCollector {
    fn name(&self) -> &'static str {
        "controlled"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        let node = report.ensure_device(Device::new_node());
        report.push(node, host::CPUS, 7.0);
        match self.orders.recv().unwrap() {
            CollectorOrder::Count(count) => report.push(node, host::CPU_BUSY, count),
            CollectorOrder::HangUntil(release) => _ = release.recv(),
            CollectorOrder::Break => panic!("a break on command"),
        }
        Ok(CollectOutcome::Found)
    }

    fn max_age(&self) -> Duration {
        self.max_age
    }
}

/// The positions of "controlled" and of the other collector.
const TOLD: usize = 0;
const OTHER: usize = 1;

fn controlled_runner(max_age: Duration) -> (Sender<CollectorOrder>, CollectorRunner) {
    let (order_sender, orders) = mpsc::channel();
    let controlled = ControlledCollector { orders, max_age };
    let other = ScriptedCollector((0..9).map(|_| Ok(CollectOutcome::Found)).collect());
    (order_sender, CollectorRunner::new(vec![Box::new(controlled), Box::new(other)], PATIENCE))
}

/// One round with enough time, and the status of "controlled"; the other collector completes in it.
fn long_round(collectors: &mut CollectorRunner, second: i64) -> (Reading, Reading, String) {
    // The previous round may have been too short for it.
    while !is_back(collectors, OTHER) {
        thread::yield_now();
    }
    collectors.deadline = PATIENCE;
    let (report, status) = any_round(collectors, second);
    let other =
        report.find_reading(&Device::new_collector("scripted"), exporter::COLLECTOR_SUCCESS);
    assert_eq!(other, Some(Reading::of(1.0)), "the other collector continues");
    status
}

/// One round that ends before "controlled", which hangs or breaks in it, returns.
fn short_round(collectors: &mut CollectorRunner, second: i64) -> (Reading, Reading, String) {
    collectors.deadline = Duration::from_millis(10);
    any_round(collectors, second).1
}

/// One round, and of "controlled": its count, whether it succeeded, and its message.
fn any_round(
    collectors: &mut CollectorRunner,
    second: i64,
) -> (Report, (Reading, Reading, String)) {
    let mut report = Report::default();
    collectors.run(UnixMs(second * 1000), &mut report);
    let message = report.infos.first().map(|info| info.labels[0].1.to_string());
    let device = Device::new_collector("controlled");
    let status = (
        report.find_reading(&Device::new_node(), host::CPU_BUSY).unwrap(),
        report.find_reading(&device, exporter::COLLECTOR_SUCCESS).unwrap(),
        message.unwrap_or_default(),
    );
    (report, status)
}

fn good_result(count: f64) -> (Reading, Reading, String) {
    (count.into(), 1.0.into(), String::new())
}

#[test]
fn hung_collector_reports_stale_values_until_it_returns() {
    let (order_sender, mut collectors) = controlled_runner(Duration::ZERO);
    let (release_sender, release) = mpsc::channel();
    for order in
        [CollectorOrder::Count(5.0), CollectorOrder::HangUntil(release), CollectorOrder::Count(6.0)]
    {
        order_sender.send(order).unwrap();
    }
    assert_eq!(long_round(&mut collectors, 1), good_result(5.0));
    let hung = (
        AbsenceReason::Stale.into(),
        0.0.into(),
        "the run takes longer than 0.01 s; its values are stale",
    );
    let hung = (hung.0, hung.1, hung.2.to_owned());
    assert_eq!(short_round(&mut collectors, 2), hung);
    // A late collector is not waited for, and not started again.
    let started = Instant::now();
    let message = long_round(&mut collectors, 3).2;
    assert!(started.elapsed() < PATIENCE / 2, "a hung collector was waited for");
    assert!(message.starts_with("the run takes longer"), "{message}");
    release_sender.send(()).unwrap();
    while !is_back(&mut collectors, TOLD) {
        thread::yield_now();
    }
    assert_eq!(long_round(&mut collectors, 4), good_result(6.0));
}

/// Whether a collector has returned; takes its result.
fn is_back(collectors: &mut CollectorRunner, position: usize) -> bool {
    while let Ok(result) = collectors.pool.results.try_recv() {
        _ = collectors.pool.store_result(result);
    }
    collectors.pool.threads[position].running_since.is_none()
}

#[test]
fn late_collector_repeats_its_values_up_to_max_age() {
    let (order_sender, mut collectors) = controlled_runner(Duration::from_secs(10));
    let (release_sender, release) = mpsc::channel();
    order_sender.send(CollectorOrder::Count(5.0)).unwrap();
    order_sender.send(CollectorOrder::HangUntil(release)).unwrap();
    assert_eq!(long_round(&mut collectors, 1), good_result(5.0));
    let (count, success, message) = short_round(&mut collectors, 2);
    assert_eq!((count, success), (5.0.into(), 1.0.into()));
    assert_eq!(
        message,
        "the run takes longer than a tick; its values are those of the previous run"
    );
    let (count, success, _) = short_round(&mut collectors, 12);
    assert_eq!((count, success), (AbsenceReason::Stale.into(), 0.0.into()));
    drop(release_sender);
}

#[test]
fn broken_collector_is_reported_and_others_continue() {
    let (order, mut collectors) = controlled_runner(Duration::ZERO);
    order.send(CollectorOrder::Count(5.0)).unwrap();
    order.send(CollectorOrder::Break).unwrap();
    assert_eq!(long_round(&mut collectors, 1), good_result(5.0));
    _ = short_round(&mut collectors, 2);
    while !collectors.pool.threads[TOLD].thread.as_ref().unwrap().is_finished() {
        thread::yield_now();
    }
    let (count, success, message) = long_round(&mut collectors, 3);
    assert_eq!((count, success), (AbsenceReason::Stale.into(), 0.0.into()));
    assert!(message.starts_with("the collector's thread ended"), "{message}");
}

#[test]
fn collector_whose_files_are_garbage_does_not_succeed() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("pressure")).unwrap();
    let files = ["stat", "meminfo", "loadavg", "diskstats"].map(|name| root.path().join(name));
    let pressure = ["cpu", "io", "memory"].map(|name| root.path().join("pressure").join(name));
    for path in files.iter().chain(&pressure) {
        std::fs::write(path, "\u{1}garbage 7\nmore\n").unwrap();
    }
    let options = crate::SamplerOptions {
        proc_root: root.path().to_owned(),
        ..crate::SamplerOptions::default()
    };
    let collectors: Vec<Box<dyn Collector>> = vec![
        Box::new(crate::collector::cpu_collector::CpuCollector::new(root.path())),
        Box::new(crate::collector::memory_collector::MemoryCollector::new(root.path())),
        Box::new(crate::collector::pressure_collector::PressureCollector::new(root.path())),
        Box::new(crate::collector::task_collector::TaskCollector::new(root.path())),
        Box::new(crate::collector::disk_collector::DiskCollector::new(&options)),
    ];
    let mut collectors = CollectorRunner::new(collectors, PATIENCE);
    let mut report = Report::default();
    collectors.run(UnixMs(1_000), &mut report);
    for name in ["cpu", "memory", "pressure", "tasks", "disks"] {
        let device = Device::new_collector(name);
        let success = report.find_reading(&device, exporter::COLLECTOR_SUCCESS);
        assert_eq!(success, Some(0.0.into()), "{name}");
    }
}
