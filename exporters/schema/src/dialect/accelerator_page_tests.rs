//! Pages of exporters of accelerators other than NVIDIA's, and of UFM, and the values that must be decoded from them.

use super::exporter_page_tests::{assert_info, assert_values, decode_clean};
use crate::{
    AbsenceReason, Device, Dialect, Report, ScrapedPage,
    catalogue::{gpu, gpu_health as health, host, switch_port as switch},
    text::{PageLimits, decode_page},
};

macro_rules! page {
    ($name:literal) => {
        decode_clean(include_str!(concat!("../../../../tests/fixtures/scrapes/", $name, ".prom")))
    };
}

fn gpu_count(report: &Report) -> usize {
    report.devices.iter().filter(|device| device.class == crate::DeviceClass::Gpu).count()
}

#[test]
fn gaudi_exporter_page() {
    let ScrapedPage { report, dialect, .. } = page!("gaudi_exporter");
    assert_eq!((dialect, gpu_count(&report)), (Dialect::Gaudi, 2));
    let first = Device::new_gpu(0);
    assert_values(
        &report,
        &first,
        &[
            (gpu::UTILIZATION, 0.97),
            (gpu::MEMORY_USED, 9.745e10),
            (gpu::MEMORY_FREE, 5.62e9),
            (gpu::MEMORY_TOTAL, 1.0307e11),
            (gpu::POWER, 412.345),
            (health::POWER_DEFAULT_LIMIT, 600.0),
            (gpu::TEMPERATURE, 63.0),
            (health::SLOWDOWN_TEMPERATURE, 102.0),
            (health::SHUTDOWN_TEMPERATURE, 110.0),
            (gpu::SM_CLOCK, 1.6e9),
            (gpu::SM_CLOCK_MAX, 1.65e9),
        ],
    );
    assert_values(
        &report,
        &Device::new_gpu(1),
        &[(health::PCIE_WIDTH, 8.0), (health::PCIE_REPLAYS, 7.0), (health::REMAP_PENDING, 1.0)],
    );
    assert_eq!(report.find_reading(&first, gpu::ENERGY), None, "its unit is not known");
    assert_info(
        &report,
        &first,
        gpu::INFO,
        &[("serial", "AN410000"), ("driver", "1.17.0-28a11ca")],
    );
    assert_info(&report, &first, gpu::JOB_INFO, &[("job", "train/llm")]);
}

/// Two runtimes share the first core.
#[test]
fn neuron_monitor_page() {
    let ScrapedPage { report, dialect, .. } = page!("neuron_monitor");
    assert_eq!((dialect, gpu_count(&report)), (Dialect::Neuron, 2));
    assert_eq!(report.node.as_deref(), Some("i-0a1b2c3d4e5f60718"));
    let used = 1e6 + 100_752_896.0 + 2_000.0 + 43_216.0 + 4.0 + 6_315_872.0;
    assert_values(
        &report,
        &Device::new_gpu(0),
        &[(gpu::UTILIZATION, 0.75), (gpu::MEMORY_USED, used)],
    );
    assert_values(
        &report,
        &Device::new_gpu(1),
        &[(gpu::UTILIZATION, 0.890_182_763_699_655_8), (gpu::MEMORY_USED, 512.0)],
    );
    assert_values(&report, &Device::new_node(), &[(host::MEMORY_TOTAL, 532_523_487_232.0)]);
    assert_info(&report, &Device::new_gpu(0), gpu::INFO, &[("model", "trn1.32xlarge")]);
}

#[test]
fn tpu_device_plugin_page() {
    let ScrapedPage { report, dialect, .. } = page!("tpu_device_plugin");
    assert_eq!((dialect, gpu_count(&report)), (Dialect::Tpu, 2));
    let busy =
        Device { class: crate::DeviceClass::Gpu, key: ["4804690994094478883-0".into()].into() };
    assert_values(
        &report,
        &busy,
        &[
            (gpu::UTILIZATION, 0.985),
            (gpu::MEMORY_USED, 1.769_387_361_28e11),
            (gpu::MEMORY_TOTAL, 2.034_656_706_56e11),
            (gpu::TENSOR_ACTIVE, 0.7125),
            (gpu::DRAM_ACTIVE, 0.425),
        ],
    );
    let idle =
        Device { class: crate::DeviceClass::Gpu, key: ["4804690994094478883-1".into()].into() };
    assert_values(&report, &idle, &[(gpu::UTILIZATION, 0.0), (gpu::MEMORY_USED, 0.0)]);
    assert_info(&report, &busy, gpu::JOB_INFO, &[("job", "train/llm")]);
    assert_info(&report, &busy, gpu::INFO, &[("model", "tpu7x")]);
}

/// The names of GKE's plugins and of neuron-monitor are generic.
#[test]
fn generic_names_of_other_exporters_are_not_read() {
    let page = "duty_cycle{make=\"nvidia\",accelerator_id=\"0\"} 7\nmemory_used 5\n\
                system_memory_total_bytes 9\nsystem_memory_total_bytes{instance_type=\"\",a=\"b\"} 9\n";
    let ScrapedPage { report, dialect, .. } = decode_clean(page);
    assert_eq!((dialect, report.devices.len()), (Dialect::Unknown, 0));
}

/// Values of all-smi are percentages, except the shares that it takes from GPM.
#[test]
fn all_smi_page_of_other_accelerators() {
    let ScrapedPage { report, dialect, .. } = page!("all_smi_accelerators");
    assert_eq!((dialect, gpu_count(&report)), (Dialect::AllSmi, 4));
    let gaudi = Device::new_gpu(0);
    assert_values(
        &report,
        &gaudi,
        &[
            (gpu::UTILIZATION, 0.88),
            (gpu::MEMORY_USED, 97_450_000_000.0),
            (gpu::POWER, 611.5),
            (gpu::POWER_LIMIT, 900.0),
            (gpu::TEMPERATURE, 61.0),
        ],
    );
    assert_values(&report, &Device::new_gpu(1), &[(gpu::UTILIZATION, 0.125)]);
    assert_info(&report, &Device::new_gpu(1), gpu::INFO, &[("model", "Intel Gaudi 3")]);
    assert_values(
        &report,
        &Device::new_gpu(4),
        &[
            (gpu::UTILIZATION, 0.45),
            (gpu::MEMORY_TOTAL, 34_359_738_368.0),
            (gpu::POWER_LIMIT, 300.0),
        ],
    );
    let hopper = Device::new_gpu(7);
    assert_values(&report, &hopper, &[(gpu::SM_OCCUPANCY, 0.67), (gpu::DRAM_ACTIVE, 0.42)]);
}

#[test]
fn amd_smi_exporter_page() {
    let ScrapedPage { report, dialect, .. } = page!("amd_smi_exporter");
    assert_eq!((dialect, gpu_count(&report)), (Dialect::Amd, 2));
    assert_values(
        &report,
        &Device::new_gpu(0),
        &[
            (gpu::UTILIZATION, 0.99),
            (gpu::MEMORY_ACTIVITY, 0.34),
            (gpu::POWER, 612.0),
            (gpu::POWER_LIMIT, 750.0),
            (gpu::TEMPERATURE, 71.0),
            (gpu::SM_CLOCK, 2.1e9),
            (health::MEMORY_CLOCK, 1.3e9),
        ],
    );
    let blank = report.find_reading(&Device::new_gpu(1), gpu::POWER);
    assert_eq!(blank, Some(AbsenceReason::Unsupported.into()));
}

/// Version 1.5 names clock types without their prefix; partitions after the first have no power sensor.
#[test]
fn amd_device_metrics_page_of_partitions() {
    let ScrapedPage { report, dialect, .. } = page!("amd_device_metrics_1_5");
    assert_eq!(dialect, Dialect::Amd);
    assert_values(
        &report,
        &Device::new_gpu(0),
        &[
            (gpu::POWER, 655.0),
            (gpu::SM_CLOCK, 2.099e9),
            (health::MEMORY_CLOCK, 1.3e9),
            (gpu::SM_CLOCK_MAX, 2.1e9),
            (health::MEMORY_CLOCK_MAX, 1.3e9),
            (gpu::SM_ACTIVE, 0.375),
            (gpu::SM_OCCUPANCY, 0.25),
            (gpu::TENSOR_ACTIVE, 0.625),
            (gpu::GRAPHICS_ACTIVE, 0.995),
            (gpu::CLOCK_EVENT_SW_POWER_CAP, 0.96),
            (gpu::CLOCK_EVENT_HW_THERMAL, 0.75),
            (gpu::CLOCK_EVENT_SW_THERMAL, 0.0),
            (health::PCIE_GENERATION, 4.0),
            (health::PCIE_GENERATION_MAX, 5.0),
        ],
    );
    assert_eq!(report.find_reading(&Device::new_gpu(1), gpu::POWER), None, "a zero is no sensor");
    let down = decode_clean("pcie_speed{gpu_id=\"0\"} 0\n").report;
    let generation = down.find_reading(&Device::new_gpu(0), health::PCIE_GENERATION);
    assert_eq!(generation, Some(AbsenceReason::Error.into()), "no generation has this speed");
}

/// The sample configuration of the exporter gives all its names a prefix, and a GPU without partitions may have the number NA.
#[test]
fn amd_device_metrics_page_with_prefix() {
    let bare = include_str!("../../../../tests/fixtures/scrapes/amd_device_metrics_1_5.prom");
    let lines = bare.lines().filter(|line| !line.starts_with('#'));
    let prefixed: String = lines.flat_map(|line| ["amd_", line, "\n"]).collect();
    let expected = decode_clean(bare);
    let page = decode_clean(&prefixed);
    assert_eq!((page.dialect, page.report), (Dialect::Amd, expected.report));
    let alone =
        decode_clean("gpu_package_power{gpu_id=\"0\",gpu_partition_id=\"NA\"} 140\n").report;
    assert_values(&alone, &Device::new_gpu(0), &[(gpu::POWER, 140.0)]);
}

#[test]
fn amd_counters_of_a_collector_are_those_without_its_suffix() {
    let decode = |suffix: &str| {
        decode_clean(&format!(
            "pcie_replay_count{suffix}{{gpu_id=\"0\"}} 4\n\
             amd_gpu_energy_consumed{suffix}{{gpu_id=\"0\"}} 5000000\n\
             gpu_edge_temperature{{gpu_id=\"0\"}} 51\n"
        ))
    };
    let page = decode("_total");
    assert_eq!((&page.report, page.dialect), (&decode("").report, Dialect::Amd));
    let rows = [(health::PCIE_REPLAYS, 4.0), (gpu::ENERGY, 5.0)];
    assert_values(&page.report, &Device::new_gpu(0), &rows);
    // Only counters get it.
    let gauge = decode_clean("gpu_edge_temperature_total{gpu_id=\"0\"} 51\n");
    assert_eq!(gauge.dialect, Dialect::Unknown);
}

#[test]
fn amd_page_of_several_nodes_is_read_as_that_of_the_first() {
    let line = |node: &str, gpu: u32, value: u32| {
        format!("gpu_gfx_activity{{gpu_id=\"{gpu}\",hostname=\"{node}\"}} {value}\n")
    };
    let page = line("a", 0, 97) + &line("b", 0, 1) + &line("b", 1, 55);
    let page = decode_page(page.as_bytes(), &PageLimits::default()).unwrap();
    assert_eq!(page.rejected.by_reason, [("other_node".into(), 2)]);
    assert_values(&page.report, &Device::new_gpu(0), &[(gpu::UTILIZATION, 0.97)]);
    assert!(!page.report.devices.contains(&Device::new_gpu(1)));
}

/// Bytes, not words: 4,086,720 of them in 14,190 management packets of 288 bytes.
#[test]
fn ufm_telemetry_page() {
    let ScrapedPage { report, dialect, .. } = page!("ufm_telemetry");
    assert_eq!((dialect, report.node.as_deref()), (Dialect::Ufm, None));
    assert_eq!(report.devices.len(), 3);
    assert_values(
        &report,
        &Device::new_switch_port("0xfc6a1c0300aa0100", "23"),
        &[
            (switch::TRANSMIT_BYTES, 70_409_952.0),
            (switch::RECEIVE_BYTES, 70_412_448.0),
            (switch::TRANSMIT_PACKETS, 244_479.0),
            (switch::TRANSMIT_WAIT, 512.0),
            (switch::TRANSMIT_DISCARDS, 4.0),
            (switch::RECEIVE_ERRORS, 2.0),
            (switch::SYMBOL_ERRORS, 3.0),
            (switch::LINK_DOWNED, 3.0),
            (switch::SWITCH_RELAY_ERRORS, 18.0),
            (switch::VL15_DROPPED, 5.0),
        ],
    );
    let slow = "Link_Down{Node_GUID=\"0x1\",node_description=\"leaf-1\",Port_Number=\"2\"} 6 1709652347161\n";
    let port = Device::new_switch_port("0x1", "2");
    let report = decode_clean(slow).report;
    assert_values(&report, &port, &[(switch::LINK_DOWNED, 6.0)]);
    assert_info(&report, &port, switch::INFO, &[("guid", "0x1"), ("description", "leaf-1")]);
}

/// Two ports of an old kernel: 16 samples that repeat others.
#[test]
fn legacy_port_counters_are_declined_by_name() {
    let names = [
        "data_received_bytes",
        "data_transmitted_bytes",
        "multicast_packets_received",
        "multicast_packets_transmitted",
        "packets_received",
        "packets_transmitted",
        "unicast_packets_received",
        "unicast_packets_transmitted",
    ];
    let lines = names.iter().flat_map(|name| [(name, 1), (name, 2)]).map(|(name, port)| {
        format!(
            "node_infiniband_legacy_{name}_total{{device=\"mlx4_0\",port=\"{port}\"}} 7\n\
             node_infiniband_port_{name}_total{{device=\"mlx4_0\",port=\"{port}\"}} 9\n"
        )
    });
    let page: String = lines.collect();
    let ScrapedPage { report, dialect, .. } = decode_clean(&page);
    assert_eq!(dialect, Dialect::NodeExporter);
    let port = Device::new_port("mlx4_0", "2");
    assert_values(&report, &port, &[(crate::catalogue::port::RECEIVE_BYTES, 9.0)]);
    let listed = super::dialect_metrics();
    for name in names {
        let name = format!("node_infiniband_legacy_{name}_total");
        let entry = listed.iter().find(|entry| entry.name == name);
        assert!(entry.is_some_and(|entry| entry.declined.is_some()), "{name}");
    }
}
