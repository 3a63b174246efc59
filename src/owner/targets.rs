//! Targets as answers, and the counters of what was done since the start.

use std::collections::BTreeMap;

use gaunt_schema::{Batch, Safe};

use super::Owner;
use crate::{
    answer::{LeftOut, TargetLine, TargetList, TargetState, Totals, filter::Selected},
    cluster::{Scraped, Standing},
    judge,
};

/// The most reasons of rejected lines that are told apart; a page chooses them only among the reader's own words.
const MAX_REASONS: usize = 64;

/// Why a batch is not taken, if it is not: nobody announced its target, or a later attempt has been taken already.
pub(super) fn dropped(target: Option<&Scraped>, batch: &Batch) -> Option<&'static str> {
    let Some(target) = target else { return Some("unannounced") };
    target.last_attempt.is_some_and(|last| batch.at < last).then_some("overtaken")
}

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
        let all: Vec<u32> = (0..self.cluster.targets().len() as u32).collect();
        let matched = all.len() as u32;
        self.some_targets(&Selected { matched, rows: all })
    }

    /// The targets at these places.
    pub(super) fn some_targets(&self, selected: &Selected) -> TargetList {
        let targets = self.cluster.targets();
        let lines = selected.rows.iter().filter_map(|row| targets.get(*row as usize));
        TargetList {
            at: self.cluster.now(),
            targets: lines.map(|target| self.target_line(target)).collect(),
            total: targets.len() as u32,
            matched: selected.matched,
            sources: self.cluster.sources().to_vec(),
            totals: self.totals.clone(),
            left_out: self.left_out(),
            keeping: self.cluster.keeping().cloned(),
        }
    }

    /// What limits leave out now.
    fn left_out(&self) -> LeftOut {
        let mut refused_devices: BTreeMap<Safe, u64> = BTreeMap::new();
        let targets = self.cluster.targets();
        for (class, devices) in targets.iter().flat_map(|target| target.refused().iter()) {
            *refused_devices.entry(Safe::new(class.as_str())).or_default() += u64::from(devices);
        }
        LeftOut {
            findings_without_place: self.without_place.clone(),
            refused_devices,
            unjudged_targets: targets.iter().filter(|target| target.unjudged > 0).count() as u32,
            dropped_batches: self.dropped_batches.clone(),
        }
    }

    /// Whether a target is read. Where gaunt itself did not come to read several, the last attempt at each still stands.
    pub(super) fn standing(&self, target: &Scraped) -> Standing {
        let least = self.options.thresholds.untried_targets.max(1.0);
        let is_late = self.cluster.untried() as f64 >= least;
        if !is_late || !target.is_missed() || target.has_failed() {
            return target.standing;
        }
        if target.last_success.is_some() { Standing::Live } else { Standing::Pending }
    }

    /// The node that a target speaks for: as the operator named it, or as its page says.
    pub(super) fn spoken_for<'a>(&'a self, target: &'a Scraped) -> Option<&'a Safe> {
        let spoken = || Some(&self.cluster.node(target.node?)?.name);
        target.target.node.as_ref().or_else(spoken)
    }

    pub(super) fn target_line(&self, target: &Scraped) -> TargetLine {
        TargetLine {
            address: target.target.address.clone(),
            node: self.spoken_for(target).cloned(),
            origin: target.target.origin.clone(),
            state: match self.standing(target) {
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
            dropped_batches: target.dropped,
        }
    }
}
