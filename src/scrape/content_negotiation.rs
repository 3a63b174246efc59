//! Content negotiation: the formats that a target is asked for: frames first, text first, OpenMetrics first, or text
//! only.

use std::time::Duration;

use gaunt_schema::UnixMs;

/// How long a target is asked for text after its first invalid frame: long enough that a broken target costs little,
/// short enough that an upgraded one is noticed.
const WARY: Duration = Duration::from_mins(5);

/// The longest time, after doubling with each further one.
const WARIEST: Duration = Duration::from_hours(1);

/// The requested formats. The response is parsed by its own content type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RequestedFormat {
    /// A frame, which only gaunt's own exporters support; other targets answer as to the next one.
    FrameFirst,
    /// Text, because a text page that repeats the last one is parsed many times faster; OpenMetrics where there is no
    /// text.
    #[default]
    TextFirst,
    /// OpenMetrics, and text where it is not supported.
    OpenMetricsFirst,
    /// Text only: the target's OpenMetrics is invalid.
    Text,
}

impl RequestedFormat {
    /// The format that a group's targets are asked for first.
    pub(super) const fn initial_format(open_metrics: bool, frames: bool) -> Self {
        match (open_metrics, frames) {
            (true, _) => Self::OpenMetricsFirst,
            (false, true) => Self::FrameFirst,
            (false, false) => Self::TextFirst,
        }
    }

    /// The media types for the `Accept` header.
    pub(super) const fn accept_header(self) -> &'static str {
        match self {
            Self::FrameFirst => {
                "application/vnd.gaunt.frame;version=1, text/plain;version=0.0.4;q=0.8, \
                 application/openmetrics-text;version=1.0.0;q=0.5, */*;q=0.1"
            }
            Self::TextFirst => {
                "text/plain;version=0.0.4, application/openmetrics-text;version=1.0.0;q=0.5, */*;q=0.1"
            }
            Self::OpenMetricsFirst => {
                "application/openmetrics-text;version=1.0.0, text/plain;version=0.0.4;q=0.5, */*;q=0.1"
            }
            Self::Text => "text/plain;version=0.0.4",
        }
    }
}

/// Whether a target is asked for frames, after invalid ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameSupport {
    faults: u32,
    /// The time until which it is asked for text.
    until: Option<UnixMs>,
}

impl FrameSupport {
    /// Records an invalid frame; returns for how long the target is asked for text.
    pub(super) fn record_fault(&mut self, now: UnixMs) -> Duration {
        let doubled = WARY * 2_u32.saturating_pow(self.faults.min(8));
        self.faults = self.faults.saturating_add(1);
        let text_period = doubled.min(WARIEST);
        self.until = Some(now + text_period);
        text_period
    }

    /// Whether it is asked for frames again; old faults are forgotten.
    pub(super) fn is_frame_allowed(&mut self, now: UnixMs) -> bool {
        match self.until {
            Some(until) if now < until => false,
            Some(until) if now.duration_since(until) > WARIEST => {
                *self = Self::default();
                true
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_invalid_frames_double_the_time_in_text() {
        let (mut support, mut now) = (FrameSupport::default(), UnixMs(0));
        assert!(support.is_frame_allowed(now));
        let mut minutes = Vec::new();
        for _ in 0..7 {
            let text_period = support.record_fault(now);
            minutes.push(text_period.as_secs() / 60);
            assert!(
                !support.is_frame_allowed(now) && !support.is_frame_allowed(now + text_period / 2)
            );
            now = now + text_period;
            assert!(support.is_frame_allowed(now));
        }
        assert_eq!(minutes, [5, 10, 20, 40, 60, 60, 60]);
        assert!(support.is_frame_allowed(now + WARIEST * 2));
        assert_eq!(support.record_fault(now), WARY, "what is long over is forgotten");
    }
}
