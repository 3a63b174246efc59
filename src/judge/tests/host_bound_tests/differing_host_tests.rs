//! Tests of hosts that are not like the others of a slower job: what their kernel takes, and their MTU.

use gaunt_schema::{Device, Dialect, Report, catalogue::host};

use crate::{
    Severity,
    telemetry_tests::{TargetFixture, busy_report, evidence_of, push_reading},
};

const NODES: [&str; 3] = ["ash", "beech", "cedar"];

/// The second from which the job is slower and hosts may change.
const CHANGES: i64 = 300;

/// The CPUs that the kernel and that programs take of each host.
type CpuTimes = [[f64; 2]; 3];

const USUAL: CpuTimes = [[3.0, 15.0]; 3];

/// The page of a node of a job that has so much of its speed from [`CHANGES`] on, and of its 100 CPUs.
fn page(second: i64, node: usize, speed: f64, [kernel, programs]: [f64; 2]) -> Report {
    let speed = if second > CHANGES { speed } else { 1.0 };
    let mut page = busy_report(NODES[node], 1.0, 0.4 * speed);
    let [before, after] = [second.min(CHANGES), (second - CHANGES).max(0)].map(|it| it as f64);
    let sum = |usual: f64, now: f64| before * usual + after * now;
    let in_kernel = sum(USUAL[node][0], kernel);
    let in_programs = sum(USUAL[node][1], programs);
    for (metric, value) in [
        (host::CPUS, 100.0),
        (host::CPU_KERNEL, in_kernel),
        (host::CPU_BUSY, in_kernel + in_programs),
    ] {
        push_reading(&mut page, Device::new_node(), metric, value);
    }
    page
}

/// Runs the job, slower from [`CHANGES`] on, with hosts that do this then.
fn run_with(speed: f64, hosts: CpuTimes) -> TargetFixture {
    let mut fixture = TargetFixture::new(&NODES.map(|name| (name, Dialect::Gaunt)));
    fixture.run(CHANGES + 150, |second, node| page(second, node, speed, hosts[node]));
    fixture
}

/// Runs a slower job whose second host has this MTU, and whose others have these.
fn run_with_mtus(speed: f64, kernel: f64, mtus: [f64; 3]) -> TargetFixture {
    let hosts = [[3.0, 15.0], [kernel, 15.0], [3.0, 15.0]];
    let mut fixture = TargetFixture::new(&NODES.map(|name| (name, Dialect::Gaunt)));
    fixture.run(CHANGES + 150, |second, node| {
        let mut page = page(second, node, speed, hosts[node]);
        for (metric, value) in [(host::NETDEV_SPEED, 25e9), (host::NETDEV_MTU, mtus[node])] {
            push_reading(&mut page, Device::new_netdev("eth0"), metric, value);
        }
        page
    });
    fixture
}

#[test]
fn only_host_with_a_smaller_mtu_is_told_while_the_job_is_slower() {
    let told = |speed: f64, kernel: f64, mtus: [f64; 3]| {
        let fixture = run_with_mtus(speed, kernel, mtus);
        let mut open = fixture.judge.open_findings().into_iter();
        let host = open.find(|finding| finding.id == "host_bound/beech");
        host.map(|finding| (finding.severity, finding.summary.clone(), finding.evidence.len()))
    };
    let smaller = [9_000.0, 1_500.0, 9_000.0];
    let summary =
        "Job 8812 may wait for beech: the MTU of eth0 is 1500 bytes on beech and 9000 elsewhere.";
    assert_eq!(told(0.7, 3.0, smaller), Some((Severity::Warning, summary.to_owned(), 2)));
    assert_eq!(told(1.0, 3.0, smaller), None, "the job is as fast as before");
    assert_eq!(told(0.7, 3.0, [9_000.0, 1_500.0, 1_500.0]), None, "another host has it as well");
    let (severity, summary, evidence) = told(0.7, 9.0, smaller).unwrap();
    assert_eq!((severity, evidence), (Severity::Critical, 3), "its kernel divides packets");
    assert!(summary.contains("; the MTU of eth0 is 1500 bytes on beech"), "{summary}");
}

#[test]
fn only_host_whose_kernel_does_more_is_what_a_slower_job_waits_for() {
    let fixture = run_with(0.7, [[3.0, 15.0], [9.0, 16.0], [2.5, 13.0]]);
    assert_eq!(fixture.open_ids(), ["host_bound/beech"]);
    let finding = fixture.judge.open_findings()[0];
    assert_eq!(finding.severity, Severity::Critical);
    assert_eq!(
        finding.summary,
        "The kernel of beech takes 9 % of its CPUs, 3 % before, and that of no other host of Job 8812 takes so much more: the job waits for this host."
    );
    let evidence = evidence_of(finding, "share of the host's CPUs that its kernel takes").unwrap();
    assert!((evidence.value.unwrap() - 0.09).abs() < 0.001, "{evidence:?}");
}

#[test]
fn kernel_time_that_does_not_stand_out_blames_no_host() {
    for (speed, hosts, case) in [
        (1.0, [[3.0, 15.0], [9.0, 16.0], [3.0, 15.0]], "the job is as fast as before"),
        (0.7, [[3.0, 15.0], [9.0, 60.0], [3.0, 15.0]], "a program does more"),
        (0.7, [[5.0, 15.0], [9.0, 16.0], [3.0, 15.0]], "another host does more as well"),
        (0.7, [[3.0, 15.0], [3.8, 15.0], [3.0, 15.0]], "it takes little more"),
    ] {
        let fixture = run_with(speed, hosts);
        let told = fixture.open_ids().into_iter().find(|id| id.starts_with("host_bound"));
        assert_eq!(told, None, "{case}");
    }
}

#[test]
fn finding_stands_over_a_restart() {
    let hosts = [[3.0, 15.0], [9.0, 16.0], [2.5, 13.0]];
    let mut fixture = run_with(0.7, hosts);
    fixture.restart_judge(60).run(400, |second, node| page(second, node, 0.7, hosts[node]));
    assert_eq!(fixture.open_ids(), ["host_bound/beech"]);
}
