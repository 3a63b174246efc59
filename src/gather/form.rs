//! The form in which the pages of a target are asked for: text first, OpenMetrics first, or text and nothing else.

/// What a target is asked for. Its answer is read as what it says it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// Text, for a page of text that repeats the last one is read many times faster; OpenMetrics where there is no text.
    #[default]
    TextFirst,
    /// OpenMetrics, and text where there is none.
    OpenMetricsFirst,
    /// Text: what the target calls OpenMetrics is none.
    Text,
}

impl Form {
    /// The form in which a group's targets are asked first.
    pub(super) const fn first(open_metrics: bool) -> Self {
        if open_metrics { Self::OpenMetricsFirst } else { Self::TextFirst }
    }

    /// The media types that are taken, as a request says it.
    pub(super) const fn accept(self) -> &'static str {
        match self {
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
