//! Broken set-ups of a node: each is named, with its next step.

use std::{
    fs,
    net::TcpListener,
    os::unix::{fs::symlink, net::UnixListener},
    path::PathBuf,
    time::Duration,
};

use tempfile::TempDir;

use super::*;
use crate::ProbeSchedule;

/// A node with one GPU, one RDMA port, PSI and a kubelet, as files.
struct FakeNode {
    root: TempDir,
    options: SamplerOptions,
    listen: SocketAddr,
    _kubelet: UnixListener,
}

impl FakeNode {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for (path, text) in [
            ("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n"),
            ("sys/bus/pci/devices/0000:02:00.0/vendor", "0x15b3\n"),
            ("sys/bus/pci/devices/0000:02:00.0/class", "0x020700\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "5\n"),
            (
                "proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.1\n",
            ),
            ("proc/pressure/cpu", ""),
            ("proc/pressure/memory", ""),
            ("proc/pressure/io", ""),
            ("proc/1/status", "Name:\tinit\n"),
            ("dev/nvidiactl", ""),
            ("dev/nvidia0", ""),
            ("dev/kmsg", ""),
            ("libnvidia-ml.so.1", "\x7fELF rest"),
            ("probe", ""),
        ] {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), text).unwrap();
        }
        fs::create_dir(at("textfiles")).unwrap();
        fs::create_dir(at("inspector")).unwrap();
        let kubelet = UnixListener::bind(at("kubelet.sock")).unwrap();
        let options = SamplerOptions {
            sys_root: at("sys"),
            proc_root: at("proc"),
            nvml_library: Some(at("libnvidia-ml.so.1")),
            kubelet: at("kubelet.sock"),
            kernel_log: Some(at("dev/kmsg")),
            textfiles: Some(at("textfiles")),
            inspector_logs: Some(at("inspector")),
            probe: Some(ProbeSchedule {
                program: at("probe"),
                every: Duration::from_mins(10),
                ..ProbeSchedule::default()
            }),
            ..SamplerOptions::default()
        };
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { root, options, listen, _kubelet: kubelet }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }

    fn run(&self) -> Vec<NodeCheck> {
        run_checks_at(&self.options, self.listen, &self.path("dev"))
    }

    /// The only check that misses something.
    fn run_broken(&self) -> NodeCheck {
        let checks = self.run();
        let page = render_page(&checks);
        assert_eq!(count_missing(&checks), 1, "{page}");
        checks.into_iter().find(|check| check.state == NodeCheckState::Missing).unwrap()
    }
}

#[test]
fn complete_node_misses_nothing() {
    let node = FakeNode::new();
    let checks = node.run();
    let page = render_page(&checks);
    assert!(checks.iter().all(|check| check.state == NodeCheckState::Ok), "{page}");
    assert!(
        page.ends_with(&format!("\nNothing is missing in {} checks.\n", checks.len())),
        "{page}"
    );
}

#[test]
fn broken_set_up_is_named_with_its_next_step() {
    type Break = fn(&mut FakeNode);
    let cases: [(&str, &str, Break); 14] = [
        ("kernel module", "modprobe nvidia", |node| node.remove("proc/driver/nvidia")),
        ("kernel module", "blacklist nouveau", |node| {
            node.remove("proc/driver/nvidia");
            fs::create_dir_all(node.path("sys/module/nouveau")).unwrap();
        }),
        ("device nodes", "nvidia-modprobe", |node| node.remove("dev/nvidiactl")),
        ("device nodes", "nvidia-smi -L", |node| node.remove("dev/nvidia0")),
        ("NVML library", "nvml.library", |node| node.remove("libnvidia-ml.so.1")),
        ("NVML library", "libnvidia-ml.so.1 of the installed", |node| {
            fs::write(node.path("libnvidia-ml.so.1"), "text").unwrap();
        }),
        ("kernel log", "CAP_SYSLOG", |node| node.remove("dev/kmsg")),
        ("PSI", "psi=1", |node| node.remove("proc/pressure")),
        ("processes", "hidepid", |node| node.remove("proc/1")),
        ("RDMA ports", "modprobe mlx5_ib", |node| node.remove("sys/class/infiniband/mlx5_0")),
        ("RDMA ports", "firmware", |node| {
            node.remove("sys/class/infiniband/mlx5_0/ports/1/counters");
        }),
        ("kubelet", "mount its folder", |node| {
            node.remove("kubelet.sock");
            fs::write(node.path("kubelet.sock"), "").unwrap();
        }),
        ("textfiles", "create the folder", |node| node.remove("textfiles")),
        ("probe", "install the package gaunt-probe", |node| node.remove("probe")),
    ];
    for (name, next, break_node) in cases {
        let mut node = FakeNode::new();
        break_node(&mut node);
        let check = node.run_broken();
        assert_eq!(check.name, name, "{check:?}");
        assert!(check.next.as_str().contains(next), "{check:?}");
        assert!(!check.summary.as_str().is_empty(), "{check:?}");
    }
}

#[test]
fn kubelet_that_stopped_and_used_address_are_named() {
    let mut node = FakeNode::new();
    node.remove("kubelet.sock");
    drop(UnixListener::bind(node.path("kubelet.sock")).unwrap());
    assert!(node.run_broken().next.as_str().contains("systemctl status kubelet"));

    node = FakeNode::new();
    let owner = TcpListener::bind(node.listen).unwrap();
    node.listen = owner.local_addr().unwrap();
    assert!(node.run_broken().next.as_str().contains("ss -ltnp"));

    node = FakeNode::new();
    // TEST-NET-1: an address of no machine.
    node.listen = SocketAddr::from(([192, 0, 2, 1], 9770));
    assert!(node.run_broken().next.as_str().contains("ip address"));
}

#[test]
fn node_without_gpus_rdma_and_kubelet_misses_nothing() {
    let mut node = FakeNode::new();
    for path in ["sys/bus", "sys/class", "dev", "kubelet.sock", "libnvidia-ml.so.1"] {
        node.remove(path);
    }
    (node.options.textfiles, node.options.probe) = (None, None);
    let checks = node.run();
    assert_eq!(count_missing(&checks), 0, "{}", render_page(&checks));
    assert!(checks.iter().any(|check| check.state == NodeCheckState::Unused));
}

/// A node whose address a process with this name and user listens on, as its `/proc` shows it.
fn used_by(name: &str, user: u32, has_files: bool) -> (FakeNode, TcpListener) {
    let mut node = FakeNode::new();
    let owner = TcpListener::bind(node.listen).unwrap();
    node.listen = owner.local_addr().unwrap();
    let port = node.listen.port();
    let write = |path: &str, text: String| {
        let path = node.path("proc").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let line = |port, state, user, inode| {
        format!(
            "   0: 0100007F:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {user} 0 {inode} 1\n"
        )
    };
    let others = line(port ^ 1, "0A", 64_970, 2) + &line(port, "01", 64_970, 3);
    write(
        "net/tcp",
        "  sl  local_address\n".to_owned() + &others + &line(port, "0A", 64_970, 4_711),
    );
    write("42/comm", format!("{name}\n"));
    write("42/status", format!("Name:\t{name}\nUid:\t0\t{user}\t0\t0\n"));
    if has_files {
        fs::create_dir(node.path("proc/42/fd")).unwrap();
        symlink("socket:[2]", node.path("proc/42/fd/3")).unwrap();
        symlink("socket:[4711]", node.path("proc/42/fd/4")).unwrap();
    }
    (node, owner)
}

#[test]
fn address_of_the_running_service_is_no_fault() {
    // With permission to see the files of the process, and without.
    for (user, has_files) in [(0, true), (64_970, false)] {
        let (node, _owner) = used_by("gaunt-node", user, has_files);
        let checks = node.run();
        assert_eq!(count_missing(&checks), 0, "{}", render_page(&checks));
        let summary = checks[0].summary.as_str();
        assert!(summary.ends_with(" is in use by gaunt-node itself, process 42"), "{summary}");
    }
    // Another program, and a gaunt-node that has another address.
    for (name, user, has_files) in [("nginx", 64_970, true), ("gaunt-node", 1, false)] {
        let (node, _owner) = used_by(name, user, has_files);
        assert!(node.run_broken().summary.as_str().ends_with("is in use by another program"));
    }
    let (node, _owner) = used_by("gaunt-node", 64_970, true);
    node.remove("proc/42/fd/4");
    assert!(node.run_broken().next.as_str().contains("ss -ltnp"));
}
