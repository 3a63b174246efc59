//! Compact values: what every GPU and port keeps once, in four bytes each.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroU32,
};

use gaunt_schema::SanitizedText;

/// A value that may be unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompactValue(f32);

impl Default for CompactValue {
    /// Unknown.
    fn default() -> Self {
        Self(f32::NAN)
    }
}

impl From<Option<f64>> for CompactValue {
    fn from(value: Option<f64>) -> Self {
        value.map_or_else(Self::default, |value| Self(value as f32))
    }
}

impl From<Option<f32>> for CompactValue {
    fn from(value: Option<f32>) -> Self {
        value.map_or_else(Self::default, Self)
    }
}

impl CompactValue {
    /// Returns the value, if it is known.
    pub(super) fn known(self) -> Option<f32> {
        (!self.0.is_nan()).then_some(self.0)
    }

    /// Returns the value, if it is known, and forgets it.
    pub(super) fn take(&mut self) -> Option<f32> {
        std::mem::take(self).known()
    }

    /// Returns the higher one of those that are known.
    pub(super) fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// Returns the lower one of those that are known.
    pub(super) fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }
}

/// The row of a device that may be unknown: one more than the row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CompactRow(Option<NonZeroU32>);

impl From<Option<u32>> for CompactRow {
    fn from(row: Option<u32>) -> Self {
        Self(row.and_then(|row| NonZeroU32::new(row.wrapping_add(1))))
    }
}

impl CompactRow {
    /// Returns the row, if it is known.
    pub(super) fn known(self) -> Option<u32> {
        self.0.map(|next| next.get() - 1)
    }
}

/// The name of a node as a number: rows of devices are reassigned, and two names have the same number once in four
/// billion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeTag(NonZeroU32);

impl NodeTag {
    /// Returns the number of a name.
    pub(super) fn of(name: &SanitizedText) -> Self {
        let mut hasher = DefaultHasher::new();
        name.as_str().hash(&mut hasher);
        Self(NonZeroU32::new(hasher.finish() as u32).unwrap_or(NonZeroU32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_known_or_none_also_the_first_and_the_last() {
        for row in [None, Some(0), Some(7), Some(u32::MAX - 1)] {
            assert_eq!(CompactRow::from(row).known(), row);
        }
    }

    #[test]
    fn unknown_values_are_none_and_the_lower_one_is_the_known_one() {
        let (unknown, known) = (CompactValue::default(), CompactValue::from(Some(2.5_f64)));
        assert_eq!((unknown.known(), known.known()), (None, Some(2.5)));
        assert_eq!(unknown.min(known).known(), Some(2.5));
        let mut taken = known;
        assert_eq!((taken.take(), taken.take()), (Some(2.5), None));
    }

    #[test]
    fn tags_differ_as_names_do_and_need_no_room_for_none() {
        let tags: std::collections::HashSet<u32> = (0..10_000)
            .map(|at| NodeTag::of(&SanitizedText::new(&format!("gpu{at:05}"))).0.get())
            .collect();
        assert_eq!(tags.len(), 10_000);
        assert_eq!(size_of::<Option<NodeTag>>(), 4);
        assert_eq!(size_of::<CompactRow>(), 4);
    }
}
