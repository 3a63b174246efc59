//! Findings as rows: open ones worst first, closed ones newest first.

use gaunt_schema::{LifeState, SanitizedText, Severity};

use super::{TextColumnBuilder, coded_texts, kind_texts, number_column};
use gaunt_api::{
    BuiltinField, FieldKey, Finding, FindingList,
    filter::{RowSource, TextColumn},
};

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

impl RowSource for FindingRows<'_> {
    fn len(&self) -> usize {
        self.list.findings.len()
    }

    fn collect_numbers(&self, key: FieldKey, rows: &[u32]) -> Vec<f64> {
        let number = |row: &u32| {
            let finding = self.finding_at(*row);
            match key {
                FieldKey::Builtin(BuiltinField::Lost | BuiltinField::Cost) => {
                    Some(finding.lost_gpus)
                }
                FieldKey::Builtin(BuiltinField::Confidence) => Some(finding.confidence),
                FieldKey::Builtin(BuiltinField::Victims) => Some(finding.victims.len() as f64),
                FieldKey::Builtin(BuiltinField::Openings) => Some(f64::from(finding.life.openings)),
                FieldKey::Builtin(BuiltinField::Closed) => finding
                    .life
                    .closed
                    .map(|closed| self.list.at.duration_since(closed).as_secs_f64()),
                FieldKey::Builtin(BuiltinField::Age) => {
                    Some(self.list.at.duration_since(finding.since).as_secs_f64())
                }
                _ => None,
            }
        };
        number_column(rows.iter().map(number))
    }

    fn collect_texts(&self, key: FieldKey, rows: &[u32]) -> TextColumn {
        let FieldKey::Builtin(own) = key else { return TextColumn::default() };
        let rows = rows.iter().map(|row| self.finding_at(*row));
        let made = |text: fn(&Finding) -> SanitizedText| -> TextColumn {
            let texts: Vec<SanitizedText> = rows.clone().map(text).collect();
            TextColumnBuilder::of(texts.iter().map(Some))
        };
        match own {
            BuiltinField::Id => made(|finding| SanitizedText::new(&finding.id)),
            BuiltinField::Entity => made(|finding| SanitizedText::new(&finding.entity.to_string())),
            BuiltinField::Summary => made(|finding| SanitizedText::new(&finding.summary)),
            BuiltinField::Finding => kind_texts(rows.map(|finding| Some(finding.kind))),
            BuiltinField::Severity => {
                let words: Vec<&str> = Severity::ALL.iter().map(|known| known.as_str()).collect();
                coded_texts(&words, rows.map(|finding| Some(finding.severity as usize)))
            }
            BuiltinField::Life => {
                let words: Vec<&str> = LifeState::ALL.iter().map(|known| known.as_str()).collect();
                coded_texts(&words, rows.map(|finding| Some(finding.life.state as usize)))
            }
            BuiltinField::Acknowledged => TextColumnBuilder::of(
                rows.map(|finding| finding.acknowledged.as_ref().map(|ack| &ack.by)),
            ),
            BuiltinField::Note => TextColumnBuilder::of(
                rows.map(|finding| finding.acknowledged.as_ref().map(|ack| &ack.note)),
            ),
            BuiltinField::Node => {
                TextColumnBuilder::of(rows.map(|finding| finding.entity.node.as_ref()))
            }
            BuiltinField::Gpu => {
                TextColumnBuilder::of(rows.map(|finding| finding.entity.gpu.as_ref()))
            }
            BuiltinField::Device => {
                TextColumnBuilder::of(rows.map(|finding| finding.entity.device.as_ref()))
            }
            BuiltinField::Port => {
                TextColumnBuilder::of(rows.map(|finding| finding.entity.port.as_ref()))
            }
            BuiltinField::Job => {
                TextColumnBuilder::of(rows.map(|finding| finding.entity.job.as_ref()))
            }
            BuiltinField::Leaf => {
                TextColumnBuilder::of(rows.map(|finding| finding.entity.leaf.as_ref()))
            }
            BuiltinField::Rail => {
                TextColumnBuilder::of(rows.map(|finding| finding.entity.rail.as_ref()))
            }
            _ => TextColumn::default(),
        }
    }
}
