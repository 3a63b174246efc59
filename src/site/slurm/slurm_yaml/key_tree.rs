//! The keys of a YAML document with their lines; all values but mappings and sequences are dropped.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A node of the document.
#[derive(Debug)]
pub(super) enum KeyTree {
    /// A text, number or nothing.
    Scalar,
    /// A sequence.
    Sequence(Vec<KeyTree>),
    /// The keys of a mapping, each with its line (from 1) and value.
    Mapping(Vec<(String, usize, KeyTree)>),
}

impl KeyTree {
    /// Calls `visit` with each key of the mappings at a path of keys, and with its line. Sequences on the way are entered.
    pub(super) fn visit_mappings(&self, path: &[&str], visit: &mut impl FnMut(&str, usize)) {
        match self {
            Self::Scalar => {}
            Self::Sequence(entries) => {
                for entry in entries {
                    entry.visit_mappings(path, visit);
                }
            }
            Self::Mapping(entries) => {
                for (key, line, value) in entries {
                    match path {
                        [] => visit(key, *line),
                        [first, rest @ ..] if first == key => value.visit_mappings(rest, visit),
                        _ => {}
                    }
                }
            }
        }
    }
}

impl<'de> Deserialize<'de> for KeyTree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyTreeVisitor)
    }
}

struct KeyTreeVisitor;

impl<'de> Visitor<'de> for KeyTreeVisitor {
    type Value = KeyTree;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a YAML value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<KeyTree, E> {
        Ok(KeyTree::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<KeyTree, E> {
        Ok(KeyTree::Scalar)
    }

    fn visit_i128<E>(self, _: i128) -> Result<KeyTree, E> {
        Ok(KeyTree::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<KeyTree, E> {
        Ok(KeyTree::Scalar)
    }

    fn visit_u128<E>(self, _: u128) -> Result<KeyTree, E> {
        Ok(KeyTree::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<KeyTree, E> {
        Ok(KeyTree::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<KeyTree, E> {
        Ok(KeyTree::Scalar)
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<KeyTree, E> {
        Ok(KeyTree::Scalar)
    }

    fn visit_unit<E>(self) -> Result<KeyTree, E> {
        Ok(KeyTree::Scalar)
    }

    fn visit_none<E>(self) -> Result<KeyTree, E> {
        Ok(KeyTree::Scalar)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<KeyTree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = sequence.next_element()? {
            entries.push(entry);
        }
        Ok(KeyTree::Sequence(entries))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut mapping: A) -> Result<KeyTree, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = mapping.next_key::<Spanned<String>>()? {
            entries.push((key.value, key.referenced.line() as usize, mapping.next_value()?));
        }
        Ok(KeyTree::Mapping(entries))
    }
}
