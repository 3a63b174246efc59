//! Tables: bulk answers as columns, one array for each metric and identity, texts kept once each.

use std::collections::BTreeMap;

use gaunt_schema::{Absent, Safe, UnixMs, unit::Unit};
use serde::{Deserialize, Serialize};

use super::Subject;

/// Rows of a subject as columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
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
    pub columns: Vec<Column>,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// The short name of its field.
    pub name: String,
    /// The catalogue key of the metric that it shows, if it shows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// The unit of its numbers; a counter is shown by what it grows in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
    /// A cell for each row.
    pub cells: Cells,
}

/// The cells of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cells {
    /// Numbers.
    Numbers {
        /// One for each row; none where it is absent.
        values: Vec<Option<f64>>,
        /// The rows of which it is known why they have none, by reason.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        absent: BTreeMap<Absent, Vec<u32>>,
    },
    /// Texts.
    Texts {
        /// The different texts.
        words: Vec<Safe>,
        /// Which of them each row has; none where it is absent.
        codes: Vec<Option<u32>>,
    },
}

impl Table {
    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

impl Column {
    /// The number in a row.
    pub fn number(&self, row: usize) -> Option<f64> {
        match &self.cells {
            Cells::Numbers { values, .. } => values.get(row).copied().flatten(),
            Cells::Texts { .. } => None,
        }
    }

    /// The text in a row.
    pub fn text(&self, row: usize) -> Option<&Safe> {
        match &self.cells {
            Cells::Numbers { .. } => None,
            Cells::Texts { words, codes } => words.get(codes.get(row).copied().flatten()? as usize),
        }
    }

    /// Why a row has no number, where that is known.
    pub fn reason(&self, row: usize) -> Option<Absent> {
        let Cells::Numbers { absent, .. } = &self.cells else { return None };
        let row = row as u32;
        absent.iter().find(|(_, rows)| rows.binary_search(&row).is_ok()).map(|(reason, _)| *reason)
    }
}
