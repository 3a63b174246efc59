//! What a sampler can be told: where to look, how often, and how long to wait.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use crate::ReadingSource;

/// Everything that a [`Sampler`](crate::NodeSampler) takes from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplerOptions {
    /// Where the kernel's device tree is mounted: `/sys`, or a copy of one.
    pub sys_root: PathBuf,
    /// Where the kernel's process tree is mounted: `/proc`, or a copy of one.
    pub proc_root: PathBuf,
    /// The NVML library; without one the loader is asked for `libnvidia-ml.so.1`.
    pub nvml_library: Option<PathBuf>,
    /// The name of this node; without one its host name.
    pub node_name: Option<String>,
    /// The time between two samples.
    pub period: Duration,
    /// How long one driver call may take before its GPUs' values are called stale.
    pub call_deadline: Duration,
    /// The same for the driver's initialisation, which wakes GPUs one by one and takes seconds on a cold node.
    pub init_deadline: Duration,
    /// How long an NVML worker hangs in a driver call before a spare is started: long enough for the flag to be seen first.
    /// Each further spare is waited for longer.
    pub spare_after: Duration,
    /// The most NVML workers that may hang at a time; beyond, no more are started.
    pub max_hung_workers: usize,
    /// How long a collector may take before its values are called stale and the page goes out without it; a period at
    /// most.
    pub collector_deadline: Duration,
    /// RDMA and network devices that are left alone, not even read: names, in which `*` stands for anything.
    pub exclude: Vec<String>,
    /// The RDMA devices, or ports such as `mlx5_0/2`, in the order of their rails; empty to find the rails.
    pub rails: Vec<String>,
    /// A folder whose `*.prom` files are passed on as they are: results of probes, statistics of NCCL.
    pub textfiles: Option<PathBuf>,
    /// Whether and how the wires between GPUs are probed; without it they never are.
    pub probe: Option<ProbeSchedule>,
    /// What is switched off: it is not asked, and leaves no series.
    pub without: BTreeSet<ReadingSource>,
    /// Where the kubelet says which pod holds which GPU.
    pub kubelet: PathBuf,
    /// The kernel's log, the second source of XIDs; without one only the driver is asked.
    pub kernel_log: Option<PathBuf>,
    /// The program that is run as the NVML worker; without one it is this executable.
    pub worker_program: Option<PathBuf>,
}

/// How gaunt-probe is run now and then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSchedule {
    /// The program.
    pub program: PathBuf,
    /// Where it keeps its past and leaves its results.
    pub folder: PathBuf,
    /// The time between two tries.
    pub every: Duration,
    /// What else it is told.
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
            probe: None,
            without: BTreeSet::new(),
            kubelet: PathBuf::from("/var/lib/kubelet/pod-resources/kubelet.sock"),
            kernel_log: Some(PathBuf::from("/dev/kmsg")),
            worker_program: None,
        }
    }
}

impl SamplerOptions {
    /// Whether this is not switched off.
    pub fn is_enabled(&self, source: ReadingSource) -> bool {
        !self.without.contains(&source)
    }

    /// How long a round of the collectors may take: beyond a period the next tick is due.
    pub(crate) fn round_deadline(&self) -> Duration {
        self.collector_deadline.min(self.period)
    }
}
