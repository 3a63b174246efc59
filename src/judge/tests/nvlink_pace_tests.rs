//! Tests of the pace of a job by what its GPUs exchange over NVLink.

use gaunt_schema::{
    Device, Dialect, Report,
    catalogue::{gpu, gpu_health},
};

use super::telemetry_tests::{TargetFixture, node_report, push_reading};

const ONSET: i64 = 300;

/// A job on one node, whose activity is known from instants, now this and now that, and which is half as fast from the onset
/// on.
fn page(second: i64, stated: bool, counted: bool) -> Report {
    let mut page = node_report("ash");
    let late = (second - ONSET).max(0) as f64;
    for index in 0..4 {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        let instant = ((second * 7_919 + i64::from(index) * 104_729) % 97) as f64 / 97.0;
        for (metric, value) in [
            (gpu::UTILIZATION, 1.0),
            (gpu::TENSOR_ACTIVE, if late > 0.0 { 0.4 * instant } else { 0.8 * instant }),
            (gpu::POWER, 600.0),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::PROCESSES, 1.0),
        ] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
        let speed = if late > 0.0 { 0.5 } else { 1.0 };
        let noise = 1.0 + 0.02 * (instant - 0.5);
        let moved =
            if counted { 2e11 * (second as f64 - 0.5 * late) } else { 2e11 * speed * noise };
        if stated {
            push_reading(&mut page, Device::new_gpu(index), gpu_health::NVLINK_RATE, moved);
        }
    }
    page
}

#[test]
fn slowdown_of_a_job_on_one_node_is_known_by_what_its_gpus_exchange() {
    let told_after = |stated: bool, counted: bool| {
        let mut fixture = TargetFixture::new(&[("ash", Dialect::Dcgm)]);
        fixture.run(ONSET, |second, _| page(second, stated, counted));
        assert_eq!(fixture.open_ids(), [""; 0]);
        (1..120).find(|_| {
            fixture.run(1, |second, _| page(second, stated, counted));
            fixture.open_ids() == ["unexplained_slowdown/8812"]
        })
    };
    let stated = told_after(true, false);
    assert!(stated.is_some_and(|seconds| seconds < 75), "{stated:?}");
    let counted = told_after(true, true);
    assert!(counted.is_some_and(|seconds| seconds < 75), "{counted:?}");
    assert!(told_after(false, false).is_none_or(|seconds| seconds > 75));
}
