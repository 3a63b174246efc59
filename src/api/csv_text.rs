//! Comma-separated values: the one writer of cells, and the one guard against spreadsheet formulas.

/// One line of RFC 4180 cells, without its line end. A cell that a spreadsheet would evaluate as a formula is marked as
/// text; a number is left as it is.
pub fn csv_line<T: AsRef<str>>(cells: impl IntoIterator<Item = T>) -> String {
    let cells: Vec<String> = cells.into_iter().map(|cell| csv_cell(cell.as_ref())).collect();
    cells.join(",")
}

fn csv_cell(text: &str) -> String {
    let formula =
        text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err();
    let text = if formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::csv_line;

    #[test]
    fn csv_cell_cannot_break_its_line_or_become_a_formula() {
        for (cell, written) in [
            ("pretrain", "pretrain"),
            ("a,\"b\"", "\"a,\"\"b\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "'=1+1"),
            ("@sum", "'@sum"),
            ("-2+cmd()", "'-2+cmd()"),
            ("\t=1", "'\t=1"),
            ("\r=1", "\"'\r=1\""),
            ("-3.5", "-3.5"),
            ("", ""),
        ] {
            assert_eq!(csv_line([cell]), written);
        }
        assert_eq!(csv_line(["=a,b", "1"]), "\"'=a,b\",1");
    }
}
