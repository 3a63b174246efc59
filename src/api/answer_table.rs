//! Tables: bulk answers as columns, one array for each metric and identity, each distinct text stored once.

use std::{collections::BTreeMap, time::Duration};

use gaunt_schema::{AbsenceReason, SanitizedText, UnixMs, unit::Unit};
use serde::{Deserialize, Serialize};

use super::Subject;

/// Digits of a cell that shows a history.
pub const HISTORY_COLUMNS: usize = 20;

/// The field of such cells. Exports for spreadsheets leave it out: its digits would be read as one number.
pub const HISTORY_FIELD: &str = "recent_power";

/// The time that such a cell shows: 15 s a digit.
pub const HISTORY_SPAN: Duration = Duration::from_mins(5);

/// Rows of a subject as columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AnswerTable {
    /// Engine time of this answer.
    pub at: UnixMs,
    /// The subject of the rows.
    pub subject: Subject,
    /// Number of rows before filtering.
    pub total: u32,
    /// Number of rows that match the filter.
    pub matched: u32,
    /// Number of matching rows before the first row of this table.
    pub offset: u32,
    /// Number of rows of this table; every column has as many cells.
    pub rows: u32,
    /// The columns in the requested order.
    pub columns: Vec<AnswerColumn>,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AnswerColumn {
    /// The short name of its field.
    pub name: String,
    /// Catalogue key of its metric, if it shows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Unit of its numbers; a counter is shown as its rate per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
    /// One cell per row.
    pub cells: AnswerCells,
}

/// The cells of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AnswerCells {
    /// Numbers.
    Numbers {
        /// One per row; none where it is absent.
        values: Vec<Option<f64>>,
        /// Rows without a value whose reason is known, by reason.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        absent: BTreeMap<AbsenceReason, Vec<u32>>,
    },
    /// Texts.
    Texts {
        /// The distinct texts.
        words: Vec<SanitizedText>,
        /// Index into `words` per row; none where it is absent.
        codes: Vec<Option<u32>>,
    },
}

impl AnswerTable {
    /// Finds a column by name.
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

    /// Why a row has no number, if known.
    pub fn absent_reason(&self, row: usize) -> Option<AbsenceReason> {
        let AnswerCells::Numbers { absent, .. } = &self.cells else { return None };
        let row = row as u32;
        absent.iter().find(|(_, rows)| rows.binary_search(&row).is_ok()).map(|(reason, _)| *reason)
    }
}
