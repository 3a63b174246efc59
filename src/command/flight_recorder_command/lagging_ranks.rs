//! Which ranks a job waits for: in each process group the ranks that are behind in the collective that nobody can
//! complete, and of those the ranks that do not themselves wait in another group.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gaunt_schema::SanitizedText;
use serde::Serialize;

use super::rank_dump::{GroupDump, GroupPosition, RankDump};

/// A process group as its ranks dumped it.
#[derive(Debug)]
pub(super) struct GroupRecord {
    name: SanitizedText,
    description: SanitizedText,
    /// All its ranks, sorted, as far as stated.
    ranks: Vec<u32>,
    members: BTreeMap<u32, MemberRecord>,
}

#[derive(Debug)]
struct MemberRecord {
    position: Option<GroupPosition>,
    operations: BTreeMap<u64, SanitizedText>,
}

/// The groups of all dumps. Groups are one if their names and their ranks are the same: groups that are split from one
/// another share a name.
#[derive(Debug, Default)]
pub(super) struct GroupTable {
    groups: Vec<GroupRecord>,
    numbers: HashMap<(SanitizedText, Vec<u32>), usize>,
}

/// Why others wait for a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LagReason {
    /// It did not call the collective.
    NotCalled,
    /// It called another operation than the others.
    OtherOperation,
    /// It called the collective, and its GPU did not start it.
    NotStarted,
    /// The others completed it.
    NotCompleted,
    /// It left no dump, and all that did wait.
    NoDump,
}

/// A rank for which others wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct LaggingRank {
    pub(super) rank: u32,
    pub(super) reason: LagReason,
    /// The name of the group in which they wait.
    pub(super) group: SanitizedText,
    /// The collective: its number in the group.
    pub(super) sequence: u64,
    /// What the others call it.
    pub(super) operation: Option<SanitizedText>,
    /// What the rank called instead.
    pub(super) other_operation: Option<SanitizedText>,
    /// How many ranks of the group wait.
    pub(super) waiting_ranks: u32,
    /// Whether it waits itself in another group: then it is not the cause.
    pub(super) waits_elsewhere: bool,
}

/// A group whose ranks wait.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct StuckGroup {
    pub(super) group: SanitizedText,
    pub(super) description: SanitizedText,
    /// The ranks that it has, as far as stated.
    pub(super) ranks: u32,
    /// The collective that is not completed.
    pub(super) sequence: u64,
    pub(super) operation: Option<SanitizedText>,
    /// The ranks that called it and wait.
    pub(super) waiting: Vec<u32>,
    /// The ranks for which they wait; none if all ranks are in the collective.
    pub(super) lagging: Vec<u32>,
    /// Ranks without a dump.
    pub(super) without_dump: Vec<u32>,
    /// Ranks whose dump does not show how far they are.
    pub(super) unknown: Vec<u32>,
}

/// What all dumps show together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LagAnalysis {
    /// The ranks for which others wait; the causes first.
    pub(super) lagging: Vec<LaggingRank>,
    /// The groups whose ranks wait.
    pub(super) stuck: Vec<StuckGroup>,
    /// The groups that were compared.
    pub(super) compared_groups: usize,
}

impl GroupTable {
    /// Adds what one rank dumped.
    pub(super) fn add_dump(&mut self, rank: u32, dump: RankDump) {
        for GroupDump { name, description, ranks, position, operations } in dump.groups {
            let key = (name, ranks);
            let number = if let Some(number) = self.numbers.get(&key) {
                *number
            } else {
                let (name, ranks) = key.clone();
                let members = BTreeMap::new();
                self.groups.push(GroupRecord { name, description, ranks, members });
                self.numbers.insert(key, self.groups.len() - 1);
                self.groups.len() - 1
            };
            let member = MemberRecord { position, operations };
            self.groups[number].members.insert(rank, member);
        }
    }

    /// Finds the ranks for which others wait.
    pub(super) fn find_lagging(&self) -> LagAnalysis {
        let compared = self.groups.iter().filter(|group| group.is_comparable());
        let mut analysis =
            LagAnalysis { compared_groups: compared.count(), ..LagAnalysis::default() };
        for group in &self.groups {
            if let Some((stuck, lagging)) = group.compare_members() {
                analysis.stuck.push(stuck);
                analysis.lagging.extend(lagging);
            }
        }
        // Who waits in one group comes late in another.
        let waiting = |group: &StuckGroup| group.waiting.clone();
        let waiting: BTreeSet<u32> = analysis.stuck.iter().flat_map(waiting).collect();
        for rank in &mut analysis.lagging {
            rank.waits_elsewhere = waiting.contains(&rank.rank);
        }
        analysis.lagging.sort_by_key(|rank| {
            let waits = std::cmp::Reverse(rank.waiting_ranks);
            (rank.waits_elsewhere, rank.reason, waits, rank.rank)
        });
        analysis
    }
}

impl GroupRecord {
    fn is_comparable(&self) -> bool {
        let known = self.members.values().filter(|member| member.position.is_some());
        known.count() > 0 && self.ranks.len().max(self.members.len()) > 1
    }

    /// Compares the ranks in the first collective that one of them did not complete. None if all completed all.
    fn compare_members(&self) -> Option<(StuckGroup, Vec<LaggingRank>)> {
        if !self.is_comparable() {
            return None;
        }
        let known = || {
            let members = self.members.iter();
            members.filter_map(|(rank, member)| Some((*rank, member.position?, member)))
        };
        // Where nothing is running nobody waits: dumps are of different instants.
        known().find(|(_, position, _)| position.is_waiting())?;
        let sequence = known().map(|(_, position, _)| position.completed).min()? + 1;
        let called = || known().filter(|(_, position, _)| position.enqueued >= sequence);
        let operation = most_frequent(called().filter_map(|it| it.2.operations.get(&sequence)));
        let without_dump: Vec<u32> =
            self.ranks.iter().filter(|rank| !self.members.contains_key(rank)).copied().collect();
        let collective = StuckCollective {
            sequence,
            operation: operation.as_ref(),
            is_started: known().any(|it| it.1.started.is_some_and(|it| it >= sequence)),
            is_completed: known().any(|it| it.1.completed >= sequence),
        };
        let mut reasons: BTreeMap<u32, LagReason> =
            known().filter_map(|it| Some((it.0, collective.find_reason(it.1, it.2)?))).collect();
        // The first reason that applies to any rank is the cause; what comes after it may follow from it.
        let first = reasons.values().min().copied();
        reasons.retain(|_, reason| Some(*reason) == first);
        if reasons.is_empty() {
            reasons.extend(without_dump.iter().map(|rank| (*rank, LagReason::NoDump)));
        }
        let waits = |rank: &u32, position: GroupPosition| {
            position.is_waiting() && !reasons.contains_key(rank)
        };
        let waiting: Vec<u32> =
            called().filter(|it| waits(&it.0, it.1)).map(|(rank, _, _)| rank).collect();
        let other = |rank: u32| {
            let called = self.members.get(&rank)?.operations.get(&sequence)?;
            Some(called).filter(|called| Some(*called) != operation.as_ref()).cloned()
        };
        let lagging = reasons.iter().map(|(rank, reason)| LaggingRank {
            rank: *rank,
            reason: *reason,
            group: self.name.clone(),
            sequence,
            operation: operation.clone(),
            other_operation: other(*rank),
            waiting_ranks: waiting.len() as u32,
            waits_elsewhere: false,
        });
        let lagging: Vec<_> = lagging.collect();
        let unknown = self.members.iter().filter(|(_, member)| member.position.is_none());
        let stuck = StuckGroup {
            group: self.name.clone(),
            description: self.description.clone(),
            ranks: self.ranks.len().max(self.members.len()) as u32,
            sequence,
            operation,
            waiting,
            lagging: reasons.into_keys().collect(),
            without_dump,
            unknown: unknown.map(|(rank, _)| *rank).collect(),
        };
        Some((stuck, lagging))
    }
}

/// The first collective of a group that one of its ranks did not complete.
struct StuckCollective<'a> {
    sequence: u64,
    operation: Option<&'a SanitizedText>,
    /// Whether any rank started it, and whether any completed it.
    is_started: bool,
    is_completed: bool,
}

impl StuckCollective<'_> {
    /// Why the others may wait for a rank; none if it is in the collective.
    fn find_reason(&self, position: GroupPosition, member: &MemberRecord) -> Option<LagReason> {
        if position.enqueued < self.sequence {
            return Some(LagReason::NotCalled);
        }
        let own = member.operations.get(&self.sequence);
        if own.is_some() && self.operation.is_some() && own != self.operation {
            return Some(LagReason::OtherOperation);
        }
        if position.completed >= self.sequence {
            return None;
        }
        if self.is_started && position.started.is_some_and(|it| it < self.sequence) {
            return Some(LagReason::NotStarted);
        }
        self.is_completed.then_some(LagReason::NotCompleted)
    }
}

/// The most frequent name; the first in the alphabet of several.
fn most_frequent<'a>(names: impl Iterator<Item = &'a SanitizedText>) -> Option<SanitizedText> {
    let mut counts: BTreeMap<&SanitizedText, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let most = counts.values().max()?;
    counts.iter().find(|(_, count)| *count == most).map(|(name, _)| (*name).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank's groups: name, ranks, (enqueued, started, completed), operation of the last one.
    type TestGroup<'a> = (&'a str, &'a [u32], (u64, Option<u64>, u64), &'a str);

    fn add_rank(table: &mut GroupTable, rank: u32, groups: &[TestGroup]) {
        let groups = groups.iter().map(|(name, ranks, (enqueued, started, completed), last)| {
            let position =
                GroupPosition { enqueued: *enqueued, started: *started, completed: *completed };
            GroupDump {
                name: (*name).into(),
                description: SanitizedText::default(),
                ranks: ranks.to_vec(),
                position: Some(position),
                operations: BTreeMap::from([(*enqueued, (*last).into())]),
            }
        });
        let (version, groups) = ("2.10".into(), groups.collect());
        table.add_dump(rank, RankDump { version, groups, last_call: None });
    }

    fn causes(analysis: &LagAnalysis) -> Vec<(u32, LagReason, &str, u64)> {
        let causes = analysis.lagging.iter().filter(|rank| !rank.waits_elsewhere);
        causes.map(|it| (it.rank, it.reason, it.group.as_str(), it.sequence)).collect()
    }

    #[test]
    fn rank_that_did_not_call_start_or_complete_is_the_cause() {
        const ALL: &[u32] = &[0, 1, 2, 3];
        let waits = (42, Some(42), 41);
        for (late, reason) in [
            ((41, Some(41), 41), LagReason::NotCalled),
            ((45, Some(41), 41), LagReason::NotStarted),
        ] {
            let mut table = GroupTable::default();
            for rank in 0..4 {
                let position = if rank == 2 { late } else { waits };
                add_rank(&mut table, rank, &[("0", ALL, position, "nccl:all_reduce")]);
            }
            let analysis = table.find_lagging();
            assert_eq!(causes(&analysis), [(2, reason, "0", 42)]);
            assert_eq!(analysis.stuck[0].waiting, [0, 1, 3]);
        }
        // The others completed a broadcast that rank 3 still runs.
        let mut table = GroupTable::default();
        for rank in 0..4 {
            let position = if rank == 3 { (9, Some(9), 8) } else { (9, Some(9), 9) };
            add_rank(&mut table, rank, &[("0", ALL, position, "nccl:broadcast")]);
        }
        assert_eq!(causes(&table.find_lagging()), [(3, LagReason::NotCompleted, "0", 9)]);
    }

    #[test]
    fn rank_without_start_times_is_not_taken_for_one_that_did_not_start() {
        let mut table = GroupTable::default();
        for rank in 0..4 {
            let started = (rank != 1).then_some(7);
            let group = ("0", &[0, 1, 2, 3][..], (7, started, 6), "nccl:all_reduce");
            add_rank(&mut table, rank, &[group]);
        }
        let analysis = table.find_lagging();
        // All are in the collective: nobody is late.
        assert_eq!(causes(&analysis), []);
        assert_eq!(analysis.stuck[0].waiting, [0, 1, 2, 3]);
    }

    #[test]
    fn rank_that_waits_in_another_group_is_not_the_cause() {
        // Tensor groups {0, 1} and {2, 3}, data groups {0, 2} and {1, 3}. Rank 3 hangs: 2 waits for it in the tensor
        // group, 1 in the data group; 0 waits for 2.
        let mut table = GroupTable::default();
        let (late, waits, done) = ((4, Some(4), 4), (5, Some(5), 4), (5, Some(5), 5));
        let (t, d) = ("nccl:all_gather", "nccl:all_reduce");
        add_rank(&mut table, 0, &[("t", &[0, 1], done, t), ("d", &[0, 2], waits, d)]);
        add_rank(&mut table, 1, &[("t", &[0, 1], done, t), ("d", &[1, 3], waits, d)]);
        add_rank(&mut table, 2, &[("t", &[2, 3], waits, t), ("d", &[0, 2], late, d)]);
        add_rank(&mut table, 3, &[("t", &[2, 3], late, t), ("d", &[1, 3], late, d)]);
        let analysis = table.find_lagging();
        let late = [(3, LagReason::NotCalled, "t", 5), (3, LagReason::NotCalled, "d", 5)];
        let mut found = causes(&analysis);
        found.sort_by_key(|it| std::cmp::Reverse(it.2));
        assert_eq!(found, late);
        // Rank 2 is late too, since it waits.
        let follows = analysis.lagging.iter().find(|rank| rank.waits_elsewhere);
        assert_eq!(follows.map(|rank| rank.rank), Some(2));
    }

    #[test]
    fn rank_that_called_another_operation_or_left_no_dump_is_the_cause() {
        let mut table = GroupTable::default();
        for rank in 0..3 {
            let operation = if rank == 1 { "nccl:all_gather" } else { "nccl:all_reduce" };
            add_rank(&mut table, rank, &[("0", &[0, 1, 2], (7, None, 6), operation)]);
        }
        let analysis = table.find_lagging();
        assert_eq!(causes(&analysis), [(1, LagReason::OtherOperation, "0", 7)]);
        let other = analysis.lagging[0].other_operation.as_ref();
        assert_eq!(other.map(SanitizedText::as_str), Some("nccl:all_gather"));

        let mut table = GroupTable::default();
        for rank in 0..3 {
            add_rank(&mut table, rank, &[("0", &[0, 1, 2, 3], (7, None, 6), "nccl:all_reduce")]);
        }
        assert_eq!(causes(&table.find_lagging()), [(3, LagReason::NoDump, "0", 7)]);
    }

    #[test]
    fn group_that_completed_everything_is_not_stuck() {
        let mut table = GroupTable::default();
        for rank in 0..3 {
            add_rank(&mut table, rank, &[("0", &[0, 1, 2], (7, None, 7), "nccl:all_reduce")]);
        }
        let analysis = table.find_lagging();
        assert_eq!((analysis.stuck, analysis.compared_groups), (Vec::new(), 1));
    }
}
