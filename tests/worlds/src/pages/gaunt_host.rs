//! Host and ports in the report of gaunt-node.

use gaunt_schema::{
    AbsenceReason, Device, Report,
    catalogue::{ethernet, exporter, hardware, host, port},
};

use super::{
    gaunt_page::{GauntCollection, add_device, push_counter},
    host_page::{HostPort, HostSettings},
    host_values::{HostView, KERNEL_SHARE},
    port_values::{PortView, rate_bytes},
};
use crate::{cluster_plan::LinkLayer, exporter_plan::HostMetricSet, node_state::PortState};

/// What gaunt-node remembers of the host from one sample to the next.
#[derive(Clone, Debug, Default)]
pub(super) struct HostReport {
    /// Uptime and the processors' busy seconds at the newest sample.
    newest: Option<(f64, Vec<f64>)>,
    /// Busy share of the busiest processor between the newest two samples.
    busiest: Option<f64>,
}

impl HostReport {
    /// Takes note of a sample of the host.
    pub(super) fn note_sample(&mut self, uptime_s: f64, cpu_busy_s: &[f64]) {
        if let Some((before_s, before)) = &self.newest
            && uptime_s > *before_s
            && before.len() == cpu_busy_s.len()
        {
            let seconds = uptime_s - before_s;
            let shares =
                cpu_busy_s.iter().zip(before).map(|(now, before)| (now - before) / seconds);
            self.busiest = Some(shares.fold(0.0, f64::max).clamp(0.0, 1.0));
        }
        self.newest = Some((uptime_s, cpu_busy_s.to_vec()));
    }

    /// Adds the host's values.
    pub(super) fn add_host(&self, page: &GauntCollection<'_>, report: &mut Report) {
        let GauntCollection { host: view, names, .. } = page;
        let node = report.ensure_device(Device::new_node());
        let (kernel, _) = names.versions;
        report.add_info(node, host::NODE_INFO, &[("version", "0.1.0"), ("kernel", kernel)]);
        let state = view.state;
        let cpus = state.cpu_busy_s.len() as f64;
        let busy: f64 = state.cpu_busy_s.iter().sum();
        for (metric, value) in [
            (host::CPUS, cpus),
            (host::CPU_BUSY, (busy * 100.0).floor() / 100.0),
            (host::CPU_KERNEL, (busy * KERNEL_SHARE * 100.0).floor() / 100.0),
            (host::CPU_IOWAIT, (state.cpu_iowait_s * 100.0).floor() / 100.0),
            (host::TASKS_RUNNABLE, state.runnable_tasks.round()),
            (host::TASKS_BLOCKED, state.blocked_tasks.round()),
            (host::LOAD, (state.load1 * 100.0).round() / 100.0),
            (host::MEMORY_TOTAL, state.memory_total_bytes.floor()),
            (host::MEMORY_AVAILABLE, state.memory_available_bytes.floor()),
            (host::MEMORY_FREE, view.free_memory().floor()),
            (host::MEMORY_CACHED, view.cached_memory().floor()),
            (host::SWAP_TOTAL, 0.0),
            (host::OOM_KILLS, 0.0),
        ] {
            report.push(node, metric, value);
        }
        if let Some(busiest) = self.busiest {
            report.push(node, host::CPU_BUSIEST, (busiest * 1e4).round() / 1e4);
        }
        if names.metrics.has_pressure {
            add_pressure(view, node, report);
        }
        if names.metrics.has_nfs {
            add_mount(view, names, report);
        }
        add_disk(view, report);
        add_management(view, names, report);
        for name in ["cpu", "disks", "memory", "netdevs", "ports", "tasks"] {
            let collector = report.ensure_device(Device::new_collector(name));
            report.push(collector, exporter::COLLECTOR_SUCCESS, 1.0);
        }
    }
}

fn micros(seconds: f64) -> f64 {
    (seconds * 1e6).floor() / 1e6
}

fn add_pressure(view: &HostView<'_>, node: u32, report: &mut Report) {
    let state = view.state;
    for (metric, value) in [
        (host::CPU_PRESSURE, state.cpu_pressure_some_s),
        (host::IO_PRESSURE, state.io_pressure_some_s),
        (host::IO_PRESSURE_FULL, state.io_pressure_full_s),
        (host::MEMORY_PRESSURE, state.memory_pressure_some_s),
        (host::MEMORY_PRESSURE_FULL, state.memory_pressure_full_s),
    ] {
        report.push(node, metric, micros(value));
    }
    let collector = report.ensure_device(Device::new_collector("pressure"));
    report.push(collector, exporter::COLLECTOR_SUCCESS, 1.0);
}

fn add_mount(view: &HostView<'_>, names: &HostSettings, report: &mut Report) {
    let (server, path) = &names.export;
    let mount = report.ensure_device(Device::new_mount("/data"));
    let source = format!("{server}:{path}");
    report.add_info(mount, hardware::MOUNT_INFO, &[("kind", "nfs4"), ("source", &source)]);
    let state = view.state;
    for (metric, value) in [
        (hardware::MOUNT_READ_BYTES, state.nfs_read_bytes.floor()),
        (hardware::MOUNT_READS, state.nfs_read_operations.floor()),
        (hardware::MOUNT_READ_TIME, (state.nfs_read_response_s * 1e3).floor() / 1e3),
        (hardware::MOUNT_RETRANSMITS, state.nfs_retransmits.floor()),
        (hardware::MOUNT_TIMEOUTS, 0.0),
    ] {
        report.push(mount, metric, value);
    }
    let node = report.ensure_device(Device::new_node());
    report.push(node, host::NFS_RETRANSMITS, state.nfs_retransmits.floor());
}

fn add_disk(view: &HostView<'_>, report: &mut Report) {
    let disk = report.ensure_device(Device::new_disk("nvme0n1"));
    let state = view.state;
    for (metric, value) in [
        (hardware::DISK_READS, state.disk_reads.floor()),
        (hardware::DISK_WRITES, state.disk_writes.floor()),
        (hardware::DISK_READ_TIME, (state.disk_read_s * 1e3).floor() / 1e3),
        (hardware::DISK_WRITE_TIME, (state.disk_write_s * 1e3).floor() / 1e3),
        (hardware::DISK_BUSY, (state.disk_busy_s * 1e3).floor() / 1e3),
        (hardware::DISK_IN_FLIGHT, state.blocked_tasks.round()),
    ] {
        report.push(disk, metric, value);
    }
}

fn add_management(view: &HostView<'_>, names: &HostSettings, report: &mut Report) {
    let netdev = report.ensure_device(Device::new_netdev(names.management));
    report.push(netdev, host::NETDEV_CARRIER, 1.0);
    report.push(netdev, host::NETDEV_SPEED, 1.25e9);
    push_counter(report, netdev, host::NETDEV_RECEIVE_BYTES, view.state.netdev_receive_bytes);
    push_counter(report, netdev, host::NETDEV_TRANSMIT_BYTES, view.state.netdev_transmit_bytes);
}

/// Adds the RDMA ports and their network interfaces.
pub(super) fn add_ports(page: &GauntCollection<'_>, report: &mut Report) {
    let names = page.names;
    for (name, state) in names.ports.iter().zip(&page.state.ports) {
        let view = PortView {
            state,
            is_wait_saturated: name.is_wait_saturated,
            link_layer: names.link_layer,
        };
        add_port(name, &view, names.metrics, report);
        if let Some(netdev) = &name.netdev {
            add_netdev(netdev, &view, names.metrics, report);
        }
    }
}

fn add_port(name: &HostPort, view: &PortView<'_>, metrics: HostMetricSet, report: &mut Report) {
    let state = view.state;
    let device = add_device(report, Device::new_port(&name.device, &name.port.to_string()));
    let mut labels = Vec::new();
    if let Some(netdev) = &name.netdev {
        labels.push(("netdev", netdev.as_str()));
    }
    if metrics.has_device_info && name.has_info {
        let link_layer = match view.link_layer {
            LinkLayer::InfiniBand => "InfiniBand",
            LinkLayer::Ethernet => "Ethernet",
        };
        labels.extend([
            ("link_layer", link_layer),
            ("firmware", "28.39.1002"),
            ("hca_type", name.hca_type()),
        ]);
    }
    if !labels.is_empty() {
        report.add_info(device, port::INFO, &labels);
    }
    report.push(device, port::STATE, f64::from(state.state));
    report.push(device, port::PHYSICAL_STATE, f64::from(state.physical_state));
    report.push(device, port::RATE, rate_bytes(view).value());
    if view.is_wait_saturated {
        report.push(device, port::TRANSMIT_WAIT, AbsenceReason::Saturated);
    } else {
        // This counter has 64 bits, whatever the catalogue says of older cards.
        report.push(device, port::TRANSMIT_WAIT, state.transmit_wait_ticks.floor());
    }
    for (metric, value) in [
        (port::RECEIVE_BYTES, (state.receive_bytes / 4.0).floor() * 4.0),
        (port::TRANSMIT_BYTES, (state.transmit_bytes / 4.0).floor() * 4.0),
        (port::RECEIVE_PACKETS, state.receive_packets),
        (port::TRANSMIT_PACKETS, state.transmit_packets),
        (port::SYMBOL_ERRORS, state.symbol_errors),
        (port::LINK_DOWNED, state.link_downed),
        (port::LINK_ERROR_RECOVERY, state.link_error_recoveries),
        (port::RECEIVE_ERRORS, state.receive_errors),
        (port::TRANSMIT_DISCARDS, state.transmit_discards),
        (port::LOCAL_LINK_INTEGRITY_ERRORS, 0.0),
        (port::BUFFER_OVERRUN_ERRORS, 0.0),
    ] {
        push_counter(report, device, metric, value);
    }
    if metrics.has_rdma_counters {
        add_rdma_counters(device, state, view.link_layer, report);
    }
}

fn add_rdma_counters(device: u32, state: &PortState, link_layer: LinkLayer, report: &mut Report) {
    for (metric, value) in [
        (port::OUT_OF_SEQUENCE, state.out_of_sequence),
        (port::PACKET_SEQUENCE_ERRORS, state.packet_sequence_errors),
        (port::LOCAL_ACK_TIMEOUTS, state.ack_timeouts),
        (port::RNR_NAK_RETRIES, state.rnr_naks),
        (port::OUT_OF_BUFFER, state.out_of_buffer),
    ] {
        push_counter(report, device, metric, value);
    }
    if link_layer == LinkLayer::Ethernet {
        for (metric, value) in [
            (port::ECN_MARKED, state.ecn_marked_packets),
            (port::CNP_SENT, state.cnp_sent),
            (port::CNP_HANDLED, state.cnp_handled),
            (port::ADAPTIVE_RETRANSMITS, state.adaptive_retransmits),
        ] {
            push_counter(report, device, metric, value);
        }
    }
}

fn add_netdev(name: &str, view: &PortView<'_>, metrics: HostMetricSet, report: &mut Report) {
    let state = view.state;
    let device = report.ensure_device(Device::new_netdev(name));
    let is_up = state.state == 4;
    report.push(device, host::NETDEV_CARRIER, f64::from(u8::from(is_up)));
    if is_up {
        report.push(device, host::NETDEV_SPEED, rate_bytes(view).value());
    }
    if !metrics.has_ethtool || view.link_layer != LinkLayer::Ethernet {
        return;
    }
    for (metric, value) in [
        (ethernet::RECEIVE_PAUSE_3, state.pause_received),
        (ethernet::TRANSMIT_PAUSE_3, state.pause_sent),
        (ethernet::PHY_RECEIVE_DISCARDS, state.out_of_buffer),
        (ethernet::PHY_TRANSMIT_DISCARDS, state.transmit_discards),
        (ethernet::PCS_SYMBOL_ERRORS, state.symbol_errors),
        (ethernet::CORRECTED_BITS, state.corrected_bits),
        (ethernet::PHY_BITS, state.receive_bytes * 8.3),
        (ethernet::LINK_DOWN, state.link_downed),
    ] {
        push_counter(report, device, metric, value);
    }
    report.push(device, ethernet::RECEIVE_PAUSED_3, micros(state.pause_received_s));
    report.push(device, ethernet::TRANSMIT_PAUSED_3, micros(state.pause_sent_s));
}
