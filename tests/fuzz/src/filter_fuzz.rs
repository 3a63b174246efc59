//! Any text as a filter of any rows, with the cursor anywhere. Errors point into the text, a parsed filter
//! can be parsed again, and rows are selected without a panic.

use gaunt_api::{
    FieldKey, Filter, Subject, SubjectField,
    filter::{
        NO_TEXT, RowSource, TextColumn, USUAL_ROWS, complete_filter, quote_text, select_rows,
    },
};
use gaunt_schema::SanitizedText;

/// Four rows: a number is the row's index, a text too, and the last row has neither.
struct FourRows;

impl RowSource for FourRows {
    fn len(&self) -> usize {
        4
    }

    fn collect_numbers(&self, _: FieldKey, rows: &[u32]) -> Vec<f64> {
        rows.iter().map(|row| if *row == 3 { f64::NAN } else { f64::from(*row) }).collect()
    }

    fn collect_texts(&self, _: FieldKey, rows: &[u32]) -> TextColumn {
        TextColumn {
            words: ["gpu1", "gpu2", "gpu10"].map(SanitizedText::new).to_vec(),
            codes: rows.iter().map(|row| if *row == 3 { NO_TEXT } else { *row }).collect(),
            starts: None,
        }
    }
}

/// The first byte is the subject, the second one the place of the cursor; the filter follows.
pub fn check_input(input: &[u8]) {
    let [subject, cursor, text @ ..] = input else { return };
    let (subject, cursor, Ok(text)) = (*subject, *cursor, std::str::from_utf8(text)) else {
        return;
    };
    let subject = Subject::ALL[usize::from(subject) % Subject::ALL.len()];
    let now = |_: &SubjectField| vec![SanitizedText::new("a \"b\"")];
    let offered = complete_filter(subject, text, usize::from(cursor), &now);
    assert!(offered.from <= offered.to && text.get(offered.from..offered.to).is_some());
    match Filter::parse(subject, text) {
        Ok(filter) => {
            assert_eq!(Filter::parse(subject, filter.source_text()).as_ref(), Ok(&filter));
            let chosen = select_rows(&filter, &FourRows, USUAL_ROWS);
            assert!(chosen.rows.len() <= 4 && chosen.rows.iter().all(|row| *row < 4));
            assert!(chosen.rows.len() <= chosen.matched as usize);
        }
        Err(error) => assert!(error.column >= 1 && error.render_pointer().contains('^')),
    }
    // Any text can be written as a value, and is parsed back unchanged.
    if text.len() < 400 {
        let safe = format!("node={}", quote_text(text.trim()));
        assert!(Filter::parse(Subject::Gpus, &safe).is_ok() || text.trim().is_empty(), "{safe}");
    }
}
