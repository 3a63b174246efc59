//! JSON rows: `{"rows": [{"node": ...}]}`, one object per row, as scripts read them.

use serde_json::{Map, Value, json};

use gaunt_api::{Answer, AnswerTable};

/// Converts an answer to JSON: rows where the API returns columns, and everything else as in the API.
pub(super) fn answer_to_json(answer: &Answer) -> serde_json::Result<Value> {
    match answer {
        Answer::Table(table) => Ok(table_to_json(table)),
        Answer::Job(job) => {
            let mut value = serde_json::to_value(answer)?;
            if let Value::Object(members) = &mut value {
                members.insert("line".to_owned(), table_to_json(&job.line));
                members.insert("gpus".to_owned(), table_to_json(&job.gpus));
            }
            Ok(value)
        }
        _ => serde_json::to_value(answer),
    }
}

/// A table with one object per row. Absent values are null, and `absent` gives the reason where known.
fn table_to_json(table: &AnswerTable) -> Value {
    let rows = (0..table.rows as usize).map(|row| {
        let (mut cells, mut reasons) = (Map::new(), Map::new());
        for column in &table.columns {
            let text = column.text_at(row).map(|text| Value::from(text.as_str()));
            let cell = text.or_else(|| column.number_at(row).map(Value::from));
            if let (None, Some(reason)) = (&cell, column.absent_reason(row)) {
                reasons.insert(column.name.clone(), reason.as_str().into());
            }
            cells.insert(column.name.clone(), cell.unwrap_or_default());
        }
        if !reasons.is_empty() {
            cells.insert("absent".to_owned(), reasons.into());
        }
        Value::Object(cells)
    });
    let rows: Vec<Value> = rows.collect();
    let unit = |unit: gaunt_schema::unit::Unit| unit.name_suffix().trim_start_matches('_');
    let units = table.columns.iter().filter_map(|column| {
        Some((column.name.clone(), Value::from(column.unit.map(unit).filter(|u| !u.is_empty())?)))
    });
    json!({
        "at": table.at,
        "subject": table.subject,
        "total": table.total,
        "matched": table.matched,
        "offset": table.offset,
        "units": units.collect::<Map<String, Value>>(),
        "rows": rows,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gaunt_schema::{AbsenceReason, UnixMs, unit::Unit};

    use super::*;
    use gaunt_api::{AnswerCells, AnswerColumn, Subject};

    #[test]
    fn table_becomes_an_object_for_each_row() {
        let numbers = AnswerCells::Numbers {
            values: vec![Some(700.5), None, None],
            absent: BTreeMap::from([(AbsenceReason::NoPermission, vec![1])]),
        };
        let texts =
            AnswerCells::Texts { words: vec!["n1".into()], codes: vec![Some(0), Some(0), None] };
        let column =
            |name: &str, unit, cells| AnswerColumn { name: name.into(), metric: None, unit, cells };
        let table = AnswerTable {
            at: UnixMs(5),
            subject: Subject::Gpus,
            total: 9,
            matched: 3,
            offset: 0,
            rows: 3,
            columns: vec![column("node", None, texts), column("power", Some(Unit::Watts), numbers)],
        };
        let value = table_to_json(&table);
        assert_eq!(
            value["rows"],
            json!([
                {"node": "n1", "power": 700.5},
                {"node": "n1", "power": null, "absent": {"power": "no_permission"}},
                {"node": null, "power": null},
            ])
        );
        assert_eq!(value["units"], json!({"power": "watts"}));
        assert_eq!((&value["matched"], &value["subject"]), (&json!(3), &json!("gpus")));
    }
}
