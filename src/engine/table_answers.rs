//! Tables and filtered lists: the rows that match a filter.

use std::{collections::BTreeMap, sync::Arc};

use gaunt_schema::{AbsenceReason, SanitizedText, UnixMs};

use super::{finding_answers::group_findings, finding_contexts::contexts_of, view::View};
use gaunt_api::{
    Answer, AnswerCells, AnswerColumn, AnswerTable, FieldKind, Filter, Finding, FindingList,
    NodeList, Refusal, Subject, SubjectField,
    filter::{MAX_CELLS, RowSource, TextColumn, USUAL_ROWS, select_rows},
};

impl View<'_> {
    /// The rows that match a filter, as columns.
    pub(super) fn build_table(&self, filter: &Filter) -> AnswerTable {
        let rows = self.subject_rows(filter);
        let total = self.total_rows(filter.subject(), &*rows);
        table_of_rows(self.at, filter, total, &*rows)
    }

    /// The nodes, findings or targets that match a filter.
    pub(super) fn build_list(&self, filter: &Filter) -> Result<Answer, Refusal> {
        let rows = self.subject_rows(filter);
        let selected = select_rows(filter, &*rows, USUAL_ROWS);
        let (at, total, matched) = (self.at, rows.len() as u32, selected.matched);
        Ok(match filter.subject() {
            Subject::Nodes => {
                let all = &self.all_nodes().nodes;
                let lines = selected.rows.iter().filter_map(|row| all.get(*row as usize));
                let nodes = lines.cloned().collect();
                Answer::Nodes(Arc::new(NodeList { at, nodes, total, matched }))
            }
            Subject::Findings | Subject::Closed => {
                let closed = filter.subject() == Subject::Closed;
                let all = if closed { &self.closed.findings } else { &self.findings.findings };
                let lines = selected.rows.iter().filter_map(|row| all.get(*row as usize));
                let findings: Vec<Finding> = lines.cloned().collect();
                let groups =
                    if closed { Vec::new() } else { group_findings(self.cluster, &findings) };
                let contexts = contexts_of(&self.findings.contexts, &findings);
                let list = FindingList { at, findings, total, matched, groups, contexts };
                Answer::Findings(Arc::new(list))
            }
            Subject::Targets => Answer::Targets(Arc::new(self.some_targets(&selected))),
            other => {
                return Err(Refusal::UnknownQuestion {
                    ask: SanitizedText::new(&format!("a list of {}", other.as_str())),
                });
            }
        })
    }
}

/// The rows that match a filter, out of `total`, as columns.
pub fn table_of_rows(at: UnixMs, filter: &Filter, total: u32, rows: &dyn RowSource) -> AnswerTable {
    let columns = filter.shown_columns();
    let mut selected = select_rows(filter, rows, USUAL_ROWS);
    // The rest is for the next page; `rows` is where this one ends.
    selected.rows.truncate(MAX_CELLS as usize / columns.len().max(1));
    AnswerTable {
        at,
        subject: filter.subject(),
        total,
        matched: selected.matched,
        offset: filter.offset(),
        rows: selected.rows.len() as u32,
        columns: columns.iter().map(|field| build_column(field, rows, &selected.rows)).collect(),
    }
}

fn build_column(field: &SubjectField, rows: &dyn RowSource, selected: &[u32]) -> AnswerColumn {
    let (unit, cells) = match field.kind {
        FieldKind::Number(unit) => (Some(unit), number_cells(field, rows, selected)),
        FieldKind::Text | FieldKind::Texts => {
            (None, text_cells(&rows.collect_texts(field.key, selected), selected.len()))
        }
    };
    AnswerColumn { name: field.name.clone(), metric: field.metric_key(), unit, cells }
}

fn number_cells(field: &SubjectField, rows: &dyn RowSource, selected: &[u32]) -> AnswerCells {
    let mut absent: BTreeMap<AbsenceReason, Vec<u32>> = BTreeMap::new();
    let numbers = rows.collect_numbers(field.key, selected);
    let values = numbers.into_iter().enumerate().map(|(at, value)| {
        if value.is_nan() {
            if let Some(reason) = rows.absent_reason(field.key, selected[at]) {
                absent.entry(reason).or_default().push(at as u32);
            }
            return None;
        }
        Some(value)
    });
    let values = values.collect();
    AnswerCells::Numbers { values, absent }
}

/// Several texts of one row are joined in one cell.
fn text_cells(texts: &TextColumn, rows: usize) -> AnswerCells {
    let mut words: Vec<SanitizedText> = Vec::new();
    let mut code_of: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
    let mut codes = Vec::with_capacity(rows);
    for row in 0..rows {
        let row_codes = texts.of(row);
        if row_codes.is_empty() {
            codes.push(None);
            continue;
        }
        let code = code_of.get(row_codes).copied().unwrap_or_else(|| {
            let row_texts: Vec<&str> = texts.row_texts(row).map(SanitizedText::as_str).collect();
            words.push(SanitizedText::new(&row_texts.join(", ")));
            code_of.insert(row_codes.to_vec(), words.len() as u32 - 1);
            words.len() as u32 - 1
        });
        codes.push(Some(code));
    }
    AnswerCells::Texts { words, codes }
}
