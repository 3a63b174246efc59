//! `doctor` and `check-config` of gaunt and gaunt-node as they are run: exit code, text and JSON. Broken set-ups of a node are named
//! with their next step.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    net::TcpListener,
    path::PathBuf,
    process::{Command, Output},
};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    binaries::program_path,
    test_process::{RunToEnd, TestProcess, free_port, run_gaunt},
    tls_connections::HASH,
};

/// Files of a node with an RDMA port, without a GPU.
const NODE_FILES: [(&str, &str); 8] = [
    ("sys/bus/pci/devices/0000:02:00.0/vendor", "0x15b3\n"),
    ("sys/bus/pci/devices/0000:02:00.0/class", "0x020700\n"),
    ("sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "5\n"),
    ("proc/pressure/cpu", ""),
    ("proc/pressure/memory", ""),
    ("proc/pressure/io", ""),
    ("proc/1/status", "Name:\tinit\n"),
    ("textfiles/a.prom", ""),
];

/// The file trees of a node.
struct NodeTree(TempDir);

impl NodeTree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for (path, text) in NODE_FILES {
            tree.write(path, text);
        }
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    fn remove(&self, path: &str) {
        fs::remove_dir_all(self.path(path)).unwrap();
    }

    /// An NVIDIA GPU on the PCI bus.
    fn add_gpu(&self) {
        self.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
        self.write("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
    }

    /// Runs a command of gaunt-node over these trees; the options come before it.
    fn run_node(&self, options: &[&str], command: &[&str]) -> Output {
        let text = |path: &str| self.path(path).display().to_string();
        let mut node = Command::new(program_path("gaunt-node"));
        node.args(["--sys-root", &text("sys"), "--proc-root", &text("proc")]);
        node.args(["--textfiles", &text("textfiles"), "--disable", "kubelet"]);
        if !options.contains(&"--listen") {
            node.args(["--listen", "127.0.0.1:0"]);
        }
        node.args(options).args(command).env_remove("RUST_LOG").run_to_end()
    }

    /// The web configuration with this certificate and further lines, as an option.
    fn web_config(&self, stem: &str, lines: &str) -> [String; 2] {
        let text =
            format!("tls_server_config:\n  cert_file: {stem}.pem\n  key_file: {stem}.key\n{lines}");
        self.write("web.yml", &text);
        ["--web-config".to_owned(), self.path("web.yml").display().to_string()]
    }

    /// Creates a certificate for `gpu001`, with these options.
    fn create_certificate(&self, options: &[&str]) {
        let folder = self.path("");
        let arguments = ["certs", "--to", folder.to_str().unwrap(), "--server", "gpu001"];
        let made = run_gaunt(&[&arguments[..], options].concat());
        assert!(made.status.success(), "{made:?}");
    }
}

fn stdout_text(output: &Output) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

fn stderr_text(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn doctor_of_a_node_ends_with_0_where_nothing_is_missing() {
    let tree = NodeTree::new();
    tree.create_certificate(&["--name", "127.0.0.1"]);
    let [flag, web] = tree.web_config("gpu001", "");
    for options in [&[][..], &[flag.as_str(), web.as_str()]] {
        let text = tree.run_node(options, &["doctor"]);
        assert_eq!(text.status.code(), Some(0), "{text:?}");
        let page = stdout_text(&text);
        assert!(page.contains("\nNothing is missing in "), "{page}");
        assert!(page.starts_with("ok       listen address"), "{page}");
        let is_secure = !options.is_empty();
        assert_eq!(
            page.contains("; its certificate is for gpu001, 127.0.0.1 until 20"),
            is_secure,
            "{page}"
        );
        let json = tree.run_node(options, &["doctor", "--format", "json"]);
        assert_eq!(json.status.code(), Some(0), "{json:?}");
        let checks: Vec<Value> = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(checks.len(), page.lines().count() - 2, "{page}");
        for check in &checks {
            assert!(check["state"] == "ok" || check["state"] == "unused", "{check}");
            assert!(check["name"].is_string() && check["summary"].is_string(), "{check}");
            assert_eq!(check["next"], "", "{check}");
        }
    }
    // Invalid settings are no finding of a check.
    let wrong = tree.run_node(&["--node", ""], &["doctor", "--format", "html"]);
    assert_eq!(wrong.status.code(), Some(3), "{wrong:?}");
    tree.write("node.toml", "period = \"1s\"\nperod = 1\n");
    let settings = tree.path("node.toml").display().to_string();
    let wrong = tree.run_node(&["--config", &settings], &["doctor"]);
    assert_eq!(wrong.status.code(), Some(3), "{wrong:?}");
    assert!(stderr_text(&wrong).contains("node.toml:2"), "{wrong:?}");
}

/// Runs the doctor of a broken node in both formats: the check of this name misses something, and its next step has this
/// text.
fn expect_missing(tree: &NodeTree, options: &[&str], (name, next): (&str, &str)) {
    let json = tree.run_node(options, &["doctor", "--format", "json"]);
    assert_eq!(json.status.code(), Some(1), "{name}: {json:?}");
    let checks: Vec<Value> = serde_json::from_slice(&json.stdout).unwrap();
    let check = checks.iter().find(|check| check["name"] == name && check["state"] == "missing");
    let check = check.unwrap_or_else(|| panic!("{name} is not missing: {checks:#?}"));
    let step = check["next"].as_str().unwrap();
    assert!(step.contains(next), "{name}: {step}");
    let text = tree.run_node(options, &["doctor"]);
    assert_eq!(text.status.code(), Some(1), "{name}: {text:?}");
    let page = stdout_text(&text);
    assert!(page.contains(&format!("\n         → {step}\n")), "{page}");
    let missing = checks.iter().filter(|check| check["state"] == "missing").count();
    assert!(
        page.ends_with(&format!("\nMissing in {missing} of {} checks.\n", checks.len())),
        "{page}"
    );
}

#[test]
fn doctor_of_a_broken_node_ends_with_1_and_names_the_next_step() {
    type Break = fn(&NodeTree);
    let cases: [(&str, &str, Break); 10] = [
        ("PSI", "psi=1", |tree| tree.remove("proc/pressure")),
        ("processes", "hidepid", |tree| tree.remove("proc/1")),
        ("RDMA ports", "modprobe mlx5_ib", |tree| tree.remove("sys/class")),
        ("RDMA ports", "firmware", |tree| {
            tree.remove("sys/class/infiniband/mlx5_0/ports/1/counters");
        }),
        ("textfiles", "create the folder", |tree| tree.remove("textfiles")),
        ("kernel module", "modprobe nvidia", NodeTree::add_gpu),
        ("kernel module", "blacklist nouveau", |tree| {
            tree.add_gpu();
            tree.write("sys/module/nouveau/x", "");
        }),
        ("NVML library", "nvml.library", NodeTree::add_gpu),
        ("NVML library", "libnvidia-ml.so.1 of the installed", |tree| {
            tree.add_gpu();
            tree.write("libnvidia-ml.so.1", "text");
        }),
        ("web_config", "gaunt certs", |tree| tree.write("web.yml", "tls_server_config: 1\n")),
    ];
    for (name, next, break_node) in cases {
        let tree = NodeTree::new();
        break_node(&tree);
        let (library, web) = (tree.path("libnvidia-ml.so.1"), tree.path("web.yml"));
        let mut options = vec!["--nvml-library", library.to_str().unwrap()];
        if web.exists() {
            options.extend(["--web-config", web.to_str().unwrap()]);
        }
        expect_missing(&tree, &options, (name, next));
    }
    let tree = NodeTree::new();
    let owner = TcpListener::bind(("127.0.0.1", free_port())).unwrap();
    let used = owner.local_addr().unwrap().to_string();
    for (address, next) in [(used.as_str(), "ss -ltnp"), ("192.0.2.1:9770", "ip address")] {
        expect_missing(&tree, &["--listen", address], ("listen address", next));
    }
}

#[test]
fn doctor_of_a_node_names_certificates_that_clients_reject() {
    let tree = NodeTree::new();
    tree.create_certificate(&["--name", "127.0.0.1"]);
    let read = |name: &str| fs::read_to_string(tree.path(name)).unwrap();
    let (own, authority) = (read("gpu001.pem"), read("ca.pem"));
    let mut params = CertificateParams::new(vec!["gpu001".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    let key = KeyPair::generate().unwrap();
    let expired = params.self_signed(&key).unwrap().pem();
    tree.write("old.pem", &expired);
    tree.write("old.key", &key.serialize_pem());
    for (stem, chain, next) in [
        ("old", expired.clone(), "gaunt certs --renew"),
        ("gpu001", own.clone() + &expired, "gaunt certs --renew"),
        ("gpu001", own.clone() + &own, "each CA that signed the one before"),
        // The key does not belong to the first certificate.
        ("gpu001", authority.clone() + &own, "gaunt certs"),
    ] {
        tree.write(&format!("{stem}.pem"), &chain);
        let [flag, web] = tree.web_config(stem, "");
        expect_missing(&tree, &[&flag, &web], ("web_config", next));
    }
    tree.write("gpu001.pem", &(own + &authority));
    let [flag, web] = tree.web_config("gpu001", "");
    let whole = tree.run_node(&[&flag, &web], &["doctor"]);
    assert_eq!(whole.status.code(), Some(0), "{whole:?}");
}

#[test]
fn check_config_of_a_node_ends_with_0_for_valid_settings_and_with_3_otherwise() {
    let tree = NodeTree::new();
    tree.create_certificate(&[]);
    let web = |lines: &str| tree.web_config("gpu001", lines);
    let [flag, path] = web("  curve_preferences: [CurveP521]\n");
    let valid = tree.run_node(&[&flag, &path], &["check-config"]);
    assert_eq!((valid.status.code(), stdout_text(&valid)), (Some(0), "The settings are valid.\n"));
    // What the settings ask for and do not get is said.
    let warning =
        "web.yml, curve_preferences: gaunt does not have CurveP521; offered instead: CurveP384";
    assert!(stderr_text(&valid).contains(warning), "{valid:?}");
    for (lines, error) in [
        ("  cert_filse: x\n", "cert_filse"),
        ("  curve_preferences: [CurveP257]\n", "curve_preferences: \"CurveP257\" is unknown"),
        ("basic_auth_users:\n  alice: blue cable\n", "the password of \"alice\" is no bcrypt hash"),
    ] {
        let [flag, path] = web(lines);
        let invalid = tree.run_node(&[&flag, &path], &["check-config"]);
        assert_eq!((invalid.status.code(), stdout_text(&invalid)), (Some(3), ""), "{lines}");
        let text = stderr_text(&invalid);
        assert!(text.contains("web.yml") && text.contains(error), "{text}");
        assert!(!text.contains("blue cable"), "{text}");
    }
    let path = tree.path("node.toml").display().to_string();
    for (text, error) in [
        ("period = \"1s\"\nperod = 1\n", "node.toml:2: unknown"),
        ("period = \"0s\"\n", "node.toml:1: "),
        ("web_config = \"none.yml\"\n", "none.yml"),
    ] {
        tree.write("node.toml", text);
        let invalid = tree.run_node(&["--config", &path], &["check-config"]);
        assert_eq!(invalid.status.code(), Some(3), "{text}: {invalid:?}");
        assert!(stderr_text(&invalid).contains(error), "{invalid:?}");
    }
}

#[test]
fn check_config_ends_with_1_and_prints_each_error_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let users = format!("basic_auth_users:\n  alice: '{HASH}'\n");
    write("web.yml", &users);
    let settings = write(
        "gaunt.toml",
        "[gather]\ntargets = [\"gpu[001-064]\"]\n[serve]\nweb_config = \"web.yml\"\n",
    );
    let node = write("node.toml", "period = \"1s\"\n");
    let topology = write("topology.conf", "SwitchName=leaf1 Nodes=gpu[001-064]\n");
    let rules = write(
        "rules.yml",
        "groups:\n- name: a\n  rules:\n  - alert: A\n    expr: gaunt_node_cpus > 0\n",
    );
    let all = [
        "check-config",
        "--config",
        &settings,
        "--node-config",
        &node,
        "--topology",
        &topology,
        "--rules",
        &rules,
    ];
    let valid = run_gaunt(&all);
    assert_eq!((valid.status.code(), stderr_text(&valid)), (Some(0), ""), "{valid:?}");
    assert!(stdout_text(&valid).starts_with("No errors in "), "{valid:?}");

    write("web.yml", "tls_server_config:\n  cert_file: none.pem\n  key_file: none.key\n");
    write("node.toml", "\nperod = 1\n");
    write("topology.conf", "SwitchName=leaf1 Nodes=gpu[001-\n");
    write(
        "rules.yml",
        "groups:\n- name: a\n  rules:\n  - alert: A\n    expr: gaunt_no_such_metric > (0\n",
    );
    let invalid = run_gaunt(&all);
    assert_eq!((invalid.status.code(), stderr_text(&invalid)), (Some(1), ""), "{invalid:?}");
    let page = stdout_text(&invalid);
    for file in ["none.pem", "node.toml:2", "topology.conf", "rules.yml"] {
        assert!(page.contains(file), "{file}: {page}");
    }
    let last = page.lines().last().unwrap();
    assert!(last.contains(" errors in "), "{page}");
    let missing = folder.path().join("missing.toml");
    let missing = run_gaunt(&["check-config", "--config", missing.to_str().unwrap()]);
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    assert!(stdout_text(&missing).contains("missing.toml"), "{missing:?}");
    for wrong in [&["check-config"][..], &["check-config", "--rules"]] {
        assert_eq!(run_gaunt(wrong).status.code(), Some(3), "{wrong:?}");
    }
}

/// Starts a program with the log that it has by default.
fn start_open(program: &str, arguments: &[&str]) -> TestProcess {
    TestProcess::start_command(
        Command::new(program_path(program)).args(arguments).env_remove("RUST_LOG"),
    )
}

#[test]
fn programs_that_other_machines_can_read_warn_of_what_is_missing() {
    let tree = NodeTree::new();
    tree.create_certificate(&[]);
    let users = format!("basic_auth_users:\n  alice: '{HASH}'\n");
    let (node, serve) = ("gaunt-node", "gaunt");
    let without: [&[&str]; 2] =
        [&["--disable", "nvml,kubelet"], &["serve", "--targets", "127.0.0.1:9"]];
    for (program, arguments) in [node, serve].into_iter().zip(without) {
        let start = |listen: &str, more: &[&str]| {
            start_open(program, &[arguments, &["--listen", listen], more].concat())
        };
        let open = start("0.0.0.0:0", &[]);
        let line = open.line_with("other machines can read without TLS and without a password");
        assert!(line.contains("WARN") && line.contains("0.0.0.0:0"), "{line}");
        for (lines, warns) in [("", Some("without a password or certificate")), (&*users, None)] {
            let [flag, web] = tree.web_config("gpu001", lines);
            let process = start("0.0.0.0:0", &[&flag, &web]);
            process.served_address();
            let log = process.lines_until_end();
            assert_eq!(log.contains("other machines can read"), warns.is_some(), "{log}");
            assert!(log.contains(warns.unwrap_or_default()), "{log}");
        }
        let local = start("127.0.0.1:0", &[]);
        local.served_address();
        let log = local.lines_until_end();
        assert!(!log.contains("other machines"), "{log}");
    }
}

#[test]
fn node_that_is_opened_by_a_reload_warns() {
    let tree = NodeTree::new();
    let settings = tree.path("node.toml");
    tree.write("node.toml", "listen = \"127.0.0.1:0\"\ndisable = [\"nvml\", \"kubelet\"]\n");
    let node = start_open("gaunt-node", &["--config", settings.to_str().unwrap()]);
    node.line_with("serving /metrics");
    tree.write("node.toml", "listen = \"0.0.0.0:0\"\ndisable = [\"nvml\", \"kubelet\"]\n");
    node.send_signal(rustix::process::Signal::HUP);
    let line = node.line_with("other machines can read");
    assert!(line.contains("WARN") && line.contains("set web_config"), "{line}");
}
