//! Host evidence: hosts whose pressure has risen above their own past by more than hosts usually do.

use super::{
    evidence_sum::EvidenceSum, moving_average::CompactTimestamp,
    residual_histogram::ResidualHistogram,
};

/// What the pressure of a host comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PressureSource {
    /// Tasks wait for IO.
    Io,
    /// Tasks wait for a CPU.
    Cpu,
    /// One CPU is busy all the time.
    BusiestCpu,
    /// Network file systems answer late.
    Storage,
}

impl PressureSource {
    /// Returns how far a value is above its baseline: response times differ by orders of magnitude, so by the logarithm of
    /// their ratio; shares of time by their difference.
    pub(super) fn rise(self, now: f64, baseline: f64) -> f64 {
        match self {
            Self::Storage if baseline > 0.0 => (now / baseline).ln(),
            Self::Storage => 0.0,
            Self::Io | Self::Cpu | Self::BusiestCpu => now - baseline,
        }
    }
}

/// All sources.
pub(super) const SOURCES: [PressureSource; 4] =
    [PressureSource::Io, PressureSource::Cpu, PressureSource::BusiestCpu, PressureSource::Storage];

/// Unlikely rises of one host that are counted as usual once they are over: while they last, they may be a fault.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeldRises {
    most: f32,
    samples: u8,
}

impl HeldRises {
    /// Adds a rise.
    pub(super) fn hold_rise(&mut self, rise: f64) {
        self.most = self.most.max(rise as f32);
        self.samples = self.samples.saturating_add(1);
    }

    /// Counts them, as large as the largest of them.
    pub(super) fn count_into(&mut self, usual: &mut ResidualHistogram) {
        for _ in 0..self.samples {
            usual.count(f64::from(self.most));
        }
        *self = Self::default();
    }
}

/// The evidence about one host, by source of pressure.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostEvidence {
    pub(super) sums: [EvidenceSum; SOURCES.len()],
    pub(super) held: [HeldRises; SOURCES.len()],
    pub(super) last_round: CompactTimestamp,
}

/// The saved form: the sum of each source.
pub(super) type SavedHostEvidence = [EvidenceSum; SOURCES.len()];

impl From<SavedHostEvidence> for HostEvidence {
    fn from(sums: SavedHostEvidence) -> Self {
        Self { sums, ..Self::default() }
    }
}

impl HostEvidence {
    /// Whether pressure from this source has likely risen.
    pub(super) fn is_likely(&self, source: PressureSource) -> bool {
        self.sums[source as usize].is_likely()
    }

    /// Whether pressure from this source may have risen.
    pub(super) fn is_suspected(&self, source: PressureSource) -> bool {
        self.sums[source as usize].is_suspected()
    }
}
