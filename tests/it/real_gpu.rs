//! gaunt-node against the real driver: its values equal those of nvidia-smi.
//!
//! `cargo test --test it -- --ignored` on a machine with an NVIDIA GPU.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::process::Command;

use gaunt_schema::{
    Device, MetricId, Report,
    catalogue::gpu::{
        INFO, MEMORY_TOTAL, MEMORY_USED, POWER, POWER_LIMIT, SM_CLOCK, SM_CLOCK_MAX, TEMPERATURE,
    },
    text,
};

use crate::{binaries::program_path, test_process::RunToEnd};

const MIB: f64 = 1_048_576.0;

/// A query of nvidia-smi, our metric, the factor from its unit to ours, and the tolerance: zero for constants, more for
/// values that change between two readings a second apart.
const PAIRS: &[(&str, MetricId, f64, f64)] = &[
    ("memory.total", MEMORY_TOTAL, MIB, MIB),
    ("memory.used", MEMORY_USED, MIB, 512.0 * MIB),
    ("enforced.power.limit", POWER_LIMIT, 1.0, 0.01),
    ("power.draw", POWER, 1.0, 30.0),
    ("temperature.gpu", TEMPERATURE, 1.0, 3.0),
    ("clocks.max.sm", SM_CLOCK_MAX, 1e6, 0.0),
    ("clocks.sm", SM_CLOCK, 1e6, 1e9),
];

/// The identity labels that nvidia-smi knows by another name.
const NAMES: &[(&str, &str)] =
    &[("uuid", "uuid"), ("name", "model"), ("pci.bus_id", "pci_bus_id"), ("serial", "serial")];

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn values_equal_those_of_nvidia_smi() {
    let output = Command::new(program_path("gaunt-node")).arg("--once").run_to_end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = text::decode_page(&output.stdout, &text::PageLimits::default()).unwrap();
    assert_eq!(page.rejected.total_count(), 0, "{:?}", page.rejected.first);

    let gpus = nvidia_smi(&PAIRS.iter().map(|pair| pair.0).collect::<Vec<_>>());
    assert!(!gpus.is_empty(), "nvidia-smi lists no GPU");
    for (index, row) in gpus.iter().enumerate() {
        let device = Device::new_gpu(index as u32);
        for ((query, metric, scale, tolerance), cell) in PAIRS.iter().zip(row) {
            let ours = page.report.find_reading(&device, *metric);
            let Ok(theirs) = cell.parse::<f64>() else {
                // A value that nvidia-smi does not have must be absent here too, never a number.
                assert_eq!(ours.and_then(gaunt_schema::Reading::value), None, "{device}: {query}");
                continue;
            };
            let ours = ours.and_then(gaunt_schema::Reading::value);
            let ours = ours.unwrap_or_else(|| panic!("{device}: {query} is {theirs}, ours absent"));
            let difference = (ours - theirs * scale).abs();
            assert!(
                difference <= *tolerance,
                "{device}: {query}: {ours} beside {}",
                theirs * scale
            );
        }
    }

    let identities = nvidia_smi(&NAMES.iter().map(|name| name.0).collect::<Vec<_>>());
    for (index, row) in identities.iter().enumerate() {
        for ((_, label), theirs) in NAMES.iter().zip(row) {
            let ours = label_of(&page.report, index as u32, label);
            if theirs.starts_with('[') {
                continue; // "[N/A]": then our label may be absent too; a label has no reason.
            }
            assert_eq!(ours.as_deref(), Some(theirs.as_str()), "GPU {index}: {label}");
        }
    }
}

/// A label of the GPU's info series.
fn label_of(report: &Report, gpu: u32, label: &str) -> Option<String> {
    let index = report.devices.iter().position(|device| *device == Device::new_gpu(gpu))? as u32;
    let info = report.infos.iter().find(|info| info.metric == INFO && info.device == index)?;
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
