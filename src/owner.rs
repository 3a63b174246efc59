//! The owner: holds everything that is known and judged, and is the only place where time enters.

use std::{sync::Arc, time::Duration};

use gaunt_schema::{Delivery, Safe, UnixMs};

use crate::{
    answer::{Answer, FindingList, NodeList, Overview, Question, Refusal, TargetList},
    judge::Thresholds,
};

mod handle;
mod run;

pub use handle::{Gone, Handle, INBOX, QUESTIONS};
pub use run::{clock, start};

/// How an owner is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cluster's name as the operator gave it; may be empty.
    pub cluster: Safe,
    /// The time between two scrapes of a target.
    pub period: Duration,
    /// Points of history that are kept of each series, one a period.
    pub slots: usize,
    /// What a GPU costs in an hour, if the operator said it.
    pub price_per_gpu_hour: Option<f64>,
    /// The currency of the price.
    pub currency: Safe,
    /// The limits of the judge.
    pub thresholds: Thresholds,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cluster: Safe::default(),
            period: Duration::from_secs(1),
            slots: 120,
            price_per_gpu_hour: None,
            currency: Safe::new("USD"),
            thresholds: Thresholds::default(),
        }
    }
}

/// All that is known and judged, driven from outside: by the loop of [`start`], or by a test in virtual time.
#[derive(Debug)]
pub struct Owner {
    options: Options,
    now: UnixMs,
}

impl Owner {
    /// An owner that knows nothing yet.
    pub fn new(options: Options) -> Self {
        Self { options, now: UnixMs::default() }
    }

    /// Takes what a sender brought.
    pub fn accept(&mut self, delivery: Delivery) {
        drop(delivery);
    }

    /// Lets time pass: judges what is known and publishes the overview.
    pub fn tick(&mut self, now: UnixMs) {
        self.now = now;
    }

    /// Answers a question about the last tick.
    pub fn answer(&mut self, question: &Question) -> Answer {
        match question {
            Question::Overview => Answer::Overview(Arc::new(Overview {
                cluster: self.options.cluster.clone(),
                at: self.now,
                ..Overview::default()
            })),
            Question::Nodes => Answer::Nodes(Arc::new(NodeList::default())),
            Question::Node(node) => Answer::Refused(Refusal::UnknownNode { node: node.clone() }),
            Question::Findings => Answer::Findings(Arc::new(FindingList::default())),
            Question::Targets => Answer::Targets(Arc::new(TargetList::default())),
        }
    }
}
