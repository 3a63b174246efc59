//! Tests of rails that wait to send from before the first look: their own past does not show it.

use gaunt_schema::{Device, Dialect, Finding, Report, Severity, UnixMs, catalogue::port};

use super::telemetry_tests::TargetFixture;

/// Bytes that a port sends in a second.
const SENT: f64 = 2e9;

/// What the ports of each node show, since the start: ticks of waiting per kilobyte, and bytes as a multiple of the usual.
type PortShown = fn(usize, usize) -> (f64, f64);

fn page(second: i64, node: usize, shown: PortShown) -> Report {
    let mut report = Report {
        node: Some(format!("gpu{node:03}").as_str().into()),
        node_time: Some(UnixMs(second * 1_000)),
        ..Report::default()
    };
    for rail in 0..4 {
        let device = report.ensure_device(Device::new_port(&format!("mlx5_{rail}"), "1"));
        let (ticks, load) = shown(node, rail);
        let bytes = second as f64 * SENT * load;
        for (metric, value) in [
            (port::STATE, 4.0),
            (port::RATE, 50e9),
            (port::RECEIVE_BYTES, bytes),
            (port::TRANSMIT_BYTES, bytes),
            (port::TRANSMIT_WAIT, (ticks * bytes / 1e3).round()),
        ] {
            report.push(device, metric, value);
        }
    }
    report
}

const NODES: usize = 5;

/// The findings after two minutes.
fn found(shown: PortShown) -> Vec<Finding> {
    let addresses: Vec<String> = (0..NODES).map(|node| format!("10.0.0.{node}:9770")).collect();
    let targets: Vec<(&str, Dialect)> =
        addresses.iter().map(|address| (address.as_str(), Dialect::Gaunt)).collect();
    let mut fixture = TargetFixture::new(&targets);
    fixture.run(120, |second, node| page(second, node, shown));
    fixture.judge.open_findings().into_iter().cloned().collect()
}

/// Levels of healthy ports, which differ by a hundred.
fn usual(node: usize, rail: usize) -> f64 {
    [0.000_3, 0.03, 0.002, 0.000_5][(node + rail) % 4]
}

#[test]
fn rail_that_waited_before_the_first_look_is_a_warning() {
    let rail = found(|node, rail| (if rail == 2 { 70.0 } else { usual(node, rail) }, 1.0));
    assert_eq!(rail.len(), 1, "{rail:?}");
    assert_eq!((rail[0].id.as_str(), rail[0].severity), ("rail_slow/2", Severity::Warning));
    assert!(rail[0].summary.contains("from before the first look"), "{}", rail[0].summary);
}

#[test]
fn waits_of_ports_that_do_other_work_or_of_few_nodes_show_nothing() {
    let healthy: [PortShown; 4] = [
        |node, rail| (usual(node, rail), 1.0),
        // An adapter for storage.
        |node, rail| if rail == 2 { (70.0, 4.0) } else { (usual(node, rail), 1.0) },
        |node, rail| (if rail == 2 && node < 2 { 70.0 } else { usual(node, rail) }, 1.0),
        // All rails of a fabric whose ports always wait.
        |_, _| (70.0, 1.0),
    ];
    for (case, shown) in healthy.into_iter().enumerate() {
        assert_eq!(found(shown), [], "case {case}");
    }
}
