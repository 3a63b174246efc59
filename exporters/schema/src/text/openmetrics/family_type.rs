//! The rules of OpenMetrics metric families: the suffixes, labels and values that each type allows.

use super::{MetricPoint, OpenMetricsError};

/// A type of OpenMetrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OpenMetricsType {
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

/// Every type with its name and its sample suffixes.
const TYPES: [(OpenMetricsType, &str, &[&str]); 8] = [
    (OpenMetricsType::Unknown, "unknown", &[""]),
    (OpenMetricsType::Counter, "counter", &["_total", "_created"]),
    (OpenMetricsType::Gauge, "gauge", &[""]),
    (OpenMetricsType::Histogram, "histogram", &["_bucket", "_count", "_sum", "_created"]),
    (OpenMetricsType::GaugeHistogram, "gaugehistogram", &["_bucket", "_gcount", "_gsum"]),
    (OpenMetricsType::StateSet, "stateset", &[""]),
    (OpenMetricsType::Info, "info", &["_info"]),
    (OpenMetricsType::Summary, "summary", &["", "_count", "_sum", "_created"]),
];

impl OpenMetricsType {
    /// The type of this name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        TYPES.iter().find(|(_, other, _)| *other == name).map(|(kind, ..)| *kind)
    }

    /// The suffixes of its samples.
    pub(super) fn sample_suffixes(self) -> &'static [&'static str] {
        TYPES.iter().find(|(kind, ..)| *kind == self).map_or(&[], |(.., suffixes)| suffixes)
    }

    /// The label that distinguishes the samples of one metric, if this type has one.
    pub(super) fn reserved_label<'a>(self, family: &'a str, suffix: &str) -> Option<&'a str> {
        match self {
            Self::Histogram | Self::GaugeHistogram if suffix == "_bucket" => Some("le"),
            Self::Summary if suffix.is_empty() => Some("quantile"),
            Self::StateSet => Some(family),
            _ => None,
        }
    }

    /// Whether a sample with this suffix may have an exemplar.
    pub(super) fn can_have_exemplar(self, suffix: &str) -> bool {
        match self {
            Self::Counter => suffix == "_total",
            Self::Histogram | Self::GaugeHistogram => suffix == "_bucket",
            _ => false,
        }
    }
}

/// Checks that the type allows the value and the labels of a sample; returns the bound of a bucket.
pub(super) fn check_sample(
    kind: OpenMetricsType,
    family: &str,
    suffix: &str,
    point: &MetricPoint<'_, '_>,
) -> Result<Option<f64>, OpenMetricsError> {
    let name = || point.name.to_owned();
    let digits = || point.digits.to_owned();
    // The sum of a gauge histogram may be below zero; with which buckets is checked at the end of the point.
    let may_be_negative = kind == OpenMetricsType::GaugeHistogram && suffix == "_gsum";
    let is_cumulative = match kind {
        OpenMetricsType::Counter | OpenMetricsType::Histogram | OpenMetricsType::GaugeHistogram => {
            true
        }
        OpenMetricsType::Summary => !suffix.is_empty(),
        _ => false,
    };
    if is_cumulative && (point.value.is_nan() || point.value < 0.0 && !may_be_negative) {
        return Err(OpenMetricsError::Counter(name(), digits()));
    }
    if kind == OpenMetricsType::Summary && point.value < 0.0 {
        return Err(OpenMetricsError::NegativeQuantile(name(), digits()));
    }
    if kind == OpenMetricsType::Info && point.value.to_bits() != 1.0_f64.to_bits() {
        return Err(OpenMetricsError::Info(name(), digits()));
    }
    if kind == OpenMetricsType::StateSet
        && point.value != 0.0
        && point.value.to_bits() != 1.0_f64.to_bits()
    {
        return Err(OpenMetricsError::State(name(), digits()));
    }
    let Some(reserved) = kind.reserved_label(family, suffix) else { return Ok(None) };
    let label = point.labels.iter().find(|label| label.name == reserved);
    let label = label.ok_or_else(|| OpenMetricsError::NoLabel(name(), reserved.to_owned()))?;
    match kind {
        OpenMetricsType::Summary => {
            let quantile =
                super::number::parse(label.raw).filter(|quantile| (0.0..=1.0).contains(quantile));
            let invalid = || OpenMetricsError::Quantile(name(), label.raw.to_owned());
            quantile.ok_or_else(invalid).map(|_| None)
        }
        OpenMetricsType::StateSet => Ok(None),
        _ => {
            let bound = super::number::parse(label.raw).filter(|bound| !bound.is_nan());
            bound.ok_or_else(|| OpenMetricsError::Number(label.raw.to_owned())).map(Some)
        }
    }
}
