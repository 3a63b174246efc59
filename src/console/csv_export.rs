//! Export of all rows of a table as comma-separated values or JSON, as the user sees them.

use std::{io, path::Path};

use super::preferences::write_new_file;
use gaunt_api::{AnswerCells, AnswerColumn, AnswerTable, answer_table::HISTORY_FIELD, csv_line};

/// File format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExportFormat {
    /// Comma-separated values.
    Csv,
    /// One JSON object.
    Json,
}

/// Writes an export to a file that must not exist yet, and returns what was done in one sentence.
pub(crate) fn write_export(path: &Path, text: &str) -> Result<String, String> {
    let (name, lines) = (path.display(), text.lines().count());
    match write_new_file(path, text) {
        Ok(()) => Ok(format!("wrote {lines} lines to {name}")),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(format!("{name} exists already: give another name, or remove it first"))
        }
        Err(error) => Err(format!("cannot write {name}: {error}")),
    }
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

/// Renders the rows without histories: a spreadsheet reads their digits as one number.
fn render_csv(table: &AnswerTable) -> String {
    let columns = || table.columns.iter().filter(|column| column.name != HISTORY_FIELD);
    let mut out = csv_line(columns().map(|column| &column.name)) + "\n";
    for row in 0..table.rows as usize {
        out += &csv_line(columns().map(|column| csv_cell(column, row)));
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
    fn existing_file_is_kept_and_another_name_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        assert!(write_export(&path, "a\nb\n").unwrap().starts_with("wrote 2 lines to "));
        let error = write_export(&path, "c\n").unwrap_err();
        assert!(error.ends_with("rows.csv exists already: give another name, or remove it first"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\nb\n");
    }

    #[test]
    fn csv_has_no_history_digits() {
        let table = sample_answers::build_table(
            gaunt_api::Subject::Gpus,
            vec![
                ("node", sample_answers::text_cells(&["gpu001"])),
                ("recent_power", sample_answers::text_cells(&["99999999999999999999"])),
                ("lost", sample_answers::number_cells(&[Some(1.0)])),
            ],
        );
        assert_eq!(render_export(&table, ExportFormat::Csv), "node,lost\ngpu001,1\n");
    }

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
