//! Usage: where GPU time and energy went, by job, board, state and cause.

use std::time::Duration;

use gaunt_schema::{GpuState, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::LossCause;

/// The span that is told unless another is asked for.
pub const USUAL_SPAN: Duration = Duration::from_mins(15);

/// Where GPU time went within a span that ends now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageReport {
    /// The cluster's name as the operator gave it; empty if he gave none.
    pub cluster: SanitizedText,
    /// The owner's clock when this was true.
    pub at: UnixMs,
    /// When the first time that is counted begins: later than what was asked for if less is known.
    pub from: UnixMs,
    /// Seconds that were watched; less than from `from` to `at` if there are gaps.
    pub watched_seconds: f64,
    /// What was used, most GPU time first.
    pub rows: Vec<UsageRow>,
}

/// What one job did with boards of one model in one state, for one cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// The job; none for GPUs that no job held.
    pub job: Option<SanitizedText>,
    /// What its user calls it.
    pub name: Option<SanitizedText>,
    /// Who submitted it.
    pub user: Option<SanitizedText>,
    /// Who pays for it.
    pub account: Option<SanitizedText>,
    /// The model of the boards.
    pub model: Option<SanitizedText>,
    /// The state that the GPUs were judged to be in.
    pub state: Option<GpuState>,
    /// What the lost part of the time is attributed to; none where nothing was lost.
    #[serde(default)]
    pub cause: Option<LossCause>,
    /// Time of all these GPUs together.
    pub gpu_seconds: f64,
    /// How much of it was lost: lost GPUs, added up over time.
    pub lost_gpu_seconds: f64,
    /// Energy that their boards took; none if none of them told.
    pub joules: Option<f64>,
}

/// Reads a span such as `15m`, `90s` or `2h`.
pub fn parse_span(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok().filter(|number| *number > 0)?;
    let seconds = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    Some(Duration::from_secs(number.checked_mul(seconds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_a_unit() {
        assert_eq!(parse_span("15m"), Some(USUAL_SPAN));
        assert_eq!(parse_span("90s"), Some(Duration::from_secs(90)));
        for wrong in ["", "15", "m", "0s", "-1m", "1w", "99999999999999999d", "1.5h"] {
            assert_eq!(parse_span(wrong), None, "{wrong:?}");
        }
    }
}
