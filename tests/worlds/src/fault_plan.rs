//! The fault of a world: what, where, how much, when.

/// One fault.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultPlan {
    /// What breaks.
    pub kind: FaultKind,
    /// The job that suffers, as an index; of a fault without a loss, the job on the machine, if any.
    pub job: Option<usize>,
    /// Node index, of faults of one machine.
    pub node: usize,
    /// GPU number, of faults of one GPU.
    pub gpu: usize,
    /// Port number, of faults of one port.
    pub port: usize,
    /// Leaf switch, of faults of one leaf.
    pub leaf: usize,
    /// Rail, of faults of one rail.
    pub rail: usize,
    /// Share of the job's speed that it costs while it lasts, for kinds that are sized; 0.03 to 0.8.
    pub loss: f64,
    /// When it begins, in seconds since the start of the run; negative: before the run.
    pub onset_s: f64,
    /// How it goes on.
    pub course: FaultCourse,
}

/// What breaks. Kinds marked "sized" have a continuous severity that is chosen for a given loss of the job's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    /// Sized: the data loader of one node is slow; pressure on its processors or disks shows it.
    LoaderSlowLoud,
    /// Sized: the same with hardly a trace on the host.
    LoaderSlowSilent,
    /// Sized: the shared storage is slow for one job.
    StorageSlowForJob,
    /// Sized: the shared storage is slow for all jobs.
    StorageSlowForAll,
    /// Sized: one GPU computes slower: lower clock, no reason given.
    GpuClockLow,
    /// Sized: one GPU is too hot and throttles.
    GpuThermal,
    /// Sized: the power brake of one node's GPUs.
    PowerBrake,
    /// Sized: one rank's host thread launches kernels too slowly; one processor is fully busy.
    LaunchBound,
    /// Sized: the PCIe link of one GPU is narrower, or replays.
    PcieDegraded,
    /// Sized: one GPU's NVLinks have errors and replays.
    NvlinkErrors,
    /// Sized: the NVSwitches of one node are slow: nothing else shows it.
    NvswitchSlow,
    /// One port goes down; other rails carry its traffic, if there are any.
    PortDown,
    /// One port goes down and up again, several times.
    PortFlap,
    /// One port comes up at a lower rate.
    PortRateLow,
    /// A dirty cable: symbol errors and discards; sized only where the loss is above 0.
    LinkErrors,
    /// Sized: the queues of one leaf switch are full.
    LeafCongested,
    /// Sized: one rail is slow on all nodes.
    RailSlow,
    /// Sized: many senders overload one receiving port.
    Incast,
    /// Sized: one host receives too slowly and sends pause frames.
    SlowReceiver,
    /// All ranks of a job stop in a collective.
    Hang,
    /// One GPU falls off the bus.
    GpuLost,
    /// One GPU has uncorrectable memory errors.
    GpuMemoryErrors,
    /// A job keeps its GPUs and does nothing any more.
    IdleAllocated,
    /// Sized: one pipeline stage gets more work.
    StageImbalance,
    /// Sized: every step another rank has much more work.
    DataSkew,
    /// The exporters of one node stop answering.
    ExporterDown,
    /// The driver of one node hangs: its GPU values are repeated for ever.
    DriverHung,
}

/// How a fault goes on after its onset.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultCourse {
    /// At once, until the end of the run.
    Steady,
    /// For some seconds of every period.
    Intermittent {
        /// Seconds of each period in which it is present.
        on_s: f64,
        /// The period.
        every_s: f64,
    },
    /// From nothing to its full size.
    Growing {
        /// Seconds until the full size.
        over_s: f64,
    },
    /// It is repaired.
    Healed {
        /// Seconds after the onset.
        after_s: f64,
    },
}

impl FaultCourse {
    /// Share of the full size, 0 to 1, this long after the onset; 0 before it.
    pub fn size_at(&self, since_onset_s: f64) -> f64 {
        if since_onset_s < 0.0 {
            return 0.0;
        }
        match *self {
            Self::Steady => 1.0,
            Self::Intermittent { on_s, every_s } => {
                f64::from(u8::from(since_onset_s % every_s < on_s))
            }
            Self::Growing { over_s } => (since_onset_s / over_s).min(1.0),
            Self::Healed { after_s } => f64::from(u8::from(since_onset_s < after_s)),
        }
    }
}
