//! Tests of ports that stop the network with PFC pause, where only the number of frames is counted.

use gaunt_schema::{
    Device, Dialect, Report, Severity,
    catalogue::{ethernet, port},
};

use super::{NODES, ONSET, add_gpus, job_page};
use crate::telemetry_tests::{TargetFixture, node_report, push_reading};

/// What is told of a job of this pace while its nodes send so many pause frames per second since the onset, besides a slowdown
/// that nothing explains.
fn told(pace: f64, shown: impl Fn(i64, usize, f64) -> Report) -> Vec<(String, Severity, String)> {
    let mut fixture = TargetFixture::new(&NODES.map(|name| (name, Dialect::Gaunt)));
    fixture.run(ONSET + 60, |second, node| shown(second, node, pace));
    let open = fixture.judge.open_findings().into_iter();
    let told = open.filter(|finding| !finding.id.starts_with("unexplained_slowdown"));
    told.map(|finding| (finding.id.clone(), finding.severity, finding.summary.clone())).collect()
}

/// A page of a node that sends these frames since the onset.
fn pausing_page(second: i64, node: usize, pace: f64, frames: [f64; 4]) -> Report {
    let mut report = job_page(second, node, pace, 0.0, 0.0);
    let port = report.ensure_device(Device::new_port("mlx5_0", "1"));
    report.add_info(port, port::INFO, &[("netdev", "ens1")]);
    let sent = frames[node] * (second - ONSET).max(0) as f64;
    push_reading(&mut report, Device::new_netdev("ens1"), ethernet::TRANSMIT_PAUSE_3, sent);
    report
}

#[test]
fn host_that_stops_the_network_is_known_by_the_number_of_its_pause_frames() {
    // Each stops a port of 400 Gb/s for 21 µs.
    let told_of = |frames| told(0.7, |second, node, pace| pausing_page(second, node, pace, frames));
    let [(id, severity, summary)] = &told_of([0.0, 0.0, 5e3, 0.0])[..] else {
        panic!("one finding")
    };
    assert_eq!((id.as_str(), *severity), ("host_blocks_network/gpu003", Severity::Critical));
    assert_eq!(summary, "gpu003 sends PFC pause 10 % of the time: slow receiver.");
    assert_eq!(told_of([0.0, 0.0, 200.0, 0.0]), []);
    assert_eq!(told_of([5e3; 4]), [], "no host differs");
}

/// A page of a node with four ports, of which the last one of one node drops packets and sends frames since the onset.
fn page_of_four(second: i64, node: usize, pace: f64, frames: f64) -> Report {
    let mut report = node_report(NODES[node]);
    add_gpus(&mut report, second, pace);
    let since = (second - ONSET).max(0) as f64;
    let bytes = 5e9 * (second.min(ONSET) as f64 + since * pace);
    for index in 0..4 {
        let (name, netdev) = (format!("mlx5_{index}"), format!("ens{index}"));
        let device = report.ensure_device(Device::new_port(&name, "1"));
        report.add_info(device, port::INFO, &[("netdev", netdev.as_str())]);
        let sent = if (node, index) == (2, 3) { frames * since } else { 0.0 };
        for (metric, value) in [
            (port::STATE, 4.0),
            (port::RATE, 50e9),
            (port::RECEIVE_BYTES, bytes),
            (port::TRANSMIT_BYTES, bytes),
        ] {
            push_reading(&mut report, Device::new_port(&name, "1"), metric, value);
        }
        push_reading(&mut report, Device::new_netdev(&netdev), ethernet::TRANSMIT_PAUSE_3, sent);
    }
    report
}

#[test]
fn one_adapter_of_several_that_stops_the_network_counts_while_the_job_is_slower() {
    let told_of = |pace| told(pace, |second, node, pace| page_of_four(second, node, pace, 5e3));
    let [(id, severity, summary)] = &told_of(0.7)[..] else { panic!("one finding") };
    assert_eq!((id.as_str(), *severity), ("host_blocks_network/gpu003", Severity::Critical));
    assert_eq!(summary, "mlx5_3/1 on gpu003 sends PFC pause 10 % of the time: slow receiver.");
    assert_eq!(told_of(1.0), [], "it costs nothing");
}
