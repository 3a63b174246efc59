//! The life of findings: opened when seen, kept while seen, closed when the evidence was gone for a while.

use std::collections::{BTreeMap, btree_map::Entry};

use gaunt_schema::{FindingKind, UnixMs};

use super::Finding;

/// The most findings that are open at once: when a whole network is cut, the first thousand say it.
const MAX_OPEN: usize = 1_000;

/// What a detector saw in one step.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Faults whose evidence is there.
    pub(super) findings: Vec<Finding>,
    /// Faults of which nothing can be said now, by id: if they are open they stay open.
    pub(super) unclear: Vec<String>,
}

/// The findings that are open.
#[derive(Debug, Default)]
pub(super) struct Life {
    open: BTreeMap<String, Open>,
    opened: BTreeMap<FindingKind, u64>,
}

#[derive(Debug)]
struct Open {
    finding: Finding,
    last_seen: UnixMs,
}

impl Life {
    /// Takes in what was seen at `now`.
    pub(super) fn step(&mut self, now: UnixMs, close_seconds: f64, seen: Seen) {
        for id in seen.unclear {
            if let Some(open) = self.open.get_mut(&id) {
                open.last_seen = now;
            }
        }
        for finding in seen.findings {
            let room = self.open.len() < MAX_OPEN;
            match self.open.entry(finding.id.clone()) {
                Entry::Occupied(mut known) => {
                    let open = known.get_mut();
                    let since = open.finding.since.min(finding.since);
                    *open = Open { finding: Finding { since, ..finding }, last_seen: now };
                }
                Entry::Vacant(place) if room => {
                    *self.opened.entry(finding.kind).or_default() += 1;
                    place.insert(Open { finding, last_seen: now });
                }
                Entry::Vacant(_) => {}
            }
        }
        self.open.retain(|_, open| now.since(open.last_seen).as_secs_f64() < close_seconds);
    }

    /// The open findings, worst first: by severity, then by cost, then by name.
    pub(super) fn open(&self) -> Vec<&Finding> {
        let mut findings: Vec<_> = self.open.values().map(|open| &open.finding).collect();
        findings.sort_by(|a, b| {
            let cost = b.lost_gpus.total_cmp(&a.lost_gpus);
            b.severity.cmp(&a.severity).then(cost).then_with(|| a.id.cmp(&b.id))
        });
        findings
    }

    /// How many were opened since the start, by kind.
    pub(super) fn opened(&self) -> &BTreeMap<FindingKind, u64> {
        &self.opened
    }
}
