//! Findings as rows: open ones worst first, closed ones newest first.

use gaunt_schema::{LifeState, SanitizedText, Severity};

use super::{FieldColumn, SubjectRows};
use gaunt_api::{Finding, FindingField, FindingList};

/// The findings of a list.
pub(super) struct FindingRows<'a> {
    list: &'a FindingList,
}

impl<'a> FindingRows<'a> {
    pub(super) fn new(list: &'a FindingList) -> Self {
        Self { list }
    }

    fn finding_at(&self, row: u32) -> &'a Finding {
        &self.list.findings[row as usize]
    }
}

impl<'a> SubjectRows<'a> for FindingRows<'a> {
    type Field = FindingField;

    fn row_count(&self) -> usize {
        self.list.findings.len()
    }

    fn builtin_column(&self, field: FindingField, rows: &[u32]) -> FieldColumn {
        let now = self.list.at;
        let at = |row| self.finding_at(row);
        let entity = |row| &self.finding_at(row).entity;
        let made = |text: fn(&Finding) -> String| {
            FieldColumn::made_texts(rows, |row| Some(SanitizedText::new(&text(at(row)))))
        };
        match field {
            FindingField::Id => made(|finding| finding.id.clone()),
            FindingField::Entity => made(|finding| finding.entity.to_string()),
            FindingField::Summary => made(|finding| finding.summary.clone()),
            FindingField::Finding => FieldColumn::kinds(rows, |row| Some(at(row).kind)),
            FindingField::Severity => {
                let words: Vec<&str> = Severity::ALL.iter().map(|known| known.as_str()).collect();
                FieldColumn::coded(rows, &words, |row| Some(at(row).severity as usize))
            }
            FindingField::Life => {
                let words: Vec<&str> = LifeState::ALL.iter().map(|known| known.as_str()).collect();
                FieldColumn::coded(rows, &words, |row| Some(at(row).life.state as usize))
            }
            FindingField::Acknowledged => {
                FieldColumn::texts(rows, |row| Some(&at(row).acknowledged.as_ref()?.by))
            }
            FindingField::Note => {
                FieldColumn::texts(rows, |row| Some(&at(row).acknowledged.as_ref()?.note))
            }
            FindingField::Node => FieldColumn::texts(rows, |row| entity(row).node.as_ref()),
            FindingField::Gpu => FieldColumn::texts(rows, |row| entity(row).gpu.as_ref()),
            FindingField::Device => FieldColumn::texts(rows, |row| entity(row).device.as_ref()),
            FindingField::Port => FieldColumn::texts(rows, |row| entity(row).port.as_ref()),
            FindingField::Job => FieldColumn::texts(rows, |row| entity(row).job.as_ref()),
            FindingField::Leaf => FieldColumn::texts(rows, |row| entity(row).leaf.as_ref()),
            FindingField::Rail => FieldColumn::texts(rows, |row| entity(row).rail.as_ref()),
            FindingField::Lost | FindingField::Cost => {
                FieldColumn::numbers(rows, |row| Some(at(row).lost_gpus))
            }
            FindingField::Confidence => FieldColumn::numbers(rows, |row| Some(at(row).confidence)),
            FindingField::Victims => {
                FieldColumn::numbers(rows, |row| Some(at(row).victims.len() as f64))
            }
            FindingField::Openings => {
                FieldColumn::numbers(rows, |row| Some(f64::from(at(row).life.openings)))
            }
            FindingField::Closed => FieldColumn::numbers(rows, |row| {
                Some(now.duration_since(at(row).life.closed?).as_secs_f64())
            }),
            FindingField::Age => FieldColumn::numbers(rows, |row| {
                Some(now.duration_since(at(row).since).as_secs_f64())
            }),
        }
    }
}
