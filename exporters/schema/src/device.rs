//! Devices: the classes of device and the identity of each device on its node.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::SanitizedText;

/// The most labels that identify a device on its node.
pub const MAX_KEY_LABELS: usize = 2;

/// A class of device. It decides which labels identify a device on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeviceClass {
    /// The node itself.
    Node,
    /// A GPU, by its NVML index.
    Gpu,
    /// One NVLink of a GPU.
    Nvlink,
    /// One kind of driver error of a GPU, by its XID.
    Xid,
    /// One MIG instance of a GPU.
    Mig,
    /// One process on a GPU.
    Process,
    /// A port of an RDMA device.
    Port,
    /// A network device of the kernel.
    Netdev,
    /// A disk of the node: any block device of the kernel.
    Disk,
    /// A network file system that the node has mounted.
    Mount,
    /// A sensor of the node: a temperature, a power, an energy.
    Sensor,
    /// A port of a switch, by the switch's name and the port's.
    SwitchPort,
    /// A model that a server serves, by the server's address and the model's name.
    Service,
    /// A kind of collective that a GPU takes part in: the GPU and the labels of the kind.
    Collective,
    /// A rank for which others wait, by its communicator and its number there.
    Rank,
    /// A probe result: the kind of transfer and its end points.
    Probe,
    /// A collector of the exporter.
    Collector,
    /// The aggregator's own metrics: written by `gaunt serve`, never read back into columns.
    Fleet,
}

impl DeviceClass {
    /// Every class, in the order of the page.
    pub const ALL: [Self; 18] = [
        Self::Node,
        Self::Gpu,
        Self::Nvlink,
        Self::Xid,
        Self::Mig,
        Self::Process,
        Self::Port,
        Self::Netdev,
        Self::Disk,
        Self::Mount,
        Self::Sensor,
        Self::SwitchPort,
        Self::Service,
        Self::Collective,
        Self::Rank,
        Self::Probe,
        Self::Collector,
        Self::Fleet,
    ];

    /// The labels that identify a device of this class on its node.
    pub const fn key_label_names(self) -> &'static [&'static str] {
        match self {
            Self::Node | Self::Fleet => &[],
            Self::Gpu => &["gpu"],
            Self::Nvlink => &["gpu", "link"],
            Self::Xid => &["gpu", "xid"],
            Self::Mig => &["gpu", "instance"],
            Self::Process => &["gpu", "pid"],
            Self::Port => &["device", "port"],
            Self::Netdev | Self::Disk => &["device"],
            Self::Mount => &["mount"],
            Self::Sensor => &["chip", "sensor"],
            Self::SwitchPort => &["switch", "port"],
            Self::Service => &["service", "model"],
            Self::Collective => &["gpu", "collective"],
            Self::Rank => &["communicator", "rank"],
            Self::Probe => &["collective", "between"],
            Self::Collector => &["collector"],
        }
    }

    /// The name of this class.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Gpu => "gpu",
            Self::Nvlink => "nvlink",
            Self::Xid => "xid",
            Self::Mig => "mig",
            Self::Process => "process",
            Self::Port => "port",
            Self::Netdev => "netdev",
            Self::Disk => "disk",
            Self::Mount => "mount",
            Self::Sensor => "sensor",
            Self::SwitchPort => "switch port",
            Self::Service => "service",
            Self::Collective => "collective",
            Self::Rank => "rank",
            Self::Probe => "probe",
            Self::Collector => "collector",
            Self::Fleet => "fleet",
        }
    }
}

/// One device of a node: its class, and a value for each of the class's labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Device {
    /// The class.
    pub class: DeviceClass,
    /// The identity: one value per name in [`DeviceClass::key_label_names`]. Clones share the values.
    pub key: Arc<[SanitizedText]>,
}

impl Device {
    /// The node itself.
    pub fn new_node() -> Self {
        Self { class: DeviceClass::Node, key: Arc::default() }
    }

    /// The GPU with this NVML index.
    pub fn new_gpu(index: u32) -> Self {
        Self { class: DeviceClass::Gpu, key: [SanitizedText::new(&index.to_string())].into() }
    }

    /// A part of the GPU with this NVML index: a link, an instance, a process or a kind of error, by its number.
    pub fn new_gpu_part(class: DeviceClass, gpu: u32, number: u32) -> Self {
        Self { class, key: [gpu.to_string().into(), number.to_string().into()].into() }
    }

    /// A port of an RDMA device, such as port 1 of `mlx5_0`.
    pub fn new_port(device: &str, port: &str) -> Self {
        Self {
            class: DeviceClass::Port,
            key: [SanitizedText::new(device), SanitizedText::new(port)].into(),
        }
    }

    /// A network device of the kernel, such as `eth0`.
    pub fn new_netdev(device: &str) -> Self {
        Self { class: DeviceClass::Netdev, key: [SanitizedText::new(device)].into() }
    }

    /// A disk, such as `nvme0n1`.
    pub fn new_disk(device: &str) -> Self {
        Self { class: DeviceClass::Disk, key: [SanitizedText::new(device)].into() }
    }

    /// A network file system, by its mount point or its own name.
    pub fn new_mount(mount: &str) -> Self {
        Self { class: DeviceClass::Mount, key: [SanitizedText::new(mount)].into() }
    }

    /// A sensor of a chip, such as `temp1` of `coretemp.0`.
    pub fn new_sensor(chip: &str, sensor: &str) -> Self {
        Self {
            class: DeviceClass::Sensor,
            key: [SanitizedText::new(chip), SanitizedText::new(sensor)].into(),
        }
    }

    /// A port of a switch, such as port 14 of `leaf-03`.
    pub fn new_switch_port(switch: &str, port: &str) -> Self {
        Self {
            class: DeviceClass::SwitchPort,
            key: [SanitizedText::new(switch), SanitizedText::new(port)].into(),
        }
    }

    /// A model on a server, such as `gpu007:8000`.
    pub fn new_service(server: &str, model: &str) -> Self {
        Self {
            class: DeviceClass::Service,
            key: [SanitizedText::new(server), SanitizedText::new(model)].into(),
        }
    }

    /// A rank of a communicator, by the communicator's hash.
    pub fn new_rank(communicator: &SanitizedText, rank: u32) -> Self {
        let key = [communicator.clone(), rank.to_string().into()];
        Self { class: DeviceClass::Rank, key: key.into() }
    }

    /// A kind of transfer that was probed, such as `all_reduce` between `gpu0..7`.
    pub fn new_probe(collective: &str, between: &str) -> Self {
        Self {
            class: DeviceClass::Probe,
            key: [SanitizedText::new(collective), SanitizedText::new(between)].into(),
        }
    }

    /// A collector of the exporter.
    pub fn new_collector(name: &str) -> Self {
        Self { class: DeviceClass::Collector, key: [SanitizedText::new(name)].into() }
    }

    /// Replaces its first key, such as the number of its GPU.
    pub fn set_first_key(&mut self, first: &SanitizedText) {
        if let Some(key) = Arc::make_mut(&mut self.key).first_mut() {
            key.clone_from(first);
        }
    }

    /// The labels that identify this device, with their values.
    pub fn key_labels(&self) -> impl Iterator<Item = (&'static str, &SanitizedText)> {
        self.class.key_label_names().iter().copied().zip(self.key.iter())
    }
}

/// The short name for display: `GPU 5`, `mlx5_0/1`, `eth0`.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.class, &*self.key) {
            (DeviceClass::Gpu, [index]) => write!(f, "GPU {index}"),
            (
                DeviceClass::Nvlink | DeviceClass::Xid | DeviceClass::Mig | DeviceClass::Process,
                [gpu, number],
            ) => {
                write!(f, "GPU {gpu} {} {number}", self.class.as_str())
            }
            (_, [first]) => write!(f, "{first}"),
            (_, [first, second]) => write!(f, "{first}/{second}"),
            _ => f.write_str(self.class.as_str()),
        }
    }
}
