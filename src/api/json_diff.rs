//! JSON diff of two answers, as a stream sends it: only what is new, and its position.
//!
//! A change is a JSON object. `whole` replaces everything. In an object `to` has the members that are replaced, `in`
//! those that are changed inside, `gone` those that are removed. In an array `to` and `in` are pairs of index and value
//! or change, and `len` its new length. In a long string `put` are pairs of offset and text, counted in characters; its
//! length stays.

use serde_json::{Map, Value, json};

/// Strings shorter than this are replaced entirely.
const LONG: usize = 64;

/// Runs of equal characters shorter than this are sent with the differences around them: a separate run costs as much.
const JOIN: usize = 8;

/// The longest array that a change may create: several times the rows of a table.
const MAX_LEN: usize = 1 << 20;

/// A change does not fit the value it is applied to: the whole answer must be requested again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the change does not apply to the previous answer; request the whole answer")]
pub struct DiffMismatch;

/// Computes the change from `old` to `new`; none if they are equal.
pub fn diff_values(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        _ if old == new => None,
        (Value::Object(old), Value::Object(new)) => Some(diff_objects(old, new)),
        (Value::Array(before), Value::Array(after)) => {
            Some(diff_arrays(before, after).unwrap_or_else(|| json!({ "whole": new })))
        }
        (Value::String(before), Value::String(after)) => {
            Some(diff_strings(before, after).unwrap_or_else(|| json!({ "whole": new })))
        }
        _ => Some(json!({ "whole": new })),
    }
}

fn diff_objects(old: &Map<String, Value>, new: &Map<String, Value>) -> Value {
    let (mut to, mut inside) = (Map::new(), Map::new());
    for (name, value) in new {
        let change = match old.get(name) {
            Some(before) => diff_values(before, value),
            None => Some(json!({ "whole": value })),
        };
        match change {
            Some(Value::Object(mut change)) if change.contains_key("whole") => {
                to.insert(name.clone(), change.remove("whole").unwrap_or_default());
            }
            Some(change) => drop(inside.insert(name.clone(), change)),
            None => {}
        }
    }
    let gone: Vec<&String> = old.keys().filter(|name| !new.contains_key(*name)).collect();
    let mut change = Map::new();
    if !to.is_empty() {
        change.insert("to".into(), Value::Object(to));
    }
    if !inside.is_empty() {
        change.insert("in".into(), Value::Object(inside));
    }
    if !gone.is_empty() {
        change.insert("gone".into(), json!(gone));
    }
    Value::Object(change)
}

/// None if the array is cheaper as a whole: if more than a third of it is new.
fn diff_arrays(old: &[Value], new: &[Value]) -> Option<Value> {
    let (mut to, mut inside) = (Vec::new(), Vec::new());
    for (at, value) in new.iter().enumerate() {
        let change = match old.get(at) {
            Some(before) => diff_values(before, value),
            None => Some(json!({ "whole": value })),
        };
        match change {
            Some(Value::Object(mut change)) if change.contains_key("whole") => {
                to.push(json!([at, change.remove("whole").unwrap_or_default()]));
            }
            Some(change) => inside.push(json!([at, change])),
            None => {}
        }
        if to.len() > new.len() / 3 {
            return None;
        }
    }
    let mut change = Map::new();
    if !to.is_empty() {
        change.insert("to".into(), Value::Array(to));
    }
    if !inside.is_empty() {
        change.insert("in".into(), Value::Array(inside));
    }
    if old.len() != new.len() {
        change.insert("len".into(), json!(new.len()));
    }
    Some(Value::Object(change))
}

/// None if the string is cheaper as a whole.
fn diff_strings(old: &str, new: &str) -> Option<Value> {
    if new.len() < LONG || old.len() != new.len() || !old.is_ascii() || !new.is_ascii() {
        return None;
    }
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, (before, after)) in old.bytes().zip(new.bytes()).enumerate() {
        match runs.last_mut() {
            _ if before == after => {}
            Some((_, end)) if at - *end < JOIN => *end = at + 1,
            _ => runs.push((at, at + 1)),
        }
    }
    let patch_len: usize = runs.iter().map(|(from, to)| to - from + JOIN).sum();
    let put: Vec<Value> = runs.iter().map(|(from, to)| json!([from, &new[*from..*to]])).collect();
    (patch_len < new.len()).then(|| json!({ "put": put }))
}

/// Applies a change to the answer it was computed from.
pub fn apply_diff(value: &mut Value, change: &Value) -> Result<(), DiffMismatch> {
    let change = change.as_object().ok_or(DiffMismatch)?;
    if let Some(whole) = change.get("whole") {
        *value = whole.clone();
        return Ok(());
    }
    match value {
        Value::Object(members) => apply_to_object(members, change),
        Value::Array(items) => apply_to_array(items, change),
        Value::String(text) => apply_to_string(text, change),
        _ => Err(DiffMismatch),
    }
}

fn apply_to_object(
    members: &mut Map<String, Value>,
    change: &Map<String, Value>,
) -> Result<(), DiffMismatch> {
    for (name, value) in change.get("to").and_then(Value::as_object).into_iter().flatten() {
        members.insert(name.clone(), value.clone());
    }
    for (name, inner) in change.get("in").and_then(Value::as_object).into_iter().flatten() {
        apply_diff(members.get_mut(name).ok_or(DiffMismatch)?, inner)?;
    }
    for name in change.get("gone").and_then(Value::as_array).into_iter().flatten() {
        members.remove(name.as_str().ok_or(DiffMismatch)?).ok_or(DiffMismatch)?;
    }
    Ok(())
}

fn apply_to_array(items: &mut Vec<Value>, change: &Map<String, Value>) -> Result<(), DiffMismatch> {
    if let Some(len) = change.get("len") {
        let len = usize::try_from(len.as_u64().ok_or(DiffMismatch)?).map_err(|_| DiffMismatch)?;
        if len > MAX_LEN {
            return Err(DiffMismatch);
        }
        items.resize(len, Value::Null);
    }
    for pair in index_pairs(change, "to") {
        let (at, value) = pair?;
        *items.get_mut(at).ok_or(DiffMismatch)? = value.clone();
    }
    for pair in index_pairs(change, "in") {
        let (at, inner) = pair?;
        apply_diff(items.get_mut(at).ok_or(DiffMismatch)?, inner)?;
    }
    Ok(())
}

fn apply_to_string(text: &mut String, change: &Map<String, Value>) -> Result<(), DiffMismatch> {
    for pair in index_pairs(change, "put") {
        let (from, run) = pair?;
        let run = run.as_str().ok_or(DiffMismatch)?;
        let to = from.checked_add(run.len()).ok_or(DiffMismatch)?;
        if !text.is_ascii() || !run.is_ascii() || to > text.len() {
            return Err(DiffMismatch);
        }
        text.replace_range(from..to, run);
    }
    Ok(())
}

fn index_pairs<'a>(
    change: &'a Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = Result<(usize, &'a Value), DiffMismatch>> {
    let pairs = change.get(name).and_then(Value::as_array).into_iter().flatten();
    pairs.map(|pair| match pair.as_array().map(Vec::as_slice) {
        Some([at, value]) => {
            let at = at.as_u64().and_then(|at| usize::try_from(at).ok()).ok_or(DiffMismatch)?;
            Ok((at, value))
        }
        _ => Err(DiffMismatch),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn json_diff_holds_changed_values_only() {
        let old =
            json!({"at": 1, "heat": {"states": "C".repeat(100)}, "gone": 1, "list": [1, 2, 3, 4]});
        let mut states = "C".repeat(100);
        states.replace_range(40..42, "ww");
        let new = json!({"at": 2, "heat": {"states": states}, "list": [1, 2, 9, 4]});
        let change = diff_values(&old, &new).unwrap();
        assert_eq!(
            change,
            json!({
                "to": {"at": 2},
                "in": {"heat": {"in": {"states": {"put": [[40, "ww"]]}}}, "list": {"to": [[2, 9]]}},
                "gone": ["gone"],
            })
        );
        assert_eq!(diff_values(&new, &new), None);
    }

    #[test]
    fn json_diff_that_does_not_fit_is_an_error() {
        for (value, change) in [
            (json!([1]), json!({"to": [[5, 1]]})),
            (json!({}), json!({"in": {"a": {"whole": 1}}})),
            (json!({}), json!({"gone": ["a"]})),
            (json!("short"), json!({"put": [[3, "long"]]})),
            (json!([]), json!({"len": u64::MAX})),
            (json!(1), json!({"to": {}})),
            (json!({}), json!([])),
        ] {
            assert_eq!(
                apply_diff(&mut value.clone(), &change),
                Err(DiffMismatch),
                "{value} {change}"
            );
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            (0..4).prop_map(|n| json!(n)),
            "[ab]{60,70}".prop_map(|text| json!(text)),
            "[aä]{0,3}".prop_map(|text| json!(text)),
        ];
        leaf.prop_recursive(3, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn json_diff_turns_the_old_value_into_the_new(old in any_json(), new in any_json()) {
            let mut value = old.clone();
            if let Some(change) = diff_values(&old, &new) {
                apply_diff(&mut value, &change).unwrap();
            }
            prop_assert_eq!(value, new);
        }

        #[test]
        fn json_diff_never_panics(value in any_json(), change in any_json()) {
            let mut value = value;
            _ = apply_diff(&mut value, &change);
        }
    }
}
