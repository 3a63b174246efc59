//! Pages of dcgm-exporter 3, 4.0 to 4.8 and 4.9: every field of the default list has its value in our unit.

use super::{
    exporter_page_tests::{assert_info, assert_values, decode_clean},
    page_decoder::is_known_name,
};
use crate::{
    AbsenceReason, Device, DeviceClass, Dialect, MetricId, Report, ScrapedPage,
    catalogue::{gpu, gpu_health as health},
    text::{PageLimits, TemplateCache, TemplateState, decode_page},
};

const V3: &str = include_str!("../../../../tests/fixtures/scrapes/dcgm_3.prom");
const V4_8: &str = include_str!("../../../../tests/fixtures/scrapes/dcgm_4_8.prom");
const V4_9: &str = include_str!("../../../../tests/fixtures/scrapes/dcgm_4_9.prom");
const RENAMED: &str = include_str!("../../../../tests/fixtures/scrapes/dcgm_renamed.prom");

const MIB: f64 = 1_048_576.0;

/// The names of a page's series, each once.
fn series_names(page: &str) -> Vec<&str> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let mut names: Vec<&str> = lines.filter_map(|line| line.split(['{', ' ']).next()).collect();
    names.dedup();
    names
}

fn first_gpu(page: &str) -> Report {
    let page = decode_clean(page);
    assert_eq!(page.dialect, Dialect::Dcgm);
    page.report
}

#[test]
fn dcgm_default_lists_are_understood_in_every_version() {
    for (page, fields) in [(V3, 21), (V4_8, 25), (V4_9, 26)] {
        let names = series_names(page);
        let unknown: Vec<_> = names.iter().filter(|name| !is_known_name(name)).collect();
        assert_eq!((names.len(), unknown.as_slice()), (fields, &[][..]));
        let report = first_gpu(page);
        assert_eq!(report.node.as_deref(), Some("gpu-0201"));
        // Every field is a reading of the GPU, but the XID, which is a device of its own.
        for gpu in 0..2 {
            let index = report.devices.iter().position(|device| *device == Device::new_gpu(gpu));
            let samples = report.samples.iter();
            let of_gpu = samples.filter(|sample| Some(sample.device as usize) == index).count();
            assert_eq!(of_gpu, fields - 1);
        }
    }
}

#[test]
fn dcgm_versions_report_the_same_gpu_with_the_same_values() {
    let rows: &[(MetricId, f64)] = &[
        (gpu::SM_CLOCK, 1.98e9),
        (health::MEMORY_CLOCK, 2.619e9),
        (gpu::TEMPERATURE, 61.0),
        (gpu::POWER, 642.451),
        (gpu::UTILIZATION, 0.98),
        (gpu::MEMORY_ACTIVITY, 0.41),
        (health::ENCODER, 0.0),
        (health::DECODER, 1.0),
        (gpu::MEMORY_USED, 61_040.0 * MIB),
        (gpu::MEMORY_FREE, 19_968.0 * MIB),
        (health::REMAPPED_CORRECTED, 3.0),
        (health::REMAP_FAILED, 0.0),
        (health::NVLINK_RATE, 320e9),
        (health::VGPU_LICENSED, 0.0),
        (gpu::PCIE_TRANSMIT_RATE, 1_204_512.0),
    ];
    for page in [V3, V4_8, V4_9] {
        let report = first_gpu(page);
        assert_values(&report, &Device::new_gpu(0), rows);
        let energy = report.find_reading(&Device::new_gpu(0), gpu::ENERGY).unwrap();
        assert_eq!(energy.value().map(f64::floor), Some(98_765_432.0), "millijoules and joules");
        let second = Device::new_gpu(1);
        assert_values(&report, &second, &[(gpu::UTILIZATION, 0.01), (health::PCIE_REPLAYS, 2.0)]);
        let memory = report.find_reading(&second, health::MEMORY_TEMPERATURE);
        assert_eq!(memory, Some(AbsenceReason::Unsupported.into()));
        let xid = Device::new_gpu_part(DeviceClass::Xid, 1, 43);
        assert!(report.devices.contains(&xid));
        assert_info(
            &report,
            &second,
            gpu::INFO,
            &[
                ("uuid", "GPU-5f3b2c1d-0000-4be1-9d27-000000000001"),
                ("model", "NVIDIA H100 80GB HBM3"),
                ("pci_bus_id", "00000000:2C:00.0"),
            ],
        );
    }
    let drivers = [(V3, "535.161.08"), (V4_8, "570.124.06"), (V4_9, "580.65.06")];
    for (page, driver) in drivers {
        assert_info(&first_gpu(page), &Device::new_gpu(0), gpu::INFO, &[("driver", driver)]);
    }
    assert_values(
        &first_gpu(V4_9),
        &Device::new_gpu(0),
        &[(gpu::MEMORY_TOTAL, 85_520_809_984.0), (health::MEMORY_RESERVED, 551.0 * MIB)],
    );
}

#[test]
fn dcgm_page_with_renamed_fields_has_percentages() {
    let report = first_gpu(RENAMED);
    assert_values(
        &report,
        &Device::new_gpu(0),
        &[
            (gpu::UTILIZATION, 0.97),
            (gpu::TEMPERATURE, 61.0),
            (gpu::POWER, 812.451),
            (gpu::ENERGY, 98_765_432.101),
            (gpu::SM_ACTIVE, 0.88123),
            (gpu::TENSOR_ACTIVE, 0.412),
            (gpu::MEMORY_USED, 170_123.0 * MIB),
            (health::REMAP_FAILED, 0.0),
        ],
    );
    let second = Device::new_gpu(1);
    assert_values(&report, &second, &[(health::PCIE_REPLAYS, 2.0), (gpu::UTILIZATION, 0.03)]);
}

/// The utilization of GPUs 0, 1, … of a page of these values, with one more line before or after them.
fn utilizations(values: &[&str], extra: &str, is_first: bool) -> Vec<f64> {
    let lines = values.iter().enumerate();
    let lines = lines
        .map(|(gpu, value)| format!("DCGM_FI_DEV_GPU_UTIL_RATIO{{gpu=\"{gpu}\"}} {value}\n"))
        .collect::<Vec<_>>()
        .concat();
    let text = if is_first { format!("{extra}{lines}") } else { format!("{lines}{extra}") };
    let report = decode_clean(&text).report;
    let reading = |gpu| report.find_reading(&Device::new_gpu(gpu), gpu::UTILIZATION);
    (0..values.len() as u32).map(|gpu| reading(gpu).unwrap().value().unwrap()).collect()
}

#[test]
fn dcgm_ratio_unit_is_that_of_the_whole_page() {
    const BASE: &str = "DCGM_FI_DEV_FB_USED_BYTES{gpu=\"0\"} 40507539456\n";
    const CLOCK: &str = "DCGM_FI_DEV_SM_CLOCK_HERTZ{gpu=\"0\"} 1980000000\n";
    for is_first in [true, false] {
        // Only DCGM 4.7 has bytes.
        assert_eq!(utilizations(&["1", "0"], BASE, is_first), [1.0, 0.0]);
        // DCGM 4.6.1 has hertz, and percentages.
        assert_eq!(utilizations(&["98", "1"], CLOCK, is_first), [0.98, 0.01]);
        assert_eq!(utilizations(&["0.980000", "1.000000"], CLOCK, is_first), [0.98, 1.0]);
    }
    // One busy GPU shows the unit of an idle one.
    assert_eq!(utilizations(&["1", "97"], "", true), [0.01, 0.97]);
    assert_eq!(utilizations(&["1", "0.970000"], "", true), [1.0, 0.97]);
    assert_eq!(utilizations(&["97.5", "1.0"], "", true), [0.975, 0.01]);
}

#[test]
fn dcgm_ratio_without_a_sign_of_its_unit_is_left_out_and_listed() {
    const CLOCK: &str = "DCGM_FI_DEV_SM_CLOCK_HERTZ{gpu=\"0\"} 1980000000\n";
    let page = |values: [&str; 2]| {
        let line = |(gpu, value)| format!("DCGM_FI_DEV_GPU_UTIL_RATIO{{gpu=\"{gpu}\"}} {value}\n");
        decode_clean(&format!("{CLOCK}{}", (0..).zip(values).map(line).collect::<String>()))
    };
    let reading = |page: &ScrapedPage, gpu| {
        page.report.find_reading(&Device::new_gpu(gpu), gpu::UTILIZATION).unwrap()
    };
    for values in [["1", "0"], ["1", "1"]] {
        let page = page(values);
        assert_eq!(reading(&page, 0), AbsenceReason::Error.into(), "{values:?}");
        let fields = &page.rejected.fields;
        assert_eq!((fields.known, fields.unknown), (1, 1));
        let expected =
            "DCGM_FI_DEV_GPU_UTIL_RATIO (left out, its unit is unknown: 1 is 1 % or 100 %)";
        assert_eq!(*fields.names, [expected]);
    }
    let renamed = decode_clean(&with_total(
        &format!("{CLOCK}DCGM_FI_DEV_GPU_UTIL_RATIO{{gpu=\"0\"}} 1\n"),
        is_known_name,
    ));
    assert_eq!((renamed.rejected.fields.known, renamed.rejected.fields.unknown), (1, 1));
    assert_eq!(reading(&page(["1", "0"]), 1), 0.0.into(), "0 is 0 in any unit");
    let idle = page(["0", "0"]);
    assert_eq!(reading(&idle, 0), 0.0.into());
    assert!(idle.rejected.fields.is_empty());
}

#[test]
fn dcgm_ratio_unit_of_whole_values_follows_the_label_of_the_driver() {
    let page = |values: [&str; 2]| {
        let line = |(gpu, value): (usize, &str)| {
            format!(
                "DCGM_FI_DEV_GPU_UTIL_RATIO{{gpu=\"{gpu}\",DCGM_FI_SYSTEM_DRIVER_VERSION=\"580.1\"}} {value}\n"
            )
        };
        values.into_iter().enumerate().map(line).collect::<String>()
    };
    let cache = TemplateCache::default();
    let mut state = TemplateState::default();
    // A server that stores samples gives 1.0 back as 1.
    for (values, first) in
        [(["0.97", "1"], 0.97), (["1", "1"], 1.0), (["98", "1"], 0.98), (["1", "0"], 1.0)]
    {
        let limits = PageLimits::default();
        let page = cache.decode_page(&mut state, page(values).as_bytes(), &limits).unwrap();
        let reading = page.report.find_reading(&Device::new_gpu(0), gpu::UTILIZATION);
        assert_eq!(reading, Some(first.into()), "{values:?}");
    }
}

#[test]
fn dcgm_ratio_unit_is_decided_again_when_values_show_another() {
    let text = |value: &str| {
        let of = |gpu, value| format!("DCGM_FI_DEV_GPU_UTIL_RATIO{{gpu=\"{gpu}\"}} {value}\n");
        format!("{}{}", of(0, "1"), of(1, value))
    };
    let cache = TemplateCache::default();
    let mut state = TemplateState::default();
    for value in ["97", "98", "1", "98", "0.970000", "0.5", "1", "99", "99", "0", "1"] {
        let text = text(value);
        let limits = PageLimits::default();
        let page: ScrapedPage = cache.decode_page(&mut state, text.as_bytes(), &limits).unwrap();
        let strict = decode_page(text.as_bytes(), &limits).unwrap();
        assert_eq!(page.report.samples, strict.report.samples, "{value}");
        assert_eq!(page.rejected, strict.rejected, "{value}");
    }
    assert!(cache.cache_stats().repeated > 0, "whole percentages have a template");
}

#[test]
fn dcgm_blank_ratio_shows_no_unit() {
    let report = decode_clean(
        "DCGM_FI_DEV_GPU_UTIL_RATIO{gpu=\"0\"} 140737488355330.000000\n\
         DCGM_FI_DEV_GPU_UTIL_RATIO{gpu=\"1\"} 0.500000\n",
    )
    .report;
    let reading = |gpu| report.find_reading(&Device::new_gpu(gpu), gpu::UTILIZATION);
    assert_eq!(reading(0), Some(AbsenceReason::Unsupported.into()));
    assert_eq!(reading(1), Some(0.5.into()));
}

#[test]
fn dcgm_old_name_beside_new_one_is_no_error() {
    for page in [
        "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 50\nDCGM_FI_DEV_GPU_TEMP_CELSIUS{gpu=\"0\"} 50\n",
        "DCGM_FI_DEV_GPU_TEMP_CELSIUS{gpu=\"0\"} 50\nDCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 50\n",
    ] {
        assert_eq!(decode_clean(page).report.samples.len(), 1);
    }
}

#[test]
fn dcgm_rows_differ_by_our_label() {
    let page = decode_clean(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu=\"0\"} 3\nDCGM_FI_DEV_POWER_VIOLATION{gpu=\"0\"} 2500000000\n",
    );
    assert_values(
        &page.report,
        &Device::new_gpu(0),
        &[(health::ECC_UNCORRECTED_VOLATILE, 3.0), (health::VIOLATION_POWER, 2.5)],
    );
}

#[test]
fn dcgm_fields_that_are_not_understood_are_listed() {
    for page in [V3, V4_8, V4_9] {
        assert!(decode_clean(page).rejected.fields.is_empty());
    }
    let text = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 50\nDCGM_FI_DEV_WARP_CORE_KELVIN{gpu=\"0\"} 300\n\
                DCGM_FI_DEV_FAN_SPEED{gpu=\"0\"} 30\nDCGM_FI_DEV_FAN_SPEED{gpu=\"1\"} 30\n\
                DCGM_EXP_P2P_STATUS{gpu=\"0\"} 0\nup 1\n";
    let cache = TemplateCache::default();
    let mut state = TemplateState::default();
    for _ in 0..3 {
        let page = cache.decode_page(&mut state, text.as_bytes(), &PageLimits::default()).unwrap();
        let fields = &page.rejected.fields;
        assert_eq!((fields.known, fields.unknown, fields.is_mostly_unknown()), (1, 2, true));
        assert_eq!(*fields.names, ["DCGM_FI_DEV_FAN_SPEED", "DCGM_FI_DEV_WARP_CORE_KELVIN"]);
        assert_eq!(page.rejected.total_count(), 0, "an unknown name is no error");
    }
    assert!(cache.cache_stats().repeated > 0);
    let many: Vec<String> =
        (0..40).map(|field| format!("DCGM_FI_DEV_F{field}{{gpu=\"0\"}} 1\n")).collect();
    let fields = decode_clean(&many.concat()).rejected.fields;
    assert_eq!((fields.unknown, fields.names.len()), (40, 32));
}

#[test]
fn page_of_which_nothing_is_understood_has_the_names_of_its_series() {
    let cache = TemplateCache::default();
    let mut state = TemplateState::default();
    for _ in 0..3 {
        let text = "neuron_core_utilization_avg 40\ndcgm_gpu_temp{gpu=\"0\"} 50\ndcgm_gpu_temp{gpu=\"1\"} 51\n";
        let page = cache.decode_page(&mut state, text.as_bytes(), &PageLimits::default()).unwrap();
        assert_eq!(page.dialect, Dialect::Unknown);
        let fields = page.rejected.fields;
        assert_eq!((fields.known, fields.unknown), (0, 2));
        assert_eq!(*fields.names, ["dcgm_gpu_temp", "neuron_core_utilization_avg"]);
    }
    let page = decode_clean("go_goroutines 9\nnode_load1 0.5\nprocess_open_fds 9\n");
    assert!(page.rejected.fields.is_empty(), "other exporters have names that nobody reads");
}

/// The page with `_total` appended to these names.
fn with_total(page: &str, is_appended: impl Fn(&str) -> bool) -> String {
    let line = |line: &str| match line.split_once('{') {
        Some((name, rest)) if !line.starts_with('#') && is_appended(name) => {
            format!("{name}_total{{{rest}\n")
        }
        _ => format!("{line}\n"),
    };
    page.lines().map(line).collect()
}

#[test]
fn dcgm_names_of_a_collector_are_the_fields_without_their_suffix() {
    for page in [V3, V4_8, V4_9, RENAMED] {
        let plain = decode_clean(page);
        let renamed = decode_clean(&with_total(page, is_known_name));
        assert_eq!(renamed.report, plain.report);
        assert_eq!(
            (renamed.dialect, renamed.rejected.fields),
            (plain.dialect, plain.rejected.fields)
        );
    }
}

#[test]
fn dcgm_name_of_a_collector_is_not_read_beside_the_fields_own_name() {
    let own = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu=\"0\"} 5000\n\
               DCGM_FI_DEV_XID_ERRORS{gpu=\"0\"} 43\n";
    let appended = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_total{gpu=\"0\"} 9000\n\
                    DCGM_FI_DEV_XID_ERRORS_total{gpu=\"0\"} 79\n\
                    DCGM_FI_PROF_PCIE_TX_BYTES_total{gpu=\"0\"} 7\n";
    for text in [format!("{own}{appended}"), format!("{appended}{own}")] {
        let page = decode_clean(&text);
        let rows = [(gpu::ENERGY, 5.0), (gpu::PCIE_TRANSMIT_RATE, 7.0)];
        assert_values(&page.report, &Device::new_gpu(0), &rows);
        let xids: Vec<_> =
            page.report.devices.iter().filter(|device| device.class == DeviceClass::Xid).collect();
        assert_eq!(xids, [&Device::new_gpu_part(DeviceClass::Xid, 0, 43)]);
        assert!(page.rejected.fields.is_empty());
    }
}
