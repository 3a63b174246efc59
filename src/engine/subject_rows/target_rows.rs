//! Targets as rows, in the order of the target list.

use gaunt_schema::{Dialect, SanitizedText, ScrapeFailure};

use super::{TextColumnBuilder, coded_texts, number_column};
use crate::view::View;
use gaunt_api::{
    BuiltinField, FieldKey, TargetState,
    filter::{RowSource, TextColumn},
};
use gaunt_cluster::{TargetHealth, TrackedTarget};

/// Every target.
pub(super) struct TargetRows<'a> {
    view: View<'a>,
}

impl<'a> TargetRows<'a> {
    pub(super) fn new(view: View<'a>) -> Self {
        Self { view }
    }

    fn target_at(&self, row: u32) -> &'a TrackedTarget {
        &self.view.cluster.tracked_targets()[row as usize]
    }
}

impl RowSource for TargetRows<'_> {
    fn len(&self) -> usize {
        self.view.cluster.tracked_targets().len()
    }

    fn collect_numbers(&self, key: FieldKey, rows: &[u32]) -> Vec<f64> {
        let now = self.view.cluster.now();
        let number = |row: &u32| {
            let target = self.target_at(*row);
            match key {
                FieldKey::Builtin(BuiltinField::Age) => {
                    Some(now.duration_since(target.last_success?).as_secs_f64())
                }
                FieldKey::Builtin(BuiltinField::Duration) => Some(target.duration_ms? / 1e3),
                FieldKey::Builtin(BuiltinField::Samples) => Some(target.samples as f64),
                FieldKey::Builtin(BuiltinField::Bytes) => Some(target.bytes as f64),
                FieldKey::Builtin(BuiltinField::Rejected) => {
                    Some(target.rejected.total_count() as f64)
                }
                FieldKey::Builtin(BuiltinField::Missed) => Some(target.missed as f64),
                _ => None,
            }
        };
        number_column(rows.iter().map(number))
    }

    fn collect_texts(&self, key: FieldKey, rows: &[u32]) -> TextColumn {
        let FieldKey::Builtin(own) = key else { return TextColumn::default() };
        let rows = rows.iter().map(|row| self.target_at(*row));
        let words = |word: &dyn Fn(&TrackedTarget) -> Option<&'static str>| -> TextColumn {
            let words: Vec<Option<SanitizedText>> =
                rows.clone().map(|t| word(t).map(SanitizedText::new)).collect();
            TextColumnBuilder::of(words.iter().map(Option::as_ref))
        };
        match own {
            BuiltinField::Address => {
                TextColumnBuilder::of(rows.map(|target| Some(&target.target.address)))
            }
            BuiltinField::Origin => {
                TextColumnBuilder::of(rows.map(|target| Some(&target.target.origin)))
            }
            BuiltinField::Node => {
                TextColumnBuilder::of(rows.map(|target| self.view.node_of_target(target)))
            }
            BuiltinField::State => {
                let states = [TargetState::Pending, TargetState::Live, TargetState::Down];
                let state = |target: &TrackedTarget| match self.view.standing(target) {
                    TargetHealth::Pending => 0,
                    TargetHealth::Live => 1,
                    TargetHealth::Down => 2,
                };
                coded_texts(
                    &states.map(TargetState::as_str),
                    rows.map(|target| Some(state(target))),
                )
            }
            BuiltinField::Dialect => words(&|target| target.dialect.map(Dialect::as_str)),
            BuiltinField::Failure => {
                words(&|target| target.failure.as_ref().map(ScrapeFailure::as_str))
            }
            _ => TextColumn::default(),
        }
    }
}
