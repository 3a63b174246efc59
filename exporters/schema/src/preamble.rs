//! The preamble of a recording: what was known when it began, for those who judge it later.

use std::sync::Arc;

/// The version of the content.
pub const PREAMBLE_VERSION: u32 = 1;

/// What was known at an instant, as JSON of whoever wrote it. It is passed on as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preamble {
    /// The version of the content; another one than ours is not read.
    pub version: u32,
    /// Findings, open and remembered, and acknowledgements.
    pub findings: Arc<str>,
    /// What is usual for everything; empty if that is not known.
    pub usual: Arc<str>,
}

impl Preamble {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.findings.len() + self.usual.len()
    }

    /// Whether nothing was known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As much of it as fits into so many bytes: all, the findings alone, or nothing.
    pub fn within(&self, bytes: usize) -> Option<Self> {
        let findings = || Self { usual: Arc::default(), ..self.clone() };
        [self.clone(), findings()].into_iter().find(|part| part.len() <= bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preamble_keeps_the_findings_longest() {
        let all = Preamble { version: 1, findings: "12345".into(), usual: "123".into() };
        assert_eq!(all.within(8), Some(all.clone()));
        let findings = Preamble { usual: Arc::default(), ..all.clone() };
        assert_eq!((all.within(7), all.within(4)), (Some(findings), None));
    }
}
