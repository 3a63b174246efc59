//! The network as gaunt-node sees it: five families of cards, files that block, devices that are left alone.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{
    env,
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use gaunt_schema::{
    Absent, Device, Reading, Report,
    catalogue::{gpu, port},
};
use tempfile::TempDir;

use crate::{
    binaries::program,
    gpu::{Sampled, labels},
    node::{Node, decode, fixture, message, read, succeeded, success},
    running::Ends,
};

/// The families of cards, each a tree and what the page says of it.
const FAMILIES: [&str; 5] = ["mlx5", "mlx4", "bnxt_re", "efa", "hfi1"];

#[test]
fn five_families_of_cards_are_named_alike() {
    for family in FAMILIES {
        let tree = grow(family);
        let page = success(over(&tree).arg("--once").ended());
        let page: String =
            page.lines().filter(|line| is_of_ports(line)).fold(String::new(), |page, line| {
                page + &line.replace(&tree.path().display().to_string(), "ROOT") + "\n"
            });
        let golden = fixture(&format!("nics/{family}.prom"));
        if env::var_os("GAUNT_BLESS").is_some() {
            fs::write(&golden, &page).unwrap();
        }
        let golden = fs::read_to_string(golden).unwrap();
        for (at, (found, golden)) in page.lines().zip(golden.lines()).enumerate() {
            assert_eq!(found, golden, "line {} of tests/fixtures/nics/{family}.prom", at + 1);
        }
        assert_eq!(page.lines().count(), golden.lines().count(), "{family} is longer or shorter");
    }
}

#[test]
fn a_file_that_blocks_costs_its_card_and_stops_nothing() {
    let tree = grow("mlx5");
    let stuck = block(&tree, "class/infiniband/mlx5_1/ports/1/counters/port_rcv_data");
    let node = Node::run(over(&tree));
    let report = node.until("the flag", |report| succeeded(report, "ports") == Some(0.0));
    let said = message(&report, "ports");
    assert!(said.starts_with("mlx5_1: reading "), "{said}");
    assert!(said.contains("ports/1/counters/port_rcv_data takes longer than 0.3 s"), "{said}");
    assert_eq!(succeeded(&report, "cpu"), Some(1.0));
    let good = Device::port("mlx5_0", "1");
    assert_eq!(read(&report, &good, port::RECEIVE_BYTES), Reading::of(4004.0));

    // The pages keep coming at their pace, and the rest of them stays fresh.
    let (first, began) = (report.node_time.unwrap(), Instant::now());
    let later = node.until("more ticks", |report| {
        report.node_time.unwrap().since(first) >= Duration::from_secs(3)
    });
    assert!(began.elapsed() < Duration::from_secs(6), "the ticks slowed down");
    assert_eq!(read(&later, &good, port::RECEIVE_BYTES), Reading::of(4004.0));

    free(&stuck);
    let back = node.until("the card", |report| succeeded(report, "ports") == Some(1.0));
    let bytes = read(&back, &Device::port("mlx5_1", "1"), port::RECEIVE_BYTES);
    assert_eq!(bytes, Reading::of(2000.0));
}

#[test]
fn a_card_that_worked_and_blocks_is_stale_and_not_gone() {
    let tree = grow("mlx5");
    let mut command = over(&tree);
    // Files are opened again every sixty ticks, and only that can block here.
    command.args(["--period", "100ms"]);
    let node = Node::run(command);
    let (good, card) = (Device::port("mlx5_0", "1"), Device::port("mlx5_1", "1"));
    let worked = node.until("the card", |report| succeeded(report, "ports") == Some(1.0));
    assert_eq!(read(&worked, &card, port::STATE), Reading::of(1.0));
    let stuck = block(&tree, "class/infiniband/mlx5_1/ports/1/counters/port_xmit_discards");
    let stale = node.until("the flag", |report| succeeded(report, "ports") == Some(0.0));
    for metric in [port::STATE, port::TRANSMIT_DISCARDS, port::LANES] {
        assert_eq!(read(&stale, &card, metric), Absent::Stale.into(), "{}", metric.key());
    }
    assert_eq!(read(&stale, &good, port::STATE), Reading::of(4.0));
    free(&stuck);
    let back = node.until("the card", |report| succeeded(report, "ports") == Some(1.0));
    assert_eq!(read(&back, &card, port::TRANSMIT_DISCARDS), Reading::of(500.0));
}

#[test]
fn gpus_and_cards_know_their_nearest_and_by_what() {
    let tree = grow("mlx5");
    let gpus = [("GPU-a", "18"), ("GPU-b", "3A"), ("GPU-c", "77")].map(|(uuid, bus)| {
        format!("[[gpu]]\nuuid = '{uuid}'\nmodel = 'H100'\npci_bus_id = '00000000:{bus}:00.0'\n")
    });
    let scenario = format!("driver = '1'\n{}", gpus.concat());
    let node = |rails: &[&str]| {
        Sampled::start(&scenario, |options, _| {
            options.sys_root = tree.path().to_owned();
            options.rails = rails.iter().map(|name| (*name).to_owned()).collect();
        })
    };
    let (found, said) = (node(&[]), node(&["mlx5_1", "mlx5_9", "mlx5_0/1"]));
    let whole = |report: &Report| {
        succeeded(report, "ports").is_some()
            && report.reading(&Device::gpu(2), gpu::PRESENT).is_some()
    };
    let report = found.until("GPUs and ports", whole);
    let near = |number| {
        let labels = labels(&report, &Device::gpu(number), gpu::INFO);
        let of_place = |label: &String| label.starts_with('n');
        labels.into_iter().filter(of_place).collect::<Vec<_>>()
    };
    assert_eq!(near(0), ["numa_node=0", "nics=mlx5_0", "nics_by=pci_bridge"]);
    assert_eq!(near(1), ["numa_node=1", "nics=mlx5_1", "nics_by=pci_bridge"]);
    assert_eq!(near(2), [""; 0], "the kernel does not know it");
    let rail = |report: &Report, device| {
        let labels = labels(report, &Device::port(device, "1"), port::INFO);
        labels[labels.len() - 3..].join(" ")
    };
    assert_eq!(rail(&report, "mlx5_0"), "gpus_by=pci_bridge rail=0 rail_by=gpu_order");
    assert_eq!(rail(&report, "mlx5_1"), "gpus_by=pci_bridge rail=1 rail_by=gpu_order");
    let report = said.until("ports", whole);
    assert_eq!(rail(&report, "mlx5_0"), "gpus_by=pci_bridge rail=2 rail_by=settings");
    assert_eq!(rail(&report, "mlx5_1"), "gpus_by=pci_bridge rail=0 rail_by=settings");
}

/// Puts a pipe that nobody writes in the place of a file: opening it blocks, as a read of firmware that does not answer.
fn block(tree: &TempDir, file: &str) -> PathBuf {
    let path = tree.path().join(file);
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

/// Lets a reader of the pipe go on, and others find a file.
fn free(pipe: &Path) {
    let aside = pipe.with_extension("pipe");
    fs::rename(pipe, &aside).unwrap();
    fs::write(pipe, "500\n").unwrap();
    drop(File::options().write(true).open(aside).unwrap());
}

#[test]
fn an_excluded_device_is_not_even_read() {
    let tree = grow("mlx5");
    for device in ["mlx5_1", "mlx5_2"] {
        // Whoever reads it never comes back.
        block(&tree, &format!("class/infiniband/{device}/ports/1/state"));
    }
    let mut command = over(&tree);
    command.args(["--exclude", "mlx5_1", "--exclude", "mlx*_2", "--once"]);
    let report = decode(&success(command.ended()));
    assert_eq!(succeeded(&report, "ports"), Some(1.0), "{}", message(&report, "ports"));
    let devices = report.devices.iter().map(ToString::to_string);
    let ports: Vec<_> = devices.filter(|name| name.starts_with("mlx5_")).collect();
    assert_eq!(ports, ["mlx5_0/1"]);
    let said = message(&report, "ports");
    assert_eq!(said, "mlx5_3: left alone, because only NVIDIA's Fabric Manager may ask this card");
}

/// Whether a line of a page is about ports or their collector.
fn is_of_ports(line: &str) -> bool {
    let of_collector = line.starts_with("gaunt_collector_info{collector=\"ports\"")
        || line.starts_with("gaunt_collector_success{collector=\"ports\"");
    line.starts_with("gaunt_port_") || line.contains("metric=\"gaunt_port_") || of_collector
}

/// gaunt-node over a tree of cards, and the host of the other tests.
fn over(tree: &TempDir) -> Command {
    let mut command = Command::new(program("gaunt-node"));
    command.arg("--sys-root").arg(tree.path());
    command.arg("--proc-root").arg(fixture("sysroot/proc"));
    command.args(["--nvml-library", "libgaunt-absent.so.1"]);
    command
}

/// The tree of a family of cards.
fn grow(family: &str) -> TempDir {
    let tree = grow_from(&format!("nics/{family}.tree"));
    fs::create_dir_all(tree.path().join("class/net")).unwrap();
    tree
}

/// A tree of the fixtures as files: `path: text`, `path:: line|line`, `path -> target of a link`, and `path: <folder>`
/// where a folder stands in the place of a file.
pub(crate) fn grow_from(fixture_file: &str) -> TempDir {
    let tree = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(fixture(fixture_file)).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        plant(tree.path(), line);
    }
    tree
}

fn plant(root: &Path, line: &str) {
    if let Some((link, target)) = line.split_once(" -> ") {
        let place = root.join(link);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        return symlink(target, place).unwrap();
    }
    // Addresses have colons too; the one that counts ends the path.
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
