//! gaunt-node with the fake driver: every value of a scenario is exported, and every failure stays isolated.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs;

use gaunt_schema::{
    AbsenceReason, Device, DeviceClass, MetricId, Reading, Report,
    catalogue::{
        find_rows,
        gpu::{self, CLOCK_EVENTS},
        gpu_health as health, gpu_parts as parts,
    },
};
use toml::{Table, Value};

use crate::node_program::{
    NodeProcess, collector_message, collector_success, expect_reading, fixture_path, run_once,
};

/// The GPUs of a scenario file, as the file has them.
fn scenario_gpus(name: &str) -> Vec<Table> {
    let text = fs::read_to_string(fixture_path("scenarios").join(name)).unwrap();
    let Value::Array(gpus) = text.parse::<Table>().unwrap().remove("gpu").unwrap() else {
        panic!("{name} has no GPUs")
    };
    gpus.into_iter().map(|gpu| gpu.try_into().unwrap()).collect()
}

/// The source of a number in a scenario: its key, the metric, and the divisor.
const NUMBERS: &[(&str, MetricId, f64)] = &[
    ("utilization_percent", gpu::UTILIZATION, 100.0),
    ("memory_activity_percent", gpu::MEMORY_ACTIVITY, 100.0),
    ("memory_total_bytes", gpu::MEMORY_TOTAL, 1.0),
    ("memory_used_bytes", gpu::MEMORY_USED, 1.0),
    ("power_milliwatts", gpu::POWER, 1e3),
    ("power_limit_milliwatts", gpu::POWER_LIMIT, 1e3),
    ("energy_millijoules", gpu::ENERGY, 1e3),
    ("temperature_celsius", gpu::TEMPERATURE, 1.0),
    ("sm_clock_megahertz", gpu::SM_CLOCK, 1e-6),
    ("sm_clock_max_megahertz", gpu::SM_CLOCK_MAX, 1e-6),
    ("processes", gpu::PROCESSES, 1.0),
];

/// The same for the additional keys of the fuller scenarios.
const ADDITIONAL_NUMBERS: &[(&str, MetricId, f64)] = &[
    ("memory_reserved_bytes", health::MEMORY_RESERVED, 1.0),
    ("bar1_total_bytes", health::BAR1_TOTAL, 1.0),
    ("bar1_used_bytes", health::BAR1_USED, 1.0),
    ("slowdown_celsius", health::SLOWDOWN_TEMPERATURE, 1.0),
    ("shutdown_celsius", health::SHUTDOWN_TEMPERATURE, 1.0),
    ("margin_celsius", health::TEMPERATURE_MARGIN, 1.0),
    ("memory_temperature_celsius", health::MEMORY_TEMPERATURE, 1.0),
    ("memory_clock_megahertz", health::MEMORY_CLOCK, 1e-6),
    ("memory_clock_max_megahertz", health::MEMORY_CLOCK_MAX, 1e-6),
    ("performance_state", health::PERFORMANCE_STATE, 1.0),
    ("encoder_percent", health::ENCODER, 100.0),
    ("decoder_percent", health::DECODER, 100.0),
    ("jpeg_percent", health::JPEG, 100.0),
    ("ofa_percent", health::OFA, 100.0),
    ("pcie_generation", health::PCIE_GENERATION, 1.0),
    ("pcie_generation_max", health::PCIE_GENERATION_MAX, 1.0),
    ("pcie_width", health::PCIE_WIDTH, 1.0),
    ("pcie_width_max", health::PCIE_WIDTH_MAX, 1.0),
    ("pcie_replays", health::PCIE_REPLAYS, 1.0),
    ("fabric_state", health::FABRIC_STATE, 1.0),
    ("fabric_health_mask", health::FABRIC_HEALTH_MASK, 1.0),
    ("fabric_health_summary", health::FABRIC_HEALTH_SUMMARY, 1.0),
    ("mig_mode", health::MIG_MODE, 1.0),
    ("ecc_corrected_volatile", health::ECC_CORRECTED_VOLATILE, 1.0),
    ("ecc_uncorrected_volatile", health::ECC_UNCORRECTED_VOLATILE, 1.0),
    ("ecc_corrected_aggregate", health::ECC_CORRECTED_AGGREGATE, 1.0),
    ("ecc_uncorrected_aggregate", health::ECC_UNCORRECTED_AGGREGATE, 1.0),
    ("retired_corrected", health::RETIRED_CORRECTED, 1.0),
    ("retired_uncorrected", health::RETIRED_UNCORRECTED, 1.0),
    ("retired_pending", health::RETIRED_PENDING, 1.0),
    ("remapped_corrected", health::REMAPPED_CORRECTED, 1.0),
    ("remapped_uncorrected", health::REMAPPED_UNCORRECTED, 1.0),
    ("remap_pending", health::REMAP_PENDING, 1.0),
    ("remap_failed", health::REMAP_FAILED, 1.0),
    ("recovery_action", health::RECOVERY_ACTION, 1.0),
    ("power_instant_milliwatts", health::POWER_INSTANT, 1e3),
    ("power_default_limit_milliwatts", health::POWER_DEFAULT_LIMIT, 1e3),
    ("violation_power_nanoseconds", health::VIOLATION_POWER, 1e9),
    ("violation_thermal_nanoseconds", health::VIOLATION_THERMAL, 1e9),
    ("violation_sync_boost_nanoseconds", health::VIOLATION_SYNC_BOOST, 1e9),
    ("violation_board_limit_nanoseconds", health::VIOLATION_BOARD_LIMIT, 1e9),
    ("violation_low_utilization_nanoseconds", health::VIOLATION_LOW_UTILIZATION, 1e9),
    ("violation_reliability_nanoseconds", health::VIOLATION_RELIABILITY, 1e9),
    ("graphics_active_percent", gpu::GRAPHICS_ACTIVE, 100.0),
    ("sm_active_percent", gpu::SM_ACTIVE, 100.0),
    ("sm_active_percent", gpu::SM_ACTIVE_MIN, 100.0),
    ("sm_active_percent", gpu::SM_ACTIVE_MAX, 100.0),
    ("sm_occupancy_percent", gpu::SM_OCCUPANCY, 100.0),
    ("tensor_active_percent", gpu::TENSOR_ACTIVE, 100.0),
    ("dram_active_percent", gpu::DRAM_ACTIVE, 100.0),
    ("fp64_active_percent", gpu::FP64_ACTIVE, 100.0),
    ("fp32_active_percent", gpu::FP32_ACTIVE, 100.0),
    ("fp16_active_percent", gpu::FP16_ACTIVE, 100.0),
    ("pcie_receive_mebibytes_per_second", gpu::PCIE_RECEIVE_RATE, 1.0 / MIB),
    ("pcie_transmit_mebibytes_per_second", gpu::PCIE_TRANSMIT_RATE, 1.0 / MIB),
    ("nvlink_receive_mebibytes_per_second", gpu::NVLINK_RECEIVE_RATE, 1.0 / MIB),
    ("nvlink_transmit_mebibytes_per_second", gpu::NVLINK_TRANSMIT_RATE, 1.0 / MIB),
];

const MIB: f64 = 1_048_576.0;

fn number_at(table: &Table, key: &str) -> f64 {
    table.get(key).map_or(0, |value| value.as_integer().unwrap()) as f64
}

fn scale_number(number: f64, divisor: f64) -> f64 {
    if divisor < 1.0 { number * divisor.recip() } else { number / divisor }
}

/// All expected values of a GPU of a static scenario, in the catalogue's units.
fn expected_values(table: &Table) -> Vec<(MetricId, f64)> {
    let number = |key: &str| number_at(table, key);
    let simple =
        NUMBERS.iter().map(|(key, metric, divisor)| (*metric, scale_number(number(key), *divisor)));
    let mut values: Vec<_> = simple.collect();
    let free = number("memory_total_bytes") - number("memory_used_bytes");
    values.push((gpu::PRESENT, 1.0));
    values.push((gpu::MEMORY_FREE, free - number("memory_reserved_bytes")));
    let mask = number("clock_events") as u64;
    let events = CLOCK_EVENTS.iter();
    values.extend(events.map(|(bit, metric)| (*metric, f64::from(u8::from(mask & bit != 0)))));
    values
}

/// Whether a metric is one of those that every scenario has.
fn is_basic(metric: MetricId) -> bool {
    let sums = [gpu::UTILIZATION_SECONDS, gpu::MEMORY_ACTIVITY_SECONDS];
    sums.contains(&metric)
        || expected_values(&Table::new()).iter().any(|(basic, _)| *basic == metric)
}

/// The metrics of a device without a value, and the reason.
fn absent_metrics(
    report: &Report,
    device: &Device,
    is_wanted: impl Fn(MetricId) -> bool,
) -> Vec<(String, AbsenceReason)> {
    let index = report.devices.iter().position(|other| other == device).unwrap() as u32;
    let samples = report.samples.iter().filter(|sample| sample.device == index);
    let samples = samples.filter(|sample| is_wanted(sample.metric));
    let absent =
        samples.filter_map(|sample| Some((sample.metric, sample.reading.absence_reason()?)));
    absent.map(|(metric, reason)| (metric.series_key(), reason)).collect()
}

/// Each link has its own values, which it returns only if the link is the scope of the query.
fn check_links(report: &Report, index: u32, table: &Table) {
    for (link, table) in table["link"].as_array().unwrap().iter().enumerate() {
        let device = Device::new_gpu_part(DeviceClass::Nvlink, index, link as u32);
        for (key, metric, divisor) in [
            ("up", parts::NVLINK_UP, 1.0),
            ("receive_kibibytes", parts::NVLINK_RECEIVE, 1.0 / 1024.0),
            ("transmit_kibibytes", parts::NVLINK_TRANSMIT, 1.0 / 1024.0),
            ("replay", parts::NVLINK_REPLAY, 1.0),
            ("recovery", parts::NVLINK_RECOVERY, 1.0),
            ("crc", parts::NVLINK_CRC, 1.0),
        ] {
            let value = scale_number(number_at(table.as_table().unwrap(), key), divisor);
            assert_eq!(
                expect_reading(report, &device, metric),
                Reading::of(value),
                "{key} of {device}"
            );
        }
    }
}

#[test]
fn values_of_eight_gpus_are_on_the_page_exactly() {
    let report = run_once("eight.toml");
    let gpus = scenario_gpus("eight.toml");
    assert_eq!(gpus.len(), 8);
    for (index, table) in gpus.iter().enumerate() {
        let device = Device::new_gpu(index as u32);
        for (metric, value) in expected_values(table) {
            let found = expect_reading(&report, &device, metric);
            assert_eq!(found, Reading::of(value), "{} of {device}", metric.series_key());
        }
        for (key, metric, divisor) in ADDITIONAL_NUMBERS {
            let value = scale_number(table[*key].as_integer().unwrap() as f64, *divisor);
            let found = expect_reading(&report, &device, *metric).value().unwrap();
            // A mean of steps is exact up to its last bits.
            let close = (found - value).abs() <= value.abs() * 1e-12;
            assert!(close, "{} of {device}: {found}, not {value}", metric.series_key());
        }
        // The program that states it is not installed here.
        let imex = (health::IMEX_STATE.series_key(), AbsenceReason::Unsupported);
        assert_eq!(absent_metrics(&report, &device, |_| true), [imex], "{device}");
        check_links(&report, index as u32, table);
        let device_index = report.devices.iter().position(|other| *other == device).unwrap() as u32;
        let is_info = |info: &&gaunt_schema::InfoSeries| {
            info.device == device_index && info.metric == gpu::INFO
        };
        let info = report.infos.iter().find(is_info).unwrap();
        for name in ["uuid", "model", "pci_bus_id", "serial", "vbios"] {
            let label = info.labels.iter().find(|(label, _)| &**label == name).unwrap();
            assert_eq!(&*label.1, table[name].as_str().unwrap(), "{name} of {device}");
        }
    }
    assert_eq!(collector_message(&report, "nvml"), "NVIDIA driver 570.124.06, 8 GPUs");
}

#[test]
fn failed_call_costs_only_its_own_values() {
    let report = run_once("errors.toml");
    let events = || CLOCK_EVENTS.iter().map(|(_, metric)| *metric);
    let failing: Vec<(Vec<MetricId>, AbsenceReason)> = vec![
        (
            vec![
                gpu::UTILIZATION,
                gpu::MEMORY_ACTIVITY,
                gpu::UTILIZATION_SECONDS,
                gpu::MEMORY_ACTIVITY_SECONDS,
            ],
            AbsenceReason::Unsupported,
        ),
        (vec![gpu::MEMORY_USED, gpu::MEMORY_FREE, gpu::MEMORY_TOTAL], AbsenceReason::NoPermission),
        (vec![gpu::POWER], AbsenceReason::Error),
        (vec![gpu::POWER_LIMIT], AbsenceReason::Unsupported),
        (vec![gpu::ENERGY], AbsenceReason::NoPermission),
        (vec![gpu::TEMPERATURE], AbsenceReason::Error),
        (vec![gpu::SM_CLOCK], AbsenceReason::Unsupported),
        (vec![gpu::SM_CLOCK_MAX], AbsenceReason::NoPermission),
        (events().collect(), AbsenceReason::Error),
        (vec![gpu::PROCESSES], AbsenceReason::Error),
    ];
    for (index, table) in scenario_gpus("errors.toml").iter().enumerate() {
        let device = Device::new_gpu(index as u32);
        let (metrics, reason) = &failing[index];
        let mut absent: Vec<_> =
            metrics.iter().map(|metric| (metric.series_key(), *reason)).collect();
        let mut found = absent_metrics(&report, &device, is_basic);
        absent.sort();
        found.sort();
        assert_eq!(found, absent, "{device}");
        for (metric, value) in
            expected_values(table).into_iter().filter(|(id, _)| !metrics.contains(id))
        {
            let found = expect_reading(&report, &device, metric);
            assert_eq!(found, Reading::of(value), "{} of {device}", metric.series_key());
        }
    }
    let message = collector_message(&report, "nvml");
    assert!(message.contains("nvmlDeviceGetComputeRunningProcesses_v3 of GPU 9"), "{message}");
    assert!(message.ends_with("; and 3 more, see the log"), "{message}");
    assert_eq!(collector_success(&report, "nvml"), Some(1.0));
}

#[test]
fn lost_gpu_stays_on_the_page_as_lost() {
    let node = NodeProcess::start_scenario("lost.toml");
    let lost = Device::new_gpu(1);
    let presence = |report: &Report| report.find_reading(&lost, gpu::PRESENT);
    node.wait_for_report("the GPU", |report| presence(report) == Some(Reading::of(1.0)));
    let silent = Device::new_gpu(3);
    let report = node.wait_for_report("the loss", |report| {
        presence(report) == Some(Reading::of(0.0))
            && report.find_reading(&silent, gpu::PRESENT) == Some(Reading::of(0.0))
    });
    assert_eq!(expect_reading(&report, &lost, gpu::POWER), AbsenceReason::Lost.into());
    assert_eq!(
        expect_reading(&report, &lost, gpu::UTILIZATION_SECONDS),
        AbsenceReason::Lost.into()
    );
    assert_eq!(expect_reading(&report, &silent, gpu::POWER), AbsenceReason::Error.into());
    assert_eq!(
        expect_reading(&report, &silent, gpu::CLOCK_EVENT_IDLE),
        AbsenceReason::Error.into()
    );
    let message = collector_message(&report, "nvml");
    let call = "nvmlDeviceGetHandleByIndex_v2 of GPU 3";
    assert!(message.contains(&format!("4 GPUs; lost: GPU 1, 3; {call}")), "{message}");
    for index in [0, 2] {
        let device = Device::new_gpu(index);
        assert_eq!(expect_reading(&report, &device, gpu::PRESENT), Reading::of(1.0));
        assert_eq!(absent_metrics(&report, &device, is_basic), []);
    }
}

#[test]
fn lost_gpu_that_is_back_is_read_again() {
    let node = NodeProcess::start_scenario("returning.toml");
    let device = Device::new_gpu(1);
    let presence = |report: &Report| report.find_reading(&device, gpu::PRESENT);
    let lost =
        node.wait_for_report("the loss", |report| presence(report) == Some(Reading::of(0.0)));
    assert_eq!(expect_reading(&lost, &device, gpu::POWER), AbsenceReason::Lost.into());
    let back =
        node.wait_for_report("its return", |report| presence(report) == Some(Reading::of(1.0)));
    assert_eq!(absent_metrics(&back, &device, is_basic), []);
    let other = Device::new_gpu(0);
    for report in [&lost, &back] {
        assert_eq!(expect_reading(report, &other, gpu::PRESENT), Reading::of(1.0));
        assert_eq!(absent_metrics(report, &other, is_basic), []);
    }
}

#[test]
fn integral_grows_with_its_ratio_and_then_stops() {
    let node = NodeProcess::start_scenario("steps.toml");
    let device = Device::new_gpu(0);
    let value = |report: &Report, metric| report.find_reading(&device, metric)?.value();
    let busy = node.wait_for_report("the work", |report| {
        value(report, gpu::UTILIZATION) == Some(1.0)
            && value(report, gpu::UTILIZATION_SECONDS) > Some(0.0)
    });
    let calm =
        node.wait_for_report("the calm", |report| value(report, gpu::UTILIZATION) == Some(0.0));
    let later = node.wait_for_report("another tick", |report| report.node_time > calm.node_time);
    let seconds = |report: &Report| value(report, gpu::UTILIZATION_SECONDS).unwrap();
    assert!(seconds(&busy) <= seconds(&calm));
    assert_eq!(seconds(&calm).to_bits(), seconds(&later).to_bits(), "zero per cent adds nothing");
    // All counters were at 100 %, and that ended at second 2.5.
    assert!(seconds(&calm) <= 3.5, "{}", seconds(&calm));
    let counter = find_rows("gaunt_gpu_utilization_seconds_total").unwrap().first;
    assert_eq!(counter, gpu::UTILIZATION_SECONDS);
}

#[test]
fn driver_without_gpus_is_no_failure() {
    let report = run_once("none.toml");
    assert_eq!(collector_success(&report, "nvml"), Some(1.0));
    assert_eq!(
        collector_message(&report, "nvml"),
        "no GPU: the NVIDIA driver 570.124.06 lists none"
    );
}

#[test]
fn scenario_with_an_unknown_key_is_no_driver() {
    let report = run_once("unknown_key.toml");
    assert_eq!(collector_success(&report, "nvml"), Some(0.0));
    assert!(collector_message(&report, "nvml").starts_with("the NVIDIA driver is not loaded"));
}

#[test]
fn fabric_registration_that_ended_with_an_error_has_failed() {
    let report = run_once("fabric_failed.toml");
    let device = Device::new_gpu(0);
    assert_eq!(expect_reading(&report, &device, health::FABRIC_STATE), Reading::of(4.0));
    let mask = expect_reading(&report, &device, health::FABRIC_HEALTH_MASK);
    assert_eq!(mask, AbsenceReason::Unsupported.into(), "no condition is reported");
}
