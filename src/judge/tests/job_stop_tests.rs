//! Tests of jobs of which a part has ended, or that stand still while their hosts wait for IO.

use gaunt_schema::{
    Device, DeviceClass, Dialect, Finding, Report, Severity,
    catalogue::{gpu, gpu_parts, host, port},
};

mod idle_worker_tests;
mod program_error_tests;
mod single_node_hang_tests;

use super::telemetry_tests::{TargetFixture, node_report, push_reading};

/// What the two nodes of a job report in a second: which GPUs a process holds, and what all do.
#[derive(Clone, Copy)]
struct Shown {
    held: fn(usize, u32) -> bool,
    busy: f64,
    /// Share of the time in which tasks wait for IO.
    io: f64,
    /// XIDs that were reported, by node and GPU.
    xids: &'static [(usize, u32, u32)],
}

const WORKS: Shown = Shown { held: |_, _| true, busy: 0.97, io: 0.0, xids: &[] };

struct Job {
    fixture: TargetFixture,
    sent: f64,
    waited: f64,
    exporter: Exporter,
}

/// What the exporters of a job tell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Exporter {
    /// The job that the GPUs are allocated to, and all about their memory.
    Allocated,
    /// The job of the processes that hold the GPUs, the memory that they use, and no other.
    OfProcesses,
}

impl Job {
    fn at_work() -> Self {
        Self::at_work_with(Exporter::Allocated)
    }

    fn at_work_with(exporter: Exporter) -> Self {
        Self::at_work_on(&["ash:9770", "birch:9770"], exporter)
    }

    fn at_work_on(targets: &[&str], exporter: Exporter) -> Self {
        let targets: Vec<_> = targets.iter().map(|address| (*address, Dialect::Gaunt)).collect();
        let mut job =
            Self { fixture: TargetFixture::new(&targets), sent: 0.0, waited: 0.0, exporter };
        job.run(150, WORKS);
        job
    }

    fn run(&mut self, seconds: i64, shown: Shown) -> &mut Self {
        self.run_without(seconds, &[], shown)
    }

    fn run_without(&mut self, seconds: i64, silent: &[usize], shown: Shown) -> &mut Self {
        for _ in 0..seconds {
            self.sent += 10e9 * shown.busy;
            self.waited += shown.io;
            let (sent, waited, exporter) = (self.sent, self.waited, self.exporter);
            let page = |_, index| page(index, shown, exporter, sent, waited);
            self.fixture.run_without(1, silent, page);
        }
        self
    }

    fn finding(&self, id: &str) -> Option<&Finding> {
        self.fixture.judge.open_findings().into_iter().find(|finding| finding.id == id)
    }
}

fn page(index: usize, shown: Shown, exporter: Exporter, sent: f64, waited: f64) -> Report {
    let mut page = node_report(["ash", "birch", "cedar"][index]);
    for number in 0..4 {
        let device = Device::new_gpu(number);
        let row = page.ensure_device(device.clone());
        let (held, all) = ((shown.held)(index, number), exporter == Exporter::Allocated);
        if held || all {
            page.add_info(row, gpu::JOB_INFO, &[("job", "8812")]);
        }
        let busy = if held { shown.busy } else { 0.0 };
        if all {
            push_reading(&mut page, device.clone(), gpu::MEMORY_TOTAL, 80e9);
        }
        for (metric, value) in [
            (gpu::UTILIZATION, busy),
            (gpu::TENSOR_ACTIVE, 0.4 * busy),
            (gpu::POWER, 90.0 + 500.0 * busy),
            (gpu::MEMORY_USED, if held { 70e9 } else { 5e8 }),
        ] {
            push_reading(&mut page, device.clone(), metric, value);
        }
    }
    for (_, number, code) in shown.xids.iter().filter(|(node, ..)| *node == index) {
        let xid = Device::new_gpu_part(DeviceClass::Xid, *number, *code);
        push_reading(&mut page, xid, gpu_parts::XID_ERRORS, 1.0);
    }
    for (metric, value) in [
        (port::STATE, 4.0),
        (port::RATE, 50e9),
        (port::TRANSMIT_BYTES, sent),
        (port::RECEIVE_BYTES, sent),
    ] {
        push_reading(&mut page, Device::new_port("mlx5_0", "1"), metric, value);
    }
    push_reading(&mut page, Device::new_node(), host::IO_PRESSURE, 1e3 + waited);
    page
}

#[test]
fn gpus_that_the_processes_of_a_job_have_left_are_told_while_others_work_on() {
    let id = "idle_allocated/8812";
    let mut job = Job::at_work();
    job.run(40, Shown { held: |index, number| index == 0 || number < 2, ..WORKS });
    assert!(job.finding(id).is_none(), "it may start again");
    job.run(40, Shown { held: |index, number| index == 0 || number < 2, ..WORKS });
    let found = job.finding(id).unwrap();
    assert_eq!(found.severity, Severity::Warning);
    assert!(found.summary.starts_with("2 GPUs of job 8812 on birch have no process"), "{found:?}");
    job.fixture.restart_judge(20);
    job.run(90, Shown { held: |index, number| index == 0 || number < 2, ..WORKS });
    assert!(job.finding(id).is_some(), "a restart of the aggregator is no end of it");
    // A job that gives a node back, or ends, leaves all of it.
    for held in [(|index, _| index == 0) as fn(usize, u32) -> bool, |_, _| false] {
        let mut job = Job::at_work();
        job.run(120, Shown { held, ..WORKS });
        assert!(job.finding(id).is_none());
    }
}

#[test]
fn job_that_stands_still_for_far_longer_than_before_while_its_hosts_wait_for_io_is_told() {
    let pause = Shown { busy: 0.0, io: 0.8, ..WORKS };
    let mut job = Job::at_work();
    for _ in 0..3 {
        job.run(20, pause).run(120, WORKS);
        assert!(job.finding("storage_slow").is_none(), "a checkpoint");
    }
    job.run(55, pause);
    assert!(job.finding("storage_slow").is_none());
    job.run(15, pause);
    let found = job.finding("storage_slow").unwrap();
    assert_eq!(found.severity, Severity::Warning);
    assert!(
        found.summary.contains("while its hosts wait for IO; its pauses of late took"),
        "{found:?}"
    );
    job.fixture.restart_judge(20);
    job.run(90, pause);
    assert!(job.finding("storage_slow").is_some(), "a restart of the aggregator is no end of it");
    job.run(90, WORKS);
    assert!(job.finding("storage_slow").is_none());
    // Without IO it is no checkpoint.
    let mut job = Job::at_work();
    job.run(20, pause).run(120, WORKS).run(100, Shown { io: 0.0, ..pause });
    assert!(job.finding("storage_slow").is_none());
}

const GONE: Shown = Shown { held: |_, _| false, busy: 0.0, ..WORKS };
const LOADS: Shown = Shown { busy: 0.0, ..WORKS };

/// Its processes end, load for a while after they are started anew, and work for a minute.
fn restart(job: &mut Job) -> Option<Severity> {
    job.run(15, GONE).run(25, LOADS).run(60, WORKS);
    job.finding("crash_loop/8812").map(|found| found.severity)
}

#[test]
fn job_whose_processes_end_again_and_again_is_in_a_crash_loop() {
    let id = "crash_loop/8812";
    let mut job = Job::at_work();
    assert_eq!(restart(&mut job), None);
    for _ in 0..3 {
        assert_eq!(restart(&mut job), Some(Severity::Warning), "it worked for longer before");
    }
    let found = job.finding(id).unwrap();
    assert!(found.summary.contains("ended 3 times"), "{}", found.summary);
    let share = found.evidence.iter().find(|item| item.what.contains("lost to restarts"));
    let lost = share.unwrap().value.unwrap() * 8.0;
    assert!((found.lost_gpus - lost).abs() < 0.1, "{lost} also while it works: {found:?}");
    assert!(lost > 2.0);
    job.run(240, WORKS);
    assert_eq!(job.finding(id), None, "it runs for longer than before");
}

/// The first node ends and begins earlier than the second one.
fn restart_one_after_the_other(job: &mut Job) -> Option<Severity> {
    let second_holds = Shown { held: |index, _| index == 1, ..WORKS };
    let first_loads = Shown { held: |index, _| index == 0, ..LOADS };
    job.run(12, second_holds).run(4, GONE).run(12, first_loads).run(20, LOADS).run(60, WORKS);
    job.finding("crash_loop/8812").map(|found| found.severity)
}

#[test]
fn crash_loop_is_found_although_the_nodes_of_a_job_lose_its_name_one_after_the_other() {
    for exporter in [Exporter::Allocated, Exporter::OfProcesses] {
        let mut job = Job::at_work_with(exporter);
        let found = [(); 3].map(|()| restart_one_after_the_other(&mut job));
        let expected = [None, Some(Severity::Warning), Some(Severity::Warning)];
        assert_eq!(found, expected, "{exporter:?}");
    }
}

#[test]
fn crash_loop_outlives_a_restart_of_the_aggregator() {
    let mut job = Job::at_work();
    restart(&mut job);
    assert_eq!(restart(&mut job), Some(Severity::Warning));
    job.run(15, GONE).fixture.restart_judge(20);
    assert_eq!(restart(&mut job), Some(Severity::Warning));
    assert_eq!(restart(&mut job), Some(Severity::Warning));
}

#[test]
fn restarts_that_are_rare_or_cost_little_are_no_crash_loop() {
    let id = "crash_loop/8812";
    let mut once = Job::at_work();
    once.run(15, GONE).run(25, LOADS).run(300, WORKS);
    assert_eq!(once.finding(id), None, "it restarted once");
    let mut short = Job::at_work();
    let found = [(); 4].map(|()| {
        short.run(15, GONE).run(25, LOADS).run(200, WORKS);
        short.finding(id).map(|found| found.severity)
    });
    assert_eq!(found[..2], [None, Some(Severity::Info)], "it worked as long as before");
    let mut cheap = Job::at_work();
    for _ in 0..4 {
        cheap.run(4, GONE).run(196, WORKS);
        assert_eq!(cheap.finding(id), None, "2 % of its time");
    }
}

#[test]
fn job_that_idles_is_told_although_one_of_its_nodes_cannot_be_read() {
    let id = "idle_allocated/8812";
    let on = |targets: &[&str]| Job::at_work_on(targets, Exporter::Allocated);
    let idle = Shown { busy: 0.0, ..WORKS };
    let mut job = on(&["ash:9770", "birch:9770", "cedar:9770"]);
    job.run_without(700, &[2], idle);
    assert_eq!(job.finding(id).unwrap().summary, "Job 8812 holds 8 GPUs and uses none of them.");
    // Half of it may work.
    let mut job = on(&["ash:9770", "birch:9770"]);
    job.run_without(700, &[1], idle);
    assert!(job.finding(id).is_none());
}

#[test]
fn job_that_stands_still_again_and_again_as_it_never_did_is_told() {
    let id = "unexplained_slowdown/8812";
    let stop = Shown { busy: 0.0, ..WORKS };
    let mut job = Job::at_work();
    job.run(150, WORKS);
    for _ in 0..2 {
        job.run(30, stop).run(30, WORKS);
        assert!(job.finding(id).is_none(), "two stops may be anything");
    }
    job.run(30, stop);
    let told = job.finding(id).unwrap();
    assert_eq!(told.severity, Severity::Warning);
    assert!(told.summary.contains("stand still again and again"), "{told:?}");
    job.fixture.restart_judge(20);
    job.run(30, WORKS).run(30, stop).run(100, WORKS);
    assert!(job.finding(id).is_some(), "a restart of the aggregator is no end of it");
    job.run(600, WORKS);
    assert!(job.finding(id).is_none());
    // One that did so from its beginning is meant to.
    let mut job = Job::at_work();
    for _ in 0..8 {
        job.run(20, stop).run(60, WORKS);
        assert!(job.finding(id).is_none());
    }
}
