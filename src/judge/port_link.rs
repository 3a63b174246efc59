//! The link of a port, as pages state it: whether it is active, and its line rate.

use gaunt_cluster::Cluster;
use gaunt_schema::catalogue::port;

/// The logical state of an active port.
pub(super) const ACTIVE: f64 = 4.0;

/// The physical state of a port whose link is up.
pub(super) const LINK_UP: f64 = 5.0;

/// The line rate of a port that states none, in bytes per second: 200 Gb/s.
const USUAL_RATE: f64 = 25e9;

/// Whether a port is active; none if it reports no state.
pub fn is_port_active(cluster: &Cluster, row: u32) -> Option<bool> {
    let state = cluster.current_value(port::STATE, row)?;
    let physical = cluster.current_value(port::PHYSICAL_STATE, row);
    Some(state == ACTIVE && physical.is_none_or(|physical| physical == LINK_UP))
}

/// The line rate of a port in bytes per second; of one whose exporter states none, such as that of AWS's EFA, a usual one:
/// shares of it are compared with their own past and with those of other ports.
pub(super) fn line_rate(cluster: &Cluster, row: u32) -> Option<f64> {
    let stated = cluster.current_value(port::RATE, row).filter(|rate| *rate > 0.0);
    stated.or_else(|| is_link_unstated(cluster, row).then_some(USUAL_RATE))
}

/// Whether a port can carry traffic, as far as its state or, where no page has that, its counters show.
pub(super) fn is_port_usable(cluster: &Cluster, row: u32) -> bool {
    is_port_active(cluster, row).unwrap_or_else(|| is_link_unstated(cluster, row))
}

/// Whether the pages of a port have its traffic and neither the state nor the rate of its link.
fn is_link_unstated(cluster: &Cluster, row: u32) -> bool {
    cluster.current_rate(port::TRANSMIT_BYTES, row).is_some()
        && [port::STATE, port::RATE].iter().all(|it| cluster.last_value(*it, row).is_none())
}
