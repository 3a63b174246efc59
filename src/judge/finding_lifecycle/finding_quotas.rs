//! Finding quotas: how many findings may be open, in total and per node, so that no node and no kind uses up the
//! others'.
//!
//! Findings beyond the quota of a node are summarised by one finding; all findings without quota are counted.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap, HashSet},
};

use gaunt_schema::{Entity, Finding, FindingKind, SanitizedText, Severity, UnixMs};

use super::{MAX_OPEN, TrackedFinding};
use crate::pending_finding::format_count;

/// Quota of open findings for all nodes together: a number for each kind, and as many more shared by all kinds.
const OF_ALL: FindingQuota =
    FindingQuota { own: 17, shared: MAX_OPEN - 17 * FindingKind::ALL.len() };

/// The maximum of open findings per node, besides the summary: a machine has fewer parts that break at once.
const MAX_OF_NODE: usize = 64;

/// The quota of one node.
const OF_NODE: FindingQuota =
    FindingQuota { own: 1, shared: MAX_OF_NODE - (FindingKind::ALL.len() - 1) };

/// The maximum of kinds that a sentence lists.
const MOST_NAMED: usize = 4;

/// How a quota is divided.
#[derive(Clone, Copy, Debug)]
struct FindingQuota {
    /// Findings reserved for each kind.
    own: usize,
    /// Findings beyond those, for whichever kind comes first.
    shared: usize,
}

/// The used quota, by kind.
#[derive(Debug, Default)]
struct QuotaUsage {
    kinds: BTreeMap<FindingKind, usize>,
    /// Used from the shared part.
    shared: usize,
}

impl QuotaUsage {
    fn has_quota(&self, kind: FindingKind, share: FindingQuota) -> bool {
        let own = self.kinds.get(&kind).copied().unwrap_or_default();
        own < share.own || self.shared < share.shared
    }

    fn use_quota(&mut self, kind: FindingKind, share: FindingQuota) {
        let own = self.kinds.entry(kind).or_default();
        *own += 1;
        self.shared += usize::from(*own > share.own);
    }
}

/// All used quotas.
#[derive(Debug, Default)]
struct FindingQuotas {
    all: QuotaUsage,
    nodes: HashMap<SanitizedText, QuotaUsage>,
}

impl FindingQuotas {
    /// Counts the open findings.
    fn of<'a>(open: impl Iterator<Item = &'a Finding>) -> Self {
        let mut quotas = Self::default();
        open.for_each(|finding| quotas.use_quotas(finding));
        quotas
    }

    fn use_quotas(&mut self, finding: &Finding) {
        self.all.use_quota(finding.kind, OF_ALL);
        if let Some(node) = quota_node(finding) {
            self.nodes.entry(node.clone()).or_default().use_quota(finding.kind, OF_NODE);
        }
    }

    /// Whether its node has quota for it.
    fn has_node_quota(&self, finding: &Finding) -> bool {
        let taken = quota_node(finding).and_then(|node| self.nodes.get(node));
        taken.is_none_or(|taken| taken.has_quota(finding.kind, OF_NODE))
    }
}

/// Returns the node whose quota a finding uses; none for a summary.
fn quota_node(finding: &Finding) -> Option<&SanitizedText> {
    finding.entity.node.as_ref().filter(|_| finding.kind != FindingKind::FindingsOverLimit)
}

/// Findings of a node that exceed its quota.
#[derive(Debug, Default)]
struct OverLimitSummary {
    kinds: BTreeMap<FindingKind, u32>,
    severity: Option<Severity>,
    since: Option<UnixMs>,
    lost_gpus: f64,
}

impl OverLimitSummary {
    fn add_finding(&mut self, finding: &Finding) {
        *self.kinds.entry(finding.kind).or_default() += 1;
        self.severity = self.severity.max(Some(finding.severity));
        self.since = Some(self.since.map_or(finding.since, |since| since.min(finding.since)));
        // They may cost the same GPUs their time: the cost is at least that of the most expensive one.
        self.lost_gpus = self.lost_gpus.max(finding.lost_gpus);
    }

    /// Creates the summary finding.
    fn to_finding(&self, node: &SanitizedText, confidence: f64) -> Finding {
        let mut kinds: Vec<_> = self.kinds.iter().collect();
        kinds.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let named =
            kinds.iter().take(MOST_NAMED).map(|(kind, findings)| format!("{findings} {kind}"));
        let named: Vec<String> = named.collect();
        let others = match kinds.len().saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!(" and {} more", format_count(more, "kind")),
        };
        let all: u32 = self.kinds.values().sum();
        let severity = self.severity.unwrap_or(Severity::Info);
        let finding = Finding {
            since: self.since.unwrap_or_default(),
            confidence,
            summary: format!(
                "{node} is at its limit of open findings; {all} more {} not listed: {}{others}.",
                if all == 1 { "is" } else { "are" },
                named.join(", "),
            ),
            next: format!(
                "Check the listed findings of {node}; if they contradict each other, check the output of its exporter."
            ),
            ..Finding::new(FindingKind::FindingsOverLimit, severity, Entity::new_node(node))
        };
        finding.with_lost_gpus(self.lost_gpus)
    }
}

/// Findings with evidence that exceed a quota, by kind.
pub(super) type OverLimitCounts = BTreeMap<FindingKind, u32>;

/// Retains findings within the quotas, and adds a summary for the rest of each node; returns how many of each kind
/// exceed them. Open findings keep their quota; of the others the most urgent come first.
pub(super) fn apply_quotas(
    tracked: &BTreeMap<String, TrackedFinding>,
    findings: Vec<Finding>,
    confidence: f64,
) -> (Vec<Finding>, OverLimitCounts) {
    let open = |finding: &Finding| tracked.get(&finding.id).is_some_and(TrackedFinding::is_open);
    let mut quotas = FindingQuotas::of(
        tracked.values().filter(|tracked| tracked.is_open()).map(|tracked| &tracked.record.finding),
    );
    let (mut listed, mut new): (Vec<Finding>, Vec<Finding>) = findings.into_iter().partition(open);
    new.sort_by(compare_urgency);
    let mut over_limit = OverLimitCounts::new();
    let mut rests: BTreeMap<SanitizedText, OverLimitSummary> = BTreeMap::new();
    let mut admitted: HashSet<String> = HashSet::new();
    for finding in new {
        // Two detectors may report one fault: it is counted once.
        let is_repeat = admitted.contains(&finding.id);
        let on_node = is_repeat || quotas.has_node_quota(&finding);
        if on_node && (is_repeat || quotas.all.has_quota(finding.kind, OF_ALL)) {
            if !is_repeat {
                quotas.use_quotas(&finding);
                admitted.insert(finding.id.clone());
            }
            listed.push(finding);
            continue;
        }
        *over_limit.entry(finding.kind).or_default() += 1;
        if let Some(node) = finding.entity.node.as_ref().filter(|_| !on_node) {
            rests.entry(node.clone()).or_default().add_finding(&finding);
        }
    }
    for (node, rest) in rests {
        let finding = rest.to_finding(&node, confidence);
        if open(&finding) {
            listed.push(finding);
        } else if quotas.all.has_quota(finding.kind, OF_ALL) {
            quotas.use_quotas(&finding);
            listed.push(finding);
        } else {
            *over_limit.entry(finding.kind).or_default() += 1;
        }
    }
    (listed, over_limit)
}

fn compare_urgency(a: &Finding, b: &Finding) -> Ordering {
    let cost = b.lost_gpus.total_cmp(&a.lost_gpus);
    b.severity.cmp(&a.severity).then(cost).then_with(|| a.id.cmp(&b.id))
}

/// Returns the closed findings to drop so that at most `most` are left: the oldest of the node that has most, so that
/// findings that one node opens and closes do not push out those of others.
pub(super) fn oldest_closed(
    tracked: &BTreeMap<String, TrackedFinding>,
    most: usize,
) -> Vec<String> {
    let closed = tracked.values().filter(|tracked| !tracked.is_open());
    let mut nodes: BTreeMap<
        (Option<&SanitizedText>, Option<&SanitizedText>),
        Vec<&TrackedFinding>,
    > = BTreeMap::new();
    let mut count = 0;
    for tracked in closed {
        let entity = &tracked.record.finding.entity;
        nodes.entry((entity.node.as_ref(), entity.job.as_ref())).or_default().push(tracked);
        count += 1;
    }
    // The newest of each node first.
    let age = |a: &&TrackedFinding, b: &&TrackedFinding| {
        let newest = b.life().closed.cmp(&a.life().closed);
        newest.then_with(|| a.record.finding.id.cmp(&b.record.finding.id))
    };
    let mut ranked: Vec<(usize, &TrackedFinding)> = Vec::with_capacity(count);
    for of_node in nodes.values_mut() {
        of_node.sort_by(age);
        ranked.extend(of_node.iter().copied().enumerate());
    }
    // The n-th newest of each node comes after every (n-1)-th.
    ranked.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| age(one, other)));
    ranked.into_iter().skip(most).map(|(_, tracked)| tracked.record.finding.id.clone()).collect()
}

#[cfg(test)]
mod tests;
