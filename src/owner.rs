//! The owner: holds everything that is known and judged, and is the only place where time enters.

use std::{sync::Arc, time::Duration};

use gaunt_schema::{Delivery, Safe, UnixMs};

use crate::{
    answer::{Answer, FindingList, NodeList, Overview, Question, Refusal, Totals},
    cluster::{Cluster, MAX_TARGETS},
    judge::{Judge, Thresholds},
};

mod findings;
mod handle;
mod lost;
mod nodes;
mod overview;
mod run;
mod targets;
#[cfg(test)]
mod tests;

pub use handle::{Gone, Handle, INBOX, QUESTIONS};
use lost::Ledger;
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
    cluster: Cluster,
    judge: Judge,
    ledger: Ledger,
    totals: Totals,
    /// Published once a tick.
    overview: Arc<Overview>,
    findings: Arc<FindingList>,
    /// Made for the first question after a tick.
    nodes: Option<Arc<NodeList>>,
}

impl Owner {
    /// An owner that knows nothing yet.
    pub fn new(options: Options) -> Self {
        Self {
            cluster: Cluster::new(options.period, options.slots),
            judge: Judge::new(options.thresholds.clone()),
            ledger: Ledger::default(),
            totals: Totals::default(),
            overview: Arc::default(),
            findings: Arc::default(),
            nodes: None,
            options,
        }
    }

    /// Takes what a sender brought.
    pub fn accept(&mut self, delivery: Delivery) {
        if let Delivery::Targets(targets) = &delivery
            && targets.len() > MAX_TARGETS
        {
            tracing::error!(
                targets = targets.len(),
                MAX_TARGETS,
                "too many targets: the rest is not read"
            );
        }
        if let Delivery::Batch(batch) = &delivery {
            if self.cluster.target(batch.target).is_none() {
                return tracing::debug!(
                    target = batch.target.0,
                    "batch of a target that is not announced"
                );
            }
            targets::count(&mut self.totals, batch);
        }
        self.cluster.accept(delivery);
    }

    /// Lets time pass: judges what is known and publishes the overview.
    pub fn tick(&mut self, now: UnixMs) {
        self.cluster.advance(now);
        self.judge.step(&self.cluster);
        self.totals.findings_opened.clone_from(self.judge.opened());
        let findings = self.judge.findings().into_iter().map(findings::answer).collect();
        self.findings = Arc::new(FindingList { at: self.cluster.now(), findings });
        self.nodes = None;
        self.overview = Arc::new(self.overview());
    }

    /// Answers a question about the last tick.
    pub fn answer(&mut self, question: &Question) -> Answer {
        match question {
            Question::Overview => Answer::Overview(self.overview.clone()),
            Question::Findings => Answer::Findings(self.findings.clone()),
            Question::Targets => Answer::Targets(Arc::new(self.target_list())),
            Question::Nodes => {
                let nodes = self.nodes.take().unwrap_or_else(|| Arc::new(self.node_list()));
                Answer::Nodes(self.nodes.insert(nodes).clone())
            }
            Question::Node(name) => match self.node_detail(name) {
                Some(detail) => Answer::Node(Arc::new(detail)),
                None => Answer::Refused(Refusal::UnknownNode { node: name.clone() }),
            },
        }
    }
}
