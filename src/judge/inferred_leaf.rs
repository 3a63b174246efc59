//! Inferred leaves: ports of a rail that are congested together repeatedly are likely connected to one leaf switch.

use std::{collections::BTreeSet, time::Duration};

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
    /// All ports of any of its occurrences.
    ports: BTreeSet<u32>,
    /// The number of occurrences, including the present one.
    pub(super) times: u32,
    seen: UnixMs,
}

/// The maximum of groups; the one that was not seen for longest is dropped.
const MAX_GROUPS: usize = 256;

/// After so long without congestion it is another occurrence.
const ANEW: Duration = Duration::from_mins(3);

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
            group.times += u32::from(now.duration_since(group.seen) >= ANEW);
            group.ports.extend(&bad);
            (group.bad, group.seen) = (bad, now);
            return;
        }
        if self.groups.len() >= MAX_GROUPS {
            let oldest = self.groups.iter().enumerate().min_by_key(|(_, group)| group.seen);
            if let Some((at, _)) = oldest {
                self.groups.swap_remove(at);
            }
        }
        let ports = bad.iter().copied().collect();
        self.groups.push(CongestionGroup { rail, bad, ports, times: 1, seen: now });
    }
}

impl CongestionGroup {
    fn overlaps_with(&self, bad: &[u32], share: f64) -> bool {
        let common = bad.iter().filter(|row| self.ports.contains(row)).count();
        common as f64 >= share * bad.len().min(self.ports.len()) as f64
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
