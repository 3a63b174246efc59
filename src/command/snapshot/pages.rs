//! All rows of a question: without a limit as many answers are asked for as it takes.

use std::sync::Arc;

use crate::{
    answer::{Answer, Cells, Column, Filter, Question, Table, filter::MAX_ROWS},
    source::{Source, SourceError},
};

/// The most answers that one question takes: every row of the largest fleet with every column.
const MAX_PAGES: usize = 16;

/// Asks until every row has come, where neither the filter nor a flag limits them.
pub(super) async fn ask_all(source: &Source, question: Question) -> Result<Answer, SourceError> {
    let Some(first) = paged(&question, 0) else { return source.ask(question).await };
    let mut answer = source.ask(first).await?;
    for _ in 1..MAX_PAGES {
        let Answer::Table(table) = &mut answer else { break };
        let next = table.offset + table.rows;
        if table.rows == 0 || next >= table.matched {
            break;
        }
        let Some(more) = paged(&question, next) else { break };
        match source.ask(more).await? {
            Answer::Table(more) if more.rows > 0 => append(Arc::make_mut(table), &more),
            _ => break,
        }
    }
    Ok(answer)
}

/// What a limit left out, as a sentence; none if every row is there.
pub(super) fn cut(answer: &Answer) -> Option<String> {
    let (printed, offset, matched) = match answer {
        Answer::Table(table) => (table.rows, table.offset, table.matched),
        Answer::Nodes(list) => (list.nodes.len() as u32, 0, list.matched),
        Answer::Findings(list) => (list.findings.len() as u32, 0, list.matched),
        Answer::Targets(list) => (list.targets.len() as u32, 0, list.matched),
        _ => return None,
    };
    (offset + printed < matched).then(|| {
        format!("{printed} of {matched} rows are printed; raise the limit, or leave it out for all")
    })
}

/// The same question from this row on with the highest limit; none if it has no rows or says its limit itself.
fn paged(question: &Question, offset: u32) -> Option<Question> {
    let page = |filter: &Filter| {
        let unlimited = filter.limit().is_none();
        // The text with a limit may be longer than any filter: then the usual limit holds, and what it cuts is said.
        unlimited.then(|| filter.page(MAX_ROWS, filter.offset() + offset).ok()).flatten()
    };
    match question {
        Question::Table(filter) => page(filter).map(Question::Table),
        Question::List(filter) => page(filter).map(Question::List),
        Question::Then(when, question) => {
            Some(Question::Then(*when, Box::new(paged(question, offset)?)))
        }
        _ => None,
    }
}

/// Puts the rows of the next page behind those of a table.
fn append(table: &mut Table, more: &Table) {
    let before = table.rows;
    for (column, next) in table.columns.iter_mut().zip(&more.columns) {
        append_cells(column, next, before);
    }
    table.rows += more.rows;
    table.matched = more.matched;
}

fn append_cells(column: &mut Column, next: &Column, before: u32) {
    match (&mut column.cells, &next.cells) {
        (
            Cells::Numbers { values, absent },
            Cells::Numbers { values: more, absent: more_absent },
        ) => {
            values.extend_from_slice(more);
            for (reason, rows) in more_absent {
                absent.entry(*reason).or_default().extend(rows.iter().map(|row| before + row));
            }
        }
        (Cells::Texts { words, codes }, Cells::Texts { words: more, codes: more_codes }) => {
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

    use gaunt_schema::{Absent, Delivery, Safe, Target, TargetId, UnixMs};

    use super::*;
    use crate::{answer::Subject, owner};

    fn table(offset: u32, names: &[&str]) -> Table {
        let rows = names.len() as u32;
        let texts = Cells::Texts {
            words: names.iter().map(|name| (*name).into()).collect(),
            codes: (0..rows).map(Some).collect(),
        };
        let numbers = Cells::Numbers {
            values: (0..rows).map(|row| (row > 0).then_some(f64::from(row))).collect(),
            absent: BTreeMap::from([(Absent::Stale, vec![0])]),
        };
        let column =
            |name: &str, cells| Column { name: name.into(), metric: None, unit: None, cells };
        Table {
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
    fn pages_of_a_table_become_one() {
        let mut whole = table(0, &["a", "b"]);
        append(&mut whole, &table(2, &["c", "d"]));
        let names: Vec<_> =
            (0..4).map(|row| whole.columns[0].text(row).unwrap().to_string()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        assert_eq!((whole.rows, whole.columns[1].number(3)), (4, Some(1.0)));
        assert_eq!(whole.columns[1].reason(2), Some(Absent::Stale));
        assert_eq!(cut(&Answer::Table(whole.into())), None);
        let says = "2 of 4 rows are printed; raise the limit, or leave it out for all";
        assert_eq!(cut(&Answer::Table(table(0, &["a", "b"]).into())).as_deref(), Some(says));
    }

    #[tokio::test]
    async fn every_row_is_asked_for_where_1_000_were_usual() {
        let owner = owner::start(owner::Options::default(), owner::clock());
        let target = |number: u32| Target {
            id: TargetId(number),
            address: Safe::new(&format!("n{number}:9770")),
            node: None,
            origin: "test".into(),
        };
        let targets = (0..1_234).map(target).collect();
        owner.inbox().send(Delivery::Targets(targets)).await.unwrap();
        let source = Source::Owner(owner);
        let all = Question::Table(Filter::all(Subject::Targets));
        let table = loop {
            let Answer::Table(table) = ask_all(&source, all.clone()).await.unwrap() else {
                panic!("no table")
            };
            if table.total > 0 {
                break table;
            }
            source.ticked_after(table.at).await.unwrap();
        };
        assert_eq!((table.rows, table.matched), (1_234, 1_234));
    }

    #[test]
    fn question_without_a_limit_asks_for_every_row() {
        let read = |line: &str| Question::read_line(line, &[]).unwrap();
        let asks = |line: &str, offset| {
            let question = paged(&read(line), offset)?;
            let (segments, parameters) = question.path();
            Some(format!("{} {}", segments.join("/"), parameters.last()?.1))
        };
        let filter = "gpus?filter=power>1&sort=power desc,node&columns=node,power&offset=3";
        assert_eq!(
            asks(filter, 10).unwrap(),
            "table/gpus power>1 sort power desc, node limit 131072 offset 13 columns node, power"
        );
        assert_eq!(asks("ports", 0).unwrap(), "table/ports limit 131072");
        assert_eq!(asks("gpus?limit=5", 0), None);
        assert_eq!(asks("overview", 0), None);
        assert!(asks("jobs?at=-5m", 7).is_some());
    }
}
