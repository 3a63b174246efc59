//! Finding journal: closed findings of the last 90 days with their explanations, and how often a fault came back.
//!
//! The judge retains a closed finding for a day; what closed before is here. One part of the state holds one day, so
//! that a finding that closes rewrites only the findings of its day.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use gaunt_api::{EarlierFinding, EvidenceContext, Finding};
use gaunt_schema::UnixMs;
use serde::{Deserialize, Serialize};

/// Days for which a closed finding is kept.
pub const KEPT_DAYS: i64 = 90;

/// The most findings, about three kilobytes each: above it the oldest are dropped first.
const MAX_KEPT: usize = 20_000;

/// The span in which earlier findings of the same fault are counted.
const REPEAT_SPAN: Duration = Duration::from_hours(24 * 30);

/// Earlier findings that an explanation lists, newest first.
const MAX_LISTED: usize = 12;

const DAY_MS: i64 = 86_400_000;

/// One closed finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    finding: Finding,
    chain: Option<Arc<EvidenceContext>>,
}

/// The findings that closed on one day (UTC). A finding that reopens while it flaps keeps its opening, and is one entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JournalDay(BTreeMap<EntryKey, Arc<JournalEntry>>);

/// Id and opening.
type EntryKey = (String, UnixMs);

/// Closed findings by the day on which they closed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FindingJournal {
    days: BTreeMap<i64, Arc<JournalDay>>,
}

/// The number of the day of an instant.
pub fn day_number(at: UnixMs) -> i64 {
    at.0.div_euclid(DAY_MS)
}

impl FromIterator<JournalEntry> for JournalDay {
    fn from_iter<I: IntoIterator<Item = JournalEntry>>(entries: I) -> Self {
        Self(entries.into_iter().map(|entry| (entry.key(), Arc::new(entry))).collect())
    }
}

impl JournalDay {
    /// Adds what is stored of this day and was not loaded. Of an entry that both have this one holds, with the stored
    /// explanation if it has none.
    pub fn add_stored(&mut self, stored: &Self) {
        for (key, theirs) in &stored.0 {
            let ours = self.0.entry(key.clone()).or_insert_with(|| theirs.clone());
            if ours.chain.is_none() && theirs.chain.is_some() {
                Arc::make_mut(ours).chain.clone_from(&theirs.chain);
            }
        }
    }

    /// The entries to save, by id.
    pub fn entries(&self) -> Vec<&JournalEntry> {
        self.0.values().map(|entry| &**entry).collect()
    }
}

impl JournalEntry {
    fn key(&self) -> EntryKey {
        finding_key(&self.finding)
    }
}

fn finding_key(finding: &Finding) -> EntryKey {
    (finding.id.clone(), finding.life.opened)
}

impl FindingJournal {
    /// Adds loaded entries; entries of findings that are not closed are skipped.
    pub fn add_entries(&mut self, entries: Vec<JournalEntry>) {
        for entry in entries {
            if let Some(closed) = entry.finding.life.closed {
                self.insert_entry(day_number(closed), entry);
            }
        }
    }

    /// The days, oldest first. A day that changed is another allocation.
    pub fn days(&self) -> impl Iterator<Item = (i64, &Arc<JournalDay>)> {
        self.days.iter().map(|(day, entries)| (*day, entries))
    }

    /// Number of findings.
    pub fn len(&self) -> usize {
        self.days.values().map(|day| day.0.len()).sum()
    }

    /// Whether it holds no finding.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records closed findings with their explanations, and drops what is too old or too much.
    pub(super) fn record_closed(
        &mut self,
        closed: &[Finding],
        chain_of: impl Fn(&str) -> Option<Arc<EvidenceContext>>,
        now: UnixMs,
    ) {
        for finding in closed {
            let Some(at) = finding.life.closed else { continue };
            let (day, key) = (day_number(at), finding_key(finding));
            let known = self.days.get(&day).and_then(|entries| entries.0.get(&key));
            let is_recorded =
                known.is_some_and(|entry| entry.finding == *finding && entry.chain.is_some());
            if is_recorded {
                continue;
            }
            let chain = chain_of(&finding.id).or_else(|| known.and_then(|it| it.chain.clone()));
            if known.is_some_and(|entry| entry.finding == *finding && entry.chain == chain) {
                continue;
            }
            self.insert_entry(day, JournalEntry { finding: finding.clone(), chain });
            self.remove_from_earlier_days(day, &key);
        }
        self.drop_oldest(day_number(now));
    }

    /// Findings that are neither open nor retained by the judge, newest first.
    pub(super) fn earlier_findings<'a>(
        &self,
        listed: impl Iterator<Item = &'a Finding>,
    ) -> Vec<Finding> {
        let listed: HashSet<(&str, UnixMs)> =
            listed.map(|finding| (finding.id.as_str(), finding.life.opened)).collect();
        let all = self.days.values().flat_map(|day| day.0.values());
        let missing = all.filter(|entry| {
            !listed.contains(&(entry.finding.id.as_str(), entry.finding.life.opened))
        });
        let mut findings: Vec<Finding> = missing.map(|entry| entry.finding.clone()).collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.life.closed));
        findings
    }

    /// The recorded explanation of a closed finding.
    pub(super) fn explanation_of(&self, finding: &Finding) -> Option<Arc<EvidenceContext>> {
        let day = self.days.get(&day_number(finding.life.closed?))?;
        day.0.get(&finding_key(finding))?.chain.clone()
    }

    /// Number of findings of the same fault that closed in the 30 days before this one opened, and the newest of them.
    pub(super) fn count_earlier(&self, finding: &Finding) -> (u32, Vec<EarlierFinding>) {
        let opened = finding.life.opened;
        let is_recent = |closed: UnixMs| opened.duration_since(closed) <= REPEAT_SPAN;
        let same = self.days.values().rev().flat_map(|day| {
            let from = (finding.id.clone(), UnixMs(i64::MIN));
            day.0.range(from..finding_key(finding)).rev()
        });
        let earlier = same.filter_map(|(_, entry)| {
            let life = &entry.finding.life;
            let closed = life.closed.filter(|closed| is_recent(*closed))?;
            let (severity, opened) = (entry.finding.severity, life.opened);
            Some(EarlierFinding { opened, closed, severity })
        });
        let mut earlier: Vec<EarlierFinding> = earlier.collect();
        let count = earlier.len() as u32;
        earlier.truncate(MAX_LISTED);
        (count, earlier)
    }

    fn insert_entry(&mut self, day: i64, entry: JournalEntry) {
        let entries = Arc::make_mut(self.days.entry(day).or_default());
        entries.0.insert(entry.key(), Arc::new(entry));
    }

    /// Removes what is recorded of the finding before this day: it closed, and flapped or stayed open over midnight.
    fn remove_from_earlier_days(&mut self, day: i64, key: &EntryKey) {
        for (_, entries) in self.days.range_mut(..day) {
            if entries.0.contains_key(key) {
                Arc::make_mut(entries).0.remove(key);
            }
        }
    }

    fn drop_oldest(&mut self, today: i64) {
        self.days.retain(|day, entries| today - day <= KEPT_DAYS && !entries.0.is_empty());
        let mut excess = self.len().saturating_sub(MAX_KEPT);
        while excess > 0
            && let Some(mut oldest) = self.days.first_entry()
        {
            if oldest.get().0.len() <= excess {
                excess -= oldest.remove().0.len();
                continue;
            }
            let entries = &mut Arc::make_mut(oldest.get_mut()).0;
            let mut keys: Vec<(Option<UnixMs>, EntryKey)> = entries
                .iter()
                .map(|(key, entry)| (entry.finding.life.closed, key.clone()))
                .collect();
            keys.sort_unstable();
            for (_, key) in keys.into_iter().take(excess) {
                entries.remove(&key);
            }
            excess = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{Entity, FindingKind, LifeState, Severity};

    use super::*;

    const HOUR: i64 = 3_600_000;

    /// A finding on this port that was open for an hour.
    fn closed_finding(port: &str, opened: i64) -> Finding {
        let entity = Entity::new_port(&"gpu003".into(), &"mlx5_1".into(), &port.into());
        let mut finding = Finding::new(FindingKind::LinkErrors, Severity::Warning, entity);
        finding.life.opened = UnixMs(opened);
        finding.life.closed = Some(UnixMs(opened + HOUR));
        finding.life.state = LifeState::Closed;
        finding
    }

    fn journal_of(findings: &[Finding], now: i64) -> FindingJournal {
        let mut journal = FindingJournal::default();
        journal.record_closed(findings, |_| None, UnixMs(now));
        journal
    }

    #[test]
    fn earlier_findings_of_the_fault_are_counted_within_thirty_days() {
        let day = |day: i64| 100 * DAY_MS + day * DAY_MS;
        let days = [-40, -29, -7, -1];
        let mut findings: Vec<Finding> =
            days.map(|it| closed_finding("1", day(it))).into_iter().collect();
        findings.push(closed_finding("2", day(-3)));
        let journal = journal_of(&findings, day(0));
        let (count, earlier) = journal.count_earlier(&closed_finding("1", day(0)));
        let opened: Vec<UnixMs> = earlier.iter().map(|it| it.opened).collect();
        assert_eq!((count, opened), (3, [-1, -7, -29].map(|it| UnixMs(day(it))).to_vec()));
        let (count, _) = journal.count_earlier(&findings[1]);
        assert_eq!(count, 1, "of a past finding those before it count");
    }

    #[test]
    fn finding_that_reopened_is_one_entry_also_over_midnight() {
        let mut finding = closed_finding("1", 10 * DAY_MS - 2 * HOUR);
        let mut journal = journal_of(&[finding.clone()], 10 * DAY_MS);
        assert_eq!(journal.days().map(|(day, _)| day).collect::<Vec<_>>(), [9]);
        finding.life.closed = Some(UnixMs(10 * DAY_MS + HOUR));
        journal.record_closed(&[finding.clone()], |_| None, UnixMs(10 * DAY_MS + HOUR));
        assert_eq!(journal.days().map(|(day, _)| day).collect::<Vec<_>>(), [10]);
        // Reopened once more, it stayed open for two days.
        finding.life.closed = Some(UnixMs(12 * DAY_MS + HOUR));
        journal.record_closed(&[finding.clone()], |_| None, UnixMs(12 * DAY_MS + HOUR));
        assert_eq!(journal.days().map(|(day, _)| day).collect::<Vec<_>>(), [12]);
        assert_eq!(journal.len(), 1);
        assert_eq!(journal.earlier_findings([&finding].into_iter()), []);
        assert_eq!(journal.earlier_findings([].into_iter()), [finding]);
    }

    #[test]
    fn unchanged_day_keeps_its_allocation() {
        let findings = [closed_finding("1", 5 * DAY_MS)];
        let mut journal = journal_of(&findings, 5 * DAY_MS);
        let before = journal.clone();
        journal.record_closed(&findings, |_| None, UnixMs(6 * DAY_MS));
        let same =
            journal.days().zip(before.days()).all(|(one, other)| Arc::ptr_eq(one.1, other.1));
        assert!(same, "it would be written again");
        journal.record_closed(&findings, |_| Some(Arc::default()), UnixMs(6 * DAY_MS));
        assert_eq!(journal.explanation_of(&findings[0]), Some(Arc::default()), "it came later");
    }

    #[test]
    fn old_findings_and_those_beyond_the_limit_are_dropped() {
        let old = closed_finding("1", 9 * DAY_MS);
        let journal =
            journal_of(&[old, closed_finding("2", 10 * DAY_MS)], (10 + KEPT_DAYS) * DAY_MS);
        assert_eq!(journal.days().map(|(day, _)| day).collect::<Vec<_>>(), [10]);
        let many: Vec<Finding> = (0..MAX_KEPT as i64 + 10)
            .map(|index| closed_finding(&format!("{}", index % 7), 10 * DAY_MS + index))
            .collect();
        let journal = journal_of(&many, 11 * DAY_MS);
        assert_eq!(journal.len(), MAX_KEPT);
        let kept = journal.earlier_findings([].into_iter());
        assert_eq!(kept.last().map(|it| it.life.opened), Some(UnixMs(10 * DAY_MS + 10)));
    }

    #[test]
    fn entries_survive_a_round_trip_through_json() {
        let journal =
            journal_of(&[closed_finding("1", DAY_MS), closed_finding("2", DAY_MS)], DAY_MS);
        let (_, day) = journal.days().next().unwrap();
        let json = serde_json::to_vec(&day.entries()).unwrap();
        let mut loaded = FindingJournal::default();
        loaded.add_entries(serde_json::from_slice(&json).unwrap());
        assert_eq!(loaded, journal);
    }
}
