//! Findings as rows: open ones worst first, closed ones newest first.

use gaunt_schema::{LifeState, Safe, Severity};

use super::{Collected, coded, kinds, numbers};
use crate::answer::{
    Finding, FindingList, Key, Own,
    filter::{Rows, Texts},
};

/// Every finding of a list.
pub(super) struct Findings<'a> {
    list: &'a FindingList,
}

impl<'a> Findings<'a> {
    pub(super) fn new(list: &'a FindingList) -> Self {
        Self { list }
    }

    fn finding(&self, row: u32) -> &'a Finding {
        &self.list.findings[row as usize]
    }
}

impl Rows for Findings<'_> {
    fn len(&self) -> usize {
        self.list.findings.len()
    }

    fn numbers(&self, key: Key, rows: &[u32]) -> Vec<f64> {
        let number = |row: &u32| {
            let finding = self.finding(*row);
            match key {
                Key::Own(Own::Lost | Own::Cost) => Some(finding.lost_gpus),
                Key::Own(Own::Confidence) => Some(finding.confidence),
                Key::Own(Own::Victims) => Some(finding.victims.len() as f64),
                Key::Own(Own::Openings) => Some(f64::from(finding.life.openings)),
                Key::Own(Own::Closed) => {
                    finding.life.closed.map(|closed| self.list.at.since(closed).as_secs_f64())
                }
                Key::Own(Own::Age) => Some(self.list.at.since(finding.since).as_secs_f64()),
                _ => None,
            }
        };
        numbers(rows.iter().map(number))
    }

    fn texts(&self, key: Key, rows: &[u32]) -> Texts {
        let Key::Own(own) = key else { return Texts::default() };
        let rows = rows.iter().map(|row| self.finding(*row));
        let made = |text: fn(&Finding) -> Safe| -> Texts {
            let texts: Vec<Safe> = rows.clone().map(text).collect();
            Collected::of(texts.iter().map(Some))
        };
        match own {
            Own::Id => made(|finding| Safe::new(&finding.id)),
            Own::Entity => made(|finding| Safe::new(&finding.entity.to_string())),
            Own::Summary => made(|finding| Safe::new(&finding.summary)),
            Own::Finding => kinds(rows.map(|finding| Some(finding.kind))),
            Own::Severity => {
                let words: Vec<&str> = Severity::ALL.iter().map(|known| known.as_str()).collect();
                coded(&words, rows.map(|finding| Some(finding.severity as usize)))
            }
            Own::Life => {
                let words: Vec<&str> = LifeState::ALL.iter().map(|known| known.as_str()).collect();
                coded(&words, rows.map(|finding| Some(finding.life.state as usize)))
            }
            Own::Acknowledged => {
                Collected::of(rows.map(|finding| finding.acknowledged.as_ref().map(|ack| &ack.by)))
            }
            Own::Note => Collected::of(
                rows.map(|finding| finding.acknowledged.as_ref().map(|ack| &ack.note)),
            ),
            Own::Node => Collected::of(rows.map(|finding| finding.entity.node.as_ref())),
            Own::Gpu => Collected::of(rows.map(|finding| finding.entity.gpu.as_ref())),
            Own::Device => Collected::of(rows.map(|finding| finding.entity.device.as_ref())),
            Own::Port => Collected::of(rows.map(|finding| finding.entity.port.as_ref())),
            Own::Job => Collected::of(rows.map(|finding| finding.entity.job.as_ref())),
            Own::Leaf => Collected::of(rows.map(|finding| finding.entity.leaf.as_ref())),
            Own::Rail => Collected::of(rows.map(|finding| finding.entity.rail.as_ref())),
            _ => Texts::default(),
        }
    }
}
