//! Tests of ports that their node does not list any more.

use gaunt_schema::{Device, Dialect, Report, Severity, catalogue::port};

use super::{NODES, ONSET, add_gpus};
use crate::telemetry_tests::{TargetFixture, node_report, push_reading};

/// A page of a node with these ports, of a job of this pace since the onset.
fn page_with(second: i64, node: usize, pace: f64, names: &[&str]) -> Report {
    let mut report = node_report(NODES[node]);
    add_gpus(&mut report, second, pace);
    let since = (second - ONSET).max(0) as f64;
    let bytes = 5e9 * (second.min(ONSET) as f64 + since * pace);
    for name in names {
        for (metric, value) in [
            (port::STATE, 4.0),
            (port::RATE, 50e9),
            (port::RECEIVE_BYTES, bytes),
            (port::TRANSMIT_BYTES, bytes),
        ] {
            push_reading(&mut report, Device::new_port(name, "1"), metric, value);
        }
    }
    report
}

/// What is told of the ports of a job of this pace while one of its nodes lists these since the onset.
fn told(pace: f64, left: &[&str]) -> Vec<(String, Severity)> {
    let all = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"];
    let mut fixture = TargetFixture::new(&NODES.map(|name| (name, Dialect::Gaunt)));
    fixture.run(ONSET + 60, |second, node| {
        let names = if node == 2 && second > ONSET { left } else { &all };
        page_with(second, node, pace, names)
    });
    let open = fixture.judge.open_findings().into_iter();
    let told = open.filter(|finding| !finding.id.starts_with("unexplained_slowdown"));
    told.map(|finding| (finding.id.clone(), finding.severity)).collect()
}

#[test]
fn port_that_a_node_does_not_list_any_more_is_down() {
    let id = || "port_down/gpu003/mlx5_3/1".to_owned();
    let left = ["mlx5_0", "mlx5_1", "mlx5_2"];
    assert_eq!(told(0.7, &left), [(id(), Severity::Critical)]);
    assert_eq!(told(1.0, &left), [(id(), Severity::Warning)], "no job is slower");
}

#[test]
fn ports_that_are_renamed_or_mostly_gone_are_not_missed() {
    assert_eq!(told(0.7, &["mlx5_0", "mlx5_1", "mlx5_2", "rocep93s0"]), []);
    assert_eq!(told(0.7, &["mlx5_0"]), [], "its node was set up anew");
    assert_eq!(told(0.7, &[]), [], "nothing is known of it any more");
}
