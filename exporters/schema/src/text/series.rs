//! Detects duplicate series on a page: exactly, and independent of the order of the labels.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::{PageLimits, SeriesLabel, labels};

/// A series on the page: its hash, and the range of its line in the body.
#[derive(Debug)]
struct SeenSeries {
    hash: u64,
    start: u32,
    end: u32,
}

/// The series of one page. A hash finds the candidate, a comparison with the page decides.
#[derive(Debug)]
pub(super) struct SeriesSet<'a> {
    seen: HashTable<SeenSeries>,
    /// Seeded per process, so that a sender cannot prepare colliding names.
    state: RandomState,
    /// The last name and its hash: samples of one metric are mostly adjacent.
    last: (&'a str, u64),
    /// The labels of the candidate during a comparison.
    other: Vec<SeriesLabel<'a>>,
}

impl<'a> SeriesSet<'a> {
    /// Capacity for about `expected` series.
    pub(super) fn with_capacity(expected: usize) -> Self {
        Self {
            seen: HashTable::with_capacity(expected),
            state: RandomState::default(),
            last: ("", 0),
            other: Vec::new(),
        }
    }

    /// Whether two of the labels have the same name.
    pub(super) fn has_duplicate_names(labels: &[SeriesLabel<'a>]) -> bool {
        let is_duplicate = |(index, label): (usize, &SeriesLabel<'a>)| {
            labels[..index].iter().any(|other| other.name == label.name)
        };
        labels.iter().enumerate().any(is_duplicate)
    }

    /// Inserts the series at `start..end` of `body`; false if it is a duplicate.
    pub(super) fn insert(
        &mut self,
        body: &'a [u8],
        (start, end): (usize, usize),
        name: &'a str,
        labels: &[SeriesLabel<'a>],
    ) -> bool {
        let hash = self.hash_series(name, labels);
        let other = &mut self.other;
        let entry = self.seen.entry(
            hash,
            |known| {
                known.hash == hash && {
                    let line = &body[known.start as usize..known.end as usize];
                    is_same_series(line, name, labels, other)
                }
            },
            |known| known.hash,
        );
        match entry {
            hashbrown::hash_table::Entry::Occupied(_) => false,
            hashbrown::hash_table::Entry::Vacant(entry) => {
                entry.insert(SeenSeries { hash, start: start as u32, end: end as u32 });
                true
            }
        }
    }

    /// Label hashes are added, not chained, so that their order does not matter. An empty label counts as none.
    fn hash_series(&mut self, name: &'a str, labels: &[SeriesLabel<'a>]) -> u64 {
        if self.last.0 != name {
            self.last = (name, self.state.hash_one(name));
        }
        let mut sum = self.last.1;
        for label in labels.iter().filter(|label| !label.raw.is_empty()) {
            let mut hasher = self.state.build_hasher();
            hasher.write(label.name.as_bytes());
            hasher.write(label.raw.as_bytes());
            sum = sum.wrapping_add(hasher.finish());
        }
        sum
    }
}

/// Whether the line, which was accepted before, has this name and these labels.
fn is_same_series<'a>(
    line: &'a [u8],
    name: &str,
    labels: &[SeriesLabel<'a>],
    other: &mut Vec<SeriesLabel<'a>>,
) -> bool {
    let Ok(text) = std::str::from_utf8(line) else { return false };
    let length = labels::name_length(line);
    if &text[..length] != name {
        return false;
    }
    other.clear();
    let brace = labels::skip_blanks(line, length);
    if line.get(brace) == Some(&b'{') {
        // The limits were checked when the line was first parsed.
        let unlimited = PageLimits { labels: usize::MAX, ..PageLimits::default() };
        if labels::parse(text, brace, &unlimited, other).is_err() {
            return false;
        }
    }
    let count =
        |labels: &[SeriesLabel<'_>]| labels.iter().filter(|label| !label.raw.is_empty()).count();
    count(labels) == count(other)
        && labels.iter().filter(|label| !label.raw.is_empty()).all(|label| other.contains(label))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_same_line(line: &str, other: &str) -> bool {
        let length = labels::name_length(other.as_bytes());
        let mut labels = Vec::new();
        if other[length..].starts_with('{') {
            labels::parse(other, length, &PageLimits::default(), &mut labels).unwrap();
        }
        is_same_series(line.as_bytes(), &other[..length], &labels, &mut Vec::new())
    }

    /// On a hash collision the page decides: this test compares without any hash.
    #[test]
    fn series_identity_is_decided_by_the_page() {
        assert!(is_same_line("a 1", "a"));
        assert!(is_same_line("a { } 1", "a{b=\"\"}"));
        assert!(is_same_line("a{b=\"1\", c = \"2\"} 1", "a{c=\"2\",b=\"1\"}"));
        assert!(!is_same_line("a 1", "ab"));
        assert!(!is_same_line("ab 1", "a"));
        assert!(!is_same_line("a{b=\"1\"} 1", "a"));
        assert!(!is_same_line("a 1", "a{b=\"1\"}"));
        assert!(!is_same_line("a{b=\"1\",c=\"2\"} 1", "a{b=\"2\",c=\"1\"}"));
        assert!(!is_same_line("a{b=\"1\",c=\"2\"} 1", "a{b=\"1\",c=\"2\",d=\"3\"}"));
    }

    proptest! {
        #[test]
        fn label_order_makes_no_difference(
            labels in prop::collection::btree_map("[a-z]{1,3}", "[a-z]{0,2}", 0..8)
                .prop_flat_map(|labels| {
                    let labels: Vec<_> = labels.into_iter().collect();
                    (Just(labels.clone()), Just(labels).prop_shuffle())
                })
        ) {
            let mut series = SeriesSet::with_capacity(0);
            let [first, second] = [&labels.0, &labels.1].map(|labels| {
                let label = |(name, raw): &'_ (String, String)| -> SeriesLabel<'static> {
                    SeriesLabel { name: name.clone().leak(), raw: raw.clone().leak(), escaped: false }
                };
                series.hash_series("a", &labels.iter().map(label).collect::<Vec<_>>())
            });
            prop_assert_eq!(first, second);
        }
    }
}
