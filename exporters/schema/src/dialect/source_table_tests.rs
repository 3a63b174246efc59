//! Holds the table of sources for users (config/SOURCES.md) to what the dialects read of the lists that it names.

use std::{collections::BTreeSet, fs, path::Path};

use super::{Dialect, dialect_metrics};

const TABLE: &str = include_str!("../../../../config/SOURCES.md");

/// A row: its dialect, what it says of the names that are read, and the file with the names.
struct SourceRow {
    dialect: &'static str,
    read: &'static str,
    file: &'static str,
}

fn source_rows() -> Vec<SourceRow> {
    let rows = TABLE.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let rows = rows.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, _, dialect, _, read, _, list, _] = cells.as_slice() else { panic!("{line}") };
        let file = list.split('`').nth(1).unwrap_or_else(|| panic!("{line} names no file"));
        SourceRow { dialect: dialect.trim_matches('`'), read, file }
    });
    rows.collect()
}

/// The names on a page, or those of a list with one a line.
fn names_in(file: &str) -> BTreeSet<String> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let text = fs::read_to_string(fixtures.join(file)).unwrap_or_else(|it| panic!("{file}: {it}"));
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split(['{', ' ']).next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn source_table_states_how_many_names_of_each_list_are_read() {
    let entries = dialect_metrics();
    let read: BTreeSet<&str> =
        entries.iter().filter(|entry| entry.declined.is_none()).map(|entry| entry.name).collect();
    let mut wrong = Vec::new();
    for SourceRow { read: stated, file, .. } in source_rows() {
        let names = names_in(file);
        let understood = names.iter().filter(|name| read.contains(name.as_str())).count();
        let counted = format!("{understood} of {}", names.len());
        if counted != stated {
            wrong.push(format!("{file}: {stated}, but {counted}"));
        }
    }
    assert!(wrong.is_empty(), "correct config/SOURCES.md:\n{}", wrong.join("\n"));
}

#[test]
fn source_table_has_every_dialect() {
    let rows = source_rows();
    for dialect in Dialect::ALL {
        let is_listed = rows.iter().any(|row| row.dialect == dialect.as_str());
        assert_eq!(is_listed, !matches!(dialect, Dialect::Gaunt | Dialect::Unknown), "{dialect:?}");
    }
}
