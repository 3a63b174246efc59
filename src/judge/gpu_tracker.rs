//! The tracker of one GPU: its averages and the timers behind its state.

use std::time::Duration;

use gaunt_schema::{GpuState, UnixMs};

use super::{
    Thresholds, clock_drift::ClockDrift, compact_value::NodeTag, evidence_sum::LevelEvidence,
    gpu_allocation::GpuAllocation, gpu_signals::GpuAverages, gpu_start::GpuStart,
    hysteresis::StateHysteresis, moving_average::CompactTimestamp,
};

/// The state of one GPU, at its row.
#[derive(Debug, Default)]
pub(super) struct GpuTracker {
    /// The node that it is on: a row may be reassigned.
    pub(super) node: Option<NodeTag>,
    pub(super) averages: GpuAverages,
    pub(super) allocated: Option<bool>,
    pub(super) hysteresis: StateHysteresis,
    pub(super) allocation: GpuAllocation,
    pub(super) start: GpuStart,
    pub(super) drift: ClockDrift,
    /// Evidence that it idles while the rest of its job waits, and that its clock is lower than that of the rest.
    pub(super) idler: LevelEvidence,
    pub(super) slower_clock: LevelEvidence,
    /// The last sample that was read.
    pub(super) last_sample: CompactTimestamp,
}

impl GpuTracker {
    /// Whether nobody uses it, now or usually: a free GPU beside those of a job that nothing names.
    pub(super) fn is_unused(&self, now: UnixMs, gap: Duration, limits: &Thresholds) -> bool {
        let idles =
            |share: Option<f64>| share.is_some_and(|share| share < limits.utilization_idle_ratio);
        self.allocated != Some(true)
            && idles(self.averages.usual_utilization())
            && idles(self.averages.utilization_at(now, gap))
    }
}

/// Returns the state of the GPU at this row.
pub(super) fn state_at_row(gpus: &[GpuTracker], row: u32) -> GpuState {
    gpus.get(row as usize).map_or(GpuState::Unknown, |gpu| gpu.hysteresis.current_state())
}
