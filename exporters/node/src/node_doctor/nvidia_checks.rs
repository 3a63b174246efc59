//! Checks of the NVIDIA driver: module, device nodes, library and kernel log.

use std::{
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::node_check::NodeCheck;
use crate::{ReadingSource, SamplerOptions};

/// The most devices of a folder that are checked: above the functions of the largest PCI trees.
const MAX_DEVICES: usize = 8_192;

/// The first bytes of a shared library.
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// Where the loader finds the library besides its cache.
const LIBRARY_FOLDERS: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
];

/// Whether the PCI bus has a GPU of NVIDIA: vendor 10de with a display class.
pub(super) fn has_nvidia_gpu(sys_root: &Path) -> bool {
    let Ok(devices) = fs::read_dir(sys_root.join("bus/pci/devices")) else { return false };
    devices.take(MAX_DEVICES).flatten().any(|device| {
        let read = |name: &str| fs::read_to_string(device.path().join(name)).unwrap_or_default();
        read("vendor").trim() == "0x10de" && read("class").starts_with("0x03")
    })
}

/// Checks that the kernel module is loaded, and names its version.
pub(super) fn check_module(options: &SamplerOptions) -> NodeCheck {
    let name = "kernel module";
    let version = options.proc_root.join("driver/nvidia/version");
    match fs::read_to_string(&version) {
        Ok(text) => {
            let version = text.lines().next().unwrap_or_default();
            NodeCheck::ok(name, version.strip_prefix("NVRM version:").unwrap_or(version).trim())
        }
        Err(_) if options.sys_root.join("module/nouveau").is_dir() => NodeCheck::missing(
            name,
            "nouveau holds the GPUs; the module nvidia is not loaded",
            "blacklist nouveau (`modprobe.blacklist=nouveau`), install NVIDIA's driver, and reboot",
        ),
        Err(error) => NodeCheck::missing(
            name,
            &format!("the module nvidia is not loaded ({}: {error})", version.display()),
            "run `modprobe nvidia`; if it fails, reinstall the driver for this kernel and see `dmesg`",
        ),
    }
}

/// Checks that this user may open the device nodes.
pub(super) fn check_device_nodes(dev_root: &Path) -> NodeCheck {
    let name = "device nodes";
    let control = dev_root.join("nvidiactl");
    let mut nodes = vec![control.clone()];
    if let Ok(entries) = fs::read_dir(dev_root) {
        nodes.extend(entries.take(MAX_DEVICES).flatten().map(|entry| entry.path()).filter(
            |path| {
                let file = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
                file.strip_prefix(b"nvidia")
                    .is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
            },
        ));
    }
    for node in &nodes {
        let result = fs::OpenOptions::new().read(true).write(true).open(node);
        let Err(error) = result else { continue };
        let next = match error.kind() {
            io::ErrorKind::NotFound => {
                "run `nvidia-modprobe -c 0`, or start nvidia-persistenced; in a container, pass the GPUs through \
                 (nvidia runtime class, or hostPath of /dev)"
            }
            io::ErrorKind::PermissionDenied => {
                "give the user of the service access: DeviceAllow=char-nvidia* rw in the unit, and \
                 NVreg_DeviceFileMode=0666 for the module"
            }
            _ => "see `dmesg` for errors of the driver; drain and reboot the node",
        };
        return NodeCheck::missing(name, &format!("cannot open {}: {error}", node.display()), next);
    }
    if nodes.len() == 1 {
        return NodeCheck::missing(
            name,
            &format!("{} exists, but no GPU's node beside it", control.display()),
            "run `nvidia-smi -L` as root, which creates them; if it lists no GPU, see `dmesg`",
        );
    }
    let gpus = nodes.len() - 1;
    let plural = if gpus == 1 { "" } else { "s" };
    NodeCheck::ok(name, &format!("{gpus} GPU{plural} can be opened"))
}

/// Checks that NVML's library is there and is a library.
pub(super) fn check_library(options: &SamplerOptions) -> NodeCheck {
    let name = "NVML library";
    if cfg!(target_feature = "crt-static") {
        return NodeCheck::missing(
            name,
            "this gaunt-node is linked statically and cannot load it",
            "install the deb or rpm of gaunt-node, or its tarball without -static",
        );
    }
    let path = match &options.nvml_library {
        Some(path) => path.clone(),
        None => match find_library() {
            Some(path) => path,
            None => {
                return NodeCheck::missing(
                    name,
                    "libnvidia-ml.so.1 is not in the usual folders",
                    "install the driver's libraries (libnvidia-ml1 or nvidia-driver-cuda-libs), or set \
                     nvml.library",
                );
            }
        },
    };
    let mut head = [0; ELF_MAGIC.len()];
    let result =
        fs::File::open(&path).and_then(|mut file| io::Read::read_exact(&mut file, &mut head));
    match result {
        Ok(()) if head == ELF_MAGIC => NodeCheck::ok(name, &path.display().to_string()),
        Ok(()) => NodeCheck::missing(
            name,
            &format!("{} is no shared library", path.display()),
            "set nvml.library to libnvidia-ml.so.1 of the installed driver",
        ),
        Err(error) => NodeCheck::missing(
            name,
            &format!("cannot read {}: {error}", path.display()),
            "check nvml.library and the permissions of the file",
        ),
    }
}

fn find_library() -> Option<PathBuf> {
    let paths = LIBRARY_FOLDERS.iter().map(|folder| Path::new(folder).join("libnvidia-ml.so.1"));
    paths.into_iter().find(|path| path.exists())
}

/// Checks that the kernel log can be read: the second source of XIDs.
pub(super) fn check_kernel_log(options: &SamplerOptions) -> NodeCheck {
    let name = "kernel log";
    let enabled = options.is_enabled(ReadingSource::KernelLog);
    let Some(path) = options.kernel_log.as_ref().filter(|_| enabled) else {
        return NodeCheck::unused(name, "the settings disable kernel_log");
    };
    match fs::File::open(path) {
        Ok(_) => NodeCheck::ok(name, &format!("{} is readable", path.display())),
        Err(error) => NodeCheck::missing(
            name,
            &format!(
                "cannot read {}: {error}; the driver is the only source of XIDs",
                path.display()
            ),
            "give the service CAP_SYSLOG (AmbientCapabilities= in the unit) and DeviceAllow=/dev/kmsg r, or \
             disable kernel_log",
        ),
    }
}
