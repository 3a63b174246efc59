//! A reading: one value, or the reason why there is none. Absent is never zero.

use serde::{Deserialize, Serialize};

/// Why a value that could exist does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AbsenceReason {
    /// The device or its driver does not support this value.
    Unsupported,
    /// The value exists, and this process has no permission to read it.
    NoPermission,
    /// The last value is too old.
    Stale,
    /// The counter is saturated: it is at its maximum and counts no further.
    Saturated,
    /// The device is lost.
    Lost,
    /// Reading failed in another way; see the log.
    Error,
}

impl AbsenceReason {
    /// Every reason, in the order in which they are documented.
    pub const ALL: [Self; 6] = [
        Self::Unsupported,
        Self::NoPermission,
        Self::Stale,
        Self::Saturated,
        Self::Lost,
        Self::Error,
    ];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unsupported => "unsupported",
            Self::NoPermission => "no_permission",
            Self::Stale => "stale",
            Self::Saturated => "saturated",
            Self::Lost => "lost",
            Self::Error => "error",
        }
    }

    /// The reason for a name from the wire.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// One value, or why there is none. In JSON a number, or `{"absent":"reason"}`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Reading {
    /// A finite number in the catalogue's base unit.
    Value(f64),
    /// No number, and why.
    Absent {
        /// The reason.
        absent: AbsenceReason,
    },
}

impl Reading {
    /// A reading of a number; a number that is not finite becomes an error reading.
    #[inline]
    pub fn of(value: f64) -> Self {
        if value.is_finite() { Self::Value(value) } else { Self::new_absent(AbsenceReason::Error) }
    }

    /// A reading that is missing for `reason`.
    #[inline]
    pub const fn new_absent(reason: AbsenceReason) -> Self {
        Self::Absent { absent: reason }
    }

    /// The number, if there is one.
    #[inline]
    pub const fn value(self) -> Option<f64> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent { .. } => None,
        }
    }

    /// The reason, if there is no number.
    #[inline]
    pub const fn absence_reason(self) -> Option<AbsenceReason> {
        match self {
            Self::Value(_) => None,
            Self::Absent { absent } => Some(absent),
        }
    }
}

impl From<f64> for Reading {
    fn from(value: f64) -> Self {
        Self::of(value)
    }
}

impl From<AbsenceReason> for Reading {
    fn from(reason: AbsenceReason) -> Self {
        Self::new_absent(reason)
    }
}
