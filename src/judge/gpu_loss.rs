//! The loss of one GPU and the number of its cause.

use gaunt_schema::GpuState;

/// The share of a GPU that does nothing for its job, in ten-thousandths.
pub(super) const WHOLE: u16 = 10_000;

const IDLE: u16 = u16::MAX;

/// The number of an unexplained loss: below it are those of findings and splits.
pub(super) const UNEXPLAINED: u16 = u16::MAX - 1;

/// The cause of lost time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttributedCause {
    /// The open finding at this index of the causes.
    Finding(u16),
    /// No finding: a job holds the GPU and does not use it.
    Idle,
    /// No finding, and the GPU is not idle.
    Unexplained,
}

impl AttributedCause {
    /// Returns the number that encodes it.
    pub(super) fn code(self) -> u16 {
        match self {
            Self::Finding(index) => index,
            Self::Idle => IDLE,
            Self::Unexplained => UNEXPLAINED,
        }
    }

    /// Returns the cause that a number encodes, which is not that of a split.
    pub(super) fn from_code(code: u16) -> Self {
        match code {
            IDLE => Self::Idle,
            UNEXPLAINED => Self::Unexplained,
            index => Self::Finding(index),
        }
    }
}

/// The state and loss of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuLoss {
    state: GpuState,
    /// Ten-thousandths of its time.
    parts: u16,
    /// The number of its cause in the causes of its step; meaningless without parts.
    cause: u16,
}

impl Default for GpuLoss {
    fn default() -> Self {
        Self { state: GpuState::Unknown, parts: 0, cause: AttributedCause::Unexplained.code() }
    }
}

impl GpuLoss {
    /// Creates the loss of a GPU in a state that loses nothing, or from saved parts.
    pub fn from_parts(state: GpuState, parts: u16, cause: u16) -> Self {
        Self { state, parts: parts.min(WHOLE), cause }
    }

    /// Returns the displayed state of the GPU.
    pub fn shown_state(self) -> GpuState {
        self.state
    }

    /// Returns the ten-thousandths of its time that are lost: sums of these are exact.
    pub fn lost_parts(self) -> u16 {
        self.parts
    }

    /// Returns the number that encodes the cause.
    pub fn cause_code(self) -> u16 {
        self.cause
    }
}
