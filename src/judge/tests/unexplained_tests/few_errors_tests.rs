//! Tests of links with a few errors beside a job that is slower: errors that are too few to slow it do not explain that.

use gaunt_schema::{
    Device, MetricId, Severity,
    catalogue::{gpu_health, gpu_parts, port},
};

use super::{ID, SlowedJob, at_pace, rank_report};
use crate::telemetry_tests::push_reading;

/// What is told of a job that is slower from the 120th second on, while a device of one node counts so many errors per
/// second.
fn told(device: &Device, metric: MetricId, rate: f64) -> Vec<(String, Severity)> {
    let mut job = SlowedJob::on_nodes(&["ash:9770", "birch:9770", "cedar:9770", "elm:9770"]);
    for second in 0..420 {
        let pace = if second < 120 { 1.0 } else { 0.6 };
        job.sent += 10e9 * pace;
        let sent = job.sent;
        job.fixture.run(1, |_, index| {
            let mut report = rank_report(index, at_pace(pace), sent, 0.0);
            let errors =
                if index == 1 { (rate * f64::from((second - 120).max(0))).floor() } else { 0.0 };
            push_reading(&mut report, device.clone(), metric, errors);
            report
        });
    }
    let open = job.fixture.judge.open_findings().into_iter();
    open.map(|finding| (finding.id.clone(), finding.severity)).collect()
}

#[test]
fn few_errors_of_a_link_are_a_warning_and_explain_no_slowdown() {
    let nvlink = Device::new_gpu_part(gaunt_schema::DeviceClass::Nvlink, 1, 0);
    for (device, metric, id) in [
        (Device::new_gpu(1), gpu_health::PCIE_REPLAYS, "pcie_degraded/birch/1"),
        (Device::new_port("mlx5_0", "1"), port::SYMBOL_ERRORS, "link_errors/birch/mlx5_0/1"),
        (nvlink, gpu_parts::NVLINK_CRC, "nvlink_degraded/birch/1"),
    ] {
        let unexplained = (ID.to_owned(), Severity::Warning);
        let few = told(&device, metric, 0.2);
        assert_eq!(few.len(), 2, "{few:?}");
        assert!(few.contains(&(id.to_owned(), Severity::Warning)), "{few:?}");
        assert!(few.contains(&unexplained), "{few:?}");
        assert_eq!(
            told(&device, metric, 5.0),
            [(id.to_owned(), Severity::Critical)],
            "they explain it"
        );
    }
}
