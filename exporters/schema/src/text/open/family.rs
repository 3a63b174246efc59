//! What holds for a metric family of OpenMetrics: which endings, labels and values its type allows.

use super::{Fault, Point};

/// A type of OpenMetrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Type {
    #[default]
    Unknown,
    Counter,
    Gauge,
    Histogram,
    GaugeHistogram,
    StateSet,
    Info,
    Summary,
}

/// Every type with its word and the endings of its samples.
const TYPES: [(Type, &str, &[&str]); 8] = [
    (Type::Unknown, "unknown", &[""]),
    (Type::Counter, "counter", &["_total", "_created"]),
    (Type::Gauge, "gauge", &[""]),
    (Type::Histogram, "histogram", &["_bucket", "_count", "_sum", "_created"]),
    (Type::GaugeHistogram, "gaugehistogram", &["_bucket", "_gcount", "_gsum"]),
    (Type::StateSet, "stateset", &[""]),
    (Type::Info, "info", &["_info"]),
    (Type::Summary, "summary", &["", "_count", "_sum", "_created"]),
];

impl Type {
    /// The type of this word.
    pub(super) fn parse(word: &str) -> Option<Self> {
        TYPES.iter().find(|(_, known, _)| *known == word).map(|(kind, ..)| *kind)
    }

    /// The endings of its samples.
    pub(super) fn endings(self) -> &'static [&'static str] {
        TYPES.iter().find(|(kind, ..)| *kind == self).map_or(&[], |(.., endings)| endings)
    }

    /// The label that tells the samples of one metric apart, if this type has one.
    pub(super) fn own_label<'a>(self, family: &'a str, ending: &str) -> Option<&'a str> {
        match self {
            Self::Histogram | Self::GaugeHistogram if ending == "_bucket" => Some("le"),
            Self::Summary if ending.is_empty() => Some("quantile"),
            Self::StateSet => Some(family),
            _ => None,
        }
    }

    /// Whether a sample of this ending may have an exemplar.
    pub(super) fn exemplifies(self, ending: &str) -> bool {
        match self {
            Self::Counter => ending == "_total",
            Self::Histogram | Self::GaugeHistogram => ending == "_bucket",
            _ => false,
        }
    }
}

/// The bucket before, of the metric whose buckets are read.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    /// Its bound and its count.
    last: Option<(f64, f64)>,
}

impl Buckets {
    /// Takes a sample of a histogram, bucket or not.
    pub(super) fn take(
        &mut self,
        family: &str,
        bound: Option<f64>,
        value: f64,
        new_metric: bool,
    ) -> Result<(), Fault> {
        if new_metric {
            self.end(family)?;
        }
        let Some(bound) = bound else { return Ok(()) };
        if self.last.is_some_and(|(last, count)| bound <= last || value < count) {
            return Err(Fault::Buckets(family.to_owned()));
        }
        self.last = Some((bound, value));
        Ok(())
    }

    /// The buckets of a metric are over.
    pub(super) fn end(&mut self, family: &str) -> Result<(), Fault> {
        match self.last.take() {
            Some((bound, _)) if bound != f64::INFINITY => Err(Fault::Infinity(family.to_owned())),
            _ => Ok(()),
        }
    }
}

/// Whether the value and the labels of a sample are what its type allows; returns the bound of a bucket.
pub(super) fn check(
    kind: Type,
    family: &str,
    ending: &str,
    point: &Point<'_, '_>,
) -> Result<Option<f64>, Fault> {
    let name = || point.name.to_owned();
    let digits = || point.digits.to_owned();
    let counts = matches!(
        (kind, ending),
        (Type::Counter, _)
            | (
                Type::Histogram | Type::GaugeHistogram,
                "_bucket" | "_count" | "_gcount" | "_created"
            )
            | (Type::Summary, "_count" | "_created")
    );
    if counts && (point.value.is_nan() || point.value < 0.0) {
        return Err(Fault::Counter(name(), digits()));
    }
    if kind == Type::Info && point.value.to_bits() != 1.0_f64.to_bits() {
        return Err(Fault::Info(name(), digits()));
    }
    if kind == Type::StateSet && point.value != 0.0 && point.value.to_bits() != 1.0_f64.to_bits() {
        return Err(Fault::State(name(), digits()));
    }
    let Some(own) = kind.own_label(family, ending) else { return Ok(None) };
    let label = point.labels.iter().find(|label| label.name == own);
    let label = label.ok_or_else(|| Fault::NoLabel(name(), own.to_owned()))?;
    match kind {
        Type::Summary => {
            let quantile = super::number::parse(label.raw).filter(|q| (0.0..=1.0).contains(q));
            let bad = || Fault::Quantile(name(), label.raw.to_owned());
            quantile.ok_or_else(bad).map(|_| None)
        }
        Type::StateSet => Ok(None),
        _ => {
            let bound = super::number::parse(label.raw).filter(|bound| !bound.is_nan());
            bound.ok_or_else(|| Fault::Number(label.raw.to_owned())).map(Some)
        }
    }
}
