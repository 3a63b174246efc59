//! Network metrics of gaunt-node: five NIC families, files that block, devices that are ignored.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{
    env,
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use gaunt_schema::{
    AbsenceReason, Device, Reading, Report,
    catalogue::{gpu, port},
};
use tempfile::TempDir;

use crate::{
    binaries::program_path,
    gpu_sampling::{FakeDriverSampler, info_labels},
    node_program::{
        NodeProcess, collector_message, collector_success, decode_report, expect_reading,
        fixture_path, success_stdout,
    },
    test_process::RunToEnd,
};

/// The NIC families, each a tree and its expected page.
const FAMILIES: [&str; 5] = ["mlx5", "mlx4", "bnxt_re", "efa", "hfi1"];

/// The lines about ports on the page of a family.
fn print_port_lines(family: &str) -> String {
    let tree = build_nic_tree(family);
    let page = success_stdout(node_over_tree(&tree).arg("--once").run_to_end());
    page.lines().filter(|line| is_of_ports(line)).fold(String::new(), |page, line| {
        page + &line.replace(&tree.path().display().to_string(), "ROOT") + "\n"
    })
}

#[test]
fn five_families_of_cards_are_named_alike() {
    // Each run waits for two ticks.
    let pages = thread::scope(|scope| {
        let runs = FAMILIES.map(|family| scope.spawn(move || print_port_lines(family)));
        runs.map(|run| run.join().unwrap())
    });
    for (family, page) in FAMILIES.into_iter().zip(pages) {
        let golden = fixture_path(&format!("nics/{family}.prom"));
        if env::var_os("GAUNT_BLESS").is_some() {
            fs::write(&golden, &page).unwrap();
        }
        let golden = fs::read_to_string(golden).unwrap();
        for (index, (found, golden)) in page.lines().zip(golden.lines()).enumerate() {
            assert_eq!(found, golden, "line {} of tests/fixtures/nics/{family}.prom", index + 1);
        }
        assert_eq!(page.lines().count(), golden.lines().count(), "{family} is longer or shorter");
    }
}

#[test]
fn blocked_file_costs_its_card_only() {
    let tree = build_nic_tree("mlx5");
    let stuck = block_file(&tree, "class/infiniband/mlx5_1/ports/1/counters/port_rcv_data");
    let mut command = node_over_tree(&tree);
    command.args(["--period", "500ms"]);
    let node = NodeProcess::run(command);
    let report =
        node.wait_for_report("the flag", |report| collector_success(report, "ports") == Some(0.0));
    let message = collector_message(&report, "ports");
    assert!(message.starts_with("mlx5_1: reading "), "{message}");
    assert!(
        message.contains("ports/1/counters/port_rcv_data takes longer than 0.3 s"),
        "{message}"
    );
    assert_eq!(collector_success(&report, "cpu"), Some(1.0));
    let good = Device::new_port("mlx5_0", "1");
    assert_eq!(expect_reading(&report, &good, port::RECEIVE_BYTES), Reading::of(4004.0));

    // The pages keep their period, and the rest of their content stays fresh.
    let (first, began) = (report.node_time.unwrap(), Instant::now());
    let later = node.wait_for_report("more ticks", |report| {
        report.node_time.unwrap().duration_since(first) >= Duration::from_millis(1500)
    });
    assert!(began.elapsed() < Duration::from_millis(4500), "the ticks slowed down");
    assert_eq!(expect_reading(&later, &good, port::RECEIVE_BYTES), Reading::of(4004.0));

    unblock_file(&stuck);
    let recovered =
        node.wait_for_report("the card", |report| collector_success(report, "ports") == Some(1.0));
    let bytes = expect_reading(&recovered, &Device::new_port("mlx5_1", "1"), port::RECEIVE_BYTES);
    assert_eq!(bytes, Reading::of(2000.0));
}

#[test]
fn blocked_card_becomes_stale_and_stays_listed() {
    let tree = build_nic_tree("mlx5");
    // Only opening a file can block here. The files of all cards but the first eight are opened at every tick.
    for number in 0..8 {
        let ports = format!("class/infiniband/first_{number}/ports");
        fs::create_dir_all(tree.path().join(ports)).unwrap();
    }
    let mut command = node_over_tree(&tree);
    command.args(["--period", "500ms"]);
    let node = NodeProcess::run(command);
    let (good, card) = (Device::new_port("mlx5_0", "1"), Device::new_port("mlx5_1", "1"));
    let worked =
        node.wait_for_report("the card", |report| collector_success(report, "ports") == Some(1.0));
    assert_eq!(expect_reading(&worked, &card, port::STATE), Reading::of(1.0));
    let stuck = block_file(&tree, "class/infiniband/mlx5_1/ports/1/counters/port_xmit_discards");
    let stale =
        node.wait_for_report("the flag", |report| collector_success(report, "ports") == Some(0.0));
    for metric in [port::STATE, port::TRANSMIT_DISCARDS, port::LANES] {
        assert_eq!(
            expect_reading(&stale, &card, metric),
            AbsenceReason::Stale.into(),
            "{}",
            metric.series_key()
        );
    }
    assert_eq!(expect_reading(&stale, &good, port::STATE), Reading::of(4.0));
    unblock_file(&stuck);
    let recovered =
        node.wait_for_report("the card", |report| collector_success(report, "ports") == Some(1.0));
    assert_eq!(expect_reading(&recovered, &card, port::TRANSMIT_DISCARDS), Reading::of(500.0));
}

#[test]
fn gpus_and_cards_are_labelled_with_their_nearest() {
    let tree = build_nic_tree("mlx5");
    let gpus = [("GPU-a", "18"), ("GPU-b", "3A"), ("GPU-c", "77")].map(|(uuid, bus)| {
        format!("[[gpu]]\nuuid = '{uuid}'\nmodel = 'H100'\npci_bus_id = '00000000:{bus}:00.0'\n")
    });
    let scenario = format!("driver = '1'\n{}", gpus.concat());
    let node = |rails: &[&str]| {
        FakeDriverSampler::start_scenario(&scenario, |options, _| {
            options.sys_root = tree.path().to_owned();
            options.rails = rails.iter().map(|name| (*name).to_owned()).collect();
        })
    };
    let (automatic, configured) = (node(&[]), node(&["mlx5_1", "mlx5_9", "mlx5_0/1"]));
    let is_complete = |report: &Report| {
        collector_success(report, "ports").is_some()
            && report.find_reading(&Device::new_gpu(2), gpu::PRESENT).is_some()
    };
    let report = automatic.wait_for_report("GPUs and ports", is_complete);
    let nearest = |number| {
        let labels = info_labels(&report, &Device::new_gpu(number), gpu::INFO);
        let is_placement = |label: &String| label.starts_with('n');
        labels.into_iter().filter(is_placement).collect::<Vec<_>>()
    };
    assert_eq!(nearest(0), ["numa_node=0", "nics=mlx5_0", "nics_by=pci_bridge"]);
    assert_eq!(nearest(1), ["numa_node=1", "nics=mlx5_1", "nics_by=pci_bridge"]);
    assert_eq!(nearest(2), [""; 0], "the kernel does not know it");
    let rail = |report: &Report, device| {
        let labels = info_labels(report, &Device::new_port(device, "1"), port::INFO);
        labels[labels.len() - 3..].join(" ")
    };
    assert_eq!(rail(&report, "mlx5_0"), "gpus_by=pci_bridge rail=0 rail_by=gpu_order");
    assert_eq!(rail(&report, "mlx5_1"), "gpus_by=pci_bridge rail=1 rail_by=gpu_order");
    let report = configured.wait_for_report("ports", is_complete);
    assert_eq!(rail(&report, "mlx5_0"), "gpus_by=pci_bridge rail=2 rail_by=settings");
    assert_eq!(rail(&report, "mlx5_1"), "gpus_by=pci_bridge rail=0 rail_by=settings");
}

/// Replaces a file by a pipe without a writer: opening it blocks, like a read of hung firmware.
fn block_file(tree: &TempDir, file: &str) -> PathBuf {
    let path = tree.path().join(file);
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

/// Unblocks a reader of the pipe, and restores a file for others.
fn unblock_file(pipe: &Path) {
    let aside = pipe.with_extension("pipe");
    fs::rename(pipe, &aside).unwrap();
    fs::write(pipe, "500\n").unwrap();
    drop(File::options().write(true).open(aside).unwrap());
}

#[test]
fn excluded_device_is_not_read() {
    let tree = build_nic_tree("mlx5");
    for device in ["mlx5_1", "mlx5_2"] {
        // A thread that reads it never returns.
        block_file(&tree, &format!("class/infiniband/{device}/ports/1/state"));
    }
    let mut command = node_over_tree(&tree);
    command.args(["--exclude", "mlx5_1", "--exclude", "mlx*_2", "--once"]);
    let report = decode_report(&success_stdout(command.run_to_end()));
    assert_eq!(
        collector_success(&report, "ports"),
        Some(1.0),
        "{}",
        collector_message(&report, "ports")
    );
    let devices = report.devices.iter().map(ToString::to_string);
    let ports: Vec<_> = devices.filter(|name| name.starts_with("mlx5_")).collect();
    assert_eq!(ports, ["mlx5_0/1"]);
    let message = collector_message(&report, "ports");
    assert_eq!(message, "mlx5_3: not read: only NVIDIA's Fabric Manager may access this card");
}

/// Whether a line of a page is about ports or their collector.
fn is_of_ports(line: &str) -> bool {
    let of_collector = line.starts_with("gaunt_collector_info{collector=\"ports\"")
        || line.starts_with("gaunt_collector_success{collector=\"ports\"");
    line.starts_with("gaunt_port_") || line.contains("metric=\"gaunt_port_") || of_collector
}

/// gaunt-node over a tree of cards, and the host of the other tests.
fn node_over_tree(tree: &TempDir) -> Command {
    let mut command = Command::new(program_path("gaunt-node"));
    command.arg("--sys-root").arg(tree.path());
    command.arg("--proc-root").arg(fixture_path("sysroot/proc"));
    command.args(["--nvml-library", "libgaunt-absent.so.1"]);
    command
}

/// The tree of a family of cards.
fn build_nic_tree(family: &str) -> TempDir {
    let tree = build_tree(&format!("nics/{family}.tree"));
    fs::create_dir_all(tree.path().join("class/net")).unwrap();
    tree
}

/// Builds a tree from a fixture file: `path: text`, `path:: line|line`, `path -> target of a link`, and `path:
/// <folder>` where a folder replaces a file.
pub(crate) fn build_tree(fixture_file: &str) -> TempDir {
    let tree = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(fixture_path(fixture_file)).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        add_tree_entry(tree.path(), line);
    }
    tree
}

fn add_tree_entry(root: &Path, line: &str) {
    if let Some((link, target)) = line.split_once(" -> ") {
        let link_path = root.join(link);
        fs::create_dir_all(link_path.parent().unwrap()).unwrap();
        return symlink(target, link_path).unwrap();
    }
    // Addresses have colons too; the separator is the one that ends the path.
    let (path, text) = line.split_once(": ").unwrap_or((line.trim_end_matches(':'), ""));
    let (path, text) = match path.strip_suffix(':') {
        Some(path) => (root.join(path), text.replace('|', "\n")),
        None => (root.join(path), text.to_owned()),
    };
    if text == "<folder>" {
        return fs::create_dir_all(path.join("a_folder")).unwrap();
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text + "\n").unwrap();
}
