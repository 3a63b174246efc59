//! The base units of the catalogue, and the types and widths of its metrics.

use serde::{Deserialize, Serialize};

/// A base unit. Prefixes are for display, never for the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A ratio between 0 and 1.
    Ratio,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Watts.
    Watts,
    /// Joules.
    Joules,
    /// Degrees Celsius.
    Celsius,
    /// Hertz.
    Hertz,
    /// Seconds, of a duration or since the epoch.
    Seconds,
    /// A plain count, a code, or 0 and 1.
    Count,
}

impl Unit {
    /// The name for display.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ratio => "ratio",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes/s",
            Self::Watts => "watts",
            Self::Joules => "joules",
            Self::Celsius => "celsius",
            Self::Hertz => "hertz",
            Self::Seconds => "seconds",
            Self::Count => "count",
        }
    }

    /// The suffix of a metric name with this unit, before `_total`; empty for counts.
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

/// The width of a counter, and what it does at its maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterWidth {
    /// 64 bits, or a floating-point sum: it never wraps in practice.
    Bits64,
    /// 32 bits; it wraps to zero.
    Wrapping32,
    /// This many bits; it saturates, and the maximum carries no information.
    Saturating(u8),
}

impl CounterWidth {
    /// The largest value of the counter, where there is one that matters.
    pub fn max_value(self) -> Option<f64> {
        match self {
            Self::Bits64 => None,
            Self::Wrapping32 => Some(f64::from(u32::MAX)),
            Self::Saturating(bits) => Some(((1_u64 << bits) - 1) as f64),
        }
    }
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricKind {
    /// It goes up and down.
    Gauge,
    /// It only grows, up to its width.
    Counter(CounterWidth),
    /// Always 1; the labels carry the information.
    Info,
}
