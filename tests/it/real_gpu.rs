//! gaunt-node against the real driver: what it says is what nvidia-smi says.
//!
//! `cargo test --test it -- --ignored` on a machine with an NVIDIA GPU.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{path::Path, process::Command};

use gaunt_schema::{
    Device, MetricId, Report,
    catalogue::{
        gpu::{
            CLOCK_EVENT_HW_POWER_BRAKE, CLOCK_EVENT_HW_SLOWDOWN, CLOCK_EVENT_HW_THERMAL,
            CLOCK_EVENT_SW_POWER_CAP, CLOCK_EVENT_SW_THERMAL, INFO, MEMORY_ACTIVITY, MEMORY_FREE,
            MEMORY_TOTAL, MEMORY_USED, POWER, POWER_LIMIT, SM_CLOCK, SM_CLOCK_MAX, TEMPERATURE,
            UTILIZATION,
        },
        gpu_health::{
            DECODER, ECC_CORRECTED_AGGREGATE, ECC_CORRECTED_VOLATILE, ECC_UNCORRECTED_AGGREGATE,
            ECC_UNCORRECTED_VOLATILE, ENCODER, JPEG, MEMORY_CLOCK, MEMORY_CLOCK_MAX,
            MEMORY_RESERVED, MEMORY_TEMPERATURE, MIG_MODE, OFA, PCIE_GENERATION,
            PCIE_GENERATION_MAX, PCIE_WIDTH, PCIE_WIDTH_MAX, PERFORMANCE_STATE,
            POWER_DEFAULT_LIMIT, POWER_INSTANT, RETIRED_CORRECTED, RETIRED_PENDING,
            RETIRED_UNCORRECTED,
        },
    },
    text,
};

use crate::{binaries::program, node::Node};

mod cost;
mod load;
mod trace;

const MIB: f64 = 1_048_576.0;

/// A query of nvidia-smi, our metric, their unit in ours, and how far the two may lie apart: zero for what stands still,
/// more for what moves between two readings a second apart.
const PAIRS: &[(&str, MetricId, f64, f64)] = &[
    ("memory.total", MEMORY_TOTAL, MIB, MIB),
    ("memory.reserved", MEMORY_RESERVED, MIB, MIB),
    ("memory.used", MEMORY_USED, MIB, 512.0 * MIB),
    ("memory.free", MEMORY_FREE, MIB, 512.0 * MIB),
    ("utilization.gpu", UTILIZATION, 0.01, 1.0),
    ("utilization.memory", MEMORY_ACTIVITY, 0.01, 1.0),
    ("utilization.encoder", ENCODER, 0.01, 1.0),
    ("utilization.decoder", DECODER, 0.01, 1.0),
    ("utilization.jpeg", JPEG, 0.01, 1.0),
    ("utilization.ofa", OFA, 0.01, 1.0),
    ("enforced.power.limit", POWER_LIMIT, 1.0, 0.01),
    ("power.default_limit", POWER_DEFAULT_LIMIT, 1.0, 0.01),
    ("power.draw", POWER, 1.0, 30.0),
    ("power.draw.instant", POWER_INSTANT, 1.0, 60.0),
    ("temperature.gpu", TEMPERATURE, 1.0, 3.0),
    ("temperature.memory", MEMORY_TEMPERATURE, 1.0, 3.0),
    ("clocks.max.sm", SM_CLOCK_MAX, 1e6, 0.0),
    ("clocks.sm", SM_CLOCK, 1e6, 1e9),
    ("clocks.max.mem", MEMORY_CLOCK_MAX, 1e6, 0.0),
    ("clocks.mem", MEMORY_CLOCK, 1e6, 3e9),
    ("pstate", PERFORMANCE_STATE, 1.0, 8.0),
    ("pcie.link.gen.gpucurrent", PCIE_GENERATION, 1.0, 4.0),
    ("pcie.link.gen.max", PCIE_GENERATION_MAX, 1.0, 0.0),
    ("pcie.link.width.current", PCIE_WIDTH, 1.0, 0.0),
    ("pcie.link.width.max", PCIE_WIDTH_MAX, 1.0, 0.0),
    ("ecc.errors.corrected.volatile.total", ECC_CORRECTED_VOLATILE, 1.0, 0.0),
    ("ecc.errors.uncorrected.volatile.total", ECC_UNCORRECTED_VOLATILE, 1.0, 0.0),
    ("ecc.errors.corrected.aggregate.total", ECC_CORRECTED_AGGREGATE, 1.0, 0.0),
    ("ecc.errors.uncorrected.aggregate.total", ECC_UNCORRECTED_AGGREGATE, 1.0, 0.0),
    ("retired_pages.single_bit_ecc.count", RETIRED_CORRECTED, 1.0, 0.0),
    ("retired_pages.double_bit.count", RETIRED_UNCORRECTED, 1.0, 0.0),
    ("retired_pages.pending", RETIRED_PENDING, 1.0, 0.0),
    ("mig.mode.current", MIG_MODE, 1.0, 0.0),
    ("clocks_event_reasons.hw_slowdown", CLOCK_EVENT_HW_SLOWDOWN, 1.0, 0.0),
    ("clocks_event_reasons.hw_thermal_slowdown", CLOCK_EVENT_HW_THERMAL, 1.0, 0.0),
    ("clocks_event_reasons.hw_power_brake_slowdown", CLOCK_EVENT_HW_POWER_BRAKE, 1.0, 0.0),
    ("clocks_event_reasons.sw_power_cap", CLOCK_EVENT_SW_POWER_CAP, 1.0, 1.0),
    ("clocks_event_reasons.sw_thermal_slowdown", CLOCK_EVENT_SW_THERMAL, 1.0, 1.0),
];

/// The number that a cell of nvidia-smi stands for.
fn number(cell: &str) -> Option<f64> {
    match cell {
        "Yes" | "Active" | "Enabled" => Some(1.0),
        "No" | "Not Active" | "Disabled" => Some(0.0),
        _ => cell.strip_prefix('P').unwrap_or(cell).parse().ok(),
    }
}

/// gaunt-node on the real driver, at this period; the cost of its driver calls is written to a file that is named.
fn node(period: &str, costs: Option<&Path>) -> Node {
    let mut command = Command::new(program("gaunt-node"));
    command.args(["--period", period]);
    command.envs(costs.map(|path| ("GAUNT_NVML_COSTS", path)));
    let node = Node::run(command);
    node.until("the first round of the driver", |report| {
        report.reading(&Device::gpu(0), POWER).is_some()
    });
    node
}

/// The identity labels that nvidia-smi knows by another name.
const NAMES: &[(&str, &str)] = &[
    ("uuid", "uuid"),
    ("name", "model"),
    ("pci.bus_id", "pci_bus_id"),
    ("serial", "serial"),
    ("vbios_version", "vbios"),
    ("driver_version", "driver"),
];

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_value_is_the_one_that_nvidia_smi_shows() {
    let output = Command::new(program("gaunt-node")).arg("--once").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = text::decode(&output.stdout, &text::Limits::default()).unwrap();
    assert_eq!(page.rejected.total(), 0, "{:?}", page.rejected.first);

    let gpus = nvidia_smi(&PAIRS.iter().map(|pair| pair.0).collect::<Vec<_>>());
    assert!(!gpus.is_empty(), "nvidia-smi lists no GPU");
    for (index, row) in gpus.iter().enumerate() {
        let device = Device::gpu(index as u32);
        for ((query, metric, scale, apart), said) in PAIRS.iter().zip(row) {
            let ours = page.report.reading(&device, *metric);
            let Some(theirs) = number(said) else {
                // What nvidia-smi cannot say must be absent with us too, never a number.
                assert_eq!(ours.and_then(gaunt_schema::Reading::value), None, "{device}: {query}");
                continue;
            };
            let ours = ours.and_then(gaunt_schema::Reading::value);
            let ours = ours.unwrap_or_else(|| panic!("{device}: {query} is {theirs}, ours absent"));
            let difference = (ours - theirs * scale).abs();
            assert!(difference <= *apart, "{device}: {query}: {ours} beside {}", theirs * scale);
        }
    }

    let identities = nvidia_smi(&NAMES.iter().map(|name| name.0).collect::<Vec<_>>());
    for (index, row) in identities.iter().enumerate() {
        for ((_, label), theirs) in NAMES.iter().zip(row) {
            let ours = label_of(&page.report, index as u32, label);
            if theirs.starts_with('[') {
                continue; // "[N/A]": then we may say nothing either, and a label has no reason.
            }
            assert_eq!(ours.as_deref(), Some(theirs.as_str()), "GPU {index}: {label}");
        }
    }
}

/// A label of the GPU's info series.
fn label_of(report: &Report, gpu: u32, label: &str) -> Option<String> {
    let place = report.devices.iter().position(|device| *device == Device::gpu(gpu))? as u32;
    let info = report.infos.iter().find(|info| info.metric == INFO && info.device == place)?;
    let (_, value) = info.labels.iter().find(|(name, _)| *name == label)?;
    Some(value.to_string())
}

/// One row for each GPU, one cell for each query.
fn nvidia_smi(queries: &[&str]) -> Vec<Vec<String>> {
    let output = Command::new("nvidia-smi")
        .arg(format!("--query-gpu={}", queries.join(",")))
        .arg("--format=csv,noheader,nounits")
        .output()
        .expect("nvidia-smi is part of the driver");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split(", ").map(|cell| cell.trim().to_owned()).collect()).collect()
}
