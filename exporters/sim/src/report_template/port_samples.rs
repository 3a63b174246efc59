//! Samples of a node's ports and network devices.

use gaunt_schema::{
    AbsenceReason, DeviceClass, MetricId, Reading,
    catalogue::{host, port},
    unit::{CounterWidth, MetricKind, Unit},
};

use super::{SampleWriter, floor_micros};
use crate::{
    ring_routes::{PACKET_BYTES, RATE_BYTES_PER_S, RATE_DOWN_BYTES_PER_S},
    sim_host::{BOND_BYTES_PER_S, SimHost},
    sim_port::{COUNTED, SimPort},
};

/// Packets that a port drops when its link, or that of its peer port, goes down.
const LOST_WITH_A_LINK: f64 = 9.0;

impl SampleWriter {
    /// Writes a port counter, saturated at its width.
    fn add_counter(&mut self, device: usize, metric: MetricId, total: f64) {
        let reading = match metric.catalogue_row().kind {
            MetricKind::Counter(CounterWidth::Wrapping32) => Reading::of(total % 4_294_967_296.0),
            MetricKind::Counter(width @ CounterWidth::Saturating(_))
                if width.max_value().is_some_and(|max| total >= max) =>
            {
                Reading::new_absent(AbsenceReason::Saturated)
            }
            _ => Reading::of(total),
        };
        self.report.push(device as u32, metric, reading);
    }
}

pub(super) fn write_port(out: &mut SampleWriter, at: usize, port: &SimPort, now: f64) {
    let up = port.is_up(now);
    let (downs, _) = port.count_link_changes(now);
    let transmitted = port.before_origin.transmit + port.shown.transmit;
    let received = port.before_origin.receive + port.shown.receive;
    let (packets_out, packets_in) =
        ((transmitted / PACKET_BYTES).floor(), (received / PACKET_BYTES).floor());
    let peer_downs = port.peer_outages.iter().filter(|&&from| from <= now).count();
    let lost = LOST_WITH_A_LINK * (downs + peer_downs) as f64;
    out.add_sample(at, port::STATE, if up { 4.0 } else { 1.0 });
    out.add_sample(at, port::PHYSICAL_STATE, if up { 5.0 } else { 3.0 });
    let rate = RATE_BYTES_PER_S / port.rate_divisor(now);
    out.add_sample(at, port::RATE, if up { rate } else { RATE_DOWN_BYTES_PER_S });
    // The device counts words of four bytes.
    out.add_counter(at, port::RECEIVE_BYTES, (received / 4.0).floor() * 4.0);
    out.add_counter(at, port::TRANSMIT_BYTES, (transmitted / 4.0).floor() * 4.0);
    out.add_counter(at, port::RECEIVE_PACKETS, packets_in);
    out.add_counter(at, port::TRANSMIT_PACKETS, packets_out);
    out.add_counter(at, port::LINK_DOWNED, port.link_downed + downs as f64);
    for metric in
        COUNTED.into_iter().filter(|metric| metric.catalogue_row().class == DeviceClass::Port)
    {
        let of_links = match metric {
            port::TRANSMIT_DISCARDS => LOST_WITH_A_LINK * downs as f64,
            port::LOCAL_ACK_TIMEOUTS => lost,
            _ => 0.0,
        };
        out.add_counter(at, metric, (port.counts.of(metric) + of_links).floor());
    }
    for calm in [
        port::REMOTE_PHYSICAL_ERRORS,
        port::LOCAL_LINK_INTEGRITY_ERRORS,
        port::BUFFER_OVERRUN_ERRORS,
        port::VL15_DROPPED,
    ] {
        out.add_counter(at, calm, 0.0);
    }
}

pub(super) fn write_bond(out: &mut SampleWriter, at: usize, host: &SimHost) {
    let (receive, transmit) = (host.shown.bond_receive_bytes, host.shown.bond_transmit_bytes);
    out.add_sample(at, host::NETDEV_CARRIER, 1.0);
    out.add_sample(at, host::NETDEV_SPEED, BOND_BYTES_PER_S);
    out.add_sample(at, host::NETDEV_CARRIER_CHANGES, 2.0);
    write_traffic(out, at, receive, transmit);
}

/// The network device of a rail: RDMA bypasses the kernel, so it counts almost nothing.
pub(super) fn write_netdev(out: &mut SampleWriter, at: usize, port: &SimPort, now: f64) {
    let up = port.is_up(now);
    let (downs, ups) = port.count_link_changes(now);
    out.add_sample(at, host::NETDEV_CARRIER, f64::from(up));
    // The kernel does not know the speed without a link.
    let rate = RATE_BYTES_PER_S / port.rate_divisor(now);
    let speed = if up { Reading::of(rate) } else { AbsenceReason::Unsupported.into() };
    out.report.push(at as u32, host::NETDEV_SPEED, speed);
    out.add_sample(at, host::NETDEV_CARRIER_CHANGES, 2.0 + (downs + ups) as f64);
    for metric in
        COUNTED.into_iter().filter(|metric| metric.catalogue_row().class == DeviceClass::Netdev)
    {
        let total = port.counts.of(metric);
        // Times are counted in microseconds.
        let seconds = metric.catalogue_row().unit == Unit::Seconds;
        out.add_sample(at, metric, if seconds { floor_micros(total) } else { total.floor() });
    }
    // Neighbour discovery and the like.
    write_traffic(out, at, 81_000.0, 83_000.0);
}

fn write_traffic(out: &mut SampleWriter, at: usize, receive: f64, transmit: f64) {
    // Jumbo frames, mostly filled.
    const FRAME_BYTES: f64 = 8_600.0;
    out.add_sample(at, host::NETDEV_RECEIVE_BYTES, receive.floor());
    out.add_sample(at, host::NETDEV_TRANSMIT_BYTES, transmit.floor());
    out.add_sample(at, host::NETDEV_RECEIVE_PACKETS, (receive / FRAME_BYTES).floor());
    out.add_sample(at, host::NETDEV_TRANSMIT_PACKETS, (transmit / FRAME_BYTES).floor());
    for calm in [
        host::NETDEV_RECEIVE_ERRORS,
        host::NETDEV_TRANSMIT_ERRORS,
        host::NETDEV_RECEIVE_DROPS,
        host::NETDEV_TRANSMIT_DROPS,
    ] {
        out.add_sample(at, calm, 0.0);
    }
}
