//! The time for which the evidence of a pending finding was present, less the time for which it was absent.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use gaunt_schema::{Severity, UnixMs};
use serde::{Deserialize, Serialize};

use crate::pending_finding::{PendingFinding, is_of_device};

/// A pending finding: since when its evidence was seen, and for how long.
///
/// Evidence that is noisy, or sampled at instants, is absent now and then: that time is subtracted instead of starting
/// anew. Evidence that is absent more often than present never lasts; where a fault of a device comes and goes, more than
/// two thirds of the time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PendingSpan {
    pub(super) since: UnixMs,
    pub(super) last_seen: UnixMs,
    /// Those that had the evidence all the time, where several are seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) members: Vec<String>,
    /// Milliseconds with the evidence, less those without it.
    lasted_ms: u64,
    /// The same of evidence for at least a warning, and of evidence that pages.
    warned_ms: u64,
    paged_ms: u64,
    /// Milliseconds between two samples of the evidence.
    #[serde(skip_serializing_if = "is_zero")]
    interval_ms: u64,
    /// Whether a device shows it, and it may come and go.
    #[serde(skip)]
    is_of_device: bool,
    /// The instant up to which time is counted.
    #[serde(skip)]
    counted_to: UnixMs,
    /// When it was seen again after the last restart.
    #[serde(skip)]
    pub(super) again: Option<UnixMs>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks it so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Sample intervals without the evidence after which it starts anew.
const GAP_SAMPLES: u32 = 2;

/// The same where it is about a device, and how much less time without it counts: what a job does comes and goes by design,
/// a clock that falls again and again does not.
const LONGEST_ABSENCE: Duration = Duration::from_mins(2);
const ABSENT_TIMES: u64 = 2;

/// Drops pending findings of which another detector has more severe evidence: of equals the last one speaks.
pub(super) fn most_severe(suspicions: Vec<PendingFinding>) -> Vec<PendingFinding> {
    let mut positions: HashMap<String, usize> = HashMap::new();
    let mut kept: Vec<PendingFinding> = Vec::with_capacity(suspicions.len());
    for candidate in suspicions {
        let position = *positions.entry(candidate.finding.id.clone()).or_insert(kept.len());
        match kept.get_mut(position) {
            None => kept.push(candidate),
            Some(other) if candidate.finding.severity >= other.finding.severity => {
                *other = candidate;
            }
            Some(_) => {}
        }
    }
    kept
}

impl PendingSpan {
    /// Starts one that is seen for the first time.
    pub(super) fn new(now: UnixMs, members: &[String]) -> Self {
        let members = members.to_vec();
        Self { since: now, last_seen: now, counted_to: now, members, ..Self::default() }
    }

    /// Resumes one from before a restart: time without evaluation does not count.
    pub(super) fn resume_after_restart(mut self, now: UnixMs) -> Self {
        (self.since, self.counted_to) = (self.since.min(now), now);
        self.again = Some(now);
        self
    }

    /// Seconds for which its evidence was present, less those for which it was absent.
    pub(super) fn lasted_seconds(&self) -> f64 {
        self.lasted_ms as f64 / 1e3
    }

    /// Counts the time until now for the severity of its present evidence, up to twice the time that it must last: what
    /// was counted stays where better evidence must last for a shorter time. Call it before the evidence itself is counted.
    pub(super) fn observe_severity(&mut self, now: UnixMs, severity: Severity, hold_s: f64) {
        let (passed, most) = (self.uncounted_ms(now), (hold_s * 2e3) as u64);
        for (level, counted) in
            [(Severity::Warning, &mut self.warned_ms), (Severity::Critical, &mut self.paged_ms)]
        {
            *counted = if severity >= level {
                (*counted + passed).min(most.max(*counted))
            } else {
                counted.saturating_sub(passed)
            };
        }
    }

    /// Returns the severity whose evidence has lasted this long: one with less evidence, if it has not.
    pub(super) fn lasting_severity(&self, hold_s: f64) -> Severity {
        let has_lasted = |counted: u64| counted as f64 >= hold_s * 1e3;
        match (has_lasted(self.paged_ms), has_lasted(self.warned_ms)) {
            (true, _) => Severity::Critical,
            (false, true) => Severity::Warning,
            (false, false) => Severity::Info,
        }
    }

    fn uncounted_ms(&self, now: UnixMs) -> u64 {
        now.duration_since(self.counted_to).as_millis() as u64
    }

    /// Returns the time between two samples of its evidence; zero where every page has new ones.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// Records that its evidence is present.
    pub(super) fn observe_candidate(&mut self, now: UnixMs, candidate: &PendingFinding) {
        self.observe_members(now, &candidate.members, candidate.interval.to_duration());
        self.is_of_device = is_of_device(candidate.finding.kind);
    }

    /// Records that its evidence is present, for these members, which are sampled at this interval.
    fn observe_members(&mut self, now: UnixMs, members: &[String], interval: Duration) {
        self.lasted_ms += self.uncounted_ms(now);
        (self.last_seen, self.counted_to) = (now, now);
        let seen: HashSet<&String> = members.iter().collect();
        self.members.retain(|member| seen.contains(member));
        if self.members.is_empty() && !members.is_empty() {
            // Another member shows now what one showed before.
            *self = Self::new(now, members);
        }
        self.interval_ms = interval.as_millis() as u64;
    }

    /// Records that its evidence is absent. Returns whether it is still pending: an absence of at most `lapse` is a
    /// lost page and counts as none; a longer one is subtracted, and after two samples all of it starts anew.
    pub(super) fn observe_absence(&mut self, now: UnixMs, lapse: Duration) -> bool {
        let absent = now.duration_since(self.last_seen);
        if absent <= lapse {
            return true;
        }
        let (longest, times) = if self.is_of_device {
            (LONGEST_ABSENCE, ABSENT_TIMES)
        } else {
            (self.interval() * GAP_SAMPLES, 1)
        };
        let uncounted = self.uncounted_ms(now) / times;
        for counted in [&mut self.lasted_ms, &mut self.warned_ms, &mut self.paged_ms] {
            *counted = counted.saturating_sub(uncounted);
        }
        self.counted_to = now;
        self.lasted_ms > 0 && absent <= lapse.max(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    /// The seconds counted after each second with (`+`) or without (`-`) evidence; none once it started anew.
    fn lasted_after(course: &str) -> Option<f64> {
        lasted_of(course, false)
    }

    /// The same, where a device may show it.
    fn lasted_of(course: &str, is_of_device: bool) -> Option<f64> {
        let mut span: Option<PendingSpan> = None;
        for (second, sign) in (0_i64..).zip(course.chars()) {
            let now = UnixMs(second * 1_000);
            if sign == '+' {
                span.get_or_insert_with(|| PendingSpan::new(now, &[]));
            }
            let Some(pending) = &mut span else { continue };
            if sign == '+' {
                pending.observe_members(now, &[], INTERVAL);
                pending.is_of_device = is_of_device;
            } else if !pending.observe_absence(now, Duration::from_secs(2)) {
                span = None;
            }
        }
        span.map(|pending| pending.lasted_seconds())
    }

    #[test]
    fn absent_evidence_is_subtracted() {
        assert_eq!(lasted_after("+++++++"), Some(6.0));
        assert_eq!(lasted_after("+++--++"), Some(6.0), "one lost page is no absence");
        assert_eq!(lasted_after("+++++++++----++"), Some(6.0));
        assert_eq!(lasted_after("+++---"), None, "absent as long as present");
        assert_eq!(lasted_after("++++++++++++++++++++++++++---------------------"), None);
    }

    #[test]
    fn fault_of_a_device_that_comes_and_goes_lasts() {
        let course = |times: usize, absent: usize| {
            (["+".repeat(31), "-".repeat(absent)].concat()).repeat(times)
        };
        assert_eq!(lasted_after(&course(3, 30)), None);
        let lasted = [1, 2, 3].map(|times| lasted_of(&course(times, 30), true));
        assert_eq!(lasted, [Some(15.0), Some(31.0), Some(47.0)]);
        assert_eq!(lasted_of(&course(3, 62), true), None, "two thirds of the time");
        assert_eq!(
            lasted_of(&[course(9, 10), "-".repeat(121)].concat(), true),
            None,
            "too long ago"
        );
    }

    #[test]
    fn counted_severity_outlasts_a_moment_of_better_evidence() {
        let mut span = PendingSpan::new(UnixMs(0), &[]);
        for second in 1..=40 {
            // Better evidence needs to last for no time.
            let hold_s = if second == 30 { 0.0 } else { 14.0 };
            let now = UnixMs(second * 1_000);
            span.observe_severity(now, Severity::Critical, hold_s);
            span.observe_members(now, &[], INTERVAL);
            let expected = if second < 14 { Severity::Info } else { Severity::Critical };
            assert_eq!(span.lasting_severity(hold_s), expected, "{second}");
        }
    }
}
