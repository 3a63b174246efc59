//! Inferred leaves: ports of a rail that are congested together repeatedly are likely connected to one leaf switch.

use std::{collections::BTreeMap, time::Duration};

use gaunt_schema::{SanitizedText, UnixMs};

use super::Thresholds;

/// The groups of ports that were congested together.
#[derive(Debug, Default)]
pub(super) struct InferredLeaves {
    groups: Vec<CongestionGroup>,
    /// Whether any port at all is congested now.
    any: bool,
}

/// Ports of one rail that were congested together.
#[derive(Debug)]
pub(super) struct CongestionGroup {
    /// Their rail.
    pub(super) rail: SanitizedText,
    /// The ports that are congested now, or were last, by row.
    pub(super) bad: Vec<u32>,
    /// The ports of at least half of its occurrences, and the number of those that each was part of.
    ports: BTreeMap<u32, u32>,
    /// The number of occurrences, including the present one.
    pub(super) times: u32,
    /// Whether it is one of many groups of its rail, none of which came again: ports that happen to be congested at once.
    pub(super) is_chance: bool,
    seen: UnixMs,
}

/// The maximum of groups; the one that was not seen for longest is dropped.
const MAX_GROUPS: usize = 256;

/// After so long without congestion it is another occurrence.
const ANEW: Duration = Duration::from_mins(3);

/// A rail of which so many other groups are known has no few ports that share a leaf.
const MANY_GROUPS: usize = 4;

impl InferredLeaves {
    /// Records the ports without a known leaf that are congested now, by rail; none if no port at all is congested.
    pub(super) fn observe_congestion(
        &mut self,
        congested: Option<Vec<(SanitizedText, Vec<u32>)>>,
        now: UnixMs,
        limits: &Thresholds,
    ) {
        self.any = congested.is_some();
        for (rail, bad) in congested.into_iter().flatten() {
            self.observe_group(rail, bad, now, limits);
        }
    }

    /// Whether any port is congested now.
    pub(super) fn is_any_congested(&self) -> bool {
        self.any
    }

    /// Returns the groups that are congested at this instant.
    pub(super) fn groups_at(&self, now: UnixMs) -> impl Iterator<Item = &CongestionGroup> {
        self.groups.iter().filter(move |group| group.seen == now)
    }

    fn observe_group(
        &mut self,
        rail: SanitizedText,
        bad: Vec<u32>,
        now: UnixMs,
        limits: &Thresholds,
    ) {
        let is_match = |group: &&mut CongestionGroup| {
            group.rail == rail && group.overlaps_with(&bad, limits.together_share)
        };
        if let Some(group) = self.groups.iter_mut().find(is_match) {
            group.add_occurrence(bad, now);
            return;
        }
        let others = self.groups.iter().filter(|group| group.rail == rail);
        let is_chance = others.filter(|group| group.times == 1).count() >= MANY_GROUPS;
        if self.groups.len() >= MAX_GROUPS {
            let oldest = self.groups.iter().enumerate().min_by_key(|(_, group)| group.seen);
            if let Some((at, _)) = oldest {
                self.groups.swap_remove(at);
            }
        }
        let ports = bad.iter().map(|row| (*row, 1)).collect();
        self.groups.push(CongestionGroup { rail, bad, ports, times: 1, is_chance, seen: now });
    }
}

impl CongestionGroup {
    /// Adds the ports that are congested now: another occurrence after a time without, else more of the present one.
    fn add_occurrence(&mut self, bad: Vec<u32>, now: UnixMs) {
        if now.duration_since(self.seen) >= ANEW {
            self.times += 1;
            self.is_chance = false;
            for row in &bad {
                *self.ports.entry(*row).or_default() += 1;
            }
            // What was congested with the others less often than not is none of them.
            let times = self.times;
            self.ports.retain(|_, of| *of * 2 >= times);
        } else {
            for row in &bad {
                self.ports.entry(*row).or_insert(1);
            }
        }
        (self.bad, self.seen) = (bad, now);
    }

    fn overlaps_with(&self, bad: &[u32], share: f64) -> bool {
        let common = bad.iter().filter(|row| self.ports.contains_key(row)).count();
        common > 0 && common as f64 >= share * bad.len().max(self.ports.len()) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_congested_together_twice_are_one_group() {
        let mut together = InferredLeaves::default();
        let mut see = |rail: &str, bad: &[u32], second: i64| {
            together.observe_group(
                rail.into(),
                bad.to_vec(),
                UnixMs(second * 1_000),
                &Thresholds::default(),
            );
            let now = together.groups_at(UnixMs(second * 1_000));
            now.map(|group| (group.bad.clone(), group.times)).collect::<Vec<_>>()
        };
        assert_eq!(see("0", &[1, 2, 3], 10), [(vec![1, 2, 3], 1)]);
        assert_eq!(see("0", &[2, 3, 4, 5], 20), [(vec![2, 3, 4, 5], 1)], "it grows");
        assert_eq!(see("1", &[1, 2, 3], 20).len(), 2, "the same numbers on another rail");
        assert_eq!(see("0", &[1, 4, 5], 500), [(vec![1, 4, 5], 2)]);
        assert_eq!(see("0", &[7, 8, 9], 510), [(vec![7, 8, 9], 1)], "others are another switch");
    }

    #[test]
    fn ports_that_change_each_time_are_no_group() {
        let mut together = InferredLeaves::default();
        let mut most = 0;
        for number in 0..200_u32 {
            let now = UnixMs(i64::from(number) * 300_000);
            // Three of 26 ports, others each time.
            let first = number.wrapping_mul(2_654_435_761) >> 16;
            let bad = [first % 26, (first / 26 + 1) % 26, (first / 676 + 2) % 26];
            together.observe_group("0".into(), bad.to_vec(), now, &Thresholds::default());
            most = most.max(together.groups_at(now).map(|group| group.ports.len()).max().unwrap());
        }
        assert!(most <= 6, "the ports of two occurrences at most: {most}");
    }

    #[test]
    fn one_more_of_many_groups_is_chance_until_it_comes_again() {
        let mut together = InferredLeaves::default();
        let mut see = |bad: [u32; 3], minute: i64| {
            let now = UnixMs(minute * 60_000);
            together.observe_group("0".into(), bad.to_vec(), now, &Thresholds::default());
            together.groups_at(now).any(|group| group.is_chance)
        };
        for number in 0..4 {
            assert!(!see([number * 3, number * 3 + 1, number * 3 + 2], i64::from(number) * 10));
        }
        assert!(see([20, 21, 22], 50));
        assert!(see([20, 21, 22], 51), "the same occurrence");
        assert!(!see([20, 21, 23], 60));
    }

    #[test]
    fn congestion_groups_are_bounded() {
        let mut together = InferredLeaves::default();
        for second in 0..1_000 {
            let row = second as u32 * 3;
            together.observe_group(
                "0".into(),
                vec![row, row + 1, row + 2],
                UnixMs(second * 1_000),
                &Thresholds::default(),
            );
        }
        assert_eq!(together.groups.len(), MAX_GROUPS);
        assert!(together.groups.iter().all(|group| group.seen > UnixMs(700_000)));
    }
}
