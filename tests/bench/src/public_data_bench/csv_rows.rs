//! Rows of a CSV file with a header, by column name: a row that cannot be read is counted, and the others are read.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
};

use anyhow::{Context, bail, ensure};

/// The longest line that is read; a longer one is not a row of these tables.
const MAX_LINE_BYTES: usize = 1 << 16;

/// The most rows of one file.
const MAX_ROWS: u64 = 20_000_000;

/// How many rows of a table were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowCounts {
    /// Rows that were read.
    pub(super) read: u64,
    /// Rows that were left out: too few fields, or a value that is no number of the expected kind.
    pub(super) rejected: u64,
}

impl RowCounts {
    /// Adds the rows of another table.
    pub(super) fn add(&mut self, other: Self) {
        self.read += other.read;
        self.rejected += other.rejected;
    }
}

/// Reads all rows of a file: `accept` gets the fields of `columns` in their order, and says whether it can read them.
pub(super) fn read_rows<const N: usize>(
    path: &Path,
    columns: [&str; N],
    mut accept: impl FnMut([&str; N]) -> Option<()>,
) -> anyhow::Result<RowCounts> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut lines = LineReader { reader: BufReader::new(file), line: Vec::new() };
    let failed = || format!("cannot read {}", path.display());
    let Some(header) = lines.next_line().with_context(failed)? else {
        bail!("{} is empty: fetch it again", path.display());
    };
    let places = find_columns(path, header.text().unwrap_or_default(), columns)?;
    let mut counts = RowCounts::default();
    while let Some(line) = lines.next_line().with_context(failed)? {
        if line.text() == Some("") {
            continue;
        }
        ensure!(
            counts.read + counts.rejected < MAX_ROWS,
            "{} has more than {MAX_ROWS} rows: split it",
            path.display()
        );
        let fields = line.text().and_then(|line| select_fields(line, places));
        match fields.and_then(&mut accept) {
            Some(()) => counts.read += 1,
            None => counts.rejected += 1,
        }
    }
    Ok(counts)
}

fn find_columns<const N: usize>(
    path: &Path,
    header: &str,
    columns: [&str; N],
) -> anyhow::Result<[usize; N]> {
    let header = header.trim_start_matches('\u{feff}');
    let mut places = [0; N];
    for (place, column) in places.iter_mut().zip(columns) {
        let found = header.split(',').position(|name| name.trim() == column);
        *place = found.with_context(|| {
            format!("{} has no column {column:?}: is it another table?", path.display())
        })?;
    }
    Ok(places)
}

/// The wanted fields of a line. These tables quote nothing: a line with a quotation mark is not one of them.
fn select_fields<const N: usize>(line: &str, places: [usize; N]) -> Option<[&str; N]> {
    if line.contains('"') {
        return None;
    }
    let mut fields = [None; N];
    for (index, field) in line.split(',').enumerate() {
        for (own, place) in fields.iter_mut().zip(places) {
            if place == index {
                *own = Some(field.trim());
            }
        }
    }
    let mut values = [""; N];
    for (value, field) in values.iter_mut().zip(fields) {
        *value = field?;
    }
    Some(values)
}

/// A line: without its end, or too long or not UTF-8.
enum TableLine<'a> {
    Text(&'a str),
    Unreadable,
}

/// Reads lines into one buffer.
struct LineReader<R> {
    reader: R,
    line: Vec<u8>,
}

impl<R: BufRead> LineReader<R> {
    /// The next line; none at the end.
    fn next_line(&mut self) -> std::io::Result<Option<TableLine<'_>>> {
        self.line.clear();
        let limit = MAX_LINE_BYTES as u64;
        if self.reader.by_ref().take(limit).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        let is_whole = self.line.ends_with(b"\n") || (self.line.len() as u64) < limit;
        if !is_whole {
            self.reader.skip_until(b'\n')?;
            return Ok(Some(TableLine::Unreadable));
        }
        let text = std::str::from_utf8(&self.line);
        let line = text.map(|text| TableLine::Text(text.trim_end_matches(['\r', '\n'])));
        Ok(Some(line.unwrap_or(TableLine::Unreadable)))
    }
}

impl<'a> TableLine<'a> {
    fn text(&self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Unreadable => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_table(text: &str) -> (anyhow::Result<RowCounts>, Vec<(String, f64)>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        std::fs::write(&path, text).unwrap();
        let mut rows = Vec::new();
        let counts = read_rows(&path, ["name", "value"], |[name, value]| {
            rows.push((name.to_owned(), value.parse().ok()?));
            Some(())
        });
        (counts, rows)
    }

    #[test]
    fn columns_are_found_by_name_in_any_order() {
        let (counts, rows) = read_table("\u{feff}value,other,name\r\n1.5,x,a\r\n\r\n2,,b");
        assert_eq!(counts.unwrap(), RowCounts { read: 2, rejected: 0 });
        assert_eq!(rows, [("a".to_owned(), 1.5), ("b".to_owned(), 2.0)]);
    }

    #[test]
    fn row_that_cannot_be_read_is_counted_and_the_others_are_read() {
        let long = "x".repeat(MAX_LINE_BYTES + 10);
        let (counts, rows) =
            read_table(&format!("name,value\na,1\nb\nc,NULL\n\"d\",4\n{long},5\ne,6\n"));
        assert_eq!(counts.unwrap(), RowCounts { read: 2, rejected: 4 });
        assert_eq!(rows, [("a".to_owned(), 1.0), ("e".to_owned(), 6.0)]);
    }

    #[test]
    fn other_table_is_refused_with_the_missing_column() {
        let (counts, _) = read_table("name,number\na,1\n");
        let error = counts.unwrap_err().to_string();
        assert!(error.ends_with("has no column \"value\": is it another table?"), "{error}");
        let (counts, _) = read_table("");
        assert!(counts.unwrap_err().to_string().contains("is empty"));
    }
}
