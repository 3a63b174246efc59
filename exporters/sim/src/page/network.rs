//! What a node's ports and network devices say.

use gaunt_schema::{
    Absent, Class, MetricId, Reading,
    catalogue::{host, port},
    unit::{Kind, Unit, Width},
};

use super::{Writer, micros};
use crate::{
    fabric::{PACKET_BYTES, RATE_BYTES_PER_S, RATE_DOWN_BYTES_PER_S},
    host::{BOND_BYTES_PER_S, Host},
    port::{COUNTED, Port},
};

/// Packets that a port gives up on when its link, or that of the port that it talks to, goes down.
const LOST_WITH_A_LINK: f64 = 9.0;

impl Writer {
    /// A counter of a port, ended as its width ends.
    fn count(&mut self, device: usize, metric: MetricId, total: f64) {
        let reading = match metric.row().kind {
            Kind::Counter(Width::Wrapping32) => Reading::of(total % 4_294_967_296.0),
            Kind::Counter(width @ Width::Saturating(_))
                if width.max().is_some_and(|max| total >= max) =>
            {
                Reading::absent(Absent::Saturated)
            }
            _ => Reading::of(total),
        };
        self.report.push(device as u32, metric, reading);
    }
}

pub(super) fn write_port(out: &mut Writer, at: usize, port: &Port, now: f64) {
    let up = port.is_up(now);
    let (downs, _) = port.downs_and_ups(now);
    let transmitted = port.booted.transmit + port.shown.transmit;
    let received = port.booted.receive + port.shown.receive;
    let (packets_out, packets_in) =
        ((transmitted / PACKET_BYTES).floor(), (received / PACKET_BYTES).floor());
    let peer_downs = port.peer_outages.iter().filter(|&&from| from <= now).count();
    let lost = LOST_WITH_A_LINK * (downs + peer_downs) as f64;
    out.put(at, port::STATE, if up { 4.0 } else { 1.0 });
    out.put(at, port::PHYSICAL_STATE, if up { 5.0 } else { 3.0 });
    let rate = RATE_BYTES_PER_S / port.fallback(now);
    out.put(at, port::RATE, if up { rate } else { RATE_DOWN_BYTES_PER_S });
    // The device counts words of four bytes.
    out.count(at, port::RECEIVE_BYTES, (received / 4.0).floor() * 4.0);
    out.count(at, port::TRANSMIT_BYTES, (transmitted / 4.0).floor() * 4.0);
    out.count(at, port::RECEIVE_PACKETS, packets_in);
    out.count(at, port::TRANSMIT_PACKETS, packets_out);
    out.count(at, port::LINK_DOWNED, port.link_downed + downs as f64);
    for metric in COUNTED.into_iter().filter(|metric| metric.row().class == Class::Port) {
        let of_links = match metric {
            port::TRANSMIT_DISCARDS => LOST_WITH_A_LINK * downs as f64,
            port::LOCAL_ACK_TIMEOUTS => lost,
            _ => 0.0,
        };
        out.count(at, metric, (port.counts.of(metric) + of_links).floor());
    }
    for calm in [
        port::REMOTE_PHYSICAL_ERRORS,
        port::LOCAL_LINK_INTEGRITY_ERRORS,
        port::BUFFER_OVERRUN_ERRORS,
        port::VL15_DROPPED,
    ] {
        out.count(at, calm, 0.0);
    }
}

pub(super) fn write_bond(out: &mut Writer, at: usize, host: &Host) {
    let (receive, transmit) = (host.shown.bond_receive_bytes, host.shown.bond_transmit_bytes);
    out.put(at, host::NETDEV_CARRIER, 1.0);
    out.put(at, host::NETDEV_SPEED, BOND_BYTES_PER_S);
    out.put(at, host::NETDEV_CARRIER_CHANGES, 2.0);
    write_traffic(out, at, receive, transmit);
}

/// The network device of a rail: RDMA passes the kernel by, so that it counts next to nothing.
pub(super) fn write_netdev(out: &mut Writer, at: usize, port: &Port, now: f64) {
    let up = port.is_up(now);
    let (downs, ups) = port.downs_and_ups(now);
    out.put(at, host::NETDEV_CARRIER, f64::from(up));
    // The kernel knows no speed while there is no link.
    let rate = RATE_BYTES_PER_S / port.fallback(now);
    let speed = if up { Reading::of(rate) } else { Absent::Unsupported.into() };
    out.report.push(at as u32, host::NETDEV_SPEED, speed);
    out.put(at, host::NETDEV_CARRIER_CHANGES, 2.0 + (downs + ups) as f64);
    for metric in COUNTED.into_iter().filter(|metric| metric.row().class == Class::Netdev) {
        let total = port.counts.of(metric);
        // Times are counted in microseconds.
        let seconds = metric.row().unit == Unit::Seconds;
        out.put(at, metric, if seconds { micros(total) } else { total.floor() });
    }
    // Neighbour discovery and the like.
    write_traffic(out, at, 81_000.0, 83_000.0);
}

fn write_traffic(out: &mut Writer, at: usize, receive: f64, transmit: f64) {
    // Jumbo frames, mostly filled.
    const FRAME_BYTES: f64 = 8_600.0;
    out.put(at, host::NETDEV_RECEIVE_BYTES, receive.floor());
    out.put(at, host::NETDEV_TRANSMIT_BYTES, transmit.floor());
    out.put(at, host::NETDEV_RECEIVE_PACKETS, (receive / FRAME_BYTES).floor());
    out.put(at, host::NETDEV_TRANSMIT_PACKETS, (transmit / FRAME_BYTES).floor());
    for calm in [
        host::NETDEV_RECEIVE_ERRORS,
        host::NETDEV_TRANSMIT_ERRORS,
        host::NETDEV_RECEIVE_DROPS,
        host::NETDEV_TRANSMIT_DROPS,
    ] {
        out.put(at, calm, 0.0);
    }
}
