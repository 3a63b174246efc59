//! The preamble of a recording: the state at its beginning, which a later replay starts from.

use std::sync::Arc;

use crate::UnixMs;

/// The version of the content.
pub const PREAMBLE_VERSION: u32 = 1;

/// The state at an instant, as JSON of its writer. It is passed on unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingPreamble {
    /// The version of the content; other versions than ours are ignored.
    pub version: u32,
    /// When the engine started to observe, if it started empty; none if it continued from an earlier state.
    pub since: Option<UnixMs>,
    /// Findings, open and closed, and acknowledgements.
    pub findings: Arc<str>,
    /// The saved baselines; empty if there are none.
    pub usual: Arc<str>,
    /// The history points that were kept, packed; empty where they are not repeated.
    pub past: Arc<[u8]>,
}

impl RecordingPreamble {
    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.findings.len() + self.usual.len() + self.past.len()
    }

    /// Whether there is no state.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same without the history points.
    #[must_use]
    pub fn without_past(&self) -> Self {
        Self { past: Arc::default(), ..self.clone() }
    }

    /// As much of it as fits into this many bytes: all, all but the history points, the findings alone, or nothing.
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
    fn preamble_drops_findings_last() {
        let past: Arc<[u8]> = [1, 2].into();
        let preamble = RecordingPreamble {
            version: 1,
            findings: "12345".into(),
            usual: "123".into(),
            past,
            since: None,
        };
        assert_eq!(preamble.fit_within(10), Some(preamble.clone()));
        assert_eq!(preamble.fit_within(9), Some(preamble.without_past()));
        let preamble = preamble.without_past();
        assert_eq!(preamble.fit_within(8), Some(preamble.clone()));
        let findings = RecordingPreamble { usual: Arc::default(), ..preamble.clone() };
        assert_eq!((preamble.fit_within(7), preamble.fit_within(4)), (Some(findings), None));
    }
}
