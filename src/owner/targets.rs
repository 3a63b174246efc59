//! Targets as answers, and the counters of what was done since the start.

use gaunt_schema::{Batch, Safe};

use super::Owner;
use crate::{
    answer::{TargetLine, TargetList, TargetState, Totals},
    cluster::{Scraped, Standing},
    judge,
};

/// The most reasons of rejected lines that are told apart; a page chooses them only among the reader's own words.
const MAX_REASONS: usize = 64;

/// Counts one attempt.
pub(super) fn count(totals: &mut Totals, batch: &Batch) {
    let outcome = match &batch.outcome {
        Ok(page) => {
            totals.samples += page.report.samples.len() as u64;
            for (reason, lines) in &page.rejected.by_reason {
                if totals.rejected.len() < MAX_REASONS || totals.rejected.contains_key(reason) {
                    *totals.rejected.entry(reason.clone()).or_default() += lines;
                }
            }
            "ok"
        }
        Err(failure) => failure.as_str(),
    };
    match totals.scrapes.get_mut(outcome) {
        Some(count) => *count += 1,
        None => drop(totals.scrapes.insert(Safe::new(outcome), 1)),
    }
}

impl Owner {
    pub(super) fn target_list(&self) -> TargetList {
        let targets = self.cluster.targets().iter().map(|target| self.target_line(target));
        TargetList {
            at: self.cluster.now(),
            targets: targets.collect(),
            sources: self.cluster.sources().to_vec(),
            totals: self.totals.clone(),
        }
    }

    pub(super) fn target_line(&self, target: &Scraped) -> TargetLine {
        let spoken = || Some(self.cluster.node(target.node?)?.name.clone());
        TargetLine {
            address: target.target.address.clone(),
            node: target.target.node.clone().or_else(spoken),
            origin: target.target.origin.clone(),
            state: match target.standing {
                Standing::Pending => TargetState::Pending,
                Standing::Live => TargetState::Live,
                Standing::Down => TargetState::Down,
            },
            dialect: target.dialect,
            last_attempt: target.last_attempt,
            last_success: target.last_success,
            failure: target.failure.clone(),
            message: judge::trouble(target),
            duration_ms: target.duration_ms,
            samples: target.samples,
            bytes: target.bytes,
            rejected: target.rejected.clone(),
            missed: target.missed,
        }
    }
}
