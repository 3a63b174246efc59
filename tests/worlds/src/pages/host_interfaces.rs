//! The families of node_exporter about network interfaces, their cards, and mounted NFS file systems.

use super::{
    decimal::Decimal,
    host_families::{Builder, constant, of_host},
    host_page::{HostSettings, HostSource},
    host_values::{HostValue, MANAGEMENT, NFS_OPERATIONS},
    page_template::{
        FamilyKind::{self, Counter, Gauge, Untyped},
        LineValue,
    },
    port_values::{ETHTOOL_COUNTERS, ETHTOOL_ZEROS, PortValue},
};

/// Bytes per second of control traffic that an RDMA card's network interface counts: the rest bypasses the kernel.
const CONTROL_BYTES_PER_S: f64 = 7.0;

/// A property of a network interface: name, type, help text, value, and that of the management interface.
type Property = (&'static str, FamilyKind, &'static str, PortValue, i64);

/// Properties of network interfaces.
#[rustfmt::skip]
const PROPERTIES: [Property; 4] = [
    ("carrier", Gauge, "Network device property: carrier", |v| Decimal::flag(v.state.state == 4), 1),
    ("carrier_changes_total", Counter, "Network device property: carrier_changes_total", |v| Decimal::count(1.0 + 2.0 * v.state.link_downed.floor() + f64::from(u8::from(v.state.state != 4))), 2),
    ("speed_bytes", Gauge, "Network device property: speed_bytes", |v| if v.state.state == 4 { Decimal::nearest(v.state.rate_gbps * 1.25e8) } else { Decimal::whole(-125_000) }, 1_250_000_000),
    ("up", Gauge, "Value is 1 if operstate is 'up', 0 otherwise.", |v| Decimal::flag(v.state.state == 4), 1),
];

/// Adds the NFS client.
pub(super) fn add_nfs(settings: &HostSettings, builder: &mut Builder) {
    let (server, path) = &settings.export;
    let mount = format!("export=\"{server}:{path}\",mountaddr=\"{server}\"");
    let totals: [(&str, &str, HostValue); 2] = [
        ("read", "Number of bytes read from the NFS server, in total.", |v| {
            Decimal::count(v.state.nfs_read_bytes)
        }),
        ("write", "Number of bytes written to the NFS server, in total.", |v| {
            Decimal::count(v.state.nfs_read_bytes * 0.004)
        }),
    ];
    for (name, help, value) in totals {
        builder.begin_family(
            &format!("node_mountstats_nfs_total_{name}_bytes_total"),
            Counter,
            help,
        );
        builder.add_line(format!("{{{mount},protocol=\"tcp\"}}"), of_host(value));
    }
    for (name, help, values) in NFS_OPERATIONS {
        builder.begin_family(&format!("node_mountstats_nfs_operations_{name}"), Counter, help);
        for (operation, value) in ["GETATTR", "READ", "WRITE"].into_iter().zip(values) {
            let labels = format!("{{{mount},operation=\"{operation}\",protocol=\"tcp\"}}");
            builder.add_line(labels, of_host(*value));
        }
    }
    builder.add_single(
        "node_nfs_rpc_retransmissions_total",
        Counter,
        "Number of RPC transmissions performed.",
        HostSource::Host(|v| Decimal::count(v.state.nfs_retransmits)),
    );
    builder.add_single(
        "node_nfs_rpcs_total",
        Counter,
        "Total number of RPCs performed.",
        HostSource::Host(|v| Decimal::count(v.state.nfs_read_operations * 1.304)),
    );
}

/// The network interfaces of the RDMA ports, each once, with the port's index.
fn netdevs(settings: &HostSettings) -> Vec<(usize, &str)> {
    let mut found: Vec<(usize, &str)> = Vec::new();
    for (index, port) in settings.ports.iter().enumerate() {
        if let Some(netdev) = port.netdev.as_deref()
            && found.iter().all(|(_, other)| *other != netdev)
        {
            found.push((index, netdev));
        }
    }
    found
}

fn device_label(device: &str) -> String {
    format!("{{device=\"{device}\"}}")
}

/// Adds what the kernel knows of network interfaces; `up` says which ports are.
pub(super) fn add_interfaces(settings: &HostSettings, up: &[bool], builder: &mut Builder) {
    let netdevs = netdevs(settings);
    let management = settings.management;
    if settings.metrics.has_device_info {
        add_identities(settings, &netdevs, up, builder);
    }
    for (name, kind, help, value, of_management) in PROPERTIES {
        builder.begin_family(&format!("node_network_{name}"), kind, help);
        for (index, netdev) in &netdevs {
            let source = HostSource::Port(*index, value);
            builder.add_line(device_label(netdev), LineValue::Source(source));
        }
        builder.add_line(device_label(management), constant(of_management));
    }
    for (name, value) in MANAGEMENT {
        let help = format!("Network device statistic {}.", name.trim_end_matches("_total"));
        builder.begin_family(&format!("node_network_{name}"), Counter, &help);
        for (_, netdev) in &netdevs {
            let trickle: HostValue = |v| Decimal::count(v.uptime_s * CONTROL_BYTES_PER_S);
            builder.add_line(device_label(netdev), of_host(trickle));
        }
        builder.add_line(device_label(management), of_host(*value));
    }
    for name in ["receive_drop", "receive_errs", "transmit_drop", "transmit_errs"] {
        let help = format!("Network device statistic {name}.");
        builder.begin_family(&format!("node_network_{name}_total"), Counter, &help);
        for netdev in netdevs.iter().map(|(_, netdev)| *netdev).chain([management]) {
            builder.add_line(device_label(netdev), constant(0));
        }
    }
}

fn add_identities(
    settings: &HostSettings,
    netdevs: &[(usize, &str)],
    up: &[bool],
    builder: &mut Builder,
) {
    builder.begin_family(
        "node_network_info",
        Gauge,
        "Non-numeric data from /sys/class/net/<iface>, value is always 1.",
    );
    let is_up = |index: &usize| up.get(*index).copied().unwrap_or(false);
    let of_ports = netdevs.iter().map(|(index, name)| (*name, is_up(index)));
    for (number, (name, is_up)) in of_ports.chain([(settings.management, true)]).enumerate() {
        let [a, b, c, ..] = settings.key.child_index(number).bits().to_le_bytes();
        let state = if is_up { "up" } else { "down" };
        let labels = format!(
            "{{address=\"5c:25:73:{a:02x}:{b:02x}:{c:02x}\",adminstate=\"up\",\
             broadcast=\"ff:ff:ff:ff:ff:ff\",device=\"{name}\",duplex=\"full\",ifalias=\"\",\
             operstate=\"{state}\"}}"
        );
        builder.add_line(labels, constant(1));
    }
}

/// Adds the statistics of the cards' drivers.
pub(super) fn add_ethtool(settings: &HostSettings, builder: &mut Builder) {
    let netdevs = netdevs(settings);
    let begin = |name: &str, builder: &mut Builder| {
        let help = format!("Network interface {name}");
        builder.begin_family(&format!("node_ethtool_{name}"), Untyped, &help);
    };
    for (name, value) in ETHTOOL_COUNTERS {
        begin(name, builder);
        for (index, netdev) in &netdevs {
            let source = HostSource::Port(*index, *value);
            builder.add_line(device_label(netdev), LineValue::Source(source));
        }
    }
    for name in ETHTOOL_ZEROS {
        begin(name, builder);
        for (_, netdev) in &netdevs {
            builder.add_line(device_label(netdev), constant(0));
        }
    }
}
