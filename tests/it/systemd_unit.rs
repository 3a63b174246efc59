//! The systemd unit of gaunt-node, checked by systemd itself.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{fs, path::Path};

use crate::{
    binaries::program_path,
    test_process::{RunToEnd, debian_program},
};

/// Maximum exposure level of `systemd-analyze security`, from 0 to 10. Above it the service has privileges that none of
/// its collectors needs.
const MAX_EXPOSURE: f64 = 2.5;

/// The output of `systemd-analyze` for the unit.
fn run_systemd_analyze(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/systemd/gaunt-node.service");
    let text = fs::read_to_string(unit).unwrap();
    // The program of this build replaces the installed one.
    let text = text.replace("/usr/bin/gaunt-node", program_path("gaunt-node").to_str().unwrap());
    let copy = folder.path().join("gaunt-node.service");
    fs::write(&copy, text).unwrap();
    let output = debian_program("systemd-analyze").args(arguments).arg(&copy).run_to_end();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(output.status.success(), "{printed}");
    printed
}

#[test]
fn unit_is_valid_for_systemd() {
    let printed = run_systemd_analyze(&["verify", "--man=no"]);
    assert!(!printed.contains("gaunt-node.service"), "{printed}");
}

#[test]
fn unit_exposure_is_low() {
    let printed = run_systemd_analyze(&["security", "--offline=true"]);
    let overall = printed.lines().find_map(|line| line.split_once("gaunt-node.service: "));
    let exposure = overall.and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
    let exposure = exposure.unwrap_or_else(|| panic!("no exposure level: {printed}"));
    assert!(exposure <= MAX_EXPOSURE, "{printed}");
}
