//! Tests of ports that send packets again, where no other port of their job does.

use gaunt_schema::{
    Device, Dialect, Report, Severity,
    catalogue::{gpu, port},
};

use super::telemetry_tests::{TargetFixture, node_report, push_reading};

const NODES: [&str; 4] = ["gpu001", "gpu002", "gpu003", "gpu004"];

/// The second in which packets begin to get lost.
const ONSET: i64 = 200;

/// A page of a job whose pace is this share of its usual one since the onset, with a total of packets sent again.
fn job_page(second: i64, node: usize, pace: f64, resends: f64, symbols: f64) -> Report {
    let mut report = node_report(NODES[node]);
    let since = (second - ONSET).max(0) as f64;
    let slow = if second > ONSET { pace } else { 1.0 };
    for index in 0..4 {
        let device = report.ensure_device(Device::new_gpu(index));
        report.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        report.add_info(device, gpu::INFO, &[("model", "H100")]);
        for (metric, value) in [
            (gpu::UTILIZATION, 0.99),
            (gpu::TENSOR_ACTIVE, 0.4 * slow),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::POWER, 300.0 + 250.0 * slow),
        ] {
            push_reading(&mut report, Device::new_gpu(index), metric, value);
        }
    }
    let bytes = 5e9 * (second.min(ONSET) as f64 + since * pace);
    for (metric, value) in [
        (port::STATE, 4.0),
        (port::PHYSICAL_STATE, 5.0),
        (port::RATE, 50e9),
        (port::TRANSMIT_BYTES, bytes),
        (port::RECEIVE_BYTES, bytes),
        (port::PACKET_SEQUENCE_ERRORS, resends * since),
        (port::SYMBOL_ERRORS, symbols * since),
    ] {
        push_reading(&mut report, Device::new_port("mlx5_0", "1"), metric, value);
    }
    report
}

/// The page as AWS's build of node_exporter has it for EFA: without the state and the rate of the link, and packets sent again
/// under another name.
fn efa_page(page: Report) -> Report {
    let mut efa = Report { samples: Vec::new(), ..page.clone() };
    for sample in page.samples {
        let metric = match sample.metric {
            port::STATE | port::PHYSICAL_STATE | port::RATE => continue,
            port::PACKET_SEQUENCE_ERRORS => port::RETRANSMIT_PACKETS,
            other => other,
        };
        efa.push(sample.device, metric, sample.reading);
    }
    efa
}

/// What is told of the ports after a while, and how severe it is.
fn told(pace: f64, resends: [f64; 4], symbols: [f64; 4]) -> Vec<(String, Severity)> {
    let mut fixture = TargetFixture::new(&NODES.map(|name| (name, Dialect::Gaunt)));
    fixture.run(ONSET + 150, |second, node| {
        job_page(second, node, pace, resends[node], symbols[node])
    });
    let open = fixture.judge.open_findings();
    open.iter().map(|finding| (finding.id.clone(), finding.severity)).collect()
}

#[test]
fn only_port_of_a_slower_job_that_sends_again_has_a_bad_link() {
    let lone = "link_errors/gpu002/mlx5_0/1".to_owned();
    assert_eq!(told(0.7, [0.0, 60.0, 0.0, 0.0], [0.0; 4]), [(lone, Severity::Warning)]);
}

#[test]
fn packets_that_cost_no_time_are_told_of_nobody() {
    assert_eq!(told(1.0, [0.0, 60.0, 0.0, 0.0], [0.0; 4]), []);
    // One packet in ten million.
    let found = told(0.7, [0.0, 0.6, 0.0, 0.0], [0.0; 4]);
    assert!(found.iter().all(|(id, _)| !id.starts_with("link_errors")), "{found:?}");
}

#[test]
fn ports_that_all_send_again_are_no_outlier() {
    let found = told(0.7, [60.0, 50.0, 20.0, 60.0], [0.0; 4]);
    assert!(found.iter().all(|(id, _)| !id.starts_with("link_errors")), "{found:?}");
}

#[test]
fn link_with_errors_is_blamed_before_the_sender_that_sends_to_it() {
    let found = told(0.7, [0.0, 60.0, 0.0, 0.0], [0.0, 0.0, 5.0, 0.0]);
    let ports: Vec<_> = found.iter().filter(|(id, _)| id.starts_with("link_errors")).collect();
    assert_eq!(ports, [&("link_errors/gpu003/mlx5_0/1".to_owned(), Severity::Critical)]);
}

#[test]
fn port_without_state_and_rate_that_sends_again_is_told_as_well() {
    let run = |resends: [f64; 4]| {
        let mut fixture = TargetFixture::new(&NODES.map(|name| (name, Dialect::NodeExporter)));
        fixture.run(ONSET + 150, |second, node| {
            efa_page(job_page(second, node, 0.7, resends[node], 0.0))
        });
        let open = fixture.judge.open_findings();
        open.iter().map(|finding| finding.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(run([0.0, 60.0, 0.0, 0.0]), ["link_errors/gpu002/mlx5_0/1"]);
    let found = run([60.0; 4]);
    assert!(found.iter().all(|id| !id.starts_with("link_errors")), "{found:?}");
}
