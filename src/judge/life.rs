//! The life of findings: opened when seen, kept while seen, closed when the evidence was gone for a while.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use gaunt_schema::{FindingKind, UnixMs};

use super::{Finding, finding::Suspicion};

/// The most findings that are open at once: when a whole network is cut, the first thousand say it.
const MAX_OPEN: usize = 1_000;

/// What a detector saw in one step.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Faults whose evidence is there.
    pub(super) findings: Vec<Finding>,
    /// Faults whose evidence must stand for a while first.
    pub(super) suspicions: Vec<Suspicion>,
    /// Faults of which nothing can be said now, by id: if they are open they stay open.
    pub(super) unclear: Vec<String>,
}

/// The findings that are open.
#[derive(Debug, Default)]
pub(super) struct Life {
    open: BTreeMap<String, Open>,
    pending: BTreeMap<String, Pending>,
    stepped: Option<UnixMs>,
    opened: BTreeMap<FindingKind, u64>,
}

#[derive(Debug)]
struct Open {
    finding: Finding,
    last_seen: UnixMs,
}

/// Evidence may be missing for as long without being forgotten.
const LAPSE: Duration = Duration::from_millis(2_500);

/// A suspicion, since when and until when its evidence was there.
#[derive(Clone, Copy, Debug)]
struct Pending {
    since: UnixMs,
    last_seen: UnixMs,
}

impl Life {
    /// Takes in what was seen at `now`, where nodes are read each `period`.
    pub(super) fn step(
        &mut self,
        now: UnixMs,
        period: Duration,
        close_seconds: f64,
        mut seen: Seen,
    ) {
        let suspicions = std::mem::take(&mut seen.suspicions);
        seen.findings
            .extend(suspicions.into_iter().filter_map(|held| self.ripen(now, period, held)));
        // Between two samples averages stand; evidence that is missing at a step is gone.
        let step = self.stepped.map_or(Duration::ZERO, |last| now.since(last));
        self.stepped = Some(now);
        let forgotten = (step + step / 2).max(LAPSE);
        self.pending.retain(|_, pending| now.since(pending.last_seen) <= forgotten);
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

    /// The finding that a suspicion has become, once its evidence has stood for long enough: for as long as it asks,
    /// and for two samples at least.
    fn ripen(&mut self, now: UnixMs, period: Duration, held: Suspicion) -> Option<Finding> {
        let first = Pending { since: now, last_seen: now };
        let pending = self.pending.entry(held.finding.id.clone()).or_insert(first);
        pending.last_seen = now;
        let samples = if held.hold > 0.0 { period.as_secs_f64() } else { 0.0 };
        let ripe = now.since(pending.since).as_secs_f64() >= held.hold.max(samples);
        let since = pending.since;
        (ripe || self.open.contains_key(&held.finding.id))
            .then_some(Finding { since, ..held.finding })
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

    /// Open findings of which this is true, by id.
    pub(super) fn ids(&self, wanted: impl Fn(&Finding) -> bool) -> Vec<String> {
        let open = self.open.iter().filter(|(_, open)| wanted(&open.finding));
        open.map(|(id, _)| id.clone()).collect()
    }

    /// How many were opened since the start, by kind.
    pub(super) fn opened(&self) -> &BTreeMap<FindingKind, u64> {
        &self.opened
    }
}
