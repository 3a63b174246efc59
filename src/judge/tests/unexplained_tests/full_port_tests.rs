//! Tests of the only full port of a slower job.

use gaunt_schema::{
    Device, Dialect, Report, Severity,
    catalogue::{host, port},
};

use crate::telemetry_tests::{TargetFixture, busy_report, push_reading};

const NODES: [&str; 3] = ["ash", "beech", "cedar"];

/// The second from which the job is slower and traffic may change.
const CHANGES: i64 = 300;

/// Bytes per second at line rate.
const LINE: f64 = 25e9;

/// The shares of the line rate that a device sends and receives.
type Shares = [f64; 2];

const USUAL: Shares = [0.4, 0.4];
const LESS: Shares = [0.2, 0.2];
const NONE: Shares = [0.0, 0.0];

/// A node of a job that has so much of its speed from [`CHANGES`] on, whose RDMA port and network device carry this then.
fn page(second: i64, node: usize, speed: f64, [rdma, eth]: [Shares; 2]) -> Report {
    let speed = if second > CHANGES { speed } else { 1.0 };
    let mut page = busy_report(NODES[node], 1.0, 0.4 * speed);
    let [before, after] = [second.min(CHANGES), (second - CHANGES).max(0)].map(|it| it as f64);
    let bytes = |usual: f64, now: f64| LINE * (before * usual + after * now);
    for (device, metric, value) in [
        (Device::new_port("mlx5_0", "1"), port::STATE, 4.0),
        (Device::new_port("mlx5_0", "1"), port::PHYSICAL_STATE, 5.0),
        (Device::new_port("mlx5_0", "1"), port::RATE, LINE),
        (Device::new_port("mlx5_0", "1"), port::TRANSMIT_BYTES, bytes(USUAL[0], rdma[0])),
        (Device::new_port("mlx5_0", "1"), port::RECEIVE_BYTES, bytes(USUAL[1], rdma[1])),
        (Device::new_netdev("eth0"), host::NETDEV_SPEED, LINE),
        (Device::new_netdev("eth0"), host::NETDEV_TRANSMIT_BYTES, bytes(0.0, eth[0])),
        (Device::new_netdev("eth0"), host::NETDEV_RECEIVE_BYTES, bytes(0.0, eth[1])),
    ] {
        push_reading(&mut page, device, metric, value);
    }
    page
}

/// What is told of the network of a job at this speed, with nodes whose RDMA port and network device carry this.
fn told_of(speed: f64, nodes: [[Shares; 2]; 3]) -> Vec<(String, Severity)> {
    let mut fixture = TargetFixture::new(&NODES.map(|name| (name, Dialect::Gaunt)));
    fixture.run(CHANGES + 150, |second, node| page(second, node, speed, nodes[node]));
    let open = fixture.judge.open_findings().into_iter();
    let of_network = open.filter(|finding| !finding.id.starts_with("unexplained"));
    of_network.map(|finding| (finding.id.clone(), finding.severity)).collect()
}

#[test]
fn only_port_that_is_full_in_one_direction_is_what_a_slower_job_waits_for() {
    let told = |id: &str| vec![(id.to_owned(), Severity::Critical)];
    let port = "leaf_congested/beech/mlx5_0/1";
    let usual = [LESS, NONE];
    assert_eq!(told_of(0.5, [usual, [[0.9, 0.2], NONE], usual]), told(port), "it sends");
    assert_eq!(told_of(0.5, [usual, [[0.2, 0.8], NONE], usual]), told(port), "it receives");
    for (speed, nodes, case) in [
        (1.0, [usual, [[0.9, 0.2], NONE], usual], "the job is as fast as before"),
        (0.5, [usual, [[0.9, 0.7], NONE], usual], "a collective sends what it receives"),
        (0.5, [usual, [[0.5, 0.2], NONE], usual], "it has room"),
        (0.5, [[[0.9, 0.2], NONE], [[0.9, 0.2], NONE], usual], "it is not the only one"),
    ] {
        assert_eq!(told_of(speed, nodes), [], "{case}");
    }
}

#[test]
fn traffic_that_takes_another_device_than_elsewhere_blames_its_host() {
    let usual = [LESS, NONE];
    let told = [("host_blocks_network/beech".to_owned(), Severity::Critical)];
    assert_eq!(told_of(0.5, [usual, [NONE, [0.9, 0.8]], usual]), told);
    let reads = told_of(0.5, [usual, [NONE, [0.0, 0.9]], usual]);
    assert_eq!(reads, [], "it reads a data set");
    let both = told_of(0.5, [usual, [LESS, [0.9, 0.8]], usual]);
    assert_eq!(both, [], "its RDMA port carries as much as others");
}
