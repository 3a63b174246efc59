//! Outcome of each fault: when its finding opened, whether it stayed open, under how many ids, and when it closed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gaunt_api::{Finding, FindingList};
use gaunt_schema::{FindingKind, Severity, UnixMs};
use gaunt_sim::GroundTruth;

use crate::judge_bench::{accepts_entity, is_about};

/// Info kinds, and kinds about gaunt's own telemetry: a finding of any severity counts for them.
const QUIET: [FindingKind; 6] = [
    FindingKind::IdleAllocated,
    FindingKind::StageImbalance,
    FindingKind::DataSkew,
    FindingKind::TargetDown,
    FindingKind::DriverHung,
    FindingKind::DataStale,
];

/// Grace on top of the detection limit: three periods, and three minutes for a flapping finding to close.
const PERIODS: u32 = 3;
const CLOSES: Duration = Duration::from_mins(4);

/// Outcome of one fault.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultOutcome {
    /// Time from onset to detection.
    pub(super) found: Option<Duration>,
    /// Whether it was found after its limit, the time without an aggregator aside.
    pub(super) late: bool,
    /// Time from onset to detection in which no aggregator ran.
    down: Duration,
    /// Total time without a finding between detection and the end of the fault.
    pub(super) away: Duration,
    /// The ids of its findings of its own kind.
    pub(super) ids: BTreeSet<String>,
    /// A finding that stays open long after the end of the fault, and for how long.
    pub(super) lingers: Option<(String, Duration)>,
    /// What its finding said before each absence, and how it closed.
    gaps: Vec<String>,
    /// Id, text and evidence of its finding at the last tick; none while it has none.
    last_seen: Option<(String, String)>,
    /// Reported cost: minimum and maximum.
    cost: Option<(f64, f64)>,
}

/// A warning or critical finding that no fault explains.
#[derive(Clone, Debug)]
pub(super) struct UnexplainedFinding {
    pub(super) id: String,
    pub(super) opened: UnixMs,
    pub(super) paged: bool,
    pub(super) summary: String,
}

/// Evaluates the findings of each tick.
#[derive(Debug)]
pub(super) struct FindingObserver {
    truths: Vec<GroundTruth>,
    outcomes: Vec<FaultOutcome>,
    unexplained: BTreeMap<(String, UnixMs), UnexplainedFinding>,
    /// Findings open at the last tick, and the number of openings.
    open: BTreeSet<String>,
    openings: u64,
    last: Option<UnixMs>,
}

impl FaultOutcome {
    pub(super) fn is_right(&self) -> bool {
        self.found.is_some()
            && !self.late
            && self.away.is_zero()
            && self.ids.len() == 1
            && self.lingers.is_none()
    }

    /// Records an absence, with what the finding said before. Returns the finding's id if it has just begun.
    fn record_gap(&mut self, now: UnixMs) -> Option<String> {
        let (id, before) = self.last_seen.take()?;
        self.gaps.push(format!("    away from {}: before {before}", now.0));
        Some(id)
    }

    /// The absences, a line each.
    pub(super) fn gaps(&self) -> &[String] {
        &self.gaps
    }

    pub(super) fn render_line(&self, truth: &GroundTruth, start: UnixMs) -> String {
        let lasts = truth.ends.map_or(0, |end| end.duration_since(truth.onset).as_secs());
        let down = match self.down.as_secs() {
            0 => String::new(),
            seconds => format!(" ({seconds} s of them without an aggregator)"),
        };
        let found = self
            .found
            .map_or("never found".to_owned(), |f| format!("found {} s{down}", f.as_secs()));
        let cost =
            self.cost.map_or(String::new(), |(low, high)| format!("  cost {low:.1}-{high:.1}"));
        format!(
            "+{} s for {lasts} s  {} {}  {found}{}{}{}{cost}  {:?}",
            truth.onset.duration_since(start).as_secs(),
            truth.kind.as_str(),
            truth.blamed,
            if self.late { " late" } else { "" },
            if self.away.is_zero() {
                String::new()
            } else {
                format!("  closed for {} s", self.away.as_secs())
            },
            self.lingers.as_ref().map_or(String::new(), |(text, after)| format!(
                "  open {} s after the end: {text}",
                after.as_secs()
            )),
            self.ids,
        )
    }
}

impl FindingObserver {
    pub(super) fn new(truths: &[GroundTruth]) -> Self {
        let outcomes = vec![FaultOutcome::default(); truths.len()];
        let (unexplained, open) = (BTreeMap::new(), BTreeSet::new());
        Self { truths: truths.to_vec(), outcomes, unexplained, open, openings: 0, last: None }
    }

    /// Evaluates the open findings of one tick. Returns the ids of those that are absent under their fault since now.
    pub(super) fn observe_findings(&mut self, list: &FindingList, step: Duration) -> Vec<String> {
        let mut lapsed = Vec::new();
        let now = list.at;
        let passed = self.last.map_or(step, |last| now.duration_since(last));
        self.last = Some(now);
        let open: BTreeSet<String> = list.findings.iter().map(|f| f.id.clone()).collect();
        self.openings += open.difference(&self.open).count() as u64;
        self.open = open;
        for (truth, outcome) in self.truths.iter().zip(&mut self.outcomes) {
            let since = now.duration_since(truth.onset);
            if outcome.found.is_none() {
                outcome.down += passed.min(since).saturating_sub(step);
            }
            let limit = truth.limit + step * PERIODS;
            let ended = truth.ends.is_some_and(|end| now > end + limit + CLOSES * 2);
            if now < truth.onset || (ended && outcome.lingers.is_none()) {
                continue;
            }
            let found: Vec<&Finding> =
                list.findings.iter().filter(|finding| answers_fault(truth, finding)).collect();
            if let Some(end) = truth.ends.filter(|end| now >= *end) {
                let known = |finding: &&&Finding| {
                    outcome.ids.contains(&finding.id) && finding.life.opened < end
                };
                let still_open = found.iter().find(known).filter(|_| now > end + limit + CLOSES);
                if let Some(finding) = still_open {
                    let (_, after) = outcome
                        .lingers
                        .get_or_insert_with(|| (evidence(finding), now.duration_since(end)));
                    *after = now.duration_since(end);
                }
                continue;
            }
            if found.is_empty() {
                if outcome.found.is_some() {
                    outcome.away += passed;
                    lapsed.extend(outcome.record_gap(now));
                }
                continue;
            }
            outcome.last_seen = found.first().map(|it| (it.id.clone(), evidence(it)));
            // A finding that an earlier fault of the same entity opened goes on as this one's.
            let own: Vec<_> = found.iter().filter(|f| f.life.opened >= truth.onset).collect();
            let counted = if own.is_empty() { found.iter().collect() } else { own };
            outcome.ids.extend(counted.iter().map(|finding| finding.id.clone()));
            if outcome.found.is_none() {
                outcome.found = Some(since);
                outcome.late = since - outcome.down > limit;
            }
            let cost: f64 = found.iter().map(|finding| finding.cost_gpu_hours_per_hour).sum();
            let (low, high) = outcome.cost.unwrap_or((cost, cost));
            outcome.cost = Some((low.min(cost), high.max(cost)));
        }
        self.observe_unexplained(list, step);
        lapsed
    }

    /// Adds to the absences of these findings how they closed.
    pub(super) fn explain_gaps(&mut self, ids: &[String], closed: &FindingList) {
        for outcome in &mut self.outcomes {
            for id in ids.iter().filter(|id| outcome.ids.contains(*id)) {
                let record = closed.findings.iter().rev().find(|finding| finding.id == *id);
                let text = record.map_or_else(|| "not among the closed".to_owned(), evidence);
                outcome.gaps.push(format!("    closed {id}: {text}"));
            }
        }
    }

    /// Records warnings that no fault explains.
    fn observe_unexplained(&mut self, list: &FindingList, step: Duration) {
        let now = list.at;
        let is_active = |truth: &&GroundTruth| {
            let after = truth.limit + step * PERIODS + CLOSES;
            now >= truth.onset && truth.ends.is_none_or(|end| now <= end + after)
        };
        let active: Vec<&GroundTruth> = self.truths.iter().filter(is_active).collect();
        for finding in list.findings.iter().filter(|f| f.severity >= Severity::Warning) {
            if active.iter().any(|truth| is_about(truth, finding) || answers_fault(truth, finding))
            {
                continue;
            }
            let key = (finding.id.clone(), finding.life.opened);
            let unexplained = self.unexplained.entry(key).or_insert_with(|| UnexplainedFinding {
                id: finding.id.clone(),
                opened: finding.life.opened,
                paged: false,
                summary: finding.summary.clone(),
            });
            unexplained.paged |= finding.severity == Severity::Critical;
        }
    }

    /// Number of times that findings opened or reopened, at the resolution of one tick.
    pub(super) fn opening_count(&self) -> u64 {
        self.openings
    }

    /// The outcome of each fault, and the unexplained findings.
    pub(super) fn into_outcomes(self) -> (Vec<FaultOutcome>, Vec<UnexplainedFinding>) {
        (self.outcomes, self.unexplained.into_values().collect())
    }
}

/// Text and evidence of a finding.
fn evidence(finding: &Finding) -> String {
    let rows = finding.evidence.iter().map(|row| {
        let value = row.value.map_or("-".to_owned(), |value| format!("{value:.3}"));
        format!("{} {value}", row.what)
    });
    format!("{} [{}] {:?}", finding.summary, rows.collect::<Vec<_>>().join(", "), finding.life)
}

/// Whether a finding answers a fault: the right kind, on the right entity or on one that it affects.
fn answers_fault(truth: &GroundTruth, finding: &Finding) -> bool {
    let kind = finding.kind == truth.kind || truth.kinds.contains(&finding.kind);
    let counts = finding.severity >= Severity::Warning || QUIET.contains(&finding.kind);
    kind && counts && accepts_entity(truth, &finding.entity, &finding.victims)
}
