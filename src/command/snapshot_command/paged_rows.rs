//! Paged rows: fetches all rows of a question; without a limit it requests as many pages as needed.

use std::sync::Arc;

use crate::answer_source::{AnswerSource, AnswerSourceError};
use gaunt_api::{
    Answer, AnswerCells, AnswerColumn, AnswerTable, Filter, Question, filter::MAX_ROWS,
};

/// The most pages of one question: every row of the largest fleet with every column.
const MAX_PAGES: usize = 16;

/// Requests pages until every row is fetched, unless the filter or a flag limits them.
pub(super) async fn ask_all(
    source: &AnswerSource,
    question: Question,
) -> Result<Answer, AnswerSourceError> {
    let Some(first) = with_page(&question, 0) else { return source.ask_question(question).await };
    let mut answer = source.ask_question(first).await?;
    for _ in 1..MAX_PAGES {
        let Answer::Table(table) = &mut answer else { break };
        let next = table.offset + table.rows;
        if table.rows == 0 || next >= table.matched {
            break;
        }
        let Some(more) = with_page(&question, next) else { break };
        match source.ask_question(more).await? {
            Answer::Table(more) if more.rows > 0 => append_rows(Arc::make_mut(table), &more),
            _ => break,
        }
    }
    Ok(answer)
}

/// Describes rows omitted by a limit, as a sentence; none if every row is there.
pub(super) fn describe_omitted(answer: &Answer) -> Option<String> {
    let (printed, offset, matched) = match answer {
        Answer::Table(table) => (table.rows, table.offset, table.matched),
        Answer::Nodes(list) => (list.nodes.len() as u32, 0, list.matched),
        Answer::Findings(list) => (list.findings.len() as u32, 0, list.matched),
        Answer::Targets(list) => (list.targets.len() as u32, 0, list.matched),
        _ => return None,
    };
    (offset + printed < matched).then(|| {
        format!("{printed} of {matched} rows printed; raise the limit, or omit it for all")
    })
}

/// The same question from this row on with the highest limit; none if it has no rows or has a limit.
fn with_page(question: &Question, offset: u32) -> Option<Question> {
    let with_limit = |filter: &Filter| {
        let is_unlimited = filter.limit().is_none();
        // The filter with a limit may exceed the maximum length: then the default limit applies, and omitted rows are
        // reported.
        is_unlimited.then(|| filter.with_page(MAX_ROWS, filter.offset() + offset).ok()).flatten()
    };
    match question {
        Question::Table(filter) => with_limit(filter).map(Question::Table),
        Question::List(filter) => with_limit(filter).map(Question::List),
        Question::AtTime(when, question) => {
            Some(Question::AtTime(*when, Box::new(with_page(question, offset)?)))
        }
        _ => None,
    }
}

/// Appends the rows of the next page to a table.
fn append_rows(table: &mut AnswerTable, more: &AnswerTable) {
    let before = table.rows;
    for (column, next) in table.columns.iter_mut().zip(&more.columns) {
        append_cells(column, next, before);
    }
    table.rows += more.rows;
    table.matched = more.matched;
}

fn append_cells(column: &mut AnswerColumn, next: &AnswerColumn, before: u32) {
    match (&mut column.cells, &next.cells) {
        (
            AnswerCells::Numbers { values, absent },
            AnswerCells::Numbers { values: more, absent: more_absent },
        ) => {
            values.extend_from_slice(more);
            for (reason, rows) in more_absent {
                absent.entry(*reason).or_default().extend(rows.iter().map(|row| before + row));
            }
        }
        (
            AnswerCells::Texts { words, codes },
            AnswerCells::Texts { words: more, codes: more_codes },
        ) => {
            let shift = words.len() as u32;
            words.extend_from_slice(more);
            codes.extend(more_codes.iter().map(|code| code.map(|code| shift + code)));
        }
        // Pages of one question have the same columns.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gaunt_schema::{AbsenceReason, Delivery, SanitizedText, ScrapeTarget, TargetId, UnixMs};

    use super::*;
    use gaunt_api::Subject;

    fn test_table(offset: u32, names: &[&str]) -> AnswerTable {
        let rows = names.len() as u32;
        let texts = AnswerCells::Texts {
            words: names.iter().map(|name| (*name).into()).collect(),
            codes: (0..rows).map(Some).collect(),
        };
        let numbers = AnswerCells::Numbers {
            values: (0..rows).map(|row| (row > 0).then_some(f64::from(row))).collect(),
            absent: BTreeMap::from([(AbsenceReason::Stale, vec![0])]),
        };
        let column =
            |name: &str, cells| AnswerColumn { name: name.into(), metric: None, unit: None, cells };
        AnswerTable {
            at: UnixMs(0),
            subject: Subject::Gpus,
            total: 4,
            matched: 4,
            offset,
            rows,
            columns: vec![column("node", texts), column("power", numbers)],
        }
    }

    #[test]
    fn pages_of_a_table_are_merged() {
        let mut table = test_table(0, &["a", "b"]);
        append_rows(&mut table, &test_table(2, &["c", "d"]));
        let names: Vec<_> =
            (0..4).map(|row| table.columns[0].text_at(row).unwrap().to_string()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        assert_eq!((table.rows, table.columns[1].number_at(3)), (4, Some(1.0)));
        assert_eq!(table.columns[1].absent_reason(2), Some(AbsenceReason::Stale));
        assert_eq!(describe_omitted(&Answer::Table(table.into())), None);
        let expected = "2 of 4 rows printed; raise the limit, or omit it for all";
        assert_eq!(
            describe_omitted(&Answer::Table(test_table(0, &["a", "b"]).into())).as_deref(),
            Some(expected)
        );
    }

    #[tokio::test]
    async fn all_rows_are_requested_beyond_the_default_limit() {
        let engine = gaunt_engine::spawn_new(
            gaunt_engine::EngineOptions::default(),
            gaunt_engine::monotonic_clock(),
        );
        let target = |number: u32| ScrapeTarget {
            id: TargetId(number),
            address: SanitizedText::new(&format!("n{number}:9770")),
            node: None,
            origin: "test".into(),
        };
        let targets = (0..1_234).map(target).collect();
        engine.delivery_sender().send(Delivery::Targets(targets)).await.unwrap();
        let source = AnswerSource::Engine(engine);
        let question = Question::Table(Filter::all_rows(Subject::Targets));
        let table = loop {
            let Answer::Table(table) = ask_all(&source, question.clone()).await.unwrap() else {
                panic!("no table")
            };
            if table.total > 0 {
                break table;
            }
            source.wait_for_tick(table.at).await.unwrap();
        };
        assert_eq!((table.rows, table.matched), (1_234, 1_234));
    }

    #[test]
    fn question_without_a_limit_asks_for_every_row() {
        let parse = |line: &str| Question::parse_line(line, &[]).unwrap();
        let request_of = |line: &str, offset| {
            let question = with_page(&parse(line), offset)?;
            let (segments, parameters) = question.to_path();
            Some(format!("{} {}", segments.join("/"), parameters.last()?.1))
        };
        let filter = "gpus?filter=power>1&sort=power desc,node&columns=node,power&offset=3";
        assert_eq!(
            request_of(filter, 10).unwrap(),
            "table/gpus power>1 sort power desc, node limit 131072 offset 13 columns node, power"
        );
        assert_eq!(request_of("ports", 0).unwrap(), "table/ports limit 131072");
        assert_eq!(request_of("gpus?limit=5", 0), None);
        assert_eq!(request_of("overview", 0), None);
        assert!(request_of("jobs?at=-5m", 7).is_some());
    }
}
