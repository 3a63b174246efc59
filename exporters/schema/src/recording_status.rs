//! The status of the recording of deliveries, as its writer reports it.

use serde::{Deserialize, Serialize};

use crate::{SanitizedText, UnixMs};

/// The status of a recording. All counts are since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RecordingStatus {
    /// The folder that it is written to.
    pub folder: SanitizedText,
    /// Deliveries that were written.
    pub written: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Deliveries lost because the disk was slower than the senders.
    pub dropped_behind: u64,
    /// Deliveries lost because writing was stopped.
    pub dropped_stopped: u64,
    /// Why writing is stopped now; none while it works.
    pub stopped: Option<RecordingStop>,
    /// The current problem, as a sentence with the next step.
    pub trouble: Option<SanitizedText>,
}

/// Why a recording cannot be written now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RecordingStop {
    /// The reason.
    pub reason: RecordingStopReason,
    /// Since when, by the engine's clock.
    pub since: UnixMs,
}

/// The reason that a recording cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RecordingStopReason {
    /// The disk is full, or the quota is used up.
    NoSpace,
    /// A file would exceed the file size limit.
    TooLarge,
    /// The folder is not writable, or not any more.
    NoPermission,
    /// Another error; the sentence contains the system's message.
    Error,
}

impl RecordingStopReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::NoSpace, Self::TooLarge, Self::NoPermission, Self::Error];

    /// The name in labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSpace => "no_space",
            Self::TooLarge => "too_large",
            Self::NoPermission => "no_permission",
            Self::Error => "error",
        }
    }
}
