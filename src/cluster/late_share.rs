//! gaunt's own lateness in the last minute: attempts without information about their targets, and time in which no
//! results were ingested.

use std::{collections::VecDeque, time::Duration};

use gaunt_schema::UnixMs;

/// The minute is counted in parts of ten seconds; the oldest one is dropped as a whole.
const PART: Duration = Duration::from_secs(10);
const PARTS: usize = 6;

/// The time that all parts cover.
pub(super) const SPAN: Duration = Duration::from_mins(1);

/// The shortest time that a share is taken of: at a start, the first attempts may be late.
const SHORTEST: Duration = Duration::from_secs(20);

/// gaunt's recent lateness.
#[derive(Clone, Debug, Default)]
pub struct LateShare {
    /// Oldest first; parts without an event are absent.
    parts: VecDeque<Part>,
    /// The time of the first result.
    began: Option<UnixMs>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    begins: UnixMs,
    attempts: u32,
    unjudged: u32,
    stalls: u32,
    stalled: Duration,
}

impl LateShare {
    /// Counts a result at `at` that speaks for so many periods; `is_own` if it carries no information about its target.
    pub(super) fn count(&mut self, at: UnixMs, periods: u32, is_own: bool) {
        self.began.get_or_insert(at);
        if let Some(part) = self.part(at) {
            part.attempts = part.attempts.saturating_add(periods);
            part.unjudged = part.unjudged.saturating_add(if is_own { periods } else { 0 });
        }
    }

    /// Records that nothing was ingested for `late` until `at`.
    pub(super) fn stall(&mut self, at: UnixMs, late: Duration) {
        if let Some(part) = self.part(at) {
            part.stalls = part.stalls.saturating_add(1);
            part.stalled += late;
        }
    }

    /// Drops parts older than a minute.
    pub(super) fn advance(&mut self, now: UnixMs) {
        self.parts.retain(|part| now.duration_since(part.begins) < SPAN);
    }

    /// The share of the last minute's attempts that carry no information about their targets, and their number. `due`
    /// is the number of attempts in a whole minute; in the first minute the share is that of the time since the first result.
    pub(super) fn unjudged(&self, due: f64, now: UnixMs) -> (f64, u32) {
        let since = self.began.map_or(SPAN, |began| now.duration_since(began));
        let due = due * since.clamp(SHORTEST, SPAN).div_duration_f64(SPAN);
        let sum = |field: fn(&Part) -> u32| self.parts.iter().map(field).sum::<u32>();
        let (unjudged, attempts) = (sum(|part| part.unjudged), sum(|part| part.attempts));
        (f64::from(unjudged) / f64::from(attempts).max(due).max(1.0), unjudged)
    }

    /// The share of the last minute in which nothing was ingested, and the number of such intervals.
    pub fn stalled(&self) -> (f64, u32) {
        let stalled: Duration = self.parts.iter().map(|part| part.stalled).sum();
        let share = stalled.div_duration_f64(SPAN).min(1.0);
        (share, self.parts.iter().map(|part| part.stalls).sum())
    }

    /// The start of the oldest part.
    pub fn since(&self) -> Option<UnixMs> {
        let is_late = |part: &&Part| part.unjudged > 0 || part.stalls > 0;
        self.parts.iter().find(is_late).map(|part| part.begins)
    }

    /// The part of this time; none if it is too old.
    fn part(&mut self, at: UnixMs) -> Option<&mut Part> {
        let part_ms = PART.as_millis() as i64;
        let begins = UnixMs(at.0.div_euclid(part_ms) * part_ms);
        let index = match self.parts.iter().rposition(|part| part.begins <= begins) {
            Some(index) if self.parts[index].begins == begins => index,
            // A batch of a part that does not exist; if all parts exist, it is too old.
            preceding => {
                let index = preceding.map_or(0, |preceding| preceding + 1);
                if index == 0 && self.parts.len() >= PARTS {
                    return None;
                }
                let part =
                    Part { begins, attempts: 0, unjudged: 0, stalls: 0, stalled: Duration::ZERO };
                self.parts.insert(index, part);
                if self.parts.len() > PARTS {
                    self.parts.pop_front();
                    index - 1
                } else {
                    index
                }
            }
        };
        self.parts.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixMs = UnixMs(1_700_000_000_000);

    #[test]
    fn late_share_is_that_of_the_last_minute() {
        let mut share = LateShare::default();
        for second in 0..120 {
            let at = START + Duration::from_secs(second);
            // Two of four attempts in the first minute, none in the second.
            (0..4).for_each(|attempt| share.count(at, 1, second < 60 && attempt < 2));
            share.advance(at);
            assert!(share.parts.len() <= PARTS);
        }
        let now = START + Duration::from_mins(2);
        assert_eq!(share.unjudged(240.0, now), (0.0, 0));
        let mut share = LateShare::default();
        for second in 0..60 {
            let at = START + Duration::from_secs(second);
            (0..4).for_each(|attempt| share.count(at, 1, attempt < 2));
        }
        let now = START + Duration::from_mins(1);
        assert_eq!(share.unjudged(240.0, now), (0.5, 120));
        assert_eq!(share.unjudged(480.0, now), (0.25, 120), "the other half was not tried");
        assert_eq!(share.since(), Some(START));
        let now = START + Duration::from_mins(3);
        share.advance(now);
        assert_eq!((share.unjudged(240.0, now), share.since()), ((0.0, 0), None));
    }

    /// A fleet that is too large from the start is not read for 30 s before its share is that of a minute.
    #[test]
    fn late_share_of_the_first_minute_is_that_of_the_time_since_the_start() {
        let mut share = LateShare::default();
        let mut of_second = |second: u64| {
            let now = START + Duration::from_secs(second);
            (0..10).for_each(|attempt| share.count(now, 1, attempt < 4));
            share.unjudged(600.0, now).0
        };
        assert!(of_second(0) < 0.03, "one late period says little");
        let shares: Vec<f64> = (1..60).map(&mut of_second).collect();
        assert!(
            shares[8] < 0.21 && shares[18..].iter().all(|it| (0.39..0.42).contains(it)),
            "{shares:?}"
        );
    }

    #[test]
    fn late_share_adds_up_stalls_and_is_one_at_most() {
        let mut share = LateShare::default();
        share.stall(START, Duration::from_secs(20));
        share.stall(START + Duration::from_secs(22), Duration::from_secs(20));
        assert_eq!(share.stalled(), (40.0 / 60.0, 2));
        share.stall(START + Duration::from_secs(30), Duration::from_hours(2));
        assert_eq!(share.stalled(), (1.0, 3));
    }

    /// Batches arrive in any order, from clocks that jump: the parts stay few and sorted.
    #[test]
    fn late_share_is_bounded_for_batches_in_any_order() {
        let mut share = LateShare::default();
        let mut at = 7_i64;
        for _ in 0..10_000 {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            share.count(UnixMs(at.rem_euclid(1_000_000)), 1, at % 3 == 0);
            assert!(share.parts.len() <= PARTS);
            assert!(share.parts.iter().map(|part| part.begins).is_sorted());
        }
    }
}
