//! Checks of the host: pressure, processes, RDMA ports, kubelet, and the folders of the settings.

use std::{
    fs, io,
    os::unix::{fs::FileTypeExt as _, net::UnixStream},
    path::Path,
};

use super::node_check::NodeCheck;
use crate::{ReadingSource, SamplerOptions};

/// The most ports that are checked: as many as the collector reads.
const MAX_PORTS: usize = 1_024;

/// Checks that the kernel reports pressure (PSI).
pub(super) fn check_pressure(options: &SamplerOptions) -> NodeCheck {
    let name = "PSI";
    if !options.is_enabled(ReadingSource::Pressure) {
        return NodeCheck::unused(name, "the settings disable pressure");
    }
    for file in ["cpu", "memory", "io"] {
        let path = options.proc_root.join("pressure").join(file);
        // The kernel creates the files without PSI too, but then refuses to read them.
        let Err(error) = fs::read_to_string(&path) else { continue };
        return NodeCheck::missing(
            name,
            &format!(
                "cannot read {}: {error}; data_starved and host_bound need it",
                path.display()
            ),
            "boot with psi=1 on the kernel's command line; the kernel needs CONFIG_PSI",
        );
    }
    NodeCheck::ok(name, "pressure of CPU, memory and IO is readable")
}

/// Checks that processes of other users can be seen.
pub(super) fn check_processes(options: &SamplerOptions) -> NodeCheck {
    let name = "processes";
    if !options.is_enabled(ReadingSource::Processes) {
        return NodeCheck::unused(name, "the settings disable processes");
    }
    let path = options.proc_root.join("1/status");
    match fs::read_to_string(&path) {
        Ok(_) => NodeCheck::ok(name, "processes of all users are visible"),
        Err(error) => NodeCheck::missing(
            name,
            &format!(
                "cannot read {}: {error}; processes have no job, pod and user",
                path.display()
            ),
            "mount /proc without hidepid=, or with gid= of the user of the service; in a container share the \
             host's PID namespace (hostPID: true)",
        ),
    }
}

/// Checks the counters of every RDMA port.
pub(super) fn check_ports(options: &SamplerOptions) -> Vec<NodeCheck> {
    let name = "RDMA ports";
    if !options.is_enabled(ReadingSource::Ports) {
        return vec![NodeCheck::unused(name, "the settings disable ports")];
    }
    let folder = options.sys_root.join("class/infiniband");
    let devices: Vec<_> = fs::read_dir(&folder).into_iter().flatten().flatten().collect();
    if devices.is_empty() {
        if !has_mellanox_adapter(&options.sys_root) {
            return vec![NodeCheck::unused(name, "this node has no RDMA device")];
        }
        return vec![NodeCheck::missing(
            name,
            "the PCI bus has NVIDIA or Mellanox network adapters, but the kernel has no RDMA device",
            "run `modprobe mlx5_ib`; install rdma-core or DOCA-OFED if the module is missing",
        )];
    }
    let ports = devices.iter().flat_map(|device| {
        fs::read_dir(device.path().join("ports")).into_iter().flatten().flatten()
    });
    let mut checked = 0;
    for port in ports.take(MAX_PORTS) {
        checked += 1;
        // A virtual function may have hw_counters alone; without both, nothing of the port's traffic is known.
        let readable = ["counters/port_xmit_data", "hw_counters"].map(|file| {
            let path = port.path().join(file);
            if path.is_dir() { fs::read_dir(path).map(drop) } else { fs::read(path).map(drop) }
        });
        if let [Err(error), Err(_)] = readable {
            let text = format!("{} has no readable counters: {error}", port.path().display());
            let next = "update the firmware and mlx5_core; in a container mount the host's /sys read-only, and set \
                        sys_root";
            return vec![NodeCheck::missing(name, &text, next)];
        }
    }
    let summary = format!("{} devices, counters of {checked} ports are readable", devices.len());
    vec![NodeCheck::ok(name, &summary)]
}

/// Whether the PCI bus has a network adapter of Mellanox (now NVIDIA).
fn has_mellanox_adapter(sys_root: &Path) -> bool {
    let devices = fs::read_dir(sys_root.join("bus/pci/devices")).into_iter().flatten().flatten();
    devices.into_iter().any(|device| {
        let read = |name: &str| fs::read_to_string(device.path().join(name)).unwrap_or_default();
        read("vendor").trim() == "0x15b3" && read("class").starts_with("0x02")
    })
}

/// Checks the kubelet's socket, from which the names of pods come.
pub(super) fn check_kubelet(options: &SamplerOptions) -> NodeCheck {
    let name = "kubelet";
    if !options.is_enabled(ReadingSource::Kubelet) {
        return NodeCheck::unused(name, "the settings disable kubelet");
    }
    let socket = &options.kubelet;
    match fs::metadata(socket) {
        Ok(metadata) if !metadata.file_type().is_socket() => NodeCheck::missing(
            name,
            &format!("{} is no socket", socket.display()),
            "set kubelet.socket to the kubelet's pod-resources socket; in a container mount its folder, not the file",
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            NodeCheck::unused(name, &format!("no kubelet at {}", socket.display()))
        }
        Err(error) => refuse_socket(socket, &error),
        Ok(_) => match UnixStream::connect(socket) {
            Ok(_) => NodeCheck::ok(name, &format!("{} accepts connections", socket.display())),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                refuse_socket(socket, &error)
            }
            Err(error) => NodeCheck::missing(
                name,
                &format!("{} does not answer: {error}", socket.display()),
                "see `systemctl status kubelet`",
            ),
        },
    }
}

fn refuse_socket(socket: &Path, error: &io::Error) -> NodeCheck {
    NodeCheck::missing(
        "kubelet",
        &format!("cannot open {}: {error}; pods have no names", socket.display()),
        "give the user of the service access: `setfacl -m u:gaunt-node:rwx` on the socket and `:x` on its folders",
    )
}

/// Checks a folder with files of other programs, which a setting names.
pub(super) fn check_folder(name: &'static str, folder: Option<&Path>) -> NodeCheck {
    let Some(folder) = folder else {
        return NodeCheck::unused(name, "the settings name no folder");
    };
    match fs::read_dir(folder) {
        Ok(_) => NodeCheck::ok(name, &format!("{} is readable", folder.display())),
        Err(error) => NodeCheck::missing(
            name,
            &format!("cannot read {}: {error}", folder.display()),
            &format!(
                "create the folder, readable for the user of the service, or remove {name} from the settings"
            ),
        ),
    }
}

/// Checks the program of scheduled probes.
pub(super) fn check_probe(options: &SamplerOptions) -> NodeCheck {
    let name = "probe";
    let Some(probe) = &options.probe else {
        return NodeCheck::unused(name, "the settings schedule no probe");
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = probe.program.is_file()
        || (probe.program.components().count() == 1
            && std::env::split_paths(&path).any(|folder| folder.join(&probe.program).is_file()));
    if !found {
        return NodeCheck::missing(
            name,
            &format!("the program {} does not exist", probe.program.display()),
            "install the package gaunt-probe, or set probe.program",
        );
    }
    NodeCheck::ok(name, &format!("{} is installed", probe.program.display()))
}
