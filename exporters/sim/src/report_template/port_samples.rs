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

pub(super) fn write_port(writer: &mut SampleWriter, device: usize, port: &SimPort, now: f64) {
    let is_up = port.is_up(now);
    let (down_count, _) = port.count_link_changes(now);
    let transmitted = port.before_origin.transmit + port.shown.transmit;
    let received = port.before_origin.receive + port.shown.receive;
    let (packets_out, packets_in) =
        ((transmitted / PACKET_BYTES).floor(), (received / PACKET_BYTES).floor());
    let peer_downs = port.peer_outages.iter().filter(|&&from| from <= now).count();
    let lost = LOST_WITH_A_LINK * (down_count + peer_downs) as f64;
    writer.add_sample(device, port::STATE, if is_up { 4.0 } else { 1.0 });
    writer.add_sample(device, port::PHYSICAL_STATE, if is_up { 5.0 } else { 3.0 });
    let rate = RATE_BYTES_PER_S / port.rate_divisor(now);
    writer.add_sample(device, port::RATE, if is_up { rate } else { RATE_DOWN_BYTES_PER_S });
    // The device counts words of four bytes.
    writer.add_counter(device, port::RECEIVE_BYTES, (received / 4.0).floor() * 4.0);
    writer.add_counter(device, port::TRANSMIT_BYTES, (transmitted / 4.0).floor() * 4.0);
    writer.add_counter(device, port::RECEIVE_PACKETS, packets_in);
    writer.add_counter(device, port::TRANSMIT_PACKETS, packets_out);
    writer.add_counter(device, port::LINK_DOWNED, port.link_downed + down_count as f64);
    for metric in
        COUNTED.into_iter().filter(|metric| metric.catalogue_row().class == DeviceClass::Port)
    {
        let of_links = match metric {
            port::TRANSMIT_DISCARDS => LOST_WITH_A_LINK * down_count as f64,
            port::LOCAL_ACK_TIMEOUTS => lost,
            _ => 0.0,
        };
        writer.add_counter(device, metric, (port.counts.of(metric) + of_links).floor());
    }
    for metric in [
        port::REMOTE_PHYSICAL_ERRORS,
        port::LOCAL_LINK_INTEGRITY_ERRORS,
        port::BUFFER_OVERRUN_ERRORS,
        port::VL15_DROPPED,
    ] {
        writer.add_counter(device, metric, 0.0);
    }
}

pub(super) fn write_bond(writer: &mut SampleWriter, device: usize, host: &SimHost) {
    let (receive, transmit) = (host.shown.bond_receive_bytes, host.shown.bond_transmit_bytes);
    writer.add_sample(device, host::NETDEV_CARRIER, 1.0);
    writer.add_sample(device, host::NETDEV_SPEED, BOND_BYTES_PER_S);
    writer.add_sample(device, host::NETDEV_CARRIER_CHANGES, 2.0);
    write_traffic(writer, device, receive, transmit);
}

/// The network device of a rail: RDMA bypasses the kernel, so it counts almost nothing.
pub(super) fn write_netdev(writer: &mut SampleWriter, device: usize, port: &SimPort, now: f64) {
    let is_up = port.is_up(now);
    let (down_count, up_count) = port.count_link_changes(now);
    writer.add_sample(device, host::NETDEV_CARRIER, f64::from(is_up));
    // The kernel does not know the speed without a link.
    let rate = RATE_BYTES_PER_S / port.rate_divisor(now);
    let speed = if is_up { Reading::of(rate) } else { AbsenceReason::Unsupported.into() };
    writer.report.push(device as u32, host::NETDEV_SPEED, speed);
    writer.add_sample(device, host::NETDEV_CARRIER_CHANGES, 2.0 + (down_count + up_count) as f64);
    for metric in
        COUNTED.into_iter().filter(|metric| metric.catalogue_row().class == DeviceClass::Netdev)
    {
        let total = port.counts.of(metric);
        // Times are counted in microseconds.
        let seconds = metric.catalogue_row().unit == Unit::Seconds;
        writer.add_sample(
            device,
            metric,
            if seconds { floor_micros(total) } else { total.floor() },
        );
    }
    // Neighbour discovery and the like.
    write_traffic(writer, device, 81_000.0, 83_000.0);
}

fn write_traffic(writer: &mut SampleWriter, device: usize, receive: f64, transmit: f64) {
    // Jumbo frames, mostly filled.
    const FRAME_BYTES: f64 = 8_600.0;
    writer.add_sample(device, host::NETDEV_RECEIVE_BYTES, receive.floor());
    writer.add_sample(device, host::NETDEV_TRANSMIT_BYTES, transmit.floor());
    writer.add_sample(device, host::NETDEV_RECEIVE_PACKETS, (receive / FRAME_BYTES).floor());
    writer.add_sample(device, host::NETDEV_TRANSMIT_PACKETS, (transmit / FRAME_BYTES).floor());
    for metric in [
        host::NETDEV_RECEIVE_ERRORS,
        host::NETDEV_TRANSMIT_ERRORS,
        host::NETDEV_RECEIVE_DROPS,
        host::NETDEV_TRANSMIT_DROPS,
    ] {
        writer.add_sample(device, metric, 0.0);
    }
}
