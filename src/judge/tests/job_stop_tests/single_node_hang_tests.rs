//! Tests of jobs on one node that stand still: their ranks need no network, whose silence would show it.

use gaunt_schema::{
    Device, Dialect, FindingKind, Report, Severity,
    catalogue::{gpu, hardware, host},
};

use super::super::telemetry_tests::{TargetFixture, node_report, push_reading};

/// A node with a job on four GPUs, and the bytes that its disk has written.
fn page(second: i64, works: bool, written: f64) -> Report {
    let mut page = node_report("gpu001");
    push_reading(&mut page, Device::new_node(), host::IO_PRESSURE, 1e6);
    // Work varies a little, as measured.
    let wobble = (second * 7 % 5) as f64 * 0.004;
    let busy = if works { 1.0 - wobble } else { 0.0 };
    for index in 0..4 {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        for (metric, value) in [
            (gpu::UTILIZATION, busy),
            (gpu::POWER, 80.0 + busy * 500.0),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::MEMORY_USED, 60e9),
            (gpu::MEMORY_TOTAL, 80e9),
        ] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    let disk = page.ensure_device(Device::new_disk("nvme0n1"));
    page.push(disk, hardware::DISK_READ_BYTES, 1e9 + second as f64 * 1e4);
    page.push(disk, hardware::DISK_WRITE_BYTES, written);
    page
}

/// The severity of the hang, if one is told, after the job stood still for so long while its disk wrote at this rate.
fn hang_after(seconds: i64, bytes_per_second: f64, pauses: i64) -> Option<Severity> {
    let mut fixture = TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt)]);
    let begins = 240 + pauses * 120;
    fixture.run(begins, |second, _| {
        let pauses = second > 240 && (second - 240) % 120 < 40;
        page(second, !pauses, 1e9 + second as f64 * 2e5)
    });
    let wrote = 1e9 + begins as f64 * 2e5;
    fixture.run(seconds, move |second, _| {
        page(second, false, wrote + (second - begins) as f64 * bytes_per_second)
    });
    let open = fixture.judge.open_findings();
    let hang = open.iter().find(|finding| finding.kind == FindingKind::CollectiveHang);
    hang.map(|finding| finding.severity)
}

#[test]
fn job_on_one_node_that_stops_while_its_disk_is_silent_is_a_warning() {
    assert_eq!(hang_after(90, 2e5, 0), None, "it may pause");
    assert_eq!(hang_after(240, 2e5, 0), Some(Severity::Warning));
}

#[test]
fn job_on_one_node_that_writes_or_often_pauses_is_not_told_to_hang() {
    assert_eq!(hang_after(240, 2e8, 0), None, "it writes a checkpoint");
    assert_eq!(hang_after(240, 2e5, 3), None, "it waits for its user");
}
