//! Answers about targets, and cumulative counters since the start.

use std::collections::BTreeMap;

use gaunt_schema::{Batch, SanitizedText};

use super::view::View;
use gaunt_api::{
    CumulativeTotals, LimitOmissions, TargetLine, TargetList, TargetState, filter::SelectedRows,
};
use gaunt_cluster::{TargetHealth, TrackedTarget};

/// Maximum number of reasons of rejected lines with counters of their own; reasons are texts of the parser, never of a
/// page.
const MAX_REASONS: usize = 64;

/// Why a batch is dropped, if it is: its target is unknown, or a later attempt has been ingested already.
pub(super) fn drop_reason(target: Option<&TrackedTarget>, batch: &Batch) -> Option<&'static str> {
    let Some(target) = target else { return Some("unannounced") };
    target.last_attempt.is_some_and(|last| batch.at < last).then_some("overtaken")
}

/// Counts a result, for so many periods.
pub(super) fn count_attempt(totals: &mut CumulativeTotals, batch: &Batch, periods: u32) {
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
        Some(count) => *count += u64::from(periods),
        None => drop(totals.scrapes.insert(SanitizedText::new(outcome), periods.into())),
    }
}

impl<'a> View<'a> {
    pub(super) fn target_list(&self) -> TargetList {
        let all: Vec<u32> = (0..self.cluster.tracked_targets().len() as u32).collect();
        let matched = all.len() as u32;
        self.some_targets(&SelectedRows { matched, rows: all })
    }

    /// The targets at these positions.
    pub(super) fn some_targets(&self, selected: &SelectedRows) -> TargetList {
        let targets = self.cluster.tracked_targets();
        let lines = selected.rows.iter().filter_map(|row| targets.get(*row as usize));
        TargetList {
            at: self.cluster.now(),
            targets: lines.map(|target| self.target_line(target)).collect(),
            total: targets.len() as u32,
            matched: selected.matched,
            sources: self.cluster.target_sources().to_vec(),
            site_files: self.cluster.site_files().to_vec(),
            totals: self.totals.clone(),
            left_out: self.left_out(),
            keeping: self.cluster.recording_status().cloned(),
            peers: self.peer_lines(),
            store: self.store_line(),
            certificates: self.cluster.own_certificates().to_vec(),
        }
    }

    /// What is omitted because of limits now.
    fn left_out(&self) -> LimitOmissions {
        let mut refused_devices: BTreeMap<SanitizedText, u64> = BTreeMap::new();
        let targets = self.cluster.tracked_targets();
        for (class, devices) in targets.iter().flat_map(|target| target.refused_devices().iter()) {
            *refused_devices.entry(SanitizedText::new(class.as_str())).or_default() +=
                u64::from(devices);
        }
        LimitOmissions {
            findings_without_place: self.without_place.cloned().unwrap_or_default(),
            refused_devices,
            unjudged_targets: targets.iter().filter(|target| target.unjudged > 0).count() as u32,
            dropped_batches: self.dropped_batches.clone(),
        }
    }

    /// Health of a target. If gaunt itself failed to scrape several targets, the result of each one's last attempt
    /// stays.
    pub(super) fn standing(&self, target: &TrackedTarget) -> TargetHealth {
        let least = self.options.thresholds.untried_targets.max(1.0);
        let is_late = self.cluster.untried() as f64 >= least;
        if !is_late || !target.is_missed() || target.has_failed() {
            return target.health;
        }
        if target.last_success.is_some() { TargetHealth::Live } else { TargetHealth::Pending }
    }

    /// The node of a target: from the operator's configuration, or from its page.
    pub(super) fn node_of_target(&self, target: &'a TrackedTarget) -> Option<&'a SanitizedText> {
        let reported = || Some(&self.cluster.node_by_id(target.node?)?.name);
        target.target.node.as_ref().or_else(reported)
    }

    pub(super) fn target_line(&self, target: &'a TrackedTarget) -> TargetLine {
        TargetLine {
            address: target.target.address.clone(),
            node: self.node_of_target(target).cloned(),
            origin: target.target.origin.clone(),
            state: match self.standing(target) {
                TargetHealth::Pending => TargetState::Pending,
                TargetHealth::Live => TargetState::Live,
                TargetHealth::Down => TargetState::Down,
            },
            dialect: target.dialect,
            last_attempt: target.last_attempt,
            last_success: target.last_success,
            failure: target.failure.clone(),
            message: gaunt_judge::target_problem(self.cluster, target),
            duration_ms: target.duration_ms,
            samples: target.samples,
            bytes: target.bytes,
            rejected: target.rejected.clone(),
            missed: target.missed,
            dropped_batches: target.dropped,
        }
    }
}
