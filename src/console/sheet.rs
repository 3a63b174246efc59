//! Rows as a file: comma-separated values or JSON, as the reader sees them and all of them.

use super::commands::Form;
use crate::answer::{Cells, Column, Table};

/// The text of a table in a form.
pub(crate) fn text(table: &Table, form: Form) -> String {
    match form {
        Form::Csv => csv(table),
        Form::Json => {
            let json = serde_json::to_string_pretty(table);
            // A table has no key that is no text and no number that is none.
            json.map_or_else(|_| String::new(), |json| json + "\n")
        }
    }
}

fn csv(table: &Table) -> String {
    let mut out = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = String>| {
        let cells: Vec<String> = cells.map(|cell| quoted(&cell)).collect();
        out.push_str(&cells.join(","));
        out.push('\n');
    };
    line(&mut table.columns.iter().map(|column| column.name.clone()));
    for row in 0..table.rows as usize {
        line(&mut table.columns.iter().map(|column| cell(column, row)));
    }
    out
}

/// One cell; what is absent is empty.
fn cell(column: &Column, row: usize) -> String {
    match &column.cells {
        Cells::Numbers { .. } => column.number(row).map_or_else(String::new, |n| n.to_string()),
        Cells::Texts { .. } => column.text(row).map_or_else(String::new, ToString::to_string),
    }
}

/// In quotes where it is needed; what a spreadsheet would take for a formula is marked as text.
fn quoted(cell: &str) -> String {
    let formula = cell.starts_with(['=', '@', '+'])
        || (cell.starts_with('-') && cell.parse::<f64>().is_err());
    let cell = if formula { format!("'{cell}") } else { cell.to_owned() };
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::sample;

    #[test]
    fn rows_are_written_with_their_absences_and_no_formulas() {
        let mut table = sample::gpu_table();
        if let Cells::Texts { words, .. } = &mut table.columns[0].cells {
            words[0] = "=cmd|\"x\",1".into();
        }
        let csv = text(&table, Form::Csv);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 1 + table.rows as usize);
        assert!(lines[0].starts_with("node,gpu,state,"), "{}", lines[0]);
        assert!(lines[1].starts_with("\"'=cmd|\"\"x\"\",1\",0,"), "{}", lines[1]);
        assert!(lines.iter().any(|line| line.contains(",,")), "an absent number is empty");
        let json: serde_json::Value = serde_json::from_str(&text(&table, Form::Json)).unwrap();
        assert_eq!(json["rows"], table.rows);
        assert_eq!(quoted("-3.5"), "-3.5");
    }
}
