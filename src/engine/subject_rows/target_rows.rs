//! Targets as rows, in the order of the target list.

use gaunt_schema::{Dialect, SanitizedText, ScrapeFailure};

use super::{FieldColumn, SubjectRows};
use crate::view::View;
use gaunt_api::{TargetField, TargetState};
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

impl<'a> SubjectRows<'a> for TargetRows<'a> {
    type Field = TargetField;

    fn row_count(&self) -> usize {
        self.view.cluster.tracked_targets().len()
    }

    fn builtin_column(&self, field: TargetField, rows: &[u32]) -> FieldColumn {
        let now = self.view.cluster.now();
        let at = |row| self.target_at(row);
        match field {
            TargetField::Address => FieldColumn::texts(rows, |row| Some(&at(row).target.address)),
            TargetField::Origin => FieldColumn::texts(rows, |row| Some(&at(row).target.origin)),
            TargetField::Node => FieldColumn::texts(rows, |row| self.view.node_of_target(at(row))),
            TargetField::State => {
                let states = [TargetState::Pending, TargetState::Live, TargetState::Down];
                let words = states.map(TargetState::as_str);
                FieldColumn::coded(rows, &words, |row| {
                    Some(match self.view.standing(at(row)) {
                        TargetHealth::Pending => 0,
                        TargetHealth::Live => 1,
                        TargetHealth::Down => 2,
                    })
                })
            }
            TargetField::Dialect => FieldColumn::made_texts(rows, |row| {
                Some(SanitizedText::new(at(row).dialect.map(Dialect::as_str)?))
            }),
            TargetField::Failure => FieldColumn::made_texts(rows, |row| {
                Some(SanitizedText::new(at(row).failure.as_ref().map(ScrapeFailure::as_str)?))
            }),
            TargetField::Message => FieldColumn::made_texts(rows, |row| {
                gaunt_judge::target_problem(self.view.cluster, at(row))
            }),
            TargetField::Age => FieldColumn::numbers(rows, |row| {
                Some(now.duration_since(at(row).last_success?).as_secs_f64())
            }),
            TargetField::Duration => {
                FieldColumn::numbers(rows, |row| Some(at(row).duration_ms? / 1e3))
            }
            TargetField::Samples => FieldColumn::numbers(rows, |row| Some(at(row).samples as f64)),
            TargetField::Bytes => FieldColumn::numbers(rows, |row| Some(at(row).bytes as f64)),
            TargetField::Rejected => {
                FieldColumn::numbers(rows, |row| Some(at(row).rejected.total_count() as f64))
            }
            TargetField::UnknownFields => {
                FieldColumn::numbers(rows, |row| Some(f64::from(at(row).rejected.fields.unknown)))
            }
            TargetField::Missed => FieldColumn::numbers(rows, |row| Some(at(row).missed as f64)),
        }
    }
}
