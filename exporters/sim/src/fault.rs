//! Faults: what goes wrong, where and when.

use serde::Deserialize;

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Seconds from the start of the run to the fault.
    pub onset_s: f64,
    /// Seconds until it is over; it stays if this is left out.
    pub lasts_s: Option<f64>,
    /// Which gang it strikes, the largest first; counted around if there are fewer.
    pub gang: usize,
    /// Which node of the gang it strikes; counted around if there are fewer.
    pub member: usize,
    /// What it does.
    pub effect: Effect,
}

/// What a fault does to the node that it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Effect {
    /// A port loses its link; what it carried goes over another rail.
    PortDown {
        /// The rail whose port it is.
        rail: usize,
    },
    /// The loader of the node needs this long for each batch.
    DataStarved {
        /// Seconds from one batch to the next.
        batch_s: f64,
    },
}

/// A fault on its node's own time axis, in seconds since the fleet's origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Affliction {
    /// The position of the node in its gang.
    pub(crate) member: usize,
    pub(crate) from: f64,
    pub(crate) until: f64,
    pub(crate) effect: Effect,
}

impl Affliction {
    pub(crate) fn at(&self, now: f64) -> bool {
        self.from <= now && now < self.until
    }

    /// Whether the fault is there at any moment between the two.
    pub(crate) fn within(&self, from: f64, until: f64) -> bool {
        self.from < until && from < self.until
    }
}
