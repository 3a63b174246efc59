//! How long each part of the run of a served pair is.

/// Seconds of each part of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServedPace {
    /// A node is away while the pair is killed and parted.
    pub(crate) fault: u64,
    /// It still is while nothing else fails, and both must agree.
    pub(crate) agreement: u64,
    /// It is back while the pair is killed and parted.
    pub(crate) returning: u64,
    /// Nothing fails.
    pub(crate) end: u64,
    /// For so long at most one of the two sees the node away longer than the other.
    pub(crate) late_sight: u64,
}

impl ServedPace {
    /// Five seconds of a processor.
    pub(crate) const LONG: Self =
        Self { fault: 240, agreement: 45, returning: 200, end: 120, late_sight: 150 };
    /// A second of a processor.
    pub(crate) const SHORT: Self =
        Self { fault: 60, agreement: 45, returning: 40, end: 75, late_sight: 30 };
}
