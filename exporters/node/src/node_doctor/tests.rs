//! Broken set-ups of a node: each is named, with its next step.

use std::{fs, os::unix::net::UnixListener, path::PathBuf, time::Duration};

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
