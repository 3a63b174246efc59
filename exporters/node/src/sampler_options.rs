//! The options of the sampler: paths, intervals and deadlines.

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, time::Duration};

use crate::ReadingSource;

/// All options of a [`Sampler`](crate::NodeSampler).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplerOptions {
    /// Where the kernel's device tree is mounted: `/sys`, or a copy of one.
    pub sys_root: PathBuf,
    /// Where the kernel's process tree is mounted: `/proc`, or a copy of one.
    pub proc_root: PathBuf,
    /// The NVML library; by default the loader's `libnvidia-ml.so.1`.
    pub nvml_library: Option<PathBuf>,
    /// The name of this node; by default its host name.
    pub node_name: Option<String>,
    /// The time between two samples.
    pub period: Duration,
    /// The deadline of one driver call; beyond it the values of its GPUs are stale.
    pub call_deadline: Duration,
    /// The deadline of the driver's initialisation, which wakes GPUs one by one and takes seconds on a cold node.
    pub init_deadline: Duration,
    /// How long an NVML worker hangs in a driver call before a spare is started: long enough for the hang to be
    /// reported first. The wait for each further spare is longer.
    pub spare_after: Duration,
    /// The most NVML workers that may hang at a time; at the limit no more are started.
    pub max_hung_workers: usize,
    /// The deadline of a collector; beyond it its values are stale and the page is published without them; at most a
    /// period.
    pub collector_deadline: Duration,
    /// RDMA and network devices that are not read at all: names, in which `*` matches any text.
    pub exclude: Vec<String>,
    /// The RDMA devices, or ports such as `mlx5_0/2`, in the order of their rails; empty for rail detection.
    pub rails: Vec<String>,
    /// A folder whose `*.prom` files are exported unchanged: probe results, NCCL statistics.
    pub textfiles: Option<PathBuf>,
    /// The folder of the logs of NCCL's inspector, which may have one folder a job.
    pub inspector_logs: Option<PathBuf>,
    /// The schedule of probes of GPU interconnects; without one no probe runs.
    pub probe: Option<ProbeSchedule>,
    /// The address of NCCL's RAS service; without one it is not read.
    pub ras: Option<SocketAddr>,
    /// The disabled sources: they are not read, and have no series.
    pub without: BTreeSet<ReadingSource>,
    /// The kubelet's pod-resources socket.
    pub kubelet: PathBuf,
    /// The kernel log, the second source of XIDs; without one only the driver is used.
    pub kernel_log: Option<PathBuf>,
    /// NVIDIA's tool for the IMEX daemon; by default `nvidia-imex-ctl` in the folders of NVIDIA's packages.
    pub imex_program: Option<PathBuf>,
    /// The program that runs as the NVML worker; by default this executable.
    pub worker_program: Option<PathBuf>,
}

/// How gaunt-probe is run periodically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSchedule {
    /// The program.
    pub program: PathBuf,
    /// The folder of its state and its results.
    pub folder: PathBuf,
    /// The time between two starts.
    pub every: Duration,
    /// Further arguments.
    pub arguments: Vec<String>,
}

impl Default for ProbeSchedule {
    fn default() -> Self {
        Self {
            program: PathBuf::from("gaunt-probe"),
            folder: PathBuf::from("/var/lib/gaunt-probe"),
            every: Duration::from_mins(10),
            arguments: Vec::new(),
        }
    }
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            sys_root: PathBuf::from("/sys"),
            proc_root: PathBuf::from("/proc"),
            nvml_library: None,
            node_name: None,
            period: Duration::from_secs(1),
            call_deadline: Duration::from_secs(2),
            init_deadline: Duration::from_secs(30),
            spare_after: Duration::from_secs(10),
            max_hung_workers: 8,
            collector_deadline: Duration::from_millis(500),
            exclude: Vec::new(),
            rails: Vec::new(),
            textfiles: None,
            inspector_logs: None,
            probe: None,
            ras: None,
            without: BTreeSet::new(),
            kubelet: PathBuf::from("/var/lib/kubelet/pod-resources/kubelet.sock"),
            kernel_log: Some(PathBuf::from("/dev/kmsg")),
            imex_program: None,
            worker_program: None,
        }
    }
}

impl SamplerOptions {
    /// Whether the source is enabled.
    pub fn is_enabled(&self, source: ReadingSource) -> bool {
        !self.without.contains(&source)
    }

    /// The deadline of a round of collectors: at most a period, because then the next tick is due.
    pub(crate) fn round_deadline(&self) -> Duration {
        self.collector_deadline.min(self.period)
    }
}
