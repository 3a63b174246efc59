//! Golden page: every family and every label of a node with GPUs, ports and other exporters' names.

use std::{env, fs};

use super::{eight_gpu_command, wait_for_page};
use crate::{node_program::fixture_path, test_process::TestProcess};

/// Set to rewrite the golden page; review the difference before you commit it.
const BLESS: &str = "GAUNT_BLESS";

/// Series whose values differ from run to run; the golden page has only their names and labels.
const VARIES: [&str; 3] = [
    "gaunt_node_time_seconds",
    "gaunt_collector_duration_seconds",
    "gaunt_collector_last_success_timestamp_seconds",
];

/// Ratios whose integrals grow with every tick.
const INTEGRATED: [&str; 4] = ["_utilization", "_activity", "_active", "_occupancy"];

/// Placeholder for a value that differs.
const ANY: &str = "…";

fn is_varying(name: &str) -> bool {
    let traffic = name.starts_with("gaunt_gpu_") && name.ends_with("_bytes_total");
    let integral = name.strip_suffix("_seconds_total").unwrap_or_default();
    let ticks = name.ends_with("_5m_ticks") || name == "DCGM_EXP_CLOCK_EVENTS_COUNT";
    VARIES.contains(&name)
        || ticks
        || traffic
        || INTEGRATED.iter().any(|ending| integral.ends_with(ending))
}

/// The page with one of the eight identical GPUs, and without values that differ from run to run.
fn stable_lines(page: &str) -> Vec<String> {
    let is_other_gpu = |line: &&str| (1..8).any(|gpu| line.contains(&format!("gpu=\"{gpu}\"")));
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    let stabilize = |line: &str| {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
        if is_varying(name) {
            return format!("{series} {ANY}");
        }
        line.replace(&version, "version=\"VERSION\"")
    };
    page.lines().filter(|line| !is_other_gpu(line)).map(stabilize).collect()
}

#[test]
fn page_equals_the_golden_page() {
    let node = TestProcess::start_command(eight_gpu_command().args(["--compat", "dcgm,node"]));
    let address = node.served_address();
    let found = stable_lines(&wait_for_page(&address, "\nDCGM_FI_PROF_PCIE_RX_BYTES{gpu=\"7\""));
    let path = fixture_path("sysroot/whole.prom");
    if env::var_os(BLESS).is_some() {
        fs::write(&path, found.join("\n") + "\n").unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    for (index, (found, golden)) in found.iter().zip(golden.lines()).enumerate() {
        assert_eq!(
            found,
            golden,
            "line {} of {}; {BLESS}=1 writes it anew",
            index + 1,
            path.display()
        );
    }
    assert_eq!(found.len(), golden.lines().count(), "the page is longer or shorter");
}
