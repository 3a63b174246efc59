//! Tests of jobs whose ports also carry what goes one way: a checkpoint that is written, a dataset that is read.

use gaunt_schema::{
    Device, Dialect, Report, Severity,
    catalogue::{gpu, host},
};

use super::telemetry_tests::{TargetFixture, node_report, push_reading};

const NODES: [&str; 3] = ["gpu001", "gpu002", "gpu003"];

/// Bytes per second that collectives exchange in each direction.
const EXCHANGED: f64 = 2e9;

/// Seconds in which a checkpoint is written over the same ports, and its bytes per second.
const WRITES: std::ops::Range<i64> = 250..290;
const WRITTEN: f64 = 8e9;

/// A page of a job that works at this pace after the checkpoint; samples of its activity are instants.
fn job_page(second: i64, node: usize, pace: f64) -> Report {
    let mut report = node_report(NODES[node]);
    let slow = if second >= WRITES.end { pace } else { 1.0 };
    let device = report.ensure_device(Device::new_gpu(0));
    report.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
    report.add_info(device, gpu::INFO, &[("model", "H100")]);
    let instant = if (second * 7 + node as i64 * 3) % 5 < 2 { 0.2 } else { 0.4 };
    for (metric, value) in [
        (gpu::UTILIZATION, 0.99),
        (gpu::TENSOR_ACTIVE, instant * slow),
        (gpu::POWER_LIMIT, 700.0),
        (gpu::POWER, 300.0 + 500.0 * instant * slow),
    ] {
        push_reading(&mut report, Device::new_gpu(0), metric, value);
    }
    let after = (second - WRITES.end).max(0) as f64;
    let exchanged = EXCHANGED * (second.min(WRITES.end) as f64 + after * pace);
    let written = WRITTEN * (second.clamp(WRITES.start, WRITES.end) - WRITES.start) as f64;
    for (metric, value) in [
        (host::NETDEV_SPEED, 25e9),
        (host::NETDEV_RECEIVE_BYTES, exchanged),
        (host::NETDEV_TRANSMIT_BYTES, exchanged + written),
    ] {
        push_reading(&mut report, Device::new_netdev("bond0"), metric, value);
    }
    report
}

/// What is told some minutes after the checkpoint, and the GPUs that are lost.
fn told(pace: f64) -> (Vec<String>, f64) {
    let mut fixture = TargetFixture::new(&NODES.map(|name| (name, Dialect::Gaunt)));
    fixture.run(WRITES.end + 200, |second, node| job_page(second, node, pace));
    let open = fixture.judge.open_findings();
    let told = open.iter().filter(|finding| finding.severity > Severity::Info);
    let lost = open.iter().map(|finding| finding.lost_gpus).sum();
    (told.map(|finding| finding.id.clone()).collect(), lost)
}

#[test]
fn checkpoint_over_the_same_ports_is_no_pace_of_the_job() {
    assert_eq!(told(1.0), (vec![], 0.0));
}

#[test]
fn slowdown_after_the_checkpoint_is_as_large_as_it_is() {
    let (told, lost) = told(0.7);
    assert_eq!(told, ["unexplained_slowdown/8812"]);
    assert!((lost - 0.9).abs() < 0.2, "{lost} of 3 GPUs");
}
