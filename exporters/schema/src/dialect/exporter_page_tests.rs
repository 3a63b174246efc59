//! A page of every other exporter in its own format, and the values that must be decoded from it.

use crate::{
    AbsenceReason, Device, DeviceClass, Dialect, MetricId, Reading, Report, ScrapedPage,
    catalogue::{
        collective, ethernet, gpu, gpu_health as health, gpu_parts as parts, hardware, host, port,
        service, switch_port as switch,
    },
    text::{PageLimits, decode_page},
};

macro_rules! page {
    ($name:literal) => {
        decode_clean(include_str!(concat!("../../../../tests/fixtures/scrapes/", $name, ".prom")))
    };
}

pub(super) fn decode_clean(page: &str) -> ScrapedPage {
    let page = decode_page(page.as_bytes(), &PageLimits::default()).unwrap();
    assert_eq!(page.rejected.total_count(), 0, "{:?}", page.rejected);
    page
}

/// Asserts that the device has these values, bit for bit.
#[track_caller]
pub(super) fn assert_values(report: &Report, device: &Device, values: &[(MetricId, f64)]) {
    for (metric, value) in values {
        let reading = report.find_reading(device, *metric);
        assert_eq!(reading, Some(Reading::Value(*value)), "{device} {}", metric.series_key());
    }
}

/// Asserts that an info series of the device has these labels among others.
#[track_caller]
pub(super) fn assert_info(
    report: &Report,
    device: &Device,
    metric: MetricId,
    labels: &[(&str, &str)],
) {
    let index = report.devices.iter().position(|other| other == device).expect("the device") as u32;
    let info = report.infos.iter().find(|info| info.metric == metric && info.device == index);
    let info = info.unwrap_or_else(|| panic!("{device} has no {}", metric.catalogue_row().name));
    for (name, value) in labels {
        let found = info.labels.iter().find(|(label, _)| label == name);
        assert_eq!(found.map(|(_, text)| text.as_str()), Some(*value), "{name}");
    }
}

const MIB: f64 = 1_048_576.0;

#[test]
fn nvidia_gpu_exporter_page() {
    let page = page!("nvidia_gpu_exporter");
    assert_eq!(page.dialect, Dialect::NvidiaSmi);
    let report = page.report;
    // The page identifies its GPUs by UUID, and contains their indexes.
    assert_values(
        &report,
        &Device::new_gpu(3),
        &[
            (gpu::UTILIZATION, 0.99),
            (gpu::SM_CLOCK, 1.98e9),
            (gpu::MEMORY_USED, 7.654_604_8e10),
            (gpu::POWER, 688.21),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::CLOCK_EVENT_SW_POWER_CAP, 1.0),
            (gpu::CLOCK_EVENT_HW_SLOWDOWN, 0.0),
            (health::PCIE_GENERATION, 5.0),
        ],
    );
    assert_values(
        &report,
        &Device::new_gpu(2),
        &[(health::PERFORMANCE_STATE, 8.0), (health::ECC_UNCORRECTED_VOLATILE, 1.0)],
    );
    assert_values(
        &report,
        &Device::new_gpu_part(DeviceClass::Xid, 2, 79),
        &[(parts::XID_ERRORS, 1.0)],
    );
    assert_info(
        &report,
        &Device::new_gpu(2),
        gpu::INFO,
        &[
            ("uuid", "0a1b2c3d-7314-46f8-abc4-b88b36dcf3ab"),
            ("model", "NVIDIA H100 80GB HBM3"),
            ("serial", "1654123000401"),
        ],
    );
    let old_version =
        decode_clean("nvidia_smi_index{uuid=\"a\"} 5\nnvidia_smi_temperature_gpu{uuid=\"a\"} 44\n");
    assert_values(&old_version.report, &Device::new_gpu(5), &[(gpu::TEMPERATURE, 44.0)]);
}

#[test]
fn all_smi_page() {
    let page = page!("all_smi");
    assert_eq!((page.dialect, page.report.node.as_deref()), (Dialect::AllSmi, Some("node-0058")));
    assert_values(
        &page.report,
        &Device::new_gpu(0),
        &[
            (gpu::UTILIZATION, 0.255),
            (gpu::MEMORY_USED, 8_589_934_592.0),
            (gpu::POWER, 400.5),
            (gpu::SM_CLOCK, 1.98e9),
        ],
    );
    assert_info(
        &page.report,
        &Device::new_gpu(1),
        gpu::INFO,
        &[("uuid", "GPU-12341"), ("model", "NVIDIA H200 141GB HBM3"), ("driver", "570.86")],
    );
}

#[test]
fn rdma_exporter_page() {
    let page = page!("rdma_exporter");
    assert_eq!(page.dialect, Dialect::Rdma);
    let (report, port) = (page.report, Device::new_port("mlx5_0", "1"));
    assert_values(
        &report,
        &port,
        &[
            (port::RECEIVE_BYTES, 4_000.0),
            (port::TRANSMIT_BYTES, 8_000.0),
            (port::RECEIVE_PACKETS, 77.0),
            (port::CNP_SENT, 12.0),
        ],
    );
    assert_eq!(
        report.find_reading(&port, port::LINK_DOWNED),
        Some(AbsenceReason::Saturated.into())
    );
    assert_info(
        &report,
        &port,
        port::INFO,
        &[("netdev", "ens1f0np0"), ("pci_bus_id", "0000:1a:00.0")],
    );
    assert_values(
        &report,
        &Device::new_netdev("ens1f0np0"),
        &[
            (ethernet::RECEIVE_PAUSE_3, 901.0),
            (ethernet::RECEIVE_PAUSED_3, 2.5),
            (ethernet::TRANSMIT_PAUSE_3, 4.0),
            (ethernet::TRANSMIT_PAUSED_3, 1e-6),
        ],
    );
}

#[test]
fn infiniband_exporter_page() {
    let page = page!("infiniband_exporter");
    assert_eq!(page.dialect, Dialect::Infiniband);
    let report = page.report;
    let to_node = Device::new_switch_port("ib-i1l1s01", "10");
    assert_values(
        &report,
        &to_node,
        &[(switch::RECEIVE_BYTES, 49_116_115_103_004.0), (switch::TRANSMIT_DISCARDS, 0.0)],
    );
    assert_eq!(
        report.find_reading(&to_node, switch::TRANSMIT_WAIT),
        Some(AbsenceReason::Saturated.into())
    );
    assert_eq!(
        report.find_reading(&to_node, switch::LINK_DOWNED),
        Some(AbsenceReason::Saturated.into())
    );
    assert_info(
        &report,
        &to_node,
        switch::INFO,
        &[
            ("guid", "0x7cfe9003009ce5b0"),
            ("peer", "o0001"),
            ("peer_kind", "node"),
            ("peer_device", "mlx5_0"),
            ("peer_port", "1"),
        ],
    );
    let to_switch = Device::new_switch_port("ib-i1l1s01", "1");
    assert_info(
        &report,
        &to_switch,
        switch::INFO,
        &[("peer", "ib-i1l2s01"), ("peer_kind", "switch")],
    );
    assert_values(
        &report,
        &Device::new_switch_port("ib-i4l1s01", "35"),
        &[(switch::TRANSMIT_WAIT, 41_864_608.0)],
    );
}

#[test]
fn switches_of_equal_name_stay_separate() {
    let line = |guid| {
        format!(
            "infiniband_switch_info{{guid=\"{guid}\",switch=\"x\"}} 1\n\
         infiniband_switch_port_transmit_wait_total{{guid=\"{guid}\",port=\"1\"}} 7\n"
        )
    };
    let page = line("0x1") + &line("0x2");
    let mut lines: Vec<_> = page.lines().collect();
    lines.sort_unstable();
    let report = decode_clean(&(lines.join("\n") + "\n")).report;
    for guid in ["0x1", "0x2"] {
        assert_values(
            &report,
            &Device::new_switch_port(guid, "1"),
            &[(switch::TRANSMIT_WAIT, 7.0)],
        );
    }
}

#[test]
fn snmp_exporter_page() {
    let page = page!("snmp_exporter");
    assert_eq!((page.dialect, page.report.node.as_deref()), (Dialect::Snmp, Some("leaf-03")));
    // The page is of one switch, which the node name identifies.
    let port_up = Device::new_switch_port("", "swp1");
    assert_values(
        &page.report,
        &port_up,
        &[
            (switch::RECEIVE_BYTES, 1.310_822e12),
            (switch::TRANSMIT_BYTES, 99_887_766.0),
            (switch::RATE, 5e10),
            (switch::UP, 1.0),
            (switch::ENABLED, 1.0),
            (switch::RECEIVE_DISCARDS, 3.0),
            (switch::TRANSMIT_PAUSE, 345.0),
        ],
    );
    assert_values(&page.report, &Device::new_switch_port("", "swp2"), &[(switch::UP, 0.0)]);
    assert_info(&page.report, &port_up, switch::INFO, &[("description", "gpu007 rail 0")]);
}

#[test]
fn amd_device_metrics_exporter_page() {
    let page = page!("amd_device_metrics");
    assert_eq!((page.dialect, page.report.node.as_deref()), (Dialect::Amd, Some("tw038")));
    let (report, first) = (page.report, Device::new_gpu(0));
    assert_values(
        &report,
        &first,
        &[
            (gpu::UTILIZATION, 0.88),
            (gpu::MEMORY_ACTIVITY, 0.41),
            (gpu::MEMORY_USED, 180_000.0 * MIB),
            (gpu::POWER, 731.0),
            (gpu::ENERGY, 12_345_670.0),
            (gpu::TEMPERATURE, 74.0),
            (gpu::SM_CLOCK, 2.1e9),
            (health::MEMORY_CLOCK, 9e8),
            (health::PCIE_REPLAYS, 2.0),
            (hardware::GPU_RAS_CORRECTED, 5.0),
        ],
    );
    assert_info(
        &report,
        &first,
        gpu::INFO,
        &[("uuid", "ccff74a1-0000-1000-80e0-c6d49f5b0d80"), ("model", "AMD Instinct MI300X OAM")],
    );
    assert_info(&report, &first, gpu::JOB_INFO, &[("job", "8812")]);
}

#[test]
fn vllm_server_page() {
    let page = page!("vllm");
    assert_eq!(page.dialect, Dialect::Vllm);
    let server = Device::new_service("", "meta-llama/Llama-3.1-70B-Instruct");
    assert_values(
        &page.report,
        &server,
        &[
            (service::RUNNING, 21.0),
            (service::WAITING, 31.0),
            (service::CACHE_USED, 0.93),
            (service::REQUESTS, 4_127.0),
            (service::PROMPT_TOKENS, 1_234_564.0),
            (service::GENERATED_TOKENS, 654_400.0),
            (service::FIRST_TOKEN_TIME, 812.5),
            (service::FIRST_TOKENS, 4_127.0),
            (service::REQUEST_TIME, 30_333.25),
        ],
    );
    assert_info(&page.report, &server, service::INFO, &[("engine", "vllm")]);
}

#[test]
fn triton_server_page() {
    let page = page!("triton");
    assert_eq!(page.dialect, Dialect::Triton);
    assert_values(
        &page.report,
        &Device::new_service("", "resnet50"),
        &[
            (service::WAITING, 6.0),
            (service::REQUESTS, 4_117.0),
            (service::FAILURES, 3.0),
            (service::QUEUE_TIME, 2.180_4 + 3e-6),
        ],
    );
    let uuid = "GPU-8674351b-fff7-56c3-f545-26313154b8ed";
    let board = Device { class: DeviceClass::Gpu, key: [uuid.into()].into() };
    assert_values(&page.report, &board, &[(gpu::UTILIZATION, 0.75), (gpu::POWER, 215.3)]);
    assert_info(&page.report, &board, gpu::INFO, &[("uuid", uuid)]);
}

#[test]
fn tgi_server_page() {
    let page = page!("tgi");
    assert_eq!(page.dialect, Dialect::Tgi);
    assert_values(
        &page.report,
        &Device::new_service("", ""),
        &[
            (service::RUNNING, 5.0),
            (service::WAITING, 3.0),
            (service::REQUESTS, 150.0),
            (service::FAILURES, 2.0),
            (service::GENERATED_TOKENS, 25_000.0),
            (service::REQUEST_TIME, 22.5),
        ],
    );
}

#[test]
fn nccl_inspector_page() {
    let page = page!("nccl_inspector");
    assert_eq!((page.dialect, page.report.node.as_deref()), (Dialect::Nccl, Some("nvl72033-T01")));
    let kind = "unknown ReduceScatter 134-135MB RING_SIMPLE 32";
    let collective =
        Device { class: DeviceClass::Collective, key: ["0".into(), kind.into()].into() };
    assert_values(
        &page.report,
        &collective,
        &[(collective::BUS_BANDWIDTH, 44_118_100_000.0), (collective::DURATION, 0.104_164)],
    );
    assert_info(
        &page.report,
        &collective,
        collective::INFO,
        &[("job", "1670760"), ("operation", "ReduceScatter"), ("ranks", "32"), ("nodes", "4")],
    );
    let of_class =
        page.report.devices.iter().filter(|device| device.class == DeviceClass::Collective);
    assert_eq!(of_class.count(), 3);
}

#[test]
fn node_exporter_storage_and_cards() {
    let page = page!("node_storage");
    assert_eq!(
        (page.dialect, page.report.node.as_deref()),
        (Dialect::NodeExporter, Some("gpu-0417"))
    );
    let report = page.report;
    assert_values(
        &report,
        &Device::new_netdev("ens1f0np0"),
        &[
            (ethernet::RECEIVE_PAUSE_3, 901.0),
            (ethernet::RECEIVE_PAUSED_3, 2.5),
            (ethernet::PRIORITY_DISCARDS_0, 6.0),
            (ethernet::PHY_RECEIVE_DISCARDS, 17.0),
            (ethernet::LINK_DOWN, 1.0),
        ],
    );
    assert_values(
        &report,
        &Device::new_mount("10.0.0.5:/scratch"),
        &[
            (hardware::MOUNT_READ_BYTES, 987_654_321.0),
            (hardware::MOUNT_READS, 1_200.0),
            (hardware::MOUNT_WRITES, 40.0),
            (hardware::MOUNT_METADATA_OPERATIONS, 931.0),
            (hardware::MOUNT_READ_TIME, 12.5),
            (hardware::MOUNT_METADATA_TIME, 1.5),
        ],
    );
    assert_values(
        &report,
        &Device::new_mount("scratch-ffff9c2b8a5e8800"),
        &[(hardware::MOUNT_READ_BYTES, 5.5e12), (hardware::MOUNT_WRITE_BYTES, 1.25e11)],
    );
    assert_values(
        &report,
        &Device::new_node(),
        &[
            (host::NFS_RETRANSMITS, 3.0),
            (host::NFSD_READ_BYTES, 157_286_400.0),
            (host::IO_PRESSURE, 99.5),
        ],
    );
    assert!(report.devices.iter().all(|device| device != &Device::new_mount("scratch-OST0000")));
}

#[test]
fn segments_that_tcp_sends_again_are_of_the_node() {
    // As node_exporter writes the fields of net/snmp: untyped.
    let page = "# TYPE node_netstat_Tcp_OutSegs untyped\nnode_netstat_Tcp_OutSegs 4.69e+09\n\
                # TYPE node_netstat_Tcp_RetransSegs untyped\nnode_netstat_Tcp_RetransSegs 1852\n";
    let report = decode_clean(page).report;
    let values = [(host::TCP_SENT, 4.69e9), (host::TCP_RESENT, 1852.0)];
    assert_values(&report, &Device::new_node(), &values);
}

#[test]
fn efa_ports_have_their_traffic_and_retransmissions() {
    let labels = "{device=\"rdmap16s27\",port=\"1\"}";
    let line = |name: &str, value: &str| format!("node_amazonefa_{name}{labels} {value}\n");
    let mut page = "node_amazonefa_info{device=\"rdmap16s27\"} 1\n".to_owned();
    for (name, value) in [
        ("lifespan", "12"),
        ("tx_bytes", "1.047398e+12"),
        ("rx_bytes", "1.053429e+12"),
        ("rx_drops", "3"),
        ("retrans_pkts", "41"),
        ("retrans_timeout_events", "2"),
        ("rdma_read_wr_err", "1"),
    ] {
        page += &line(name, value);
    }
    let page = decode_clean(&page);
    assert_eq!(page.dialect, Dialect::NodeExporter);
    assert_values(
        &page.report,
        &Device::new_port("rdmap16s27", "1"),
        &[
            (port::TRANSMIT_BYTES, 1.047_398e12),
            (port::RECEIVE_BYTES, 1.053_429e12),
            (port::RECEIVE_DROPS, 3.0),
            (port::RETRANSMIT_PACKETS, 41.0),
            (port::LOCAL_ACK_TIMEOUTS, 2.0),
            (port::READ_ERRORS, 1.0),
        ],
    );
}

#[test]
fn page_of_several_targets_is_read_as_that_of_the_first() {
    let page = |labels: [&str; 2]| {
        let lines = labels.map(|labels| {
            format!(
                "node_memory_MemTotal_bytes{{{labels}}} 4096\n\
                 node_cpu_seconds_total{{cpu=\"0\",mode=\"user\",{labels}}} 7\n"
            )
        });
        decode_page(lines.concat().as_bytes(), &PageLimits::default()).unwrap()
    };
    let two = ["instance=\"a:9100\",job=\"node\"", "instance=\"b:9100\",job=\"node\""];
    let federated = page(two);
    assert_eq!(federated.rejected.by_reason, [("other_node".into(), 2)]);
    let values = [(host::CPU_BUSY, 7.0), (host::MEMORY_TOTAL, 4096.0)];
    assert_values(&federated.report, &Device::new_node(), &values);
    // Two exporters of one host have two ports.
    let one = page([two[0], "instance=\"a:9400\",job=\"other\""]);
    assert!(one.rejected.by_reason.iter().all(|(reason, _)| **reason != *"other_node"));
}
