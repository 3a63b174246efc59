//! Keeping: how the recording of what senders bring stands, in the words of whoever writes it.

use serde::{Deserialize, Serialize};

use crate::{SanitizedText, UnixMs};

/// How a recording stands. All counts are since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingStatus {
    /// The folder that it is written to.
    pub folder: SanitizedText,
    /// Deliveries that were written.
    pub written: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Deliveries that are missing because the disk was slower than the senders.
    pub dropped_behind: u64,
    /// Deliveries that are missing because nothing could be written.
    pub dropped_stopped: u64,
    /// Why nothing is written now; none while it is.
    pub stopped: Option<RecordingStop>,
    /// What is wrong now, as a sentence with the next step.
    pub trouble: Option<SanitizedText>,
}

/// Why a recording cannot be written now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingStop {
    /// What is in the way.
    pub reason: RecordingStopReason,
    /// Since when, by the owner's clock.
    pub since: UnixMs,
}

/// What can be in the way of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingStopReason {
    /// The disk is full, or the quota is used up.
    NoSpace,
    /// Files may not grow as large as they would have to.
    TooLarge,
    /// The folder may not be written, or not any more.
    NoPermission,
    /// Something else; the sentence says what the system said.
    Error,
}

impl RecordingStopReason {
    /// Every obstacle.
    pub const ALL: [Self; 4] = [Self::NoSpace, Self::TooLarge, Self::NoPermission, Self::Error];

    /// The word in labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSpace => "no_space",
            Self::TooLarge => "too_large",
            Self::NoPermission => "no_permission",
            Self::Error => "error",
        }
    }
}
