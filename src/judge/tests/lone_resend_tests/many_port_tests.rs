//! Tests of nodes all of whose ports lose packets: what they share is to blame, and no link.

use gaunt_schema::{
    Delivery, Device, Dialect, NodeLocation, Report, Severity, SourceTopology, TopologyOrigin,
    catalogue::port,
};

use super::{NODES, ONSET, add_gpus};
use crate::telemetry_tests::{TargetFixture, node_report, push_reading};

/// Packets a second that each of the four ports of a node sends again, and receives out of order, since the onset.
type Losses = (f64, f64);

fn page(second: i64, node: usize, (resent, missing): Losses) -> Report {
    let mut report = node_report(NODES[node]);
    add_gpus(&mut report, second, 0.7);
    let since = (second - ONSET).max(0) as f64;
    let bytes = 5e9 * (second.min(ONSET) as f64 + since * 0.7);
    for index in 0..4 {
        for (metric, value) in [
            (port::STATE, 4.0),
            (port::RATE, 50e9),
            (port::RECEIVE_BYTES, bytes),
            (port::TRANSMIT_BYTES, bytes),
            (port::PACKET_SEQUENCE_ERRORS, resent * since),
            (port::OUT_OF_SEQUENCE, missing * since),
        ] {
            push_reading(
                &mut report,
                Device::new_port(&format!("mlx5_{index}"), "1"),
                metric,
                value,
            );
        }
    }
    report
}

/// What is told while the ports of each node lose so many packets, besides a slowdown that nothing explains.
fn told(losses: [Losses; 4]) -> Vec<(String, Severity, String)> {
    let mut fixture = TargetFixture::new(&NODES.map(|name| (name, Dialect::Gaunt)));
    let mut topology = SourceTopology::new("topology.conf".into(), TopologyOrigin::Scheduler);
    let location = |(node, leaf): (&str, &str)| NodeLocation {
        node: node.into(),
        leaf: Some(leaf.into()),
        ..NodeLocation::default()
    };
    topology.nodes =
        NODES.into_iter().zip(["tor1", "tor1", "tor2", "tor2"]).map(location).collect();
    fixture.cluster.ingest_delivery(Delivery::Topology(topology));
    fixture.run(ONSET + 100, |second, node| page(second, node, losses[node]));
    let open = fixture.judge.open_findings().into_iter();
    let told = open.filter(|finding| !finding.id.starts_with("unexplained_slowdown"));
    told.map(|finding| (finding.id.clone(), finding.severity, finding.summary.clone())).collect()
}

const NONE: Losses = (0.0, 0.0);

#[test]
fn node_all_of_whose_ports_send_again_is_one_finding() {
    let found = told([NONE, (40.0, 0.0), NONE, NONE]);
    let [(id, severity, summary)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((id.as_str(), *severity), ("link_errors/gpu002", Severity::Warning));
    assert!(summary.contains("40.0 packets per second again on each of 4 ports"), "{summary}");
}

#[test]
fn packets_are_lost_where_they_are_missed_and_not_where_they_are_sent_again() {
    let found = told([(0.0, 60.0), (0.0, 60.0), (40.0, 0.0), (40.0, 0.0)]);
    let ids: Vec<&str> = found.iter().map(|(id, ..)| id.as_str()).collect();
    assert_eq!(ids, ["leaf_congested/tor1"]);
    // Several paths make packets arrive out of order anywhere.
    let found = told([(40.0, 60.0), (40.0, 60.0), (0.0, 60.0), (0.0, 60.0)]);
    let ids: Vec<&str> = found.iter().map(|(id, ..)| id.as_str()).collect();
    assert_eq!(ids, ["leaf_congested/tor1"], "those that send again");
}
