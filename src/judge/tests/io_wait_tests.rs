//! Tests of a host that waits for IO: without PSI, while it writes a checkpoint, and for a network file system.

use gaunt_schema::{
    Device, Dialect, Report, Severity,
    catalogue::{gpu, hardware, host},
};

use super::telemetry_tests::{TargetFixture, node_report, push_reading};

/// The second from which the node waits.
const ONSET: i64 = 90;

/// How it waits.
#[derive(Clone, Copy)]
struct Waits {
    /// Whether the kernel reports PSI, or only the time for which CPUs idle.
    has_psi: bool,
    /// Seconds a second for which its tasks wait, and what its GPUs then still do.
    share: f64,
    busy: f64,
    /// Bytes per second that it writes meanwhile.
    written: f64,
}

/// The page of a node that waits a little for its chores, and from the onset on for something else.
fn page(second: i64, waits: Waits) -> Report {
    page_of("ash", second, waits)
}

fn page_of(node: &str, second: i64, waits: Waits) -> Report {
    let mut page = node_report(node);
    let since = (second - ONSET).max(0) as f64;
    let busy = if since > 0.0 { waits.busy } else { 1.0 };
    for index in 0..4 {
        for (metric, value) in [
            (gpu::UTILIZATION, busy),
            (gpu::POWER, 600.0 * busy),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::PROCESSES, 1.0),
        ] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    let chores = 0.01 * second as f64 + 0.1 * f64::from((second % 7) as i32);
    let waited = 1e3 + chores + waits.share * since;
    let metric = if waits.has_psi { host::IO_PRESSURE } else { host::CPU_IOWAIT };
    push_reading(&mut page, Device::new_node(), metric, waited);
    for (metric, value) in [
        (hardware::DISK_READ_BYTES, 1e9 + 1e6 * second as f64),
        (hardware::DISK_WRITE_BYTES, 1e9 + waits.written * since),
    ] {
        push_reading(&mut page, Device::new_disk("nvme0n1"), metric, value);
    }
    page
}

fn run_for(seconds: i64, waits: Waits) -> TargetFixture {
    let mut fixture = TargetFixture::new(&[("ash", Dialect::Gaunt)]);
    fixture.run(seconds, |second, _| page(second, waits));
    fixture
}

/// The severity of each open finding.
fn open(fixture: &TargetFixture) -> Vec<(String, Severity)> {
    let open = fixture.judge.open_findings().into_iter();
    open.map(|finding| (finding.id.clone(), finding.severity)).collect()
}

#[test]
fn host_without_psi_is_starved_if_its_cpus_idle_for_io_far_longer_than_before() {
    let waits = Waits { has_psi: false, share: 2.0, busy: 0.4, written: 0.0 };
    let found = open(&run_for(160, waits));
    assert!(found.iter().any(|(id, _)| id == "data_starved/ash"), "{found:?}");
    // A little more says nothing about the cause.
    let found = open(&run_for(160, Waits { share: 0.1, ..waits }));
    assert!(!found.iter().any(|(_, severity)| *severity == Severity::Critical), "{found:?}");
}

#[test]
fn host_that_waits_while_it_writes_is_no_warning_for_as_long_as_a_checkpoint_takes() {
    let reads = Waits { has_psi: true, share: 0.5, busy: 0.4, written: 0.0 };
    let severity_after = |seconds: i64, waits: Waits| {
        let found = open(&run_for(seconds, waits));
        found.into_iter().find(|(id, _)| id == "data_starved/ash").map(|(_, severity)| severity)
    };
    assert!(severity_after(160, reads) >= Some(Severity::Warning));
    let writes = Waits { written: 1e9, ..reads };
    assert_eq!(severity_after(240, writes), Some(Severity::Info));
    assert!(severity_after(330, writes) >= Some(Severity::Warning), "no checkpoint is as long");
}

#[test]
fn few_quick_answers_while_a_job_pauses_are_no_baseline_of_its_file_system() {
    let mut fixture = TargetFixture::new(&[("ash", Dialect::Gaunt)]);
    // It reads, pauses for a minute with a request now and then, and reads again.
    let (mut requests, mut seconds) = (1e3, 1e3);
    for second in 0..240 {
        let pauses = (120..180).contains(&second);
        let (more, each) = if pauses { (f64::from(second % 20 == 0), 1e-4) } else { (60.0, 3e-3) };
        requests += more;
        seconds += more * each;
        fixture.run(1, |_, _| {
            let idle = Waits { has_psi: true, share: 0.0, busy: 1.0, written: 0.0 };
            let mut page = page(i64::from(second), idle);
            let mount = Device::new_mount("/data");
            push_reading(&mut page, mount.clone(), hardware::MOUNT_READS, requests);
            push_reading(&mut page, mount, hardware::MOUNT_READ_TIME, seconds);
            page
        });
    }
    let response = fixture.saved_host_baseline("ash", 4);
    assert!((response / 3e-3 - 1.0).abs() < 0.05, "{response}");
}

/// A node of a job whose GPUs are busy all the time, or only when requests come. In the last 100 s no request comes, or the
/// job waits, and the tasks of all its hosts wait for IO; its last GPUs go on.
fn job_page(second: i64, node: usize, serves: bool, going_on: u32) -> Report {
    let late = (second - 1_300).max(0);
    let request = 0.1 * ((second / 40 * 7_919 + 3 * node as i64) % 10) as f64 + 0.05;
    let busy = match serves {
        _ if late > 0 => 0.1,
        true => request,
        false => 0.95,
    };
    let mut page = node_report(["ash", "birch"][node]);
    for index in 0..4 {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "llm")]);
        let busy = if late > 0 && index + going_on >= 4 { 0.95 } else { busy };
        for (metric, value) in [
            (gpu::UTILIZATION, busy),
            (gpu::POWER, 100.0 + 600.0 * busy),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::PROCESSES, 1.0),
        ] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    let waited = 1e3 + 0.01 * second as f64 + 0.5 * late as f64;
    push_reading(&mut page, Device::new_node(), host::IO_PRESSURE, waited);
    page
}

#[test]
fn hosts_of_a_job_that_waits_for_requests_never_page_for_their_storage() {
    let severity = |serves: bool| {
        let mut fixture = TargetFixture::new(&[("ash", Dialect::Gaunt), ("birch", Dialect::Gaunt)]);
        fixture.run(1_400, |second, node| job_page(second, node, serves, 0));
        open(&fixture).into_iter().find(|(id, _)| id == "storage_slow").map(|(_, told)| told)
    };
    assert_eq!(severity(false), Some(Severity::Critical));
    assert_eq!(severity(true), Some(Severity::Warning));
}

#[test]
fn host_of_gpus_that_wait_for_requests_never_pages_for_what_it_waits_for() {
    let severity = |serves: bool| {
        let mut fixture = TargetFixture::new(&[("ash", Dialect::Gaunt)]);
        fixture.run(1_400, |second, node| job_page(second, node, serves, 1));
        open(&fixture).into_iter().find(|(id, _)| id == "data_starved/ash").map(|(_, told)| told)
    };
    assert_eq!(severity(false), Some(Severity::Critical));
    assert_eq!(severity(true), Some(Severity::Warning));
}

/// Later than a test lasts.
const NEVER: i64 = 10_000;

/// Jobs on one node each, whose hosts wait for IO from the onset on, each so many seconds later; their GPUs show it always, or
/// most of the time.
#[test]
fn jobs_on_one_node_each_that_begin_to_wait_together_wait_for_storage_that_they_share() {
    let found = |later: [i64; 3], seconds: i64, shows_always: bool| {
        let nodes = ["ash", "birch", "cedar"];
        let mut fixture = TargetFixture::new(&nodes.map(|node| (node, Dialect::Gaunt)));
        fixture.run(seconds, |second, node| {
            let is_hidden = !shows_always && second / 20 % 3 == node as i64;
            let busy = if is_hidden { 0.95 } else { 0.4 };
            let waits = Waits { has_psi: true, share: 0.5, busy, written: 0.0 };
            let mut page = page_of(nodes[node], second - later[node], waits);
            for index in 0..4 {
                let device = page.ensure_device(Device::new_gpu(index));
                page.add_info(device, gpu::JOB_INFO, &[("job", nodes[node])]);
            }
            page
        });
        for finding in fixture.judge.open_findings() {
            assert!(!finding.summary.contains("of job ash,"), "{}", finding.summary);
        }
        fixture.open_ids().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    for seconds in (ONSET + 90..ONSET + 400).step_by(10) {
        assert_eq!(found([0, 20, NEVER], seconds, false), ["storage_slow"], "after {seconds} s");
    }
    assert_eq!(found([0, NEVER, NEVER], ONSET + 60, true), ["data_starved/ash"]);
    let apart = found([0, 180, NEVER], ONSET + 240, true);
    assert_eq!(apart, ["data_starved/ash", "data_starved/birch"]);
}

#[test]
fn host_that_always_waited_as_long_is_not_among_those_that_begin_to_wait_for_storage() {
    let nodes = ["ash", "birch", "cedar"];
    let mut fixture = TargetFixture::new(&nodes.map(|node| (node, Dialect::Gaunt)));
    fixture.run(ONSET + 120, |second, node| {
        let (later, busy) = if node == 2 { (-NEVER, 0.95) } else { (0, 0.4) };
        let waits = Waits { has_psi: true, share: 0.5, busy, written: 0.0 };
        let mut page = page_of(nodes[node], second - later, waits);
        for index in 0..4 {
            let device = page.ensure_device(Device::new_gpu(index));
            page.add_info(device, gpu::JOB_INFO, &[("job", nodes[node])]);
        }
        page
    });
    let told: Vec<_> =
        fixture.judge.open_findings().iter().map(|finding| finding.summary.clone()).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("2 nodes of jobs ash, birch wait for IO"), "{told:?}");
}

#[test]
fn file_system_that_answers_late_to_the_only_node_that_reads_from_it_is_slow() {
    let nodes = ["ash", "birch"];
    // The other node reads nothing, or is answered as before.
    let told = |reads: f64| {
        let mut fixture = TargetFixture::new(&nodes.map(|node| (node, Dialect::Gaunt)));
        fixture.run(ONSET + 120, |second, node| {
            let is_slow = node == 0 && second > ONSET;
            let waits = Waits { has_psi: true, share: 0.5, busy: 0.4, written: 0.0 };
            let mut page = page_of(nodes[node], if node == 0 { second } else { 0 }, waits);
            for index in 0..4 {
                let device = page.ensure_device(Device::new_gpu(index));
                page.add_info(device, gpu::JOB_INFO, &[("job", nodes[node])]);
            }
            let (before, since) = (second.min(ONSET) as f64, (second - ONSET).max(0) as f64);
            let slow_s = if is_slow { since * 10.0 * 0.05 } else { since * 10.0 * 3e-3 };
            let rate = if node == 0 { 1.0 } else { reads };
            let mount = Device::new_mount("/data");
            for (metric, value) in [
                (hardware::MOUNT_READS, rate * 10.0 * second as f64),
                (hardware::MOUNT_READ_TIME, rate * (before * 10.0 * 3e-3 + slow_s)),
            ] {
                push_reading(&mut page, mount.clone(), metric, 1e3 + value);
            }
            page
        });
        fixture.open_ids().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(told(0.0), ["storage_slow"]);
    assert_eq!(told(1.0), ["data_starved/ash"]);
}

/// The open findings after jobs on two of three nodes began to wait for IO together; the tasks of the first one wait for memory for
/// so much of the time.
fn told_of_two(memory: f64) -> Vec<String> {
    let nodes = ["ash", "birch", "cedar"];
    let mut fixture = TargetFixture::new(&nodes.map(|node| (node, Dialect::Gaunt)));
    fixture.run(ONSET + 300, |second, node| {
        let waits = Waits { has_psi: true, share: 0.5, busy: 0.4, written: 0.0 };
        let mut page = page_of(nodes[node], if node == 2 { 0 } else { second }, waits);
        for index in 0..4 {
            let device = page.ensure_device(Device::new_gpu(index));
            page.add_info(device, gpu::JOB_INFO, &[("job", nodes[node])]);
        }
        let share = if node == 0 { memory } else { 0.0 };
        let waited = 1e3 + share * (second - ONSET).max(0) as f64;
        push_reading(&mut page, Device::new_node(), host::MEMORY_PRESSURE, waited);
        page
    });
    fixture.open_ids().into_iter().map(str::to_owned).collect()
}

#[test]
fn host_that_swaps_does_not_wait_for_storage_that_it_shares() {
    assert_eq!(told_of_two(0.0), ["storage_slow"]);
    assert_eq!(told_of_two(0.7), ["data_starved/ash", "data_starved/birch"]);
}
