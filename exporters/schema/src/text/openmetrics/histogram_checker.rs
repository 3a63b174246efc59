//! The rules that the samples of one histogram must follow together: order of buckets, count, sum.

use super::{MetricPoint, OpenMetricsError, family_type::OpenMetricsType};

/// The bound of the last bucket, which has one spelling.
const LAST_BOUND: &str = "+Inf";

/// What the samples of the current point of a histogram have stated so far.
#[derive(Debug, Default)]
pub(super) struct HistogramChecker {
    kind: OpenMetricsType,
    /// Whether a point is under way.
    begun: bool,
    timestamp: Option<f64>,
    /// The previous bucket: its bound and its count.
    last: Option<(f64, f64)>,
    /// Whether the bound of a bucket is below zero.
    has_negative_bounds: bool,
    count: Option<f64>,
    sum: Option<f64>,
}

impl HistogramChecker {
    /// Checks a sample of a histogram, bucket or not. Another metric or another time begins another point. The time of
    /// creation belongs to the metric, and to no point.
    pub(super) fn check_sample(
        &mut self,
        kind: OpenMetricsType,
        family: &str,
        (suffix, bound): (&str, Option<f64>),
        point: &MetricPoint<'_, '_>,
        new_metric: bool,
    ) -> Result<(), OpenMetricsError> {
        if suffix == "_created" {
            return if new_metric { self.end_point(family) } else { Ok(()) };
        }
        if new_metric || self.timestamp != point.timestamp {
            self.end_point(family)?;
        }
        (self.kind, self.begun, self.timestamp) = (kind, true, point.timestamp);
        match suffix {
            "_bucket" => self.check_bucket(family, bound, point)?,
            "_count" | "_gcount" => self.count = Some(point.value),
            "_sum" | "_gsum" => self.sum = Some(point.value),
            _ => {}
        }
        Ok(())
    }

    fn check_bucket(
        &mut self,
        family: &str,
        bound: Option<f64>,
        point: &MetricPoint<'_, '_>,
    ) -> Result<(), OpenMetricsError> {
        let Some(bound) = bound else { return Ok(()) };
        if self.last.is_some_and(|(last, count)| bound <= last || point.value < count) {
            return Err(OpenMetricsError::Buckets(family.to_owned()));
        }
        let raw_bound = point.labels.iter().find(|label| label.name == "le");
        if bound == f64::INFINITY && raw_bound.is_none_or(|label| label.raw != LAST_BOUND) {
            return Err(OpenMetricsError::Infinity(family.to_owned()));
        }
        self.has_negative_bounds |= bound < 0.0;
        self.last = Some((bound, point.value));
        Ok(())
    }

    /// Checks the samples of a point together, at its end.
    pub(super) fn end_point(&mut self, family: &str) -> Result<(), OpenMetricsError> {
        let point = std::mem::take(self);
        if !point.begun {
            return Ok(());
        }
        let family = || family.to_owned();
        let Some((_, in_buckets)) = point.last.filter(|(bound, _)| *bound == f64::INFINITY) else {
            return Err(OpenMetricsError::Infinity(family()));
        };
        if point.count.is_some_and(|count| count.to_bits() != in_buckets.to_bits()) {
            return Err(OpenMetricsError::Count(family()));
        }
        if point.count.is_some() != point.sum.is_some() {
            return Err(OpenMetricsError::CountWithoutSum(family()));
        }
        let is_gauge = point.kind == OpenMetricsType::GaugeHistogram;
        match point.sum {
            Some(_) if point.has_negative_bounds && !is_gauge => {
                Err(OpenMetricsError::SumOfNegatives(family()))
            }
            Some(sum) if sum < 0.0 && !point.has_negative_bounds => {
                Err(OpenMetricsError::NegativeSum(family()))
            }
            _ => Ok(()),
        }
    }
}
