//! The form in which the pages of a target are asked for: frames first, text first, OpenMetrics first, or text and
//! nothing else.

use std::time::Duration;

use gaunt_schema::UnixMs;

/// How long a target is asked for text after its first frame that was not taken: long enough that a broken one costs
/// little, short enough that one that was upgraded meanwhile is noticed.
const WARY: Duration = Duration::from_mins(5);

/// The longest time, after doubling with each further one.
const WARIEST: Duration = Duration::from_hours(1);

/// What a target is asked for. Its answer is read as what it says it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RequestedFormat {
    /// A frame, which only programs of this house speak; for all others as the next.
    FrameFirst,
    /// Text, for a page of text that repeats the last one is read many times faster; OpenMetrics where there is no text.
    #[default]
    TextFirst,
    /// OpenMetrics, and text where there is none.
    OpenMetricsFirst,
    /// Text: what the target calls OpenMetrics is none.
    Text,
}

impl RequestedFormat {
    /// The form in which a group's targets are asked first.
    pub(super) const fn initial_format(open_metrics: bool, frames: bool) -> Self {
        match (open_metrics, frames) {
            (true, _) => Self::OpenMetricsFirst,
            (false, true) => Self::FrameFirst,
            (false, false) => Self::TextFirst,
        }
    }

    /// The media types that are taken, as a request says it.
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

/// How far the frames of a target are believed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameSupport {
    faults: u32,
    /// Until when it is asked for text.
    until: Option<UnixMs>,
}

impl FrameSupport {
    /// A frame of it was not taken: for how long it is asked for text.
    pub(super) fn record_fault(&mut self, now: UnixMs) -> Duration {
        let doubled = WARY * 2_u32.saturating_pow(self.faults.min(8));
        self.faults = self.faults.saturating_add(1);
        let wary = doubled.min(WARIEST);
        self.until = Some(now + wary);
        wary
    }

    /// Whether it is asked for frames again; faults that are long over are forgotten.
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
    fn who_breaks_frames_again_and_again_is_asked_for_text_longer_and_longer() {
        let (mut trust, mut now) = (FrameSupport::default(), UnixMs(0));
        assert!(trust.is_frame_allowed(now));
        let mut minutes = Vec::new();
        for _ in 0..7 {
            let wary = trust.record_fault(now);
            minutes.push(wary.as_secs() / 60);
            assert!(!trust.is_frame_allowed(now) && !trust.is_frame_allowed(now + wary / 2));
            now = now + wary;
            assert!(trust.is_frame_allowed(now));
        }
        assert_eq!(minutes, [5, 10, 20, 40, 60, 60, 60]);
        assert!(trust.is_frame_allowed(now + WARIEST * 2));
        assert_eq!(trust.record_fault(now), WARY, "what is long over is forgotten");
    }
}
