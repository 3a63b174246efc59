//! Faults and harmless look-alikes: what happens to a job, a machine or a cable, where and when.

use std::{ops::Range, time::Duration};

use serde::Deserialize;

/// Warm-up time of a fleet before its first sample, so that sensors and periodic patterns have settled.
pub(crate) const WARM_UP: Duration = Duration::from_secs(30);

/// One event.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimFault {
    /// Seconds from the start of the run until it happens.
    pub onset_s: f64,
    /// Duration in seconds; permanent if absent.
    pub lasts_s: Option<f64>,
    /// Index of the affected job, the largest first; modulo the number of jobs.
    pub gang: usize,
    /// Index of the affected node of the job; modulo the number of its nodes.
    pub member: usize,
    /// The effect.
    pub effect: FaultEffect,
}

/// The effect of an event. A factor is a multiple of the normal time, a share is relative to the normal value.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FaultEffect {
    /// A port loses its link; its traffic moves to another rail.
    PortDown {
        /// The rail of the port.
        rail: usize,
    },
    /// The data loader of the node needs this long for each batch.
    DataStarved {
        /// Seconds from one batch to the next.
        batch_s: f64,
        /// Whether CPU contention is the cause, and not storage.
        #[serde(default)]
        by_cpu: bool,
    },
    /// The shared storage delivers a batch to each node at this interval.
    StorageSlow {
        /// Seconds from one batch to the next.
        batch_s: f64,
    },
    /// A GPU runs at this share of its clock without a throttle reason.
    SlowGpu {
        /// Index of the GPU in its node.
        gpu: usize,
        /// Share of the normal clock.
        clock: f64,
    },
    /// A GPU overheats, and the hardware limits its clock to this share.
    Throttled {
        /// Index of the GPU in its node.
        gpu: usize,
        /// Share of the normal clock.
        clock: f64,
    },
    /// The node launches kernels so slowly that its GPUs work only this share of the time.
    LaunchBound {
        /// Share of the time with work.
        duty: f64,
        /// Only this GPU's process is slow; if absent, all processes of the node are.
        #[serde(default)]
        gpu: Option<usize>,
    },
    /// Copies between the host and one GPU are slower by this factor.
    PcieSlow {
        /// Index of the GPU in its node.
        gpu: usize,
        /// Slowdown factor.
        factor: f64,
        /// Whether the link replays packets, instead of reduced width.
        #[serde(default)]
        replays: bool,
    },
    /// One GPU lost NVLinks: exchanges within its node are slower by this factor.
    NvlinkSlow {
        /// Index of the GPU in its node.
        gpu: usize,
        /// Slowdown factor.
        factor: f64,
    },
    /// A port runs at a lower rate.
    RateLow {
        /// The rail of the port.
        rail: usize,
        /// Factor by which the rate is lower.
        factor: f64,
    },
    /// A cable has bit errors: packets are retransmitted.
    LinkErrors {
        /// The rail of the port.
        rail: usize,
        /// Average slowdown factor of its traffic.
        factor: f64,
        /// Symbol errors per second.
        errors: f64,
    },
    /// The queues of a leaf switch are full: the ports below it are slow on this rail.
    LeafCongested {
        /// The rail.
        rail: usize,
        /// Slowdown factor.
        factor: f64,
    },
    /// A whole rail is slow under all its leaf switches.
    RailSlow {
        /// The rail.
        rail: usize,
        /// Slowdown factor.
        factor: f64,
    },
    /// A slow receiver: the host sends PFC pause frames, which stop its senders.
    HostBlocks {
        /// Slowdown factor.
        factor: f64,
    },
    /// A collective hang: one rank is missing, and all others wait for it.
    Hang {
        /// Whether the missing rank is idle, instead of busy-waiting like the others.
        odd: bool,
    },
    /// A GPU fails; its job waits forever.
    GpuLost {
        /// Index of the GPU in its node.
        gpu: usize,
        /// Whether it has an uncorrectable memory error, instead of having fallen off the bus.
        #[serde(default)]
        ecc: bool,
    },
    /// The job keeps its GPUs allocated and does nothing.
    Idle,
    /// The processes of the job end again and again, and are started anew each time.
    CrashLoop {
        /// Seconds from one end to the next.
        every_s: f64,
        /// The share of the time in which they do not work: they are gone, and then load.
        lost_share: f64,
    },
    /// One pipeline stage has more to compute than the others.
    StageImbalance {
        /// Which stage.
        stage: usize,
        /// Factor on its compute time.
        factor: f64,
    },
    /// In every step another rank has more to compute.
    Skew {
        /// Largest factor.
        factor: f64,
    },
    /// The job writes a checkpoint.
    Checkpoint {
        /// Whether the ranks busy-wait in a barrier meanwhile, instead of being idle.
        spin: bool,
    },
    /// The job evaluates instead of training.
    Evaluate,
    /// The job is not running.
    Absent,
    /// The job loads, compiles and waits for its ranks.
    Start,
    /// The job ends: its nodes are released within seconds.
    End,
    /// An operator tests the nodes: every GPU runs at full load, and it is in no job.
    Diagnose,
    /// The nodes reboot: they do not answer meanwhile, and GPU counters restart at zero.
    Reboot,
    /// The batch system reserves the nodes for maintenance, which the job name shows.
    Maintain,
    /// The job crashes: its ports see their peers vanish, and its nodes are released after a while.
    Crash,
    /// Power is capped on all nodes: all clocks are at this share.
    PowerCap {
        /// Share of the normal clock.
        clock: f64,
    },
    /// The driver of a node is reloaded: GPU counters restart at zero.
    CounterReset,
    /// The exporter of a node restarts, misses scrapes and answers late.
    ScrapeTrouble,
    /// Adaptive routing chooses a path for each packet: many arrive out of order, none is lost.
    AdaptiveRouting,
    /// Step times vary by this much, equally for all ranks.
    LongTail {
        /// Factor of the longest step.
        factor: f64,
    },
}

/// The scope of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FaultScope {
    /// One node, by its position in the fleet.
    Node(usize),
    /// Neighbours: all nodes below a leaf switch, or of an NVLink domain.
    Nodes(Range<usize>),
    /// All nodes of the job.
    All,
}

/// A fault as scheduled for a job group, in seconds since the fleet's origin.
#[derive(Clone, Debug)]
pub(crate) struct ScheduledFault {
    pub(crate) scope: FaultScope,
    /// The node that causes it.
    pub(crate) node: usize,
    pub(crate) from: f64,
    pub(crate) until: f64,
    pub(crate) effect: FaultEffect,
}

impl ScheduledFault {
    pub(crate) fn is_active_at(&self, now: f64) -> bool {
        self.from <= now && now < self.until
    }

    /// Whether it is active at any moment between the two.
    pub(crate) fn is_active_between(&self, from: f64, until: f64) -> bool {
        self.from < until && from < self.until
    }

    /// Whether it affects this node of the fleet.
    pub(crate) fn affects_node(&self, node: usize) -> bool {
        match &self.scope {
            FaultScope::Node(affected) => *affected == node,
            FaultScope::Nodes(nodes) => nodes.contains(&node),
            FaultScope::All => true,
        }
    }
}

impl FaultEffect {
    /// Whether it affects every job of the fleet.
    pub(crate) const fn is_fleet_effect(self) -> bool {
        matches!(
            self,
            Self::StorageSlow { .. }
                | Self::RailSlow { .. }
                | Self::PowerCap { .. }
                | Self::AdaptiveRouting
                | Self::LeafCongested { .. }
        )
    }

    /// Whether it changes the condition of a cable.
    pub(crate) const fn is_link_effect(self) -> bool {
        matches!(
            self,
            Self::RateLow { .. }
                | Self::LinkErrors { .. }
                | Self::LeafCongested { .. }
                | Self::RailSlow { .. }
                | Self::HostBlocks { .. }
                | Self::AdaptiveRouting
                | Self::Crash
        )
    }

    /// Whether it affects all nodes of the job equally.
    pub(crate) const fn is_job_effect(self) -> bool {
        matches!(
            self,
            Self::StorageSlow { .. }
                | Self::RailSlow { .. }
                | Self::PowerCap { .. }
                | Self::AdaptiveRouting
                | Self::Idle
                | Self::CrashLoop { .. }
                | Self::StageImbalance { .. }
                | Self::Skew { .. }
                | Self::Checkpoint { .. }
                | Self::Evaluate
                | Self::Absent
                | Self::Start
                | Self::End
                | Self::Diagnose
                | Self::Reboot
                | Self::Maintain
                | Self::Crash
                | Self::LongTail { .. }
        )
    }
}
