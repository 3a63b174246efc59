//! The expected dcgm-exporter output for the same GPUs, instances, jobs and errors.

use super::*;
use crate::{
    AbsenceReason,
    catalogue::{gpu_health, gpu_parts as parts},
    text::{CompatOptions, PageLimits, decode_page, write_page},
};

fn gpu_report() -> Report {
    let mut report = Report { node: Some("gpu-0417".into()), ..Report::default() };
    let gpu = report.ensure_device(Device::new_gpu(3));
    let identity = [
        ("uuid", "GPU-a"),
        ("model", "NVIDIA H100 80GB HBM3"),
        ("pci_bus_id", "00000000:1B:00.0"),
        ("serial", "1"),
        ("driver", "550.54.15"),
    ];
    report.add_info(gpu, gpu::INFO, &identity);
    report.push(gpu, gpu::UTILIZATION, 0.57);
    report.push(gpu, gpu::MEMORY_USED, 64_424_509_439.0);
    report.push(gpu, gpu::SM_CLOCK, 1.98e9);
    report.push(gpu, gpu::ENERGY, 9_876_543_210.123);
    report.push(gpu, gpu::POWER, AbsenceReason::Stale);
    for (bit, metric) in gpu::CLOCK_EVENTS {
        report.push(gpu, *metric, f64::from(u8::from(matches!(bit, 0x04 | 0x40))));
    }
    report
}

const DCGM: CompatOptions = with_names(DcgmNames::Before4_9);

const fn with_names(names: DcgmNames) -> CompatOptions {
    CompatOptions { dcgm: Some(names), node: false, xid: true }
}

/// The page without our own series, under the names before 4.9.
fn dcgm_page(report: &Report, format: ExpositionFormat) -> String {
    named_page(report, format, DCGM)
}

fn named_page(report: &Report, format: ExpositionFormat, compat: CompatOptions) -> String {
    let (mut own_page, mut whole_page) = (String::new(), String::new());
    write_page(report, format, CompatOptions::default(), &mut own_page);
    write_page(report, format, compat, &mut whole_page);
    let own_page = own_page.trim_end_matches("# EOF\n");
    whole_page.strip_prefix(own_page).unwrap().to_owned()
}

#[test]
fn dcgm_labels_units_and_masks_equal_dcgm_exporter() {
    let gpu_labels = "gpu=\"3\",UUID=\"GPU-a\",pci_bus_id=\"00000000:1B:00.0\",device=\"nvidia3\",\
               modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"gpu-0417\",hostname=\"gpu-0417\",\
               DCGM_FI_DRIVER_VERSION=\"550.54.15\"";
    let page = dcgm_page(&gpu_report(), ExpositionFormat::Text);
    let samples: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        ("DCGM_FI_DEV_GPU_UTIL", "57"),
        ("DCGM_FI_DEV_FB_USED", "61439"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "9876543210123"),
        ("DCGM_FI_DEV_SM_CLOCK", "1980"),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "68"),
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "68"),
    ];
    let expected: Vec<_> =
        expected.iter().map(|(name, value)| format!("{name}{{{gpu_labels}}} {value}")).collect();
    assert_eq!(samples, expected);
    let energy = "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n";
    assert!(page.contains(energy), "{page}");
}

#[test]
fn dcgm_names_and_units_of_4_9_equal_dcgm_exporter() {
    let mut report = gpu_report();
    report.push(0, gpu::PRESENT, 1.0);
    report.push(0, gpu::PCIE_RECEIVE_RATE, 5.0);
    report.push(0, gpu::NVLINK_RECEIVE_RATE, 3e9);
    report.push(0, gpu::NVLINK_TRANSMIT_RATE, 1e9);
    let page = named_page(&report, ExpositionFormat::Text, with_names(DcgmNames::Since4_9));
    let samples = page.lines().filter(|line| line.starts_with("DCGM_FI_"));
    let samples: Vec<_> = samples
        .map(|line| (line.split_once('{').unwrap().0, line.rsplit_once(' ').unwrap().1))
        .collect();
    let expected = [
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", "0.57"),
        ("DCGM_FI_DEV_FB_USED_BYTES", "64424509439"),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", "9876543210.123"),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", "1980000000"),
        ("DCGM_FI_PROF_PCIE_RX_BYTES", "5"),
        ("DCGM_FI_PROF_NVLINK_RX_BYTES", "3000000000"),
        ("DCGM_FI_PROF_NVLINK_TX_BYTES", "1000000000"),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "68"),
        ("DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", "4000000000"),
        ("DCGM_FI_DEV_XID_ERROR", "0"),
    ];
    assert_eq!(samples, expected);
    let labels =
        ",Hostname=\"gpu-0417\",hostname=\"gpu-0417\",DCGM_FI_SYSTEM_DRIVER_VERSION=\"550.54.15\"}";
    assert!(page.contains(labels), "{page}");
    assert!(!page.contains("DCGM_FI_DRIVER_VERSION"), "{page}");
}

#[test]
fn dcgm_page_of_4_9_is_read_back_with_the_same_values() {
    let mut report = gpu_report();
    for metric in [gpu::MEMORY_TOTAL, gpu_health::ENCODER, gpu_health::REMAPPED_CORRECTED] {
        report.push(0, metric, 1.0);
    }
    let page = named_page(&report, ExpositionFormat::Text, with_names(DcgmNames::Since4_9));
    let page = decode_page(page.as_bytes(), &PageLimits::default()).unwrap();
    assert_eq!(page.rejected.total_count(), 0, "{:?}", page.rejected);
    let device = Device::new_gpu(3);
    for sample in report.samples.iter().filter(|sample| sample.reading.value().is_some()) {
        let read = page.report.find_reading(&device, sample.metric);
        assert_eq!(read, Some(sample.reading), "{}", sample.metric.series_key());
    }
}

#[test]
fn openmetrics_counter_type_needs_counter_name() {
    let page = dcgm_page(&gpu_report(), ExpositionFormat::OpenMetrics);
    assert!(page.contains("# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION unknown\n"), "{page}");
    assert!(page.ends_with("} 68\n# EOF\n"), "{page}");
}

#[test]
fn gpu_part_values_are_combined_for_the_gpu() {
    let mut report = gpu_report();
    let with_error = report.ensure_device(Device::new_gpu(4));
    for gpu in [0, with_error] {
        report.push(gpu, gpu::PRESENT, 1.0);
    }
    for (link, replays) in [(0, 3.0), (1, 4.0)] {
        let link = report.ensure_device(Device::new_gpu_part(DeviceClass::Nvlink, 3, link));
        report.push(link, parts::NVLINK_REPLAY, replays);
        report.push(link, parts::NVLINK_CRC, AbsenceReason::Unsupported);
    }
    for (code, last_seen) in [(79, 1000.0), (31, 2000.0), (48, 1500.0)] {
        let xid = report.ensure_device(Device::new_gpu_part(DeviceClass::Xid, 4, code));
        report.push(xid, parts::XID_ERRORS, 1.0);
        report.push(xid, parts::XID_LAST_SEEN, last_seen);
    }
    report.push(0, gpu_health::REMAPPED_CORRECTED, 7.0);
    let page = dcgm_page(&report, ExpositionFormat::Text);
    let value = |name: &str, gpu: &str| {
        let start = format!("{name}{{gpu=\"{gpu}\",");
        let line = page.lines().find(|line| line.starts_with(&start))?;
        Some(line.rsplit(' ').next().unwrap().to_owned())
    };
    let replays = "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL";
    assert_eq!(value(replays, "3").as_deref(), Some("7"));
    assert_eq!(value(replays, "4"), None);
    assert_eq!(value("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "3"), None);
    assert_eq!(value("DCGM_FI_DEV_XID_ERRORS", "3").as_deref(), Some("0"));
    assert_eq!(value("DCGM_FI_DEV_XID_ERRORS", "4").as_deref(), Some("31"));
    let last_error = ",err_code=\"31\",err_msg=\"memory page fault\"} 31\n";
    assert!(page.contains(last_error), "{page}");
    assert!(page.contains(",err_code=\"0\",err_msg=\"No Error\"} 0\n"), "{page}");
    assert!(page.contains("# TYPE DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS counter\n"), "{page}");
}

#[test]
fn mig_instances_replace_their_gpu() {
    let mut report = gpu_report();
    report.push(0, gpu::SM_ACTIVE, 0.9);
    let pod = [("job", "web/chat-1"), ("namespace", "web"), ("pod", "chat-1")];
    report.add_info(0, gpu::JOB_INFO, &pod);
    for (number, active) in [(0, 0.25), (1, 0.5)] {
        let mig = report.ensure_device(Device::new_gpu_part(DeviceClass::Mig, 3, number));
        let profile = format!("NVIDIA H100 80GB HBM3 MIG {}g.40gb", number + 3);
        let id = (number + 7).to_string();
        let instance_labels =
            [("name", &*profile), ("gpu_instance", &id), ("namespace", "ml"), ("pod", "a")];
        report.add_info(mig, parts::MIG_INFO, &instance_labels[..4 - 2 * number as usize]);
        report.push(mig, parts::MIG_SM_ACTIVE, active);
        report.push(mig, parts::MIG_MEMORY_USED, 3.0 * 1_048_576.0);
    }
    let page = dcgm_page(&report, ExpositionFormat::Text);
    let samples = |name: &str| {
        let lines = page.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.map(|line| line.split_once(",DCGM_FI_DRIVER").unwrap().1).collect::<Vec<_>>()
    };
    let version = "_VERSION=\"550.54.15\"";
    let first =
        format!("{version},GPU_I_PROFILE=\"3g.40gb\",GPU_I_ID=\"7\",namespace=\"ml\",pod=\"a\"}}");
    let second = format!("{version},GPU_I_PROFILE=\"4g.40gb\",GPU_I_ID=\"8\"}}");
    let instance_lines = [format!("{first} 0.25"), format!("{second} 0.5")];
    assert_eq!(samples("DCGM_FI_PROF_SM_ACTIVE"), instance_lines);
    assert_eq!(samples("DCGM_FI_DEV_FB_USED"), [format!("{first} 3"), format!("{second} 3")]);
    // A value that no instance reports is reported for the GPU, with the pod that holds the GPU.
    let gpu_line = format!("{version},container=\"\",namespace=\"web\",pod=\"chat-1\"}} 57");
    assert_eq!(samples("DCGM_FI_DEV_GPU_UTIL"), [gpu_line]);
    assert_eq!(page.matches("# TYPE DCGM_FI_PROF_SM_ACTIVE gauge\n").count(), 1);
    let mut text = String::new();
    write_page(&report, ExpositionFormat::Text, DCGM, &mut text);
    let read = decode_page(text.as_bytes(), &PageLimits::default()).unwrap();
    assert_eq!(read.rejected.total_count(), 0, "{:?}", read.rejected);
    assert_eq!(read.report.find_reading(&Device::new_gpu(3), gpu::SM_ACTIVE), Some(0.9.into()));
}

#[test]
fn recent_events_are_counted() {
    let mut report = gpu_report();
    report.push(0, gpu::PRESENT, 1.0);
    report.push(0, gpu::RECENT_SW_POWER_CAP, 290.0);
    report.push(0, gpu::RECENT_IDLE, 0.0);
    let other = report.ensure_device(Device::new_gpu(4));
    report.push(other, gpu::PRESENT, 1.0);
    for (code, total, recent) in [(79, 1.0, 0.0), (31, 3.0, 2.0)] {
        let xid = report.ensure_device(Device::new_gpu_part(DeviceClass::Xid, 3, code));
        report.push(xid, parts::XID_ERRORS, total);
        report.push(xid, parts::XID_RECENT, recent);
    }
    for link in 0..2 {
        let link = report.ensure_device(Device::new_gpu_part(DeviceClass::Nvlink, 3, link));
        report.push(link, parts::NVLINK_RECEIVE, 1_048_576.0);
        report.push(link, parts::NVLINK_RECEIVE_RATE, 2.0 * 1_024_000.0);
        report.push(link, parts::NVLINK_TRANSMIT_RATE, 1_024_000.0);
        report.push(link, parts::NVLINK_CRC, 5.0);
    }
    report.push(0, gpu_health::NVLINK_CRC_FLIT, 1.0);
    let page = dcgm_page(&report, ExpositionFormat::Text);
    let samples = |name: &str| {
        let lines = page.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        let lines = lines.map(|line| line.split_once(",DCGM_FI_DRIVER_VERSION=").unwrap().1);
        lines
            .map(|line| line.split_once('"').unwrap().1.split_once('"').unwrap().1)
            .collect::<Vec<_>>()
    };
    let window = ",window_size_in_ms=\"300000\"";
    let xid_counts = [format!("{window},xid=\"31\"}} 2"), format!("{window}}} 0")];
    assert_eq!(samples("DCGM_EXP_XID_ERRORS_COUNT"), xid_counts);
    assert_eq!(samples("DCGM_EXP_XID_ERRORS_TOTAL"), [",xid=\"79\"} 1", ",xid=\"31\"} 3"]);
    let event_counts = [format!("{window},clock_event=\"power_cap\"}} 290")];
    assert_eq!(samples("DCGM_EXP_CLOCK_EVENTS_COUNT"), event_counts);
    // A rate of two links, in units of 1,000 KiB/s; a count of bytes is none.
    assert_eq!(samples("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"), ["} 6"]);
    assert_eq!(samples("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"), ["} 1"]);
}

#[test]
fn job_label_is_that_of_dcgm_exporter() {
    let mut report = gpu_report();
    report.add_info(0, gpu::JOB_INFO, &[("job", "4711"), ("user", "ada")]);
    assert!(dcgm_page(&report, ExpositionFormat::Text).contains("\",hpc_job=\"4711\"} 57\n"));
    report.infos.pop();
    let pod = [("job", "web/chat"), ("namespace", "web"), ("pod", "chat-1")];
    report.add_info(0, gpu::JOB_INFO, &pod);
    let line_end = "\",container=\"\",namespace=\"web\",pod=\"chat-1\"} 57\n";
    assert!(dcgm_page(&report, ExpositionFormat::Text).contains(line_end));
    report.infos.pop();
    report.add_info(0, gpu::JOB_INFO, &[("job", "4be1"), ("source", "docker")]);
    assert!(!dcgm_page(&report, ExpositionFormat::Text).contains("4be1"));
    report.infos.pop();
    report.add_info(0, gpu::JOB_INFO, &[("pod", "0a1b2c3d")]);
    assert!(dcgm_page(&report, ExpositionFormat::Text).contains("\",pod_uid=\"0a1b2c3d\"} 57\n"));
}

#[test]
fn compat_page_is_read_without_duplicates() {
    let mut report = gpu_report();
    report.add_info(0, gpu::JOB_INFO, &[("job", "4711"), ("user", "ada")]);
    let mut text = String::new();
    write_page(&report, ExpositionFormat::Text, DCGM, &mut text);
    let page = decode_page(text.as_bytes(), &PageLimits::default()).unwrap();
    assert_eq!(page.rejected.total_count(), 0, "{:?}", page.rejected);
    assert_eq!((page.dialect, &page.report.node), (Dialect::Gaunt, &report.node));
    assert_eq!(page.report.infos.len(), 3, "the node, the GPU and its job, each once");
    let device = Device::new_gpu(3);
    for metric in [gpu::UTILIZATION, gpu::ENERGY, gpu::POWER, gpu::CLOCK_EVENT_IDLE] {
        let (decoded, written) =
            (page.report.find_reading(&device, metric), first_reading(&report, metric));
        assert_eq!(decoded, written, "{}", metric.series_key());
    }
}

fn first_reading(report: &Report, metric: MetricId) -> Option<crate::Reading> {
    report.samples.iter().find(|sample| sample.metric == metric).map(|sample| sample.reading)
}
