//! Series key: name and labels as they are pushed, by which the next step finds a series.

use std::hash::BuildHasher as _;

/// Ends each part of a key: a byte that no UTF-8 text has.
const END: u8 = 0xff;

/// Hashes keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeriesHasher(foldhash::fast::RandomState);

impl SeriesHasher {
    pub(crate) fn hash_key(&self, key: &[u8]) -> u64 {
        self.0.hash_one(key)
    }
}

/// Appends the key of a series.
pub(crate) fn write_key(name: &str, labels: &[(&str, &str)], out: &mut Vec<u8>) {
    let parts = labels.iter().flat_map(|(name, value)| [*name, *value]);
    for part in std::iter::once(name).chain(parts) {
        out.extend_from_slice(part.as_bytes());
        out.push(END);
    }
}

/// Whether this is the key of a series with this name and these labels.
pub(crate) fn key_matches(key: &[u8], name: &str, labels: &[(&str, &str)]) -> bool {
    let parts = labels.iter().flat_map(|(name, value)| [*name, *value]);
    let mut rest = key;
    for part in std::iter::once(name).chain(parts) {
        let Some((found, others)) = rest.split_at_checked(part.len()) else { return false };
        let Some((&END, others)) = others.split_first() else { return false };
        if found != part.as_bytes() {
            return false;
        }
        rest = others;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_matches_its_own_series_only() {
        let cases: [(&str, &[(&str, &str)]); 6] = [
            ("a", &[]),
            ("a", &[("b", "")]),
            ("a", &[("b", "c")]),
            ("a", &[("bc", "")]),
            ("a", &[("b", "c"), ("d", "e")]),
            ("ab", &[]),
        ];
        for (index, (name, labels)) in cases.iter().enumerate() {
            let mut key = Vec::new();
            write_key(name, labels, &mut key);
            for (other, (name, labels)) in cases.iter().enumerate() {
                assert_eq!(key_matches(&key, name, labels), index == other, "{index} {other}");
            }
        }
        assert!(!key_matches(&[], "a", &[]), "a free place has no key");
    }
}
