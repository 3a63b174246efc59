//! Tests of workers that do nothing any more, though their processes hold the memory.

use gaunt_schema::{Device, Dialect, Report, catalogue::gpu};

use super::super::telemetry_tests::{TargetFixture, node_report, push_reading};

/// Two nodes of a job with four GPUs each. All are this busy, but the last two of the second node stop at a second.
fn page(second: i64, index: usize, busy: f64, stops: i64) -> Report {
    let mut page = node_report(["ash", "birch"][index]);
    for number in 0..4 {
        let device = page.ensure_device(Device::new_gpu(number));
        page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        let works = second < stops || index == 0 || number < 2;
        let busy = if works { busy } else { 0.0 };
        for (metric, value) in [
            (gpu::UTILIZATION, busy),
            (gpu::TENSOR_ACTIVE, 0.4 * busy),
            (gpu::POWER, 90.0 + 500.0 * busy),
            (gpu::MEMORY_USED, 70e9),
            (gpu::MEMORY_TOTAL, 80e9),
        ] {
            push_reading(&mut page, Device::new_gpu(number), metric, value);
        }
    }
    page
}

/// After how many seconds two workers are told that do nothing any more, of a job whose load does this.
fn told_after(load: fn(i64) -> f64) -> Option<i64> {
    let targets = [("ash:9770", Dialect::Gaunt), ("birch:9770", Dialect::Gaunt)];
    let mut fixture = TargetFixture::new(&targets);
    fixture.run(300, |second, index| page(second, index, load(second), 300));
    (1..400).find(|_| {
        fixture.run(1, |second, index| page(second, index, load(second), 300));
        fixture.open_ids().contains(&"idle_allocated/8812")
    })
}

#[test]
fn worker_that_does_nothing_any_more_is_told_and_that_of_a_service_later() {
    let training = told_after(|second| 0.95 + 0.002 * (second % 7) as f64).unwrap();
    // Requests come in waves of a minute.
    let waves = |second: i64| 0.7 + 0.25 * (second as f64 / 60.0 * std::f64::consts::TAU).sin();
    let service = told_after(waves).unwrap();
    assert!((60..120).contains(&training), "{training}");
    assert!((240..360).contains(&service), "{service}");
}

/// Three nodes of a job; no process ever uses a GPU of the last one.
fn page_beside_an_empty_node(second: i64, index: usize, load: fn(i64) -> f64) -> Report {
    let busy = if index == 2 { 0.0 } else { load(second) };
    let mut page = node_report(["ash", "birch", "cedar"][index]);
    for number in 0..4 {
        let device = page.ensure_device(Device::new_gpu(number));
        page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        for (metric, value) in [
            (gpu::UTILIZATION, busy),
            (gpu::TENSOR_ACTIVE, 0.4 * busy),
            (gpu::POWER, 90.0 + 500.0 * busy),
            (gpu::MEMORY_USED, if index == 2 { 3e6 } else { 70e9 }),
            (gpu::MEMORY_TOTAL, 80e9),
        ] {
            push_reading(&mut page, Device::new_gpu(number), metric, value);
        }
    }
    page
}

#[test]
fn node_that_a_working_job_holds_and_never_used_is_told_once_no_worker_is_to_begin() {
    let summaries = |seconds: i64, load: fn(i64) -> f64| {
        let nodes = ["ash", "birch", "cedar"];
        let mut fixture = TargetFixture::new(&nodes.map(|node| (node, Dialect::Gaunt)));
        fixture.run(seconds, |second, index| page_beside_an_empty_node(second, index, load));
        let open = fixture.judge.open_findings();
        open.iter().map(|finding| finding.summary.clone()).collect::<Vec<_>>()
    };
    let trains = |second: i64| 0.95 + 0.002 * (second % 7) as f64;
    assert_eq!(summaries(290, trains), [""; 0], "it may still load");
    assert_eq!(
        summaries(320, trains),
        ["cedar is given to job 8812, which works without it: no process uses its 4 GPUs."]
    );
    // A job that does nothing itself may wait for it.
    assert_eq!(summaries(320, |_| 0.0), [""; 0]);
}
