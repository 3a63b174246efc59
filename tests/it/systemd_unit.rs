//! The systemd units, checked by systemd itself.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::test_process::{RunToEnd, debian_program};

/// Maximum exposure level of `systemd-analyze security`, from 0 to 10. Above it a service has privileges that nothing in
/// it needs.
const MAX_EXPOSURE: f64 = 2.0;

/// The folders with units.
const FOLDERS: [&str; 2] = ["config/systemd", "config/slurm"];

/// All services and timers of the repository.
fn list_units() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = FOLDERS.iter().flat_map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let mut units: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension().is_some_and(|extension| extension == "service" || extension == "timer")
        })
        .collect();
    units.sort();
    assert!(units.len() >= 5, "{units:?}");
    units
}

fn services() -> impl Iterator<Item = PathBuf> {
    list_units().into_iter().filter(|path| path.extension().unwrap() == "service")
}

/// The output of `systemd-analyze` for copies of units in which an empty program replaces the installed ones.
fn run_systemd_analyze(arguments: &[&str], units: &[PathBuf]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let copies = units.iter().map(|unit| {
        let text = fs::read_to_string(unit).unwrap();
        let text: String = text
            .lines()
            .map(|line| match line.strip_prefix("ExecStart=/usr/") {
                Some(_) => "ExecStart=/bin/true\n".to_owned(),
                None => format!("{line}\n"),
            })
            .collect();
        let copy = folder.path().join(unit.file_name().unwrap());
        fs::write(&copy, text).unwrap();
        copy
    });
    let copies: Vec<PathBuf> = copies.collect();
    let output = debian_program("systemd-analyze").args(arguments).args(copies).run_to_end();
    let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{units:?}: {printed}");
    printed
}

#[test]
fn units_are_valid_for_systemd() {
    let printed = run_systemd_analyze(&["verify", "--man=no"], &list_units());
    assert!(!printed.contains("gaunt"), "{printed}");
}

#[test]
fn exposure_of_services_is_low() {
    for unit in services() {
        let arguments = ["security", "--offline=true"];
        let printed = run_systemd_analyze(&arguments, std::slice::from_ref(&unit));
        let overall = printed.lines().find_map(|line| line.split_once(".service: "));
        let exposure = overall.and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
        let exposure = exposure.unwrap_or_else(|| panic!("no exposure level: {printed}"));
        assert!(exposure <= MAX_EXPOSURE, "{printed}");
    }
}

#[test]
fn services_that_read_settings_reload_them_on_sighup() {
    for unit in services() {
        let text = fs::read_to_string(&unit).unwrap();
        if text.contains("--config") {
            assert!(text.contains("\nExecReload=/bin/kill -HUP $MAINPID\n"), "{}", unit.display());
            // systemd does not reload it before it handles the signal.
            assert!(text.contains("\nType=notify\n"), "{}", unit.display());
        }
    }
}

/// Whether a listen address is of this machine only.
fn is_loopback(listen: &str) -> bool {
    listen.parse::<std::net::SocketAddr>().unwrap().ip().is_loopback()
}

#[test]
fn services_that_other_machines_reach_have_tls_and_send_no_token_without_it() {
    let mut listening = 0;
    for unit in services() {
        let text = fs::read_to_string(&unit).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let lines: Vec<&str> = lines.collect();
        let command = lines.iter().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let words: Vec<&str> = command.split(' ').collect();
        let value =
            |flag: &str| words.iter().position(|word| *word == flag).map(|index| words[index + 1]);
        if let Some(listen) = value("--listen") {
            listening += 1;
            assert!(is_loopback(listen) || value("--web-config").is_some(), "{}", unit.display());
        }
        if command.contains("--token-file") {
            assert!(!text.contains("http://"), "{} sends a token in plaintext", unit.display());
        }
    }
    assert_eq!(listening, 1, "gaunt-node's");
    // That of gaunt serve is in its settings; the drop-in for trusted networks says that it does without TLS.
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let settings = fs::read_to_string(root.join("config/gaunt.toml")).unwrap();
    let listen = settings.lines().find_map(|line| line.strip_prefix("listen = ")).unwrap();
    assert!(is_loopback(listen.trim_matches('"')), "{listen}");
}
