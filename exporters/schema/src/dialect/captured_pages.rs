//! Captured pages of real exporters, with names and addresses changed, and every value that must be decoded from them.

use crate::{
    AbsenceReason, Device, Dialect, MetricId, Reading, RejectionCounts, Report, ScrapedPage,
    UnixMs,
    catalogue::{gpu, gpu_health, hardware, host, port},
    text::{PageLimits, decode_page},
};

const NODE: &str = include_str!("../../../../tests/fixtures/scrapes/node_exporter.prom");
const INFINIBAND: &str = include_str!("../../../../tests/fixtures/scrapes/node_infiniband.prom");
const DCGM: &str = include_str!("../../../../tests/fixtures/scrapes/dcgm.prom");

fn decode_text(page: &str) -> ScrapedPage {
    decode_page(page.as_bytes(), &PageLimits::default()).unwrap()
}

/// The labels of an info series of a device.
fn info_series_labels(report: &Report, device: &Device, metric: MetricId) -> Vec<String> {
    let of_device = |index: u32| report.devices[index as usize] == *device;
    let mut infos =
        report.infos.iter().filter(|info| info.metric == metric && of_device(info.device));
    let labels = infos.next().map(|info| info.labels.as_slice()).unwrap_or_default();
    assert!(infos.next().is_none(), "one info of a kind for a device");
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

#[test]
fn node_exporter_page_of_debian() {
    let page = decode_text(NODE);
    assert_eq!(page.dialect, Dialect::NodeExporter);
    assert_eq!(page.rejected, RejectionCounts::default());
    assert_eq!(page.bytes, NODE.len() as u64);
    let report = page.report;
    assert_eq!(report.node.as_deref(), Some("nodeA"));
    assert_eq!(report.node_time, Some(UnixMs(1_795_227_212_248)));

    let labels = ["node=nodeA", "kernel=6.1.0-44-amd64"];
    assert_eq!(info_series_labels(&report, &Device::new_node(), host::NODE_INFO), labels);

    let node = |metric| report.find_reading(&Device::new_node(), metric).and_then(Reading::value);
    for (metric, value) in [
        (host::CPUS, 2.0),
        (host::MEMORY_TOTAL, 25_276_514_304.0),
        (host::MEMORY_AVAILABLE, 24_713_015_296.0),
        (host::CPU_PRESSURE, 57.676_756_999_999_995),
        (host::IO_PRESSURE, 9.934_308_000_000_001),
        (host::IO_PRESSURE_FULL, 9.360_218_000_000_001),
        (host::MEMORY_PRESSURE, 0.0),
        (host::MEMORY_PRESSURE_FULL, 0.0),
        (host::TASKS_RUNNABLE, 1.0),
        (host::TASKS_BLOCKED, 0.0),
        (host::LOAD, 1.55),
        (host::MEMORY_CACHED, 2_663_915_520.0),
        (host::SWAP_FREE, 0.0),
        (host::OOM_KILLS, 0.0),
    ] {
        assert_eq!(node(metric), Some(value), "{}", metric.catalogue_row().name);
    }
    // Sums: the last digits depend on the order of the modes.
    let close = |metric, sum: f64| (node(metric).unwrap() - sum).abs() < 1e-9;
    assert!(close(host::CPU_BUSY, 0.36 + 0.36 + 36.78 + 223.33 + 0.65 + 0.27 + 45.05 + 232.32));
    assert!(close(host::CPU_KERNEL, 0.36 + 36.78 + 0.65 + 45.05) && close(host::CPU_IOWAIT, 12.11));

    let eth0 = Device::new_netdev("eth0");
    for (metric, value) in [
        (host::NETDEV_CARRIER, 1.0),
        (host::NETDEV_CARRIER_CHANGES, 2.0),
        (host::NETDEV_RECEIVE_BYTES, 126_386_123.0),
        (host::NETDEV_TRANSMIT_BYTES, 309_562.0),
        (host::NETDEV_RECEIVE_PACKETS, 5558.0),
        (host::NETDEV_TRANSMIT_PACKETS, 3269.0),
        (host::NETDEV_RECEIVE_ERRORS, 0.0),
        (host::NETDEV_TRANSMIT_ERRORS, 0.0),
        (host::NETDEV_RECEIVE_DROPS, 0.0),
        (host::NETDEV_TRANSMIT_DROPS, 0.0),
    ] {
        assert_eq!(
            report.find_reading(&eth0, metric),
            Some(value.into()),
            "{}",
            metric.catalogue_row().name
        );
    }
    // The device has no rate, and reports minus one million bits.
    let unknown = Some(Reading::new_absent(AbsenceReason::Unsupported));
    assert_eq!(report.find_reading(&eth0, host::NETDEV_SPEED), unknown);
    let labels = ["address=02:00:00:00:00:01", "operstate=up"];
    assert_eq!(info_series_labels(&report, &eth0, host::NETDEV_INFO), labels);
    // A device that is down reports no carrier: nothing is known, not even that it is absent.
    assert_eq!(report.find_reading(&Device::new_netdev("ifb0"), host::NETDEV_CARRIER), None);
    let sda = Device::new_disk("sda");
    for (metric, value) in [
        (hardware::DISK_READ_BYTES, 5_011_170_304.0),
        (hardware::DISK_BUSY, 15.312_000_000_000_001),
        (hardware::DISK_IN_FLIGHT, 0.0),
    ] {
        assert_eq!(
            report.find_reading(&sda, metric),
            Some(value.into()),
            "{}",
            metric.catalogue_row().name
        );
    }
    // 25 of the node, 12 of eth0, 10 of each ifb, carrier, carrier changes and MTU of lo, 8 of each of two disks, and 5 of the file
    // system.
    assert_eq!(report.samples.len(), 25 + 12 + 10 + 10 + 3 + 2 * 8 + 5);
}

#[test]
fn node_exporter_ports() {
    let page = decode_text(INFINIBAND);
    assert_eq!((page.dialect, page.rejected.total_count()), (Dialect::NodeExporter, 0));
    let report = page.report;
    let (port_up, port_down) = (Device::new_port("mlx5_0", "1"), Device::new_port("mlx5_1", "1"));
    let still = Reading::new_absent(AbsenceReason::Saturated);
    for (metric, of_up, of_down) in [
        (port::STATE, 4.0.into(), 1.0.into()),
        (port::PHYSICAL_STATE, 5.0.into(), 3.0.into()),
        (port::RATE, 5e10.into(), 1.25e9.into()),
        (port::RECEIVE_BYTES, 18_527_668.0.into(), 18_527_672.0.into()),
        (port::TRANSMIT_BYTES, 14_933_760.0.into(), 14_933_764.0.into()),
        (port::RECEIVE_PACKETS, 6_825_908_347.0.into(), 6_825_908_347.0.into()),
        (port::TRANSMIT_PACKETS, 6_235_865.0.into(), 6_235_865.0.into()),
        (port::TRANSMIT_WAIT, still, still),
        (port::SYMBOL_ERRORS, 0.0.into(), still),
        (port::LINK_DOWNED, 0.0.into(), 3.0.into()),
        (port::LINK_ERROR_RECOVERY, 0.0.into(), still),
        (port::RECEIVE_ERRORS, 17.0.into(), 17.0.into()),
        (port::REMOTE_PHYSICAL_ERRORS, 0.0.into(), 0.0.into()),
        (port::TRANSMIT_DISCARDS, 4.0.into(), 4.0.into()),
        (port::LOCAL_LINK_INTEGRITY_ERRORS, still, still),
        (port::BUFFER_OVERRUN_ERRORS, 0.0.into(), 0.0.into()),
        (port::VL15_DROPPED, 0.0.into(), 0.0.into()),
        (port::UNICAST_RECEIVE_PACKETS, 61_148.0.into(), 61_148.0.into()),
        (port::UNICAST_TRANSMIT_PACKETS, 61_239.0.into(), 61_239.0.into()),
        (port::MULTICAST_RECEIVE_PACKETS, 93.0.into(), 93.0.into()),
        (port::MULTICAST_TRANSMIT_PACKETS, 16.0.into(), 16.0.into()),
        (port::RECEIVE_CONSTRAINT_ERRORS, 0.0.into(), 0.0.into()),
        (port::TRANSMIT_CONSTRAINT_ERRORS, 0.0.into(), 0.0.into()),
        (port::SWITCH_RELAY_ERRORS, 0.0.into(), 0.0.into()),
    ] {
        assert_eq!(
            report.find_reading(&port_up, metric),
            Some(of_up),
            "{}",
            metric.catalogue_row().name
        );
        assert_eq!(
            report.find_reading(&port_down, metric),
            Some(of_down),
            "{}",
            metric.catalogue_row().name
        );
    }
    assert_eq!(report.samples.len(), 2 * 24);
    for port in [port_up, port_down] {
        let labels = ["firmware=28.39.1002", "hca_type=MT4129"];
        assert_eq!(info_series_labels(&report, &port, port::INFO), labels);
    }
}

#[test]
fn dcgm_exporter_gpus() {
    let page = decode_text(DCGM);
    assert_eq!((page.dialect, page.rejected.total_count()), (Dialect::Dcgm, 0));
    let report = page.report;
    assert_eq!(report.node.as_deref(), Some("gpu-0417"));
    // Eight GPUs, and all NVLinks of each as one device.
    assert_eq!(report.devices.len(), 16);
    let first = Device::new_gpu(0);
    let value = |metric| report.find_reading(&first, metric).and_then(Reading::value);
    assert_eq!(value(gpu::SM_CLOCK), Some(1314e6));
    let labels = [
        "uuid=GPU-910a2dec-ec67-4be1-9d27-a2eefb32555e",
        "model=NVIDIA H100 80GB HBM3",
        "pci_bus_id=00000000:1B:00.0",
        "driver=550.54.15",
    ];
    assert_eq!(info_series_labels(&report, &first, gpu::INFO), labels);
    let samples = report.samples.iter().filter(|sample| sample.device == 0);
    // 64 rows by name, and 8 reasons out of one mask.
    assert_eq!(samples.count(), 64 + 8);
    assert_eq!(value(gpu_health::FABRIC_STATE), Some(0.0));
}

#[test]
fn fabric_fields_of_dcgm_are_read_and_their_blanks_are_absent() {
    let page = decode_text(
        "DCGM_FI_DEV_FABRIC_MANAGER_STATUS{gpu=\"0\",UUID=\"GPU-a\"} 4\n\
         DCGM_FI_DEV_FABRIC_HEALTH_MASK{gpu=\"0\",UUID=\"GPU-a\"} 425\n\
         DCGM_FI_DEV_FABRIC_HEALTH_MASK{gpu=\"1\",UUID=\"GPU-b\"} 9223372036854775794\n\
         DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY{gpu=\"0\",UUID=\"GPU-a\"} 2\n\
         DCGM_FI_IMEX_DAEMON_STATUS{gpu=\"0\",UUID=\"GPU-a\"} 5\n\
         DCGM_FI_IMEX_DAEMON_STATUS{gpu=\"1\",UUID=\"GPU-b\"} -1\n",
    );
    assert_eq!((page.dialect, page.rejected.total_count()), (Dialect::Dcgm, 0));
    let reading = |gpu, metric| page.report.find_reading(&Device::new_gpu(gpu), metric);
    assert_eq!(reading(0, gpu_health::FABRIC_STATE), Some(Reading::of(4.0)));
    assert_eq!(reading(0, gpu_health::FABRIC_HEALTH_MASK), Some(Reading::of(425.0)));
    let unsupported = AbsenceReason::Unsupported.into();
    assert_eq!(reading(1, gpu_health::FABRIC_HEALTH_MASK), Some(unsupported));
    assert_eq!(reading(0, gpu_health::FABRIC_HEALTH_SUMMARY), Some(Reading::of(2.0)));
    assert_eq!(reading(0, gpu_health::IMEX_STATE), Some(Reading::of(5.0)));
    assert_eq!(reading(1, gpu_health::IMEX_STATE), Some(Reading::of(-1.0)));
}
