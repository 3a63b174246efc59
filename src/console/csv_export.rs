//! Export of all rows of a table as comma-separated values or JSON, as the user sees them.

use gaunt_api::{AnswerCells, AnswerColumn, AnswerTable, csv_line};

/// File format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExportFormat {
    /// Comma-separated values.
    Csv,
    /// One JSON object.
    Json,
}

/// Renders a table in an export format.
pub(crate) fn render_export(table: &AnswerTable, form: ExportFormat) -> String {
    match form {
        ExportFormat::Csv => render_csv(table),
        ExportFormat::Json => {
            let json = serde_json::to_string_pretty(table);
            // Serialization cannot fail: all keys are strings and all numbers are finite.
            json.map_or_else(|_| String::new(), |json| json + "\n")
        }
    }
}

fn render_csv(table: &AnswerTable) -> String {
    let mut out = csv_line(table.columns.iter().map(|column| &column.name)) + "\n";
    for row in 0..table.rows as usize {
        out += &csv_line(table.columns.iter().map(|column| csv_cell(column, row)));
        out.push('\n');
    }
    out
}

/// Renders one cell; an absent value is empty.
fn csv_cell(column: &AnswerColumn, row: usize) -> String {
    match &column.cells {
        AnswerCells::Numbers { .. } => {
            column.number_at(row).map_or_else(String::new, |n| n.to_string())
        }
        AnswerCells::Texts { .. } => {
            column.text_at(row).map_or_else(String::new, ToString::to_string)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_answers;

    #[test]
    fn csv_rows_have_absent_values_and_no_formulas() {
        let mut table = sample_answers::gpu_table();
        if let AnswerCells::Texts { words, .. } = &mut table.columns[0].cells {
            words[0] = "=cmd|\"x\",1".into();
        }
        let csv = render_export(&table, ExportFormat::Csv);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 1 + table.rows as usize);
        assert!(lines[0].starts_with("node,gpu,state,"), "{}", lines[0]);
        assert!(lines[1].starts_with("\"'=cmd|\"\"x\"\",1\",0,"), "{}", lines[1]);
        assert!(lines.iter().any(|line| line.contains(",,")), "an absent number is empty");
        let json: serde_json::Value =
            serde_json::from_str(&render_export(&table, ExportFormat::Json)).unwrap();
        assert_eq!(json["rows"], table.rows);
    }
}
