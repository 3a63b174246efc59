//! Tables and narrowed lists: the rows that a filter leaves.

use std::{collections::BTreeMap, sync::Arc};

use gaunt_schema::{Absent, Safe};

use super::Owner;
use crate::answer::{
    Answer, Cells, Column, Field, FieldKind, Filter, Finding, FindingList, NodeList, Refusal,
    Subject, Table,
    filter::{MAX_CELLS, Rows, Texts, USUAL_ROWS, select},
};

impl Owner {
    /// The rows that a filter leaves, as columns.
    pub(super) fn table(&self, filter: &Filter, nodes: &NodeList) -> Table {
        let rows = self.rows(filter, nodes);
        let columns = filter.columns();
        let mut selected = select(filter, &*rows, USUAL_ROWS);
        // The rest is for the next page; `rows` says where this one ends.
        selected.rows.truncate(MAX_CELLS as usize / columns.len().max(1));
        Table {
            at: self.sight().now(),
            subject: filter.subject(),
            total: self.total(filter.subject(), &*rows),
            matched: selected.matched,
            offset: filter.offset(),
            rows: selected.rows.len() as u32,
            columns: columns.iter().map(|field| column(field, &*rows, &selected.rows)).collect(),
        }
    }

    /// Those nodes, findings or targets that a filter leaves.
    pub(super) fn list(&self, filter: &Filter, nodes: &NodeList) -> Result<Answer, Refusal> {
        let rows = self.rows(filter, nodes);
        let selected = select(filter, &*rows, USUAL_ROWS);
        let (at, total, matched) = (self.sight().now(), rows.len() as u32, selected.matched);
        Ok(match filter.subject() {
            Subject::Nodes => {
                let lines = selected.rows.iter().filter_map(|row| nodes.nodes.get(*row as usize));
                let nodes = lines.cloned().collect();
                Answer::Nodes(Arc::new(NodeList { at, nodes, total, matched }))
            }
            Subject::Findings | Subject::Closed => {
                let closed = filter.subject() == Subject::Closed;
                let all = if closed { &self.closed.findings } else { &self.findings.findings };
                let lines = selected.rows.iter().filter_map(|row| all.get(*row as usize));
                let findings: Vec<Finding> = lines.cloned().collect();
                let groups = if closed { Vec::new() } else { self.group_findings(&findings) };
                Answer::Findings(Arc::new(FindingList { at, findings, total, matched, groups }))
            }
            Subject::Targets => Answer::Targets(Arc::new(self.some_targets(&selected))),
            other => {
                return Err(Refusal::UnknownQuestion {
                    ask: Safe::new(&format!("a list of {}", other.as_str())),
                });
            }
        })
    }
}

fn column(field: &Field, rows: &dyn Rows, selected: &[u32]) -> Column {
    let (unit, cells) = match field.kind {
        FieldKind::Number(unit) => (Some(unit), numbers(field, rows, selected)),
        FieldKind::Text | FieldKind::Texts => {
            (None, texts(&rows.texts(field.key, selected), selected.len()))
        }
    };
    Column { name: field.name.clone(), metric: field.metric(), unit, cells }
}

fn numbers(field: &Field, rows: &dyn Rows, selected: &[u32]) -> Cells {
    let mut absent: BTreeMap<Absent, Vec<u32>> = BTreeMap::new();
    let numbers = rows.numbers(field.key, selected);
    let values = numbers.into_iter().enumerate().map(|(at, value)| {
        if value.is_nan() {
            if let Some(reason) = rows.reason(field.key, selected[at]) {
                absent.entry(reason).or_default().push(at as u32);
            }
            return None;
        }
        Some(value)
    });
    let values = values.collect();
    Cells::Numbers { values, absent }
}

/// Several texts of one row are told in one cell.
fn texts(texts: &Texts, rows: usize) -> Cells {
    let mut words: Vec<Safe> = Vec::new();
    let mut known: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
    let mut codes = Vec::with_capacity(rows);
    for row in 0..rows {
        let of = texts.of(row);
        if of.is_empty() {
            codes.push(None);
            continue;
        }
        let code = known.get(of).copied().unwrap_or_else(|| {
            let said: Vec<&str> = texts.words(row).map(Safe::as_str).collect();
            words.push(Safe::new(&said.join(", ")));
            known.insert(of.to_vec(), words.len() as u32 - 1);
            words.len() as u32 - 1
        });
        codes.push(Some(code));
    }
    Cells::Texts { words, codes }
}
