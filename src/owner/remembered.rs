//! What an owner hands on over a restart: findings, who took them on, what was counted, and what is usual.

use std::sync::Arc;

use gaunt_schema::LifeState;
use serde::{Deserialize, Serialize};

use super::{
    Options, Owner,
    account::{Recent, Spent},
    acknowledged::Acknowledgements,
};
use crate::{
    answer::{Starved, Totals},
    judge::{Past, Usual},
};

/// Everything that outlives a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remembered {
    past: Past,
    acknowledgements: Acknowledgements,
    spent: Spent,
    totals: Totals,
    /// It is much, changes slowly, and is kept beside the rest.
    #[serde(skip)]
    usual: Option<Arc<Usual>>,
    /// Kept beside the rest likewise.
    #[serde(skip)]
    recent: Recent,
}

impl Remembered {
    /// How many findings are open, and how many closed.
    pub fn findings(&self) -> (usize, usize) {
        let closed = |told: &&crate::judge::Told| told.life.state == LifeState::Closed;
        let closed = self.past.findings.iter().filter(closed).count();
        (self.past.findings.len() - closed, closed)
    }

    /// What is usual for everything, as it was learned within the last minute.
    pub fn usual(&self) -> Option<&Arc<Usual>> {
        self.usual.as_ref()
    }

    /// The same with what was usual before.
    #[must_use]
    pub fn with_usual(self, usual: Usual) -> Self {
        Self { usual: Some(Arc::new(usual)), ..self }
    }

    /// Where GPU time went in the last while.
    pub fn recent(&self) -> &Recent {
        &self.recent
    }

    /// The same with where GPU time went before.
    #[must_use]
    pub fn with_recent(self, recent: Recent) -> Self {
        Self { recent, ..self }
    }

    /// What was lost by then.
    pub(super) fn starved(&self) -> Vec<Starved> {
        self.spent.told()
    }
}

impl Owner {
    /// An owner that goes on where another one ended. What it counts is told only once it is kept.
    pub fn resuming(options: Options, remembered: Remembered) -> Self {
        let mut owner = Self::new(options);
        let Remembered { past, acknowledgements, spent, totals, usual, recent } = remembered;
        let usual = usual.map(|usual| (*usual).clone()).unwrap_or_default();
        owner.judge = owner.judge.map(|judge| judge.resume(past).recalling(usual));
        owner.acknowledgements = acknowledgements;
        owner.account.recent = recent;
        owner.account.spent = spent.resumed();
        owner.told_spent = Some(owner.account.spent.told());
        owner.usual_opened = totals.findings_opened.values().sum();
        owner.totals = totals;
        owner
    }

    /// An owner that lives through a recording from where another one made it. It goes on with findings and with what is
    /// usual; what it counts is that of the recording alone.
    pub fn resuming_recorded(options: Options, remembered: Remembered) -> Self {
        let (spent, totals, recent) = (Spent::default(), Totals::default(), Recent::default());
        let mut owner = Self::resuming(options, Remembered { spent, totals, recent, ..remembered });
        owner.told_spent = None;
        owner
    }

    /// Whether it goes on from no earlier state and has found nothing yet.
    pub fn is_new(&self) -> bool {
        let known = self.remember();
        self.told_spent.is_none() && known.is_some_and(|known| known.findings() == (0, 0))
    }

    /// What outlives a restart; none while the judge is away.
    pub fn remember(&self) -> Option<Remembered> {
        let judge = self.judge.as_ref()?;
        Some(Remembered {
            past: judge.past(),
            acknowledgements: self.acknowledgements.clone(),
            spent: self.account.spent.clone(),
            totals: self.totals.clone(),
            usual: self.usual.clone(),
            recent: self.account.recent.clone(),
        })
    }

    /// This much is kept, and may be told.
    pub(super) fn tell_spent(&mut self, starved: Vec<Starved>) {
        self.told_spent = Some(starved);
    }
}
