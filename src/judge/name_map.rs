//! A small map by name, in a sorted list: a tree has room for eleven devices where a node has one, or eight.

use std::collections::BTreeMap;

use gaunt_schema::SanitizedText;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Values by name, in the order of names. It is saved as a map is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NameMap<T>(Vec<(SanitizedText, T)>);

impl<T> Default for NameMap<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> NameMap<T> {
    /// Whether it holds nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names in order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &SanitizedText> {
        self.0.iter().map(|(name, _)| name)
    }

    /// Stores the value of a name, which replaces an earlier one.
    pub(super) fn insert(&mut self, name: SanitizedText, value: T) {
        match self.position(&name) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (name, value)),
        }
    }

    /// Removes a name and returns its value.
    pub(super) fn remove(&mut self, name: &SanitizedText) -> Option<T> {
        let at = self.position(name).ok()?;
        Some(self.0.remove(at).1)
    }

    fn position(&self, name: &SanitizedText) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(name))
    }
}

impl<T: Serialize> Serialize for NameMap<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for NameMap<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let saved = BTreeMap::<SanitizedText, T>::deserialize(from)?;
        Ok(Self(saved.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_map_behaves_and_is_saved_as_a_tree() {
        let (mut map, mut tree) = (NameMap::default(), BTreeMap::new());
        for number in [7_u32, 10, 0, 3, 7, 21, 10, 4] {
            let name = SanitizedText::from(number.to_string());
            map.insert(name.clone(), number * 2);
            tree.insert(name.clone(), number * 2);
            assert_eq!(map.remove(&"99".into()), None);
            if number == 3 {
                assert_eq!((map.remove(&name), tree.remove(&name)), (Some(6), Some(6)));
            }
            assert!(map.keys().eq(tree.keys()) && !map.is_empty());
            let saved = serde_json::to_string(&map).unwrap();
            assert_eq!(saved, serde_json::to_string(&tree).unwrap());
            assert_eq!(serde_json::from_str::<NameMap<u32>>(&saved).unwrap(), map);
        }
        let unsorted: NameMap<u32> = serde_json::from_str(r#"{"b": 1, "a": 2, "b": 3}"#).unwrap();
        assert_eq!(serde_json::to_string(&unsorted).unwrap(), r#"{"a":2,"b":3}"#);
    }
}
