//! The families of node_exporter's page, by what the exporter serves.

use super::{
    decimal::Decimal,
    host_interfaces,
    host_page::{HostPort, HostSettings, HostSource},
    host_values::{CPU_MODES, DISK, HostValue, MEMORY_FIELDS, OWN, PRESSURE, SINGLES, UNTYPED},
    page_template::{
        FamilyKind::{self, Counter, Gauge, Summary, Untyped},
        LineValue, TemplateBuilder,
    },
    port_values::{PORT_COUNTERS, PORT_GAUGES, PortFamily, RDMA_COUNTERS, ROCE_COUNTERS},
};
use crate::cluster_plan::LinkLayer;

/// The builder of node_exporter's page.
pub(super) type Builder = TemplateBuilder<HostSource>;

/// A line that never changes.
pub(super) const fn constant(value: i64) -> LineValue<HostSource> {
    LineValue::Constant(Decimal::whole(value))
}

/// A line with a value of the host.
pub(super) fn of_host(value: HostValue) -> LineValue<HostSource> {
    LineValue::Source(HostSource::Host(value))
}

const fn kind_of(is_counter: bool) -> FamilyKind {
    if is_counter { Counter } else { Gauge }
}

/// Adds all families of a node.
pub(super) fn add_families(settings: &HostSettings, up: &[bool], builder: &mut Builder) {
    add_exporter(settings, builder);
    add_processors(settings, builder);
    add_host(settings, builder);
    if settings.metrics.has_nfs {
        host_interfaces::add_nfs(settings, builder);
    }
    add_ports(settings, builder);
    host_interfaces::add_interfaces(settings, up, builder);
    if settings.metrics.has_ethtool && settings.link_layer == LinkLayer::Ethernet {
        host_interfaces::add_ethtool(settings, builder);
    }
}

fn add_exporter(settings: &HostSettings, builder: &mut Builder) {
    let (release, version) = settings.versions;
    for (name, is_counter, help, value) in OWN {
        builder.add_single(name, kind_of(*is_counter), help, HostSource::Host(*value));
    }
    builder.begin_family(
        "go_gc_duration_seconds",
        Summary,
        "A summary of the wall-time pause (stop-the-world) duration in garbage collection cycles.",
    );
    for (quantile, nanoseconds) in
        [("0", 21_130), ("0.25", 30_870), ("0.5", 37_000), ("0.75", 52_210), ("1", 388_100)]
    {
        let value = LineValue::Constant(Decimal::whole(nanoseconds).with_decimals(9));
        builder.add_line(format!("{{quantile=\"{quantile}\"}}"), value);
    }
    builder.add_suffixed(
        "_sum",
        "",
        of_host(|v| Decimal::floored(0.002 + v.scrapes as f64 * 4.1e-5, 9)),
    );
    builder.add_suffixed("_count", "", of_host(|v| Decimal::whole(12 + v.scrapes as i64)));
    builder.begin_family("go_info", Gauge, "Information about the Go environment.");
    builder.add_line("{version=\"go1.23.4\"}", constant(1));
    builder.begin_family(
        "node_exporter_build_info",
        Gauge,
        "A metric with a constant '1' value labeled by version, revision, branch, goversion from which node_exporter was built, and the goos and goarch for the build.",
    );
    builder.add_line(
        format!("{{branch=\"HEAD\",goarch=\"amd64\",goos=\"linux\",goversion=\"go1.23.4\",revision=\"7f1b4f2f3d1c\",tags=\"unknown\",version=\"{version}\"}}"),
        constant(1),
    );
    builder.begin_family(
        "promhttp_metric_handler_requests_total",
        Counter,
        "Total number of scrapes by HTTP status code.",
    );
    builder.add_line("{code=\"200\"}", LineValue::Source(HostSource::Scrapes));
    builder.add_line("{code=\"500\"}", constant(0));
    builder.add_line("{code=\"503\"}", constant(0));
    builder.begin_family(
        "node_uname_info",
        Gauge,
        "Labeled system information as provided by the uname system call.",
    );
    builder.add_line(
        format!("{{domainname=\"(none)\",machine=\"x86_64\",nodename=\"{}\",release=\"{release}\",sysname=\"Linux\",version=\"#1 SMP PREEMPT_DYNAMIC\"}}", settings.node),
        constant(1),
    );
    add_collectors(settings, builder);
}

fn add_collectors(settings: &HostSettings, builder: &mut Builder) {
    let metrics = settings.metrics;
    let optional = [
        ("ethtool", metrics.has_ethtool),
        ("mountstats", metrics.has_nfs),
        ("nfs", metrics.has_nfs),
        ("pressure", metrics.has_pressure),
    ];
    let fixed = [
        "cpu",
        "diskstats",
        "entropy",
        "filefd",
        "filesystem",
        "infiniband",
        "loadavg",
        "meminfo",
        "netclass",
        "netdev",
        "netstat",
        "stat",
        "time",
        "timex",
        "uname",
        "vmstat",
    ];
    let optional = optional.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| *name);
    let mut names: Vec<_> = fixed.into_iter().chain(optional).collect();
    names.sort_unstable();
    builder.begin_family(
        "node_scrape_collector_duration_seconds",
        Gauge,
        "node_exporter: Duration of a collector scrape.",
    );
    for name in &names {
        builder.add_line(
            format!("{{collector=\"{name}\"}}"),
            of_host(|v| Decimal::rounded(2e-5 + 3e-4 * v.noise * v.noise, 9)),
        );
    }
    builder.begin_family(
        "node_scrape_collector_success",
        Gauge,
        "node_exporter: Whether a collector succeeded.",
    );
    for name in &names {
        builder.add_line(format!("{{collector=\"{name}\"}}"), constant(1));
    }
}

fn add_processors(settings: &HostSettings, builder: &mut Builder) {
    builder.begin_family("node_cpu_seconds_total", Counter, "Seconds the CPUs spent in each mode.");
    if !settings.metrics.has_processors {
        for (mode, name) in CPU_MODES.iter().enumerate() {
            let source = HostSource::AllCpus { mode };
            builder.add_line(format!("{{cpu=\"all\",mode=\"{name}\"}}"), LineValue::Source(source));
        }
        return;
    }
    let mut cpus: Vec<_> = (0..settings.cpus).map(|cpu| (cpu.to_string(), cpu)).collect();
    cpus.sort_unstable();
    for (label, cpu) in cpus {
        for (mode, name) in CPU_MODES.iter().enumerate() {
            let source = HostSource::Cpu { cpu, mode };
            builder.add_line(
                format!("{{cpu=\"{label}\",mode=\"{name}\"}}"),
                LineValue::Source(source),
            );
        }
    }
}

fn add_host(settings: &HostSettings, builder: &mut Builder) {
    for (name, is_counter, help, value) in SINGLES {
        builder.add_single(name, kind_of(*is_counter), help, HostSource::Host(*value));
    }
    for (name, help, value) in UNTYPED {
        builder.add_single(name, Untyped, help, HostSource::Host(*value));
    }
    for (field, value) in MEMORY_FIELDS {
        let unit = if field.starts_with("HugePages") { "" } else { "_bytes" };
        builder.add_single(
            &format!("node_memory_{field}{unit}"),
            Gauge,
            &format!("Memory information field {field}{unit}."),
            HostSource::Host(*value),
        );
    }
    if settings.metrics.has_pressure {
        for (name, help, value) in PRESSURE {
            let name = format!("node_pressure_{name}_seconds_total");
            builder.add_single(&name, Counter, help, HostSource::Host(*value));
        }
    }
    for (name, is_counter, help, value) in DISK {
        builder.begin_family(&format!("node_disk_{name}"), kind_of(*is_counter), help);
        builder.add_line("{device=\"nvme0n1\"}", of_host(*value));
    }
    builder.begin_family(
        "node_filesystem_avail_bytes",
        Gauge,
        "Filesystem space available to non-root users in bytes.",
    );
    builder.add_line(
        "{device=\"/dev/nvme0n1p2\",fstype=\"ext4\",mountpoint=\"/\"}",
        constant(1_412_876_238_848),
    );
    builder.begin_family("node_filesystem_size_bytes", Gauge, "Filesystem size in bytes.");
    builder.add_line(
        "{device=\"/dev/nvme0n1p2\",fstype=\"ext4\",mountpoint=\"/\"}",
        constant(1_888_422_854_656),
    );
    builder.begin_family("node_time_seconds", Gauge, "System time in seconds since epoch (1970).");
    builder.add_line("", LineValue::Source(HostSource::Clock));
    builder.begin_family(
        "node_time_zone_offset_seconds",
        Gauge,
        "System time zone offset in seconds.",
    );
    builder.add_line("{time_zone=\"UTC\"}", constant(0));
}

fn add_ports(settings: &HostSettings, builder: &mut Builder) {
    if settings.ports.is_empty() {
        return;
    }
    let is_told = |port: &&HostPort| settings.metrics.has_device_info && port.has_info;
    builder.begin_family(
        "node_infiniband_info",
        Gauge,
        "Non-numeric data from /sys/class/infiniband/<device>, value is always 1.",
    );
    for port in settings.ports.iter().filter(is_told).filter(|port| port.port == 1) {
        let HostPort { device, .. } = port;
        let hca_type = port.hca_type();
        builder.add_line(
            format!("{{board_id=\"{}\",device=\"{device}\",firmware_version=\"28.39.1002\",hca_type=\"{hca_type}\"}}", board_of_type(hca_type)),
            constant(1),
        );
    }
    let has_rdma_counters = settings.metrics.has_rdma_counters;
    let is_roce = settings.link_layer == LinkLayer::Ethernet;
    let families = [
        (PORT_GAUGES, Gauge, true),
        (PORT_COUNTERS, Counter, true),
        (RDMA_COUNTERS, Counter, has_rdma_counters),
        (ROCE_COUNTERS, Counter, has_rdma_counters && is_roce),
    ];
    for (families, kind, _) in families.into_iter().filter(|(_, _, is_on)| *is_on) {
        for PortFamily { name, help, value } in families {
            builder.begin_family(&format!("node_infiniband_{name}"), kind, help);
            for (index, port) in settings.ports.iter().enumerate() {
                builder.add_line(
                    format!("{{device=\"{}\",port=\"{}\"}}", port.device, port.port),
                    LineValue::Source(HostSource::Port(index, *value)),
                );
            }
        }
    }
    if has_rdma_counters {
        builder.begin_family("node_infiniband_lifespan_seconds", Gauge, "The maximum period in ms which defines the aging of the counter reads. Two consecutive reads within this period might return the same values.");
        for port in &settings.ports {
            // Ten milliseconds: the exporter divides whole numbers.
            builder.add_line(
                format!("{{device=\"{}\",port=\"{}\"}}", port.device, port.port),
                constant(0),
            );
        }
    }
}

fn board_of_type(hca_type: &str) -> &'static str {
    match hca_type {
        "MT4129" => "MT_0000000838",
        "MT4123" => "MT_0000000223",
        "MT4125" => "MT_0000000359",
        _ => "not available",
    }
}
