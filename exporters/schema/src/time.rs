//! Instants and spans as plain numbers: this crate has no clock, its callers bring the time.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// An instant in milliseconds since the Unix epoch. Whose clock it was is said where it is stored.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMs(pub i64);

impl UnixMs {
    /// The instant `seconds` after the epoch, to the millisecond.
    pub fn from_seconds(seconds: f64) -> Self {
        Self((seconds * 1e3).round() as i64)
    }

    /// Seconds since the epoch.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// The time from `earlier` to this instant; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }
}

impl Add<Duration> for UnixMs {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0 + span.as_millis() as i64)
    }
}

impl Sub<Duration> for UnixMs {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0 - span.as_millis() as i64)
    }
}

/// A clock handed to those who must stamp what they bring: this crate only names its shape.
pub type Clock = std::sync::Arc<dyn Fn() -> UnixMs + Send + Sync>;
