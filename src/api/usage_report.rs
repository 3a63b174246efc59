//! Usage: GPU time and energy by job, GPU model, state and cause.

use std::time::Duration;

use gaunt_schema::{GpuState, SanitizedText, UnixMs, time};
use serde::{Deserialize, Serialize};

use super::LossCause;

/// Default period.
pub const USUAL_SPAN: Duration = Duration::from_mins(15);

/// GPU time of a period that ends now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UsageReport {
    /// The cluster's name from the settings; empty if not set.
    pub cluster: SanitizedText,
    /// Engine time of this answer.
    pub at: UnixMs,
    /// Start of the counted time: later than requested if less is retained.
    pub from: UnixMs,
    /// Seconds observed; less than from `from` to `at` if there are gaps.
    pub watched_seconds: f64,
    /// Usage rows, most GPU time first.
    pub rows: Vec<UsageRow>,
}

/// Usage of one job on GPUs of one model in one state, for one cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UsageRow {
    /// The cluster, in an answer of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<SanitizedText>,
    /// The job; none for unallocated GPUs.
    pub job: Option<SanitizedText>,
    /// Its job name.
    pub name: Option<SanitizedText>,
    /// Its user.
    pub user: Option<SanitizedText>,
    /// Its account.
    pub account: Option<SanitizedText>,
    /// The GPU model.
    pub model: Option<SanitizedText>,
    /// The judged state of the GPUs.
    pub state: Option<GpuState>,
    /// Cause of the lost part of the time; none where nothing was lost.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub cause: Option<LossCause>,
    /// Total time of all these GPUs.
    pub gpu_seconds: f64,
    /// The lost part: lost GPUs summed over time.
    pub lost_gpu_seconds: f64,
    /// Energy of the GPUs; none if none of them reports it.
    pub joules: Option<f64>,
    /// Price of one GPU-hour, if one is set for the model or the cluster.
    #[serde(default)]
    pub price_per_gpu_hour: Option<f64>,
    /// Currency of the price.
    #[serde(default)]
    pub currency: Option<SanitizedText>,
}

/// Parses a period of whole seconds, such as `15m`, `90s` or `1h30m`.
pub fn parse_span(text: &str) -> Option<Duration> {
    time::parse_duration(text).filter(|span| span.as_secs() > 0 && span.subsec_nanos() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_span_needs_a_unit() {
        assert_eq!(parse_span("15m"), Some(USUAL_SPAN));
        assert_eq!(parse_span("90s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_span("1h30m"), Some(Duration::from_mins(90)));
        for wrong in ["", "15", "m", "0s", "-1m", "1w", "99999999999999999d", "1.5s"] {
            assert_eq!(parse_span(wrong), None, "{wrong:?}");
        }
    }
}
