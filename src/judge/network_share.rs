//! Network share: how much of the line rate of its ports a node uses.

use gaunt_cluster::{Cluster, Node};
use gaunt_schema::{
    DeviceClass, MetricId,
    catalogue::{host, port},
};

use super::port_link::line_rate;

/// The traffic of a node as shares of the line rates of all its ports together.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkShare {
    /// The smaller direction. A collective sends what it receives; what goes in one direction only is a checkpoint or a
    /// dataset, which may take the same ports.
    pub(super) exchanged: f64,
    /// The larger direction.
    pub(super) busier: f64,
}

/// Returns the traffic of a node's ports; of its network devices where it has no port: there the job's traffic goes over
/// Ethernet like all other.
pub(super) fn network_share(cluster: &Cluster, node: &Node) -> Option<NetworkShare> {
    let ports = [port::RECEIVE_BYTES, port::TRANSMIT_BYTES];
    let share = share_of_rate(cluster, node.device_rows(DeviceClass::Port), ports, line_rate);
    share.or_else(|| {
        let devices = [host::NETDEV_RECEIVE_BYTES, host::NETDEV_TRANSMIT_BYTES];
        let speed = |cluster: &Cluster, row| cluster.current_value(host::NETDEV_SPEED, row);
        share_of_rate(cluster, node.device_rows(DeviceClass::Netdev), devices, speed)
    })
}

/// Whether a node has ports whose traffic is counted: without, most of what its GPUs exchange may be counted nowhere.
pub(super) fn counts_ports(cluster: &Cluster, node: &Node) -> bool {
    let ports = node.device_rows(DeviceClass::Port);
    ports.iter().any(|row| cluster.current_rate(port::TRANSMIT_BYTES, *row).is_some())
}

/// Returns the traffic of all these devices together as shares of their rates, as far as both are known.
fn share_of_rate(
    cluster: &Cluster,
    rows: &[u32],
    [receives, transmits]: [MetricId; 2],
    rate_of: impl Fn(&Cluster, u32) -> Option<f64>,
) -> Option<NetworkShare> {
    let (mut receive, mut transmit, mut rate) = (0.0, 0.0, 0.0);
    for row in rows {
        let traffic = cluster.current_rate(receives, *row);
        let traffic = traffic.zip(cluster.current_rate(transmits, *row));
        let line = rate_of(cluster, *row).filter(|line| *line > 0.0);
        if let (Some((r, t)), Some(line)) = (traffic, line) {
            receive += r;
            transmit += t;
            rate += line;
        }
    }
    let of = |bytes: f64| bytes / rate;
    (rate > 0.0).then(|| NetworkShare {
        exchanged: of(f64::min(receive, transmit)),
        busier: of(f64::max(receive, transmit)),
    })
}
