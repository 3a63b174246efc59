//! Disabled collectors leave no series, by a flag or in the settings, and return when the settings change.

use std::{fs, process::Command};

use rustix::process::Signal;

use super::{node_command, wait_for_page};
use crate::{
    node_program::fixture_path,
    test_process::{RunToEnd, TestProcess, wait_for},
};

/// A series of each collector that is disabled here.
const SERIES: [(&str, &str); 7] = [
    ("ports", "collector=\"ports\""),
    ("ports", "\ngaunt_port_"),
    ("ethernet", "collector=\"ethernet\""),
    ("gpm", "\ngaunt_gpu_sm_active_ratio{"),
    ("fast-sampling", "\ngaunt_gpu_sm_active_10s_min_ratio{"),
    ("processes", "\ngaunt_gpu_process_"),
    ("xid", "\ngaunt_gpu_xid_"),
];

/// gaunt-node with two GPUs, a process and an error of the fake driver, and a settings file.
fn two_gpu_command(folder: &std::path::Path, settings: &str) -> Command {
    let text = fs::read_to_string(fixture_path("scenarios/full.toml")).unwrap();
    let scenario = folder.join("full.toml");
    fs::write(&scenario, text.replacen("vbios", "xids = [[1.0, 43]]\nvbios", 1)).unwrap();
    let config = folder.join("node.toml");
    fs::write(&config, settings).unwrap();
    let mut command = node_command(&fixture_path("sysroot/sys"));
    command.env("GAUNT_FAKE_DRIVER", scenario).arg("--config").arg(config);
    command
}

#[test]
fn disabled_collectors_leave_no_series_and_return_when_enabled() {
    let folder = tempfile::tempdir().unwrap();
    let disabled =
        "disable = [\"ports\", \"ethernet\", \"gpm\", \"fast-sampling\", \"processes\", \"xid\"]\n";
    let node = TestProcess::start_command(&mut two_gpu_command(folder.path(), disabled));
    let address = node.served_address();
    let page = wait_for_page(&address, "gaunt_gpu_power_watts{gpu=\"1\"}");
    for (name, series) in SERIES {
        assert!(!page.contains(series), "{series} in spite of --disable {name}");
    }
    assert!(page.contains("collector=\"netdev\"") && page.contains("collector=\"nvml\""), "{page}");

    fs::write(folder.path().join("node.toml"), "disable = []\n").unwrap();
    node.send_signal(Signal::HUP);
    node.line_with("settings reloaded");
    for (_, series) in SERIES {
        wait_for_page(&address, series);
    }
    fs::write(folder.path().join("node.toml"), disabled).unwrap();
    node.send_signal(Signal::HUP);
    node.line_with("disabled: ethernet, ports, gpm, fast-sampling, xid, processes");
    wait_for("a page without them", || {
        let page = wait_for_page(&address, "gaunt_gpu_power_watts{gpu=\"1\"}");
        SERIES.iter().all(|(_, series)| !page.contains(series)).then_some(())
    });
}

#[test]
fn disable_flag_is_applied_and_an_unknown_name_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = two_gpu_command(folder.path(), "");
    let output = command.args(["--once", "--disable", "nvml,ports"]).run_to_end();
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(
        page.contains("collector=\"cpu\"") && page.contains("collector=\"ethernet\""),
        "{page}"
    );
    assert!(!page.contains("collector=\"nvml\"") && !page.contains("gaunt_gpu_"), "{page}");
    assert!(!page.contains("collector=\"ports\"") && !page.contains("gaunt_port_"), "{page}");

    let output = two_gpu_command(folder.path(), "").args(["--disable", "prots"]).run_to_end();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{stderr}");
    assert!(
        stderr.contains("unknown collector \"prots\"; must be one of cpu, memory,"),
        "{stderr}"
    );
}
