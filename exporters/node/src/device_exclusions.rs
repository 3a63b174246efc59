//! Device exclusions: name patterns of devices that are not read.

use gaunt_schema::GlobPattern;

/// Patterns of names.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceExclusions(Vec<GlobPattern>);

impl DeviceExclusions {
    pub(crate) fn new(patterns: &[String]) -> Self {
        Self(patterns.iter().map(|pattern| GlobPattern::new(pattern)).collect())
    }

    /// Whether a device of this name is excluded.
    pub(crate) fn is_excluded(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches_text(name))
    }
}
