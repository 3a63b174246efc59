//! The tracker of one GPU: its averages and the timers behind its state.

use gaunt_schema::GpuState;

use super::{
    clock_drift::ClockDrift, compact_value::NodeTag, evidence_sum::LevelEvidence,
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

/// Returns the state of the GPU at this row.
pub(super) fn state_at_row(gpus: &[GpuTracker], row: u32) -> GpuState {
    gpus.get(row as usize).map_or(GpuState::Unknown, |gpu| gpu.hysteresis.current_state())
}
