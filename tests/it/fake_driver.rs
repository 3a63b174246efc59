//! gaunt-node with the fake driver: every value of a scenario arrives, and every failure stays where it is.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs;

use gaunt_schema::{
    Absent, Device, MetricId, Reading, Report,
    catalogue::{
        gpu::{self, CLOCK_EVENTS},
        named,
    },
};
use toml::{Table, Value};

use crate::node::{Node, fixture, message, once, read, succeeded};

/// The GPUs of a scenario file, as the file has them.
fn scenario(name: &str) -> Vec<Table> {
    let text = fs::read_to_string(fixture("scenarios").join(name)).unwrap();
    let Value::Array(gpus) = text.parse::<Table>().unwrap().remove("gpu").unwrap() else {
        panic!("{name} has no GPUs")
    };
    gpus.into_iter().map(|gpu| gpu.try_into().unwrap()).collect()
}

/// Everything that a GPU of a scenario without time must show, in the catalogue's units.
fn expected(table: &Table) -> Vec<(MetricId, f64)> {
    let number = |key: &str| table.get(key).map_or(0, |value| value.as_integer().unwrap()) as f64;
    let (total, used) = (number("memory_total_bytes"), number("memory_used_bytes"));
    let mut values = vec![
        (gpu::PRESENT, 1.0),
        (gpu::UTILIZATION, number("utilization_percent") / 100.0),
        (gpu::MEMORY_ACTIVITY, number("memory_activity_percent") / 100.0),
        (gpu::MEMORY_TOTAL, total),
        (gpu::MEMORY_USED, used),
        (gpu::MEMORY_FREE, total - used - number("memory_reserved_bytes")),
        (gpu::POWER, number("power_milliwatts") / 1e3),
        (gpu::POWER_LIMIT, number("power_limit_milliwatts") / 1e3),
        (gpu::ENERGY, number("energy_millijoules") / 1e3),
        (gpu::TEMPERATURE, number("temperature_celsius")),
        (gpu::SM_CLOCK, number("sm_clock_megahertz") * 1e6),
        (gpu::SM_CLOCK_MAX, number("sm_clock_max_megahertz") * 1e6),
        (gpu::PROCESSES, number("processes")),
    ];
    let mask = number("clock_events") as u64;
    let events = CLOCK_EVENTS.iter();
    values.extend(events.map(|(bit, metric)| (*metric, f64::from(u8::from(mask & bit != 0)))));
    values
}

fn absences(report: &Report, device: &Device) -> Vec<(String, Absent)> {
    let at = report.devices.iter().position(|known| known == device).unwrap() as u32;
    let samples = report.samples.iter().filter(|sample| sample.device == at);
    let absent = samples.filter_map(|sample| Some((sample.metric, sample.reading.reason()?)));
    absent.map(|(metric, reason)| (metric.key(), reason)).collect()
}

#[test]
fn every_value_of_eight_gpus_is_on_the_page_exactly() {
    let report = once("eight.toml");
    let gpus = scenario("eight.toml");
    assert_eq!(gpus.len(), 8);
    for (index, table) in gpus.iter().enumerate() {
        let device = Device::gpu(index as u32);
        for (metric, value) in expected(table) {
            let found = read(&report, &device, metric);
            assert_eq!(found, Reading::of(value), "{} of {device}", metric.key());
        }
        assert_eq!(absences(&report, &device), [], "{device}");
        let at = report.devices.iter().position(|known| *known == device).unwrap() as u32;
        let found = |info: &&gaunt_schema::Info| info.device == at && info.metric == gpu::INFO;
        let info = report.infos.iter().find(found).unwrap();
        for name in ["uuid", "model", "pci_bus_id", "serial"] {
            let label = info.labels.iter().find(|(label, _)| &**label == name).unwrap();
            assert_eq!(&*label.1, table[name].as_str().unwrap(), "{name} of {device}");
        }
    }
    assert_eq!(message(&report, "nvml"), "NVIDIA driver 570.124.06, 8 GPUs");
}

#[test]
fn each_call_that_fails_costs_only_its_own_values() {
    let report = once("errors.toml");
    let events = || CLOCK_EVENTS.iter().map(|(_, metric)| *metric);
    let failing: Vec<(Vec<MetricId>, Absent)> = vec![
        (
            vec![
                gpu::UTILIZATION,
                gpu::MEMORY_ACTIVITY,
                gpu::UTILIZATION_SECONDS,
                gpu::MEMORY_ACTIVITY_SECONDS,
            ],
            Absent::Unsupported,
        ),
        (vec![gpu::MEMORY_USED, gpu::MEMORY_FREE, gpu::MEMORY_TOTAL], Absent::NoPermission),
        (vec![gpu::POWER], Absent::Error),
        (vec![gpu::POWER_LIMIT], Absent::Unsupported),
        (vec![gpu::ENERGY], Absent::NoPermission),
        (vec![gpu::TEMPERATURE], Absent::Error),
        (vec![gpu::SM_CLOCK], Absent::Unsupported),
        (vec![gpu::SM_CLOCK_MAX], Absent::NoPermission),
        (events().collect(), Absent::Error),
        (vec![gpu::PROCESSES], Absent::Error),
    ];
    for (index, table) in scenario("errors.toml").iter().enumerate() {
        let device = Device::gpu(index as u32);
        let (metrics, reason) = &failing[index];
        let mut absent: Vec<_> = metrics.iter().map(|metric| (metric.key(), *reason)).collect();
        let mut found = absences(&report, &device);
        absent.sort();
        found.sort();
        assert_eq!(found, absent, "{device}");
        for (metric, value) in expected(table).into_iter().filter(|(id, _)| !metrics.contains(id)) {
            let found = read(&report, &device, metric);
            assert_eq!(found, Reading::of(value), "{} of {device}", metric.key());
        }
    }
    let said = message(&report, "nvml");
    assert!(said.contains("nvmlDeviceGetComputeRunningProcesses_v3 of GPU 9"), "{said}");
    assert!(said.ends_with("; and 3 more, see the log"), "{said}");
    assert_eq!(succeeded(&report, "nvml"), Some(1.0));
}

#[test]
fn a_gpu_that_is_lost_stays_on_the_page_as_lost() {
    let node = Node::start("lost.toml");
    let lost = Device::gpu(1);
    let there = |report: &Report| report.reading(&lost, gpu::PRESENT);
    node.until("the GPU", |report| there(report) == Some(Reading::of(1.0)));
    let silent = Device::gpu(3);
    let report = node.until("the loss", |report| {
        there(report) == Some(Reading::of(0.0))
            && report.reading(&silent, gpu::PRESENT) == Some(Reading::of(0.0))
    });
    assert_eq!(read(&report, &lost, gpu::POWER), Absent::Lost.into());
    assert_eq!(read(&report, &lost, gpu::UTILIZATION_SECONDS), Absent::Lost.into());
    assert_eq!(read(&report, &silent, gpu::POWER), Absent::Error.into());
    assert_eq!(read(&report, &silent, gpu::CLOCK_EVENT_IDLE), Absent::Error.into());
    let said = message(&report, "nvml");
    let call = "nvmlDeviceGetHandleByIndex_v2 of GPU 3";
    assert!(said.contains(&format!("4 GPUs; lost: GPU 1, 3; {call}")), "{said}");
    for index in [0, 2] {
        let device = Device::gpu(index);
        assert_eq!(read(&report, &device, gpu::PRESENT), Reading::of(1.0));
        assert_eq!(absences(&report, &device), []);
    }
}

#[test]
fn an_integral_grows_with_its_ratio_and_then_stands() {
    let node = Node::start("steps.toml");
    let device = Device::gpu(0);
    let value = |report: &Report, metric| report.reading(&device, metric)?.value();
    let busy = node.until("the work", |report| {
        value(report, gpu::UTILIZATION) == Some(1.0)
            && value(report, gpu::UTILIZATION_SECONDS) > Some(0.0)
    });
    let calm = node.until("the calm", |report| value(report, gpu::UTILIZATION) == Some(0.0));
    let later = node.until("another tick", |report| report.node_time > calm.node_time);
    let seconds = |report: &Report| value(report, gpu::UTILIZATION_SECONDS).unwrap();
    assert!(seconds(&busy) <= seconds(&calm));
    assert_eq!(seconds(&calm).to_bits(), seconds(&later).to_bits(), "zero per cent adds nothing");
    // All of it was at a hundred per cent, and that ended at second 2.5.
    assert!(seconds(&calm) <= 3.5, "{}", seconds(&calm));
    let counter = named("gaunt_gpu_utilization_seconds_total").unwrap().first;
    assert_eq!(counter, gpu::UTILIZATION_SECONDS);
}

#[test]
fn a_driver_without_gpus_is_no_failure() {
    let report = once("none.toml");
    assert_eq!(succeeded(&report, "nvml"), Some(1.0));
    assert_eq!(message(&report, "nvml"), "no GPU: the NVIDIA driver 570.124.06 lists none");
}

#[test]
fn a_scenario_with_an_unknown_key_is_no_driver() {
    let report = once("unknown_key.toml");
    assert_eq!(succeeded(&report, "nvml"), Some(0.0));
    assert!(message(&report, "nvml").starts_with("the NVIDIA driver is not loaded"));
}
