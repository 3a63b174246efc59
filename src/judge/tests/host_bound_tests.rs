//! Tests of hosts that hold up their GPUs: what their CPUs do for a job is no fault of its host.

mod differing_host_tests;

use gaunt_schema::{
    Device, Dialect, FindingKind, Report,
    catalogue::{gpu, host},
};

use super::{
    BUSY, JobFixture, NodeShown, Severity,
    telemetry_tests::{TargetFixture, node_report, push_reading},
};

/// The second in which processes begin on a node that was free.
const BEGINS: i64 = 600;

/// The page of a node whose CPUs are busy while processes use its GPUs; nothing names their jobs. Late in the work one GPU
/// does less.
fn page(second: i64) -> Report {
    let mut page = node_report("ash");
    let works = second > BEGINS;
    for index in 0..4 {
        let busy = match (works, index == 0 && second > BEGINS + 300) {
            (false, _) => 0.0,
            (true, false) => 0.9,
            (true, true) => 0.5,
        };
        for (metric, value) in [
            (gpu::UTILIZATION, busy),
            (gpu::MEMORY_TOTAL, 80e9),
            (gpu::MEMORY_USED, if works { 60e9 } else { 0.0 }),
            (gpu::POWER, 100.0 + 500.0 * busy + (second % 7) as f64),
            (gpu::POWER_LIMIT, 700.0),
        ] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    push_reading(&mut page, Device::new_node(), host::CPU_BUSIEST, if works { 0.85 } else { 0.1 });
    page
}

#[test]
fn cpu_load_of_a_job_on_a_node_that_was_free_is_no_rise() {
    let mut fixture = TargetFixture::new(&[("ash", Dialect::Dcgm)]);
    fixture.run(BEGINS + 250, |second, _| page(second));
    let busiest = fixture.saved_host_baseline("ash", 2);
    assert!(busiest > 0.7, "{busiest}");
    fixture.run(200, |second, _| page(second));
    assert_eq!(fixture.open_ids(), [""; 0]);
}

#[test]
fn starving_host_that_costs_little_pages_only_after_the_span_of_a_pause() {
    let severity_after = |share: f64, seconds: i64| {
        let mut fixture = JobFixture::new();
        fixture.run(200, [Some(BUSY), Some(BUSY)]);
        let [_, tensor, sm] = BUSY.gpu;
        let low = [tensor * share, sm * share];
        let host = NodeShown { gpu: [share, low[0], low[1]], busiest: 0.99, ..BUSY };
        let peer = NodeShown { gpu: [1.0, low[0], low[1]], ..BUSY };
        fixture.run(seconds, [Some(host), Some(peer)]);
        let of_host = fixture.open_ids().contains(&"host_bound/gpu001");
        of_host.then(|| fixture.finding_by_id("host_bound/gpu001").severity)
    };
    for (share, seconds, expected) in [
        (0.8, 50, Severity::Critical),
        (0.9, 50, Severity::Warning),
        (0.9, 110, Severity::Critical),
    ] {
        assert_eq!(severity_after(share, seconds), Some(expected), "{share} after {seconds} s");
    }
}

#[test]
fn busier_host_of_gpus_that_do_less_of_the_same_is_a_warning() {
    let severity_with = |tensor: f64, busiest: f64| {
        let mut fixture = JobFixture::of(1);
        let before = NodeShown { busiest: 0.3, ..BUSY };
        fixture.run(300, [Some(before)]);
        let [_, _, sm] = BUSY.gpu;
        let after = NodeShown { gpu: [0.7, tensor, sm * 0.7], busiest, ..BUSY };
        fixture.run(120, [Some(after)]);
        let open = fixture.judge.open_findings().into_iter();
        open.filter(|finding| finding.kind == FindingKind::HostBound)
            .map(|finding| finding.severity)
            .max()
    };
    let [_, tensor, _] = BUSY.gpu;
    assert_eq!(severity_with(tensor * 0.7, 0.7), Some(Severity::Warning));
    assert_eq!(severity_with(tensor * 0.35, 0.7), Some(Severity::Info), "other work");
    assert_eq!(severity_with(tensor * 0.7, 0.3), None, "its CPUs do no more");
}

#[test]
fn host_that_waits_for_memory_is_told_while_a_job_uses_its_gpus() {
    let told_of = |waits: f64, from: i64| {
        let mut fixture = TargetFixture::new(&[("ash", Dialect::Dcgm)]);
        fixture.run(400, |second, _| {
            let mut page = page(from + second % 250);
            let waited = (second - 200).max(0) as f64 * waits;
            push_reading(&mut page, Device::new_node(), host::MEMORY_PRESSURE, waited);
            page
        });
        let open = fixture.judge.open_findings().into_iter();
        open.map(|finding| (finding.id.clone(), finding.severity)).collect::<Vec<_>>()
    };
    let used = BEGINS + 1;
    assert_eq!(told_of(0.3, used), [("host_bound/ash".to_owned(), Severity::Warning)]);
    assert_eq!(told_of(0.05, used), [], "its page cache is reclaimed");
    assert_eq!(told_of(0.3, 0), [], "nobody uses it");
}

#[test]
fn finding_outlives_its_evidence_while_its_job_is_slower() {
    let mut fixture = JobFixture::new();
    fixture.run(200, [Some(BUSY), Some(BUSY)]);
    let [_, tensor, sm] = BUSY.gpu;
    let low = [tensor * 0.7, sm * 0.7];
    let host = NodeShown { gpu: [0.7, low[0], low[1]], busiest: 0.99, ..BUSY };
    let peer = NodeShown { gpu: [1.0, low[0], low[1]], ..BUSY };
    fixture.run(150, [Some(host), Some(peer)]);
    assert_eq!(fixture.open_ids(), ["host_bound/gpu001"]);
    fixture.run(200, [Some(peer), Some(peer)]);
    assert_eq!(fixture.open_ids(), ["host_bound/gpu001"], "its job is still slower");
    fixture.run(200, [Some(peer), Some(peer)]);
    assert!(!fixture.open_ids().contains(&"host_bound/gpu001"), "{:?}", fixture.open_ids());
}

/// A node of a job whose first GPU on the first node, from a second on, is held up by its host, while the others wait for it.
fn page_of_held_up(second: i64, node: usize) -> Report {
    let mut page = node_report(["ash", "birch"][node]);
    let changed = second > 400;
    let swing = (second % 11) as f64 / 1_000.0;
    for index in 0..4 {
        let is_held_up = changed && node == 0 && index == 0;
        let speed = if changed && !is_held_up { 0.7 } else { 1.0 };
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        for (metric, value) in [
            (gpu::UTILIZATION, if is_held_up { 0.75 } else { 0.99 - swing }),
            (gpu::TENSOR_ACTIVE, 0.4 * speed + swing),
            (gpu::SM_ACTIVE, 0.6 * speed + swing),
            (gpu::POWER, 150.0 + 450.0 * speed + 1e3 * swing),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::SM_CLOCK, 1.7e9),
            (gpu::PROCESSES, 1.0),
        ] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    let is_pressed = changed && node == 0;
    let waited = if is_pressed { (second - 400) as f64 * 0.3 } else { 0.0 };
    push_reading(&mut page, Device::new_node(), host::CPU_PRESSURE, waited);
    let busiest = if is_pressed { 1.0 } else { 0.4 + swing };
    push_reading(&mut page, Device::new_node(), host::CPU_BUSIEST, busiest);
    page
}

#[test]
fn gpu_that_its_host_holds_up_does_not_become_a_straggler() {
    let targets = [("ash", Dialect::Gaunt), ("birch", Dialect::Gaunt)];
    let mut fixture = TargetFixture::new(&targets);
    fixture.run(500, page_of_held_up);
    assert_eq!(fixture.open_ids(), ["host_bound/ash"]);
    fixture.run(900, page_of_held_up);
    assert_eq!(fixture.open_ids(), ["host_bound/ash"]);
}
