//! The preamble of a recording: what was known when it began, for those who judge it later.

use std::sync::Arc;

use crate::UnixMs;

/// The version of the content.
pub const PREAMBLE_VERSION: u32 = 1;

/// What was known at an instant, as JSON of whoever wrote it. It is passed on as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingPreamble {
    /// The version of the content; another one than ours is not read.
    pub version: u32,
    /// When who knows it began to look, if it knew nothing before; none if it went on from an earlier state.
    pub since: Option<UnixMs>,
    /// Findings, open and remembered, and acknowledgements.
    pub findings: Arc<str>,
    /// What is usual for everything; empty if that is not known.
    pub usual: Arc<str>,
    /// The points of history that were kept, packed; empty where they are not said again.
    pub past: Arc<[u8]>,
}

impl RecordingPreamble {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.findings.len() + self.usual.len() + self.past.len()
    }

    /// Whether nothing was known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same without the points of history.
    #[must_use]
    pub fn without_past(&self) -> Self {
        Self { past: Arc::default(), ..self.clone() }
    }

    /// As much of it as fits into so many bytes: all, all but the points of history, the findings alone, or nothing.
    pub fn fit_within(&self, bytes: usize) -> Option<Self> {
        let findings = || Self { usual: Arc::default(), ..self.without_past() };
        let parts = [self.clone(), self.without_past(), findings()];
        parts.into_iter().find(|part| part.len() <= bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preamble_keeps_the_findings_longest() {
        let past: Arc<[u8]> = [1, 2].into();
        let all = RecordingPreamble {
            version: 1,
            findings: "12345".into(),
            usual: "123".into(),
            past,
            since: None,
        };
        assert_eq!(all.fit_within(10), Some(all.clone()));
        assert_eq!(all.fit_within(9), Some(all.without_past()));
        let all = all.without_past();
        assert_eq!(all.fit_within(8), Some(all.clone()));
        let findings = RecordingPreamble { usual: Arc::default(), ..all.clone() };
        assert_eq!((all.fit_within(7), all.fit_within(4)), (Some(findings), None));
    }
}
