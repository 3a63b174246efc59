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
        if !is_same(found, part.as_bytes()) {
            return false;
        }
        rest = others;
    }
    rest.is_empty()
}

/// Whether two texts of one length are the same. Parts of a key are short: a call of the system's comparison for each would
/// take longer than it compares. Two ends that overlap cover what is between their lengths.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    fn ends<const LENGTH: usize>(one: &[u8], other: &[u8]) -> bool {
        one.first_chunk::<LENGTH>() == other.first_chunk::<LENGTH>()
            && one.last_chunk::<LENGTH>() == other.last_chunk::<LENGTH>()
    }
    match one.len() {
        0..4 => one.iter().zip(other).all(|(one, other)| one == other),
        4..8 => ends::<4>(one, other),
        8..16 => ends::<8>(one, other),
        16..=32 => ends::<16>(one, other),
        _ => one == other,
    }
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

    #[test]
    fn texts_of_every_length_differ_in_any_byte() {
        for length in 0..70 {
            let text: Vec<u8> = (0..length).collect();
            assert!(is_same(&text, &text.clone()));
            for at in 0..text.len() {
                let mut other = text.clone();
                other[at] ^= 0x80;
                assert!(!is_same(&text, &other), "{at} of {length}");
            }
        }
    }
}
