//! Peer findings: joins the findings that an aggregator saved with those that its peer has now.

use std::collections::BTreeMap;

use gaunt_schema::{LifeState, UnixMs};

use super::{FindingRecord, FindingSnapshot, MAX_OPEN, MAX_PENDING};

impl FindingSnapshot {
    /// Joins what a peer has now with what was known here until `known_until`: a finding that is known here is the
    /// peer's only if it closed there, or opened again, since then. Counters stay those of this aggregator.
    #[must_use]
    pub fn join_peer(mut self, peer: Self, known_until: UnixMs) -> Self {
        let own = self.findings.into_iter().map(|record| (record.finding.id.clone(), record));
        let mut joined: BTreeMap<String, FindingRecord> = own.collect();
        let mut open = joined.values().filter(|record| is_open(record)).count();
        for mut record in peer.findings {
            let known = joined.get(&record.finding.id);
            let was_open = known.is_some_and(is_open);
            let is_newer = known.is_none_or(|known| match (is_open(known), is_open(&record)) {
                (true, false) => {
                    let closed = record.finding.life.closed;
                    known.finding.life.opened <= known_until
                        && closed.is_some_and(|closed| closed > known_until)
                }
                (false, is_open) => is_open,
                (true, true) => false,
            });
            let opens = is_open(&record) && !was_open;
            if !is_newer || opens && open >= MAX_OPEN {
                continue;
            }
            if let Some(known) = known.filter(|_| was_open) {
                // It is one episode: if it opens again soon, what was done about it here still holds.
                record.finding.life.opened = known.finding.life.opened;
            }
            open = open + usize::from(opens) - usize::from(was_open && !is_open(&record));
            joined.insert(record.finding.id.clone(), record);
        }
        self.findings = joined.into_values().collect();
        for (id, span) in peer.pending {
            if self.pending.len() < MAX_PENDING {
                self.pending.entry(id).or_insert(span);
            }
        }
        for (job, since) in peer.hangs {
            if self.hangs.len() < MAX_OPEN {
                self.hangs.entry(job).or_insert(since);
            }
        }
        self
    }
}

fn is_open(record: &FindingRecord) -> bool {
    record.finding.life.state != LifeState::Closed
}
