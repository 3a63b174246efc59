//! Tests of nodes that no target answers for: lost to their jobs, or only to gaunt.

use std::time::Duration;

use gaunt_schema::{
    Batch, Delivery, Device, Dialect, RejectionCounts, Report, ScrapeFailure, ScrapeTarget,
    ScrapedPage, Severity, TargetId, UnixMs, catalogue::gpu,
};

use super::telemetry_tests::{TargetFixture, node_report, push_reading};
use gaunt_cluster::Cluster;

const NODES: [&str; 5] = ["gpu001", "gpu002", "gpu003", "gpu004", "gpu005"];

/// The second from which nodes are silent.
const SILENT: i64 = 120;

/// How busy a node's GPUs are.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Usual,
    /// They wait for the lost node.
    Hangs,
    Idle,
    /// Its processes have just ended: the mean of the last interval still contains their work.
    Ended,
}

/// The first three nodes have one job, and each of the others one of its own.
fn job_page(node: usize, work: Work) -> Report {
    let mut page = node_report(NODES[node]);
    let job = if node < 3 { "8812" } else { NODES[node] };
    let (utilization, tensor) = match work {
        Work::Usual => (0.99, 0.4),
        Work::Hangs => (1.0, 0.0),
        Work::Idle => (0.0, 0.0),
        Work::Ended => (0.3, 0.1),
    };
    let memory = if work == Work::Ended { 0.0 } else { 60e9 };
    let device = page.ensure_device(Device::new_gpu(0));
    page.add_info(device, gpu::JOB_INFO, &[("job", job)]);
    page.add_info(device, gpu::INFO, &[("model", "H100")]);
    for (metric, value) in [
        (gpu::UTILIZATION, utilization),
        (gpu::TENSOR_ACTIVE, tensor),
        (gpu::POWER_LIMIT, 700.0),
        (gpu::MEMORY_TOTAL, 80e9),
        (gpu::MEMORY_USED, memory),
        (gpu::POWER, 100.0 + 1_000.0 * tensor),
    ] {
        push_reading(&mut page, Device::new_gpu(0), metric, value);
    }
    page
}

/// Runs until a second in which each node works like this, or is silent.
fn run_until(
    fixture: &mut TargetFixture,
    end: i64,
    work_of: impl Fn(i64, usize) -> Option<Work>,
) -> Vec<(String, Severity)> {
    while fixture.second < end {
        fixture.second += 1;
        let at = UnixMs(fixture.second * 1_000);
        for node in 0..NODES.len() {
            let page = |work| ScrapedPage {
                report: job_page(node, work),
                dialect: Dialect::Gaunt,
                bytes: 1,
                rejected: RejectionCounts::default(),
            };
            let refused = || ScrapeFailure::Connect("host unreachable".into());
            let outcome = work_of(fixture.second, node).map(page).ok_or_else(refused);
            let batch = Batch { target: TargetId(node as u32), at, duration_ms: 1.0, outcome };
            fixture.cluster.ingest_delivery(Delivery::Batch(batch));
        }
        fixture.cluster.advance_to(at);
        fixture.judge.evaluate_cluster(&fixture.cluster);
    }
    let open = fixture.judge.open_findings();
    let down = open.iter().filter(|finding| finding.id.starts_with("target_down"));
    down.map(|finding| (finding.id.clone(), finding.severity)).collect()
}

fn fixture() -> TargetFixture {
    TargetFixture::new(&NODES.map(|name| (name, Dialect::Gaunt)))
}

fn silent(second: i64, is_silent: bool, work: Work) -> Option<Work> {
    (second <= SILENT || !is_silent).then_some(work)
}

fn warning(node: &str) -> (String, Severity) {
    (format!("target_down/{node}"), Severity::Warning)
}

#[test]
fn node_that_is_lost_to_its_job_is_a_page() {
    let mut fixture = fixture();
    let found = run_until(&mut fixture, 300, |second, node| {
        let hangs = second > SILENT && node < 3;
        silent(second, node == 1, if hangs { Work::Hangs } else { Work::Usual })
    });
    assert_eq!(found, [("target_down/gpu002".to_owned(), Severity::Critical)]);
}

#[test]
fn node_whose_job_works_as_usual_is_a_warning_and_stays_one_when_the_job_ends() {
    let mut fixture = fixture();
    let is_silent = |node| node == 1;
    let at_work = |second, node| silent(second, is_silent(node), Work::Usual);
    assert_eq!(run_until(&mut fixture, 400, at_work), [warning("gpu002")]);
    let found = run_until(&mut fixture, 500, |second, node| {
        silent(second, is_silent(node), if node < 3 { Work::Idle } else { Work::Usual })
    });
    assert_eq!(found, [warning("gpu002")]);
}

#[test]
fn node_with_a_job_of_its_own_is_a_page_unless_it_fell_silent_with_one_that_is_up() {
    let alone =
        run_until(&mut fixture(), 300, |second, node| silent(second, node == 3, Work::Usual));
    assert_eq!(alone, [("target_down/gpu004".to_owned(), Severity::Critical)]);
    let together = run_until(&mut fixture(), 300, |second, node| {
        silent(second, node == 3 || node == 1, Work::Usual)
    });
    assert_eq!(together, [warning("gpu002"), warning("gpu004")]);
}

#[test]
fn node_whose_gpus_were_idle_before_is_a_warning() {
    for (seconds, last) in [(30, Work::Idle), (1, Work::Ended)] {
        let found = run_until(&mut fixture(), 300, |second, node| {
            let is_over = node == 3 && second > SILENT - seconds;
            silent(second, node == 3, if is_over { last } else { Work::Usual })
        });
        assert_eq!(found, [warning("gpu004")], "{seconds}");
    }
}

#[test]
fn node_that_failed_a_scrape_before_all_others_did_is_no_page() {
    // Each node has two targets that are scraped once a minute, at different seconds.
    let mut fixture = fixture();
    fixture.cluster = Cluster::new(Duration::from_mins(1), 20);
    let target = |id: usize| ScrapeTarget {
        id: TargetId(id as u32),
        address: format!("{}:{}", NODES[id / 2], 9_100 + id % 2).as_str().into(),
        node: Some(NODES[id / 2].into()),
        origin: "test".into(),
    };
    let targets = NODES.len() * 2;
    fixture.cluster.ingest_delivery(Delivery::Targets((0..targets).map(target).collect()));
    let mut told = Vec::new();
    for second in 1..=1_500 {
        let at = UnixMs(second * 1_000);
        for id in (0..targets).filter(|id| second % 60 == (id * 17 % 60) as i64) {
            let report = if id % 2 == 0 {
                job_page(id / 2, Work::Usual)
            } else {
                node_report(NODES[id / 2])
            };
            let page = ScrapedPage {
                report,
                dialect: Dialect::Gaunt,
                bytes: 1,
                rejected: RejectionCounts::default(),
            };
            let fails = second > if id == 7 { 1_100 } else { 1_200 };
            let refused = || ScrapeFailure::Connect("host unreachable".into());
            let outcome = Some(page).filter(|_| !fails).ok_or_else(refused);
            let batch = Batch { target: TargetId(id as u32), at, duration_ms: 1.0, outcome };
            fixture.cluster.ingest_delivery(Delivery::Batch(batch));
        }
        fixture.cluster.advance_to(at);
        fixture.judge.evaluate_cluster(&fixture.cluster);
        for finding in fixture.judge.open_findings() {
            let what = (finding.id.clone(), finding.severity);
            if !told.contains(&what) {
                told.push(what);
            }
        }
    }
    assert_eq!(told, [warning("gpu004"), ("target_down".to_owned(), Severity::Warning)]);
}

#[test]
fn node_is_silent_since_the_last_of_its_targets_fails() {
    let targets = ["gpu005:9400", "gpu005:9100"];
    let mut fixture = TargetFixture::new(&targets.map(|address| (address, Dialect::Gaunt)));
    let last_fails = SILENT + 100;
    let mut told = Vec::new();
    for second in 1..=last_fails + 120 {
        let at = UnixMs(second * 1_000);
        let reports = [
            (second < SILENT).then(|| job_page(4, Work::Usual)),
            (second < last_fails).then(|| node_report("gpu005")),
        ];
        for (target, report) in (0..).zip(reports) {
            let page = |report| ScrapedPage {
                report,
                dialect: Dialect::Gaunt,
                bytes: 1,
                rejected: RejectionCounts::default(),
            };
            let refused = || ScrapeFailure::Connect("connection refused".into());
            let outcome = report.map(page).ok_or_else(refused);
            let batch = Batch { target: TargetId(target), at, duration_ms: 1.0, outcome };
            fixture.cluster.ingest_delivery(Delivery::Batch(batch));
        }
        fixture.cluster.advance_to(at);
        fixture.judge.evaluate_cluster(&fixture.cluster);
        let open = fixture.judge.open_findings();
        told.extend(open.first().map(|finding| (second, finding.severity)));
    }
    let first_page = told.iter().find(|(_, severity)| *severity == Severity::Critical);
    let (first_page, _) = first_page.expect("its job has lost it");
    assert!(told[0].0 < SILENT + 10, "one of its targets fails: {:?}", told[0]);
    assert!(*first_page > last_fails + 110, "it answered until {last_fails}: {first_page}");
}
