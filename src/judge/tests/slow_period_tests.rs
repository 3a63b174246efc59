//! Tests of slow scrape periods, where GPU activity is known from single instants only.

use std::time::Duration;

use gaunt_schema::{
    Batch, Delivery, Device, Dialect, RejectionCounts, Report, ScrapeTarget, ScrapedPage, TargetId,
    UnixMs,
    catalogue::{gpu, gpu_health, host},
};

use super::telemetry_tests::{node_report, push_reading};
use gaunt_cluster::Cluster;
use gaunt_judge::{Judge, Thresholds};

const NODES: [&str; 4] = ["ash", "birch", "cedar", "elm"];

/// Seconds from one page to the next: longer than some exporters take to collect again.
const PERIOD_S: i64 = 15;

/// The onset of the fault.
const ONSET_S: i64 = 600;

/// The fault from then on.
#[derive(Clone, Copy)]
struct StarvationCase {
    /// The sampled activity of the GPUs of `birch`; none for the baseline.
    busy: fn(sample: i64) -> Option<f64>,
    /// IO pressure: share of the time in which its tasks wait for IO.
    io: f64,
    /// CPU pressure: share of the time in which its tasks wait for CPUs.
    cpu: f64,
    /// Replays per second of the PCIe link of one of its GPUs.
    replays: f64,
    /// The pace of the job.
    pace: f64,
}

/// Two GPUs of a job on a host, at an instant; no counter covers the time between.
fn starvation_report(node: &str, second: i64, trouble: StarvationCase) -> Report {
    let since = (second - ONSET_S).max(0);
    let is_slowed = node == "birch" && since > 0;
    let utilization = (trouble.busy)(second / PERIOD_S).filter(|_| is_slowed).unwrap_or(0.97);
    let speed = if since > 0 { trouble.pace } else { 1.0 };
    let mut page = node_report(node);
    for index in 0..2 {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        push_reading(&mut page, Device::new_gpu(index), gpu::UTILIZATION, utilization);
        push_reading(&mut page, Device::new_gpu(index), gpu::TENSOR_ACTIVE, 0.4 * speed);
    }
    let replays = if node == "birch" { (trouble.replays * since as f64).floor() } else { 0.0 };
    push_reading(&mut page, Device::new_gpu(0), gpu_health::PCIE_REPLAYS, replays);
    let more = if node == "birch" { trouble.io * since as f64 } else { 0.0 };
    push_reading(&mut page, Device::new_node(), host::IO_PRESSURE, 0.01 * second as f64 + more);
    let more = if node == "birch" { trouble.cpu * since as f64 } else { 0.0 };
    push_reading(&mut page, Device::new_node(), host::CPU_PRESSURE, 0.01 * second as f64 + more);
    page
}

/// Returns the second after the onset at which a finding pages, and that finding.
fn first_finding(seconds: i64, trouble: StarvationCase) -> Option<(i64, String)> {
    let mut cluster = Cluster::new(Duration::from_secs(PERIOD_S as u64), 10);
    let target = |(id, node): (u32, &str)| ScrapeTarget {
        id: TargetId(id),
        address: node.into(),
        node: None,
        origin: "test".into(),
    };
    cluster.ingest_delivery(Delivery::Targets((0..).zip(NODES).map(target).collect()));
    let mut judge = Judge::new(Thresholds::default());
    for second in 1..=ONSET_S + seconds {
        let at = UnixMs(second * 1_000);
        for (index, node) in (0..).zip(NODES) {
            if second % PERIOD_S != index {
                continue;
            }
            let page = ScrapedPage {
                report: starvation_report(node, second, trouble),
                dialect: Dialect::Gaunt,
                bytes: 1,
                rejected: RejectionCounts::default(),
            };
            let target = TargetId(index as u32);
            let batch = Batch { target, at, duration_ms: 1.0, outcome: Ok(page) };
            cluster.ingest_delivery(Delivery::Batch(batch));
        }
        cluster.advance_to(at);
        judge.evaluate_cluster(&cluster);
        if let Some(finding) = judge.open_findings().first() {
            return Some((second - ONSET_S, finding.id.clone()));
        }
    }
    None
}

/// Every fourth sample is low.
fn low_every_fourth(sample: i64) -> Option<f64> {
    (sample % 4 == 0).then_some(0.4)
}

#[test]
fn starving_host_stays_open_between_samples() {
    let (after, id) = first_finding(
        600,
        StarvationCase { busy: low_every_fourth, io: 0.3, cpu: 0.0, replays: 0.0, pace: 0.6 },
    )
    .unwrap();
    assert_eq!(id, "data_starved/birch");
    assert!(after <= 135, "after {after} s");
}

#[test]
fn only_host_that_waits_is_blamed_though_no_sample_is_low_and_no_host_if_none_waits() {
    for (io, wanted) in [
        (0.5, "data_starved/birch"),
        (0.2, "unexplained_slowdown/8812"),
        (0.0, "unexplained_slowdown/8812"),
    ] {
        let found = first_finding(
            600,
            StarvationCase { busy: |_| None, io, cpu: 0.0, replays: 0.0, pace: 0.6 },
        );
        assert_eq!(found.map(|(_, id)| id).as_deref(), Some(wanted), "IO pressure {io}");
    }
}

#[test]
fn host_of_a_job_at_baseline_speed_has_no_finding() {
    assert_eq!(
        first_finding(
            600,
            StarvationCase { busy: low_every_fourth, io: 0.3, cpu: 0.0, replays: 0.0, pace: 1.0 }
        ),
        None
    );
}

#[test]
fn host_that_waits_for_cpus_is_blamed_though_the_rest_of_the_job_goes_on() {
    let held_up =
        StarvationCase { busy: |_| Some(0.07), io: 0.0, cpu: 0.9, replays: 0.0, pace: 1.0 };
    let (after, id) = first_finding(300, held_up).unwrap();
    assert_eq!(id, "data_starved/birch");
    assert!(after <= 150, "after {after} s");
}

#[test]
fn link_that_replays_often_is_told_by_one_interval_and_one_with_a_few_replays_by_several() {
    let found = |replays: f64| {
        let trouble = StarvationCase { busy: |_| None, io: 0.0, cpu: 0.0, replays, pace: 1.0 };
        let (after, id) = first_finding(300, trouble).unwrap();
        assert_eq!(id, "pcie_degraded/birch/0");
        after
    };
    let (many, few) = (found(12.0), found(0.3));
    assert!(many < few && many <= 45, "after {many} and {few} s");
}
