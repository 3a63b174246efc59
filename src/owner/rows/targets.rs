//! Targets as rows, in the order in which they were named.

use gaunt_schema::{Dialect, Failure, Safe};

use super::{Collected, coded, numbers};
use crate::{
    answer::{
        Key, Own, TargetState,
        filter::{Rows, Texts},
    },
    cluster::{Scraped, Standing},
    owner::Owner,
};

/// Every target.
pub(super) struct Targets<'a> {
    owner: &'a Owner,
}

impl<'a> Targets<'a> {
    pub(super) fn new(owner: &'a Owner) -> Self {
        Self { owner }
    }

    fn target(&self, row: u32) -> &'a Scraped {
        &self.owner.cluster.targets()[row as usize]
    }
}

impl Rows for Targets<'_> {
    fn len(&self) -> usize {
        self.owner.cluster.targets().len()
    }

    fn numbers(&self, key: Key, rows: &[u32]) -> Vec<f64> {
        let now = self.owner.cluster.now();
        let number = |row: &u32| {
            let target = self.target(*row);
            match key {
                Key::Own(Own::Age) => Some(now.since(target.last_success?).as_secs_f64()),
                Key::Own(Own::Duration) => Some(target.duration_ms? / 1e3),
                Key::Own(Own::Samples) => Some(target.samples as f64),
                Key::Own(Own::Bytes) => Some(target.bytes as f64),
                Key::Own(Own::Rejected) => Some(target.rejected.total() as f64),
                Key::Own(Own::Missed) => Some(target.missed as f64),
                _ => None,
            }
        };
        numbers(rows.iter().map(number))
    }

    fn texts(&self, key: Key, rows: &[u32]) -> Texts {
        let Key::Own(own) = key else { return Texts::default() };
        let rows = rows.iter().map(|row| self.target(*row));
        let words = |word: &dyn Fn(&Scraped) -> Option<&'static str>| -> Texts {
            let words: Vec<Option<Safe>> = rows.clone().map(|t| word(t).map(Safe::new)).collect();
            Collected::of(words.iter().map(Option::as_ref))
        };
        match own {
            Own::Address => Collected::of(rows.map(|target| Some(&target.target.address))),
            Own::Origin => Collected::of(rows.map(|target| Some(&target.target.origin))),
            Own::Node => Collected::of(rows.map(|target| self.owner.spoken_for(target))),
            Own::State => {
                let states = [TargetState::Pending, TargetState::Live, TargetState::Down];
                let state = |target: &Scraped| match self.owner.standing(target) {
                    Standing::Pending => 0,
                    Standing::Live => 1,
                    Standing::Down => 2,
                };
                coded(&states.map(TargetState::as_str), rows.map(|target| Some(state(target))))
            }
            Own::Dialect => words(&|target| target.dialect.map(Dialect::as_str)),
            Own::Failure => words(&|target| target.failure.as_ref().map(Failure::as_str)),
            _ => Texts::default(),
        }
    }
}
