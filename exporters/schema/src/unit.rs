//! The base units of the catalogue and how a counter counts.

use serde::{Deserialize, Serialize};

/// A base unit. Prefixes belong to the screen, never to the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A share between 0 and 1.
    Ratio,
    /// Bytes.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
    /// Watts.
    Watts,
    /// Joules.
    Joules,
    /// Degrees Celsius.
    Celsius,
    /// Hertz.
    Hertz,
    /// Seconds, of a span or since the epoch.
    Seconds,
    /// A plain count, a code, or 0 and 1.
    Count,
}

impl Unit {
    /// The ending that a metric name of this unit carries, before `_total`; empty for counts.
    pub const fn name_suffix(self) -> &'static str {
        match self {
            Self::Ratio => "_ratio",
            Self::Bytes => "_bytes",
            Self::BytesPerSecond => "_bytes_per_second",
            Self::Watts => "_watts",
            Self::Joules => "_joules",
            Self::Celsius => "_celsius",
            Self::Hertz => "_hertz",
            Self::Seconds => "_seconds",
            Self::Count => "",
        }
    }
}

/// How many values a counter can take, and what it does at the end of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterWidth {
    /// 64 bits, or a floating-point sum: it never ends in practice.
    Bits64,
    /// 32 bits, and then from zero again.
    Wrapping32,
    /// This many bits, and then it stands still: the maximum says nothing.
    Saturating(u8),
}

impl CounterWidth {
    /// The largest value that the counter can show, where there is one that matters.
    pub fn max_value(self) -> Option<f64> {
        match self {
            Self::Bits64 => None,
            Self::Wrapping32 => Some(f64::from(u32::MAX)),
            Self::Saturating(bits) => Some(((1_u64 << bits) - 1) as f64),
        }
    }
}

/// What a series of values means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricKind {
    /// It goes up and down.
    Gauge,
    /// It only grows, and says how it ends.
    Counter(CounterWidth),
    /// Always 1; its labels are the news.
    Info,
}
