//! Tables: bulk answers as columns, one array for each metric and identity, texts kept once each.

use std::collections::BTreeMap;

use gaunt_schema::{AbsenceReason, SanitizedText, UnixMs, unit::Unit};
use serde::{Deserialize, Serialize};

use super::Subject;

/// Rows of a subject as columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerTable {
    /// The owner's clock when this was true.
    pub at: UnixMs,
    /// What the rows are.
    pub subject: Subject,
    /// How many rows there are in all.
    pub total: u32,
    /// How many of them match the filter.
    pub matched: u32,
    /// How many of those were passed over before the first row of this table.
    pub offset: u32,
    /// How many rows this table has; every column has as many cells.
    pub rows: u32,
    /// The columns, in the order in which they were asked for.
    pub columns: Vec<AnswerColumn>,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerColumn {
    /// The short name of its field.
    pub name: String,
    /// The catalogue key of the metric that it shows, if it shows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// The unit of its numbers; a counter is shown by what it grows in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
    /// A cell for each row.
    pub cells: AnswerCells,
}

/// The cells of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerCells {
    /// Numbers.
    Numbers {
        /// One for each row; none where it is absent.
        values: Vec<Option<f64>>,
        /// The rows of which it is known why they have none, by reason.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        absent: BTreeMap<AbsenceReason, Vec<u32>>,
    },
    /// Texts.
    Texts {
        /// The different texts.
        words: Vec<SanitizedText>,
        /// Which of them each row has; none where it is absent.
        codes: Vec<Option<u32>>,
    },
}

impl AnswerTable {
    /// The column of this name.
    pub fn find_column(&self, name: &str) -> Option<&AnswerColumn> {
        self.columns.iter().find(|column| column.name == name)
    }
}

impl AnswerColumn {
    /// The number in a row.
    pub fn number_at(&self, row: usize) -> Option<f64> {
        match &self.cells {
            AnswerCells::Numbers { values, .. } => values.get(row).copied().flatten(),
            AnswerCells::Texts { .. } => None,
        }
    }

    /// The text in a row.
    pub fn text_at(&self, row: usize) -> Option<&SanitizedText> {
        match &self.cells {
            AnswerCells::Numbers { .. } => None,
            AnswerCells::Texts { words, codes } => {
                words.get(codes.get(row).copied().flatten()? as usize)
            }
        }
    }

    /// Why a row has no number, where that is known.
    pub fn absent_reason(&self, row: usize) -> Option<AbsenceReason> {
        let AnswerCells::Numbers { absent, .. } = &self.cells else { return None };
        let row = row as u32;
        absent.iter().find(|(_, rows)| rows.binary_search(&row).is_ok()).map(|(reason, _)| *reason)
    }
}
