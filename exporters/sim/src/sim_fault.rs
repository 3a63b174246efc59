//! Faults and what only looks like one: what happens to a job, a machine or a cable, where and when.

use std::{ops::Range, time::Duration};

use serde::Deserialize;

/// A fleet has run for this long when it is first seen, so that sensors and rhythms have settled.
pub(crate) const WARM_UP: Duration = Duration::from_secs(30);

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimFault {
    /// Seconds from the start of the run until it happens.
    pub onset_s: f64,
    /// Seconds until it is over; it stays if this is left out.
    pub lasts_s: Option<f64>,
    /// Which job it strikes, the largest first; counted around if there are fewer.
    pub gang: usize,
    /// Which node of the job it strikes; counted around if there are fewer.
    pub member: usize,
    /// What it does.
    pub effect: FaultEffect,
}

/// What happens. A factor says how many times longer something takes, a share is of the usual.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FaultEffect {
    /// A port loses its link; what it carried goes over another rail.
    PortDown {
        /// The rail whose port it is.
        rail: usize,
    },
    /// The loader of the node needs this long for each batch.
    DataStarved {
        /// Seconds from one batch to the next.
        batch_s: f64,
        /// Whether its processors are the cause, and not what it reads from.
        #[serde(default)]
        by_cpu: bool,
    },
    /// The storage that all nodes share brings each of them a batch this often.
    StorageSlow {
        /// Seconds from one batch to the next.
        batch_s: f64,
    },
    /// A GPU runs at this share of its clock, and nothing says why.
    SlowGpu {
        /// Which GPU of the node.
        gpu: usize,
        /// Share of the usual clock.
        clock: f64,
    },
    /// A GPU grows hot, and the hardware holds its clock down to this share.
    Throttled {
        /// Which GPU of the node.
        gpu: usize,
        /// Share of the usual clock.
        clock: f64,
    },
    /// The node launches kernels so slowly that its GPUs work only this share of the time.
    LaunchBound {
        /// Share of the time in which there is something to compute.
        duty: f64,
        /// Only this GPU's process is slow; all of the node's are if it is left out.
        #[serde(default)]
        gpu: Option<usize>,
    },
    /// Copies between the host and one GPU take so many times longer.
    PcieSlow {
        /// Which GPU of the node.
        gpu: usize,
        /// How many times longer.
        factor: f64,
        /// Whether the link sends packets again, instead of having lost lanes.
        #[serde(default)]
        replays: bool,
    },
    /// One GPU lost links to its neighbours: what the box trades takes so many times longer.
    NvlinkSlow {
        /// Which GPU of the node.
        gpu: usize,
        /// How many times longer.
        factor: f64,
    },
    /// A port came up at a lower rate.
    RateLow {
        /// The rail whose port it is.
        rail: usize,
        /// How many times lower.
        factor: f64,
    },
    /// A cable loses bits: packets are sent again.
    LinkErrors {
        /// The rail whose port it is.
        rail: usize,
        /// How many times longer what goes over it takes, on average.
        factor: f64,
        /// Symbol errors in a second.
        errors: f64,
    },
    /// The queues of a leaf switch are full: the ports below it are slow on this rail.
    LeafCongested {
        /// The rail.
        rail: usize,
        /// How many times longer.
        factor: f64,
    },
    /// A whole rail is slow under all its leaves.
    RailSlow {
        /// The rail.
        rail: usize,
        /// How many times longer.
        factor: f64,
    },
    /// A host takes what it receives so slowly that its senders have to stop.
    HostBlocks {
        /// How many times longer.
        factor: f64,
    },
    /// A collective never ends: one rank did not come, and everybody waits for it.
    Hang {
        /// Whether the rank that did not come stands still, instead of waiting like the others.
        odd: bool,
    },
    /// A GPU fails; its job waits for ever.
    GpuLost {
        /// Which GPU of the node.
        gpu: usize,
        /// Whether its memory has an error that it cannot correct, instead of its being gone from the bus.
        #[serde(default)]
        ecc: bool,
    },
    /// The job holds its GPUs and does nothing.
    Idle,
    /// One pipeline stage has more to compute than the others.
    StageImbalance {
        /// Which stage.
        stage: usize,
        /// How many times longer it computes.
        factor: f64,
    },
    /// Every step another rank has more to compute.
    Skew {
        /// How many times longer at most.
        factor: f64,
    },
    /// The job writes a checkpoint.
    Checkpoint {
        /// Whether the ranks spin in a barrier meanwhile, instead of resting.
        spin: bool,
    },
    /// The job evaluates instead of training.
    Evaluate,
    /// The job is not there.
    Absent,
    /// The job loads, compiles and gathers its ranks.
    Start,
    /// The job ends: its nodes leave within seconds.
    End,
    /// Whoever keeps the nodes tests them: every GPU computes as hard as it can, and no job holds it.
    Diagnose,
    /// The nodes are started anew: nobody answers meanwhile, and what their boards counted begins at zero.
    Reboot,
    /// The batch system holds the nodes for maintenance, and says so by the name of the job.
    Maintain,
    /// The job crashes: its ports see their peers vanish, and its nodes leave after a while.
    Crash,
    /// Power is capped everywhere: all clocks are at this share.
    PowerCap {
        /// Share of the usual clock.
        clock: f64,
    },
    /// The driver of a node is loaded anew: what its GPUs counted begins at zero.
    CounterReset,
    /// The exporter of a node is started anew, misses scrapes and answers late.
    ScrapeTrouble,
    /// The fabric chooses a path for each packet: many arrive out of order, none is lost.
    AdaptiveRouting,
    /// Steps differ by this much, for all ranks alike.
    LongTail {
        /// How many times longer the longest step is.
        factor: f64,
    },
}

/// What an affliction strikes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FaultScope {
    /// One node, by its position in the fleet.
    Node(usize),
    /// Neighbours: all nodes below a leaf, or of an NVLink fabric.
    Nodes(Range<usize>),
    /// All nodes of the job.
    All,
}

/// A fault as a gang lives through it, in seconds since the fleet's origin.
#[derive(Clone, Debug)]
pub(crate) struct ScheduledFault {
    pub(crate) scope: FaultScope,
    /// The node that it comes from.
    pub(crate) node: usize,
    pub(crate) from: f64,
    pub(crate) until: f64,
    pub(crate) effect: FaultEffect,
}

impl ScheduledFault {
    pub(crate) fn is_active_at(&self, now: f64) -> bool {
        self.from <= now && now < self.until
    }

    /// Whether it is there at any moment between the two.
    pub(crate) fn is_active_between(&self, from: f64, until: f64) -> bool {
        self.from < until && from < self.until
    }

    /// Whether it strikes this node of the fleet.
    pub(crate) fn affects_node(&self, node: usize) -> bool {
        match &self.scope {
            FaultScope::Node(struck) => *struck == node,
            FaultScope::Nodes(nodes) => nodes.contains(&node),
            FaultScope::All => true,
        }
    }
}

impl FaultEffect {
    /// Whether every job of the fleet feels it.
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

    /// Whether it changes what a cable does.
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

    /// Whether all nodes of the job feel it alike.
    pub(crate) const fn is_job_effect(self) -> bool {
        matches!(
            self,
            Self::StorageSlow { .. }
                | Self::RailSlow { .. }
                | Self::PowerCap { .. }
                | Self::AdaptiveRouting
                | Self::Idle
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
