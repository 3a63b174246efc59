//! The values of one dump in one table. Pickle and JSON give the same form; a value that is referred to often is stored
//! once, so that no input grows when it is read.

/// The most values of a dump: a hundred for each of 40,000 operations.
pub(super) const MAX_VALUES: usize = 1 << 22;

/// The most pairs of a dictionary in which a field is looked up by name; a dump's have less than 40.
const MAX_FIELDS: usize = 256;

/// The number of a value in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueId(u32);

/// One value.
#[derive(Debug, PartialEq)]
pub(super) enum DataValue {
    /// Python's None, JSON's null.
    Nothing,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Box<str>),
    /// A list or a tuple.
    List(Vec<ValueId>),
    Dict(Vec<(ValueId, ValueId)>),
}

/// The table has no space for another value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ArenaFull;

/// The table of values.
#[derive(Debug, Default)]
pub(super) struct DataArena {
    values: Vec<DataValue>,
}

impl DataArena {
    /// Stores a value.
    pub(super) fn add_value(&mut self, value: DataValue) -> Result<ValueId, ArenaFull> {
        if self.values.len() >= MAX_VALUES {
            return Err(ArenaFull);
        }
        let id = ValueId(self.values.len() as u32);
        self.values.push(value);
        Ok(id)
    }

    /// Stores a JSON value and all below it; `serde_json` limits how deep it is.
    pub(super) fn add_json(&mut self, json: serde_json::Value) -> Result<ValueId, ArenaFull> {
        let value = match json {
            serde_json::Value::Null => DataValue::Nothing,
            serde_json::Value::Bool(value) => DataValue::Bool(value),
            serde_json::Value::Number(number) => match number.as_i64() {
                Some(number) => DataValue::Int(number),
                None => number.as_f64().map_or(DataValue::Nothing, DataValue::Float),
            },
            serde_json::Value::String(text) => DataValue::Text(text.into()),
            serde_json::Value::Array(items) => {
                let items = items.into_iter().map(|item| self.add_json(item));
                DataValue::List(items.collect::<Result<_, _>>()?)
            }
            serde_json::Value::Object(fields) => {
                let fields = fields.into_iter().map(|(name, value)| {
                    let name = self.add_value(DataValue::Text(name.into()))?;
                    Ok((name, self.add_json(value)?))
                });
                DataValue::Dict(fields.collect::<Result<_, _>>()?)
            }
        };
        self.add_value(value)
    }

    /// Returns a value.
    pub(super) fn value_of(&self, id: ValueId) -> &DataValue {
        self.values.get(id.0 as usize).unwrap_or(&DataValue::Nothing)
    }

    /// Returns a value to change it.
    pub(super) fn value_mut(&mut self, id: ValueId) -> Option<&mut DataValue> {
        self.values.get_mut(id.0 as usize)
    }

    /// Returns a field of a dictionary.
    pub(super) fn find_field(&self, dict: ValueId, name: &str) -> Option<ValueId> {
        let is_named = |(key, _): &&(ValueId, ValueId)| self.text_of(*key) == Some(name);
        self.dict_of(dict)?.iter().take(MAX_FIELDS).find(is_named).map(|(_, value)| *value)
    }

    /// Returns the pairs of a dictionary.
    pub(super) fn dict_of(&self, id: ValueId) -> Option<&[(ValueId, ValueId)]> {
        match self.value_of(id) {
            DataValue::Dict(pairs) => Some(pairs),
            _ => None,
        }
    }

    /// Returns the items of a list or tuple.
    pub(super) fn list_of(&self, id: ValueId) -> Option<&[ValueId]> {
        match self.value_of(id) {
            DataValue::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns a text.
    pub(super) fn text_of(&self, id: ValueId) -> Option<&str> {
        match self.value_of(id) {
            DataValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a whole number; JSON dumps write some of them as text.
    pub(super) fn int_of(&self, id: ValueId) -> Option<i64> {
        match self.value_of(id) {
            DataValue::Int(number) => Some(*number),
            DataValue::Text(text) => text.parse().ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_stored_as_values_with_fields() {
        let mut arena = DataArena::default();
        let json = serde_json::json!({"a": [1, "2", null, 0.5, true], "b": {"c": -3}});
        let root = arena.add_json(json).unwrap();
        let list = arena.find_field(root, "a").and_then(|id| arena.list_of(id)).unwrap();
        let numbers: Vec<_> = list.iter().map(|id| arena.int_of(*id)).collect();
        assert_eq!(numbers, [Some(1), Some(2), None, None, None]);
        let inner = arena.find_field(root, "b").unwrap();
        let number = arena.find_field(inner, "c").and_then(|id| arena.int_of(id));
        assert_eq!((number, arena.find_field(root, "c")), (Some(-3), None));
    }
}
