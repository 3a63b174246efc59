//! Rare events: errors that a device counts now and then, compared with those of its peers and with its own past.
//!
//! A rate limit misses a link that fails a few times a minute, which is already enough to slow a job. Counts are
//! compared instead: five errors on one GPU while sixty others have none are no chance, however low the rate is.

use super::{Thresholds, moving_average::CompactTimestamp};

/// The events of one device: twenty bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RareEvents {
    /// Those of the last minutes: an earlier one counts less.
    recent: f32,
    /// The usual number of recent ones.
    usual: f32,
    /// Seconds over which that was learned.
    learned_s: f32,
    last: CompactTimestamp,
    /// The last sample with an event.
    last_event: CompactTimestamp,
}

/// The recent events of all devices of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeerEvents {
    sum: f64,
    devices: usize,
}

/// The note of a limit of recent events.
pub(super) const LIMIT_NOTE: &str = "limit: more than the others have by chance";

/// Seconds after which an event counts for a third.
const MEMORY_SECONDS: f64 = 120.0;

/// Seconds over which the usual number is learned, and from which it is known.
const USUAL_SECONDS: f64 = 3_600.0;
const KNOWN_SECONDS: f64 = 600.0;

/// Usual times between two events without one after which they have stopped, and the fewest seconds: of events that
/// come at random one in 150 takes that long.
const STOPPED_GAPS: f64 = 5.0;
const STOPPED_SECONDS: f64 = 20.0;

/// Events that all devices together may have had although none was seen.
const UNSEEN_EVENTS: f64 = 0.5;

/// The fewest recent events that are unusual.
const FEWEST_EVENTS: f64 = 3.0;

/// The probability by chance below which a number of events is unusual: there are thousands of devices, and one number
/// lasts for minutes.
const CHANCE: f64 = 1e-6;

/// The expected number from which the normal distribution replaces the Poisson distribution, and its quantile at
/// [`CHANCE`].
const MANY_EVENTS: f64 = 50.0;
const CHANCE_SIGMAS: f64 = 4.75;

impl RareEvents {
    /// Adds the events of a sample, as a rate per second. Those of one sample count at most twice as much as all before:
    /// a single burst is one event.
    pub(super) fn add_rate(&mut self, rate: Option<f64>, at: CompactTimestamp, learns: bool) {
        let Some(rate) = rate else { return };
        let passed = if self.last.is_set() { at.seconds_since(self.last) } else { 0.0 };
        self.last = at;
        if rate > 0.0 {
            self.last_event = at;
        }
        let before = f64::from(self.recent) * (-passed / MEMORY_SECONDS).exp();
        let most = 1.0 + before;
        self.recent = (before + (rate * passed).clamp(0.0, most)) as f32;
        if learns {
            self.learned_s += passed as f32;
            let span = f64::from(self.learned_s).clamp(1.0, USUAL_SECONDS);
            self.usual += (self.recent - self.usual) * (passed / span).min(1.0) as f32;
        }
    }

    /// Returns the recent events.
    pub(super) fn recent(self) -> f64 {
        f64::from(self.recent)
    }

    /// Returns the errors per second of the last minutes if they are so many that they cost something: a few show a link
    /// that gets worse, and no job is slower for them.
    pub(super) fn costly_rate(self, limits: &Thresholds) -> Option<f64> {
        costly_rate(self.recent(), limits).filter(|_| !self.has_stopped())
    }

    /// Returns this present rate if it costs something, else that of the last minutes if that does, else the present one.
    pub(super) fn telling_rate(self, now: Option<f64>, limits: &Thresholds) -> Option<f64> {
        let costly_now = now.filter(|rate| *rate >= limits.errors_per_second);
        costly_now.or(self.costly_rate(limits)).or(now)
    }

    /// Returns how many recent events are unusual beside those of its peers, and beside its own past once that is known.
    pub(super) fn unusual_from(self, peers: PeerEvents) -> Option<f64> {
        let others = peers.devices.checked_sub(1).filter(|others| *others > 0)? as f64;
        let of_peers = ((peers.sum - self.recent()).max(0.0) + UNSEEN_EVENTS) / others;
        let is_known = f64::from(self.learned_s) >= KNOWN_SECONDS;
        let of_own = if is_known { f64::from(self.usual) } else { 0.0 };
        Some(least_unusual(of_peers.max(of_own)))
    }

    /// Whether there was no event for so much longer than between the recent ones that more are not to be expected.
    fn has_stopped(self) -> bool {
        let gap = MEMORY_SECONDS / self.recent().max(f64::MIN_POSITIVE);
        let quiet = self.last.seconds_since(self.last_event);
        quiet > (gap * STOPPED_GAPS).max(STOPPED_SECONDS)
    }

    /// Whether it has more recent events than devices have by chance.
    pub(super) fn is_unusual(self, peers: PeerEvents) -> bool {
        self.recent() >= FEWEST_EVENTS
            && !self.has_stopped()
            && self.unusual_from(peers).is_some_and(|least| self.recent() >= least)
    }
}

impl PeerEvents {
    /// Sums the events of all devices of one kind.
    pub(super) fn of(devices: impl Iterator<Item = RareEvents>) -> Self {
        let counted = devices.filter(|events| events.last.is_set());
        counted.fold(Self::default(), |sum, events| Self {
            sum: sum.sum + events.recent(),
            devices: sum.devices + 1,
        })
    }
}

/// Returns the recent events of several devices together, and how many are unusual beside those of the others.
pub(super) fn sum_events(
    devices: impl Iterator<Item = RareEvents>,
    peers: PeerEvents,
) -> Option<(f64, f64)> {
    let together = PeerEvents::of(devices);
    let others = peers.devices.checked_sub(together.devices).filter(|others| *others > 0)?;
    let of_others = ((peers.sum - together.sum).max(0.0) + UNSEEN_EVENTS) / others as f64;
    Some((together.sum, least_unusual(of_others * together.devices as f64)))
}

/// Returns the errors per second of so many recent ones, if they cost something.
pub(super) fn costly_rate(recent: f64, limits: &Thresholds) -> Option<f64> {
    Some(recent / MEMORY_SECONDS).filter(|rate| *rate >= limits.errors_per_second)
}

/// Returns the least number of events that is reached with a probability below [`CHANCE`] where so many are expected.
fn least_unusual(expected: f64) -> f64 {
    if expected > MANY_EVENTS {
        return expected + CHANCE_SIGMAS * expected.sqrt() + 1.0;
    }
    let (mut events, mut term, mut below) = (0.0, (-expected).exp(), 0.0);
    loop {
        below += term;
        events += 1.0;
        if 1.0 - below <= CHANCE {
            return f64::max(events, FEWEST_EVENTS);
        }
        term *= expected / events;
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::UnixMs;

    use super::*;

    fn counted(rate: f64, seconds: i64) -> RareEvents {
        let mut events = RareEvents::default();
        for second in 0..=seconds {
            let at = UnixMs::from_seconds(1e9 + second as f64);
            events.add_rate(Some(rate), CompactTimestamp::of(at), true);
        }
        events
    }

    #[test]
    fn few_events_on_one_device_are_unusual_beside_quiet_peers() {
        let (quiet, faulty) = (counted(0.0, 100), counted(0.1, 100));
        let peers = PeerEvents::of(std::iter::repeat_n(quiet, 63).chain([faulty]));
        assert!(faulty.is_unusual(peers), "{faulty:?}");
        assert!(!quiet.is_unusual(peers));
        let noisy = PeerEvents::of(std::iter::repeat_n(faulty, 64));
        assert!(!faulty.is_unusual(noisy));
    }

    #[test]
    fn single_burst_is_one_event_and_a_lone_device_has_no_peers() {
        let mut burst = counted(0.0, 10);
        let at = CompactTimestamp::of(UnixMs::from_seconds(1e9 + 11.0));
        burst.add_rate(Some(500.0), at, true);
        assert!(burst.recent() <= 1.0);
        let faulty = counted(0.1, 100);
        assert!(!faulty.is_unusual(PeerEvents::of([faulty].into_iter())));
    }

    #[test]
    fn device_that_always_has_some_is_no_outlier() {
        let mut noisy = counted(0.1, 3_600);
        assert!(!noisy.is_unusual(PeerEvents::of([noisy, counted(0.0, 100)].into_iter())));
        for second in 3_601..3_700 {
            let at = UnixMs::from_seconds(1e9 + f64::from(second));
            noisy.add_rate(Some(3.0), CompactTimestamp::of(at), false);
        }
        assert!(noisy.is_unusual(PeerEvents::of([noisy, counted(0.0, 100)].into_iter())));
    }

    #[test]
    fn least_number_has_the_stated_probability() {
        // Poisson tails: P(X >= 3 | .008) = 8e-8, P(X >= 5 | .07) = 1.3e-8, P(X >= 4 | .07) = 9.5e-7.
        let least = [0.008, 0.07].map(|expected| least_unusual(expected) as u32);
        assert_eq!(least, [3, 4]);
        let (poisson, normal) = (least_unusual(49.9), least_unusual(50.1));
        assert!((poisson - normal).abs() < 6.0, "{poisson} {normal}");
    }
}
