//! Past pauses: when the last pauses of a job began and ended, and whether they grow.

use gaunt_schema::UnixMs;

/// How many times as long as the shortest one of the job the last two pauses must be, and the last one by how many seconds:
/// samples show their length only so well.
const LAST_TIMES: f64 = 2.0;
const LAST_BUT_ONE_TIMES: f64 = 1.5;
const LONGER_SECONDS: f64 = 20.0;

/// What each pause leaves of the longest one before it: that may have been something else.
const FORGETS_LONGEST: f64 = 0.9;

/// Intervals between pauses after which one that does not come has ended them.
const LATE_TIMES: f64 = 2.0;

/// A pause that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PastPause {
    pub(super) began: UnixMs,
    pub(super) ended: UnixMs,
    /// Whether most hosts of the job waited for IO, or wrote much.
    pub(super) io: bool,
}

impl PastPause {
    fn seconds(self) -> f64 {
        self.ended.duration_since(self.began).as_secs_f64()
    }
}

/// The pauses of one job: the last two, and in seconds the shortest one, the longest one of late, and the last two in which
/// hosts did not wait for IO.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PastPauses {
    last: [Option<PastPause>; 2],
    shortest: Option<f64>,
    longest: f64,
    without_io: [f64; 2],
}

/// How the pauses of a job have grown, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PauseGrowth {
    pub(super) shortest: f64,
    pub(super) last: f64,
    /// The length from which a pause is far longer than the shortest.
    pub(super) least: f64,
    /// From the begin of one pause to that of the next.
    pub(super) every: f64,
}

/// The length from which a pause is far longer than one that samples show as `shortest`. Samples each `interval` seconds
/// show a length only to the interval: one pause of 45 s is 30 s long at 30 s, and the next one 60 s.
fn far_longer(shortest: f64, interval: f64) -> f64 {
    let usual = shortest + interval;
    (usual * LAST_TIMES).max(usual + LONGER_SECONDS)
}

impl PastPauses {
    /// Adds a pause that has ended; the same one again is not another.
    pub(super) fn add_pause(&mut self, pause: PastPause) {
        if self.last[1].is_some_and(|last| last.began == pause.began) {
            return;
        }
        self.last = [self.last[1], Some(pause)];
        self.shortest = Some(self.shortest.unwrap_or(f64::INFINITY).min(pause.seconds()));
        self.longest = (self.longest * FORGETS_LONGEST).max(pause.seconds());
        if !pause.io {
            self.without_io = [self.without_io[1], pause.seconds()];
        }
    }

    /// How long its evaluations take: two pauses without IO are as long, and a single one may have been anything. A checkpoint
    /// that falls into an evaluation takes no longer than it.
    fn evaluation_seconds(&self) -> f64 {
        self.without_io[0].min(self.without_io[1])
    }

    /// Returns the length of the longest one of late, and that from which another one is far longer, in seconds, where samples
    /// of the job come each `interval` seconds. Among many, one is very short by chance.
    pub(super) fn usual_seconds(&self, interval: f64) -> Option<(f64, f64)> {
        // A single one may have been anything.
        self.last[0]?;
        let longest = self.longest.max(interval);
        let evaluation = self.evaluation_seconds() * LAST_BUT_ONE_TIMES;
        Some((longest, far_longer(longest, interval).max(evaluation)))
    }

    /// Returns how the pauses have grown, where samples of the job come each `interval` seconds: none unless the last two are
    /// far longer than the shortest one, and hosts waited for IO in them.
    pub(super) fn growth(&self, now: UnixMs, interval: f64) -> Option<PauseGrowth> {
        let [Some(before), Some(last)] = self.last else { return None };
        // Samples do not show a shorter one.
        let shortest = self.shortest?.max(interval);
        let every = last.began.duration_since(before.began).as_secs_f64();
        let since = now.duration_since(last.began).as_secs_f64();
        let from = far_longer(shortest, interval);
        let is_longer = before.seconds() >= (shortest + interval) * LAST_BUT_ONE_TIMES
            && last.seconds() >= from
            && last.seconds() >= self.evaluation_seconds() * LAST_BUT_ONE_TIMES;
        let is_present = since <= every * LATE_TIMES + last.seconds();
        (is_longer && is_present && before.io && last.io).then_some(PauseGrowth {
            shortest,
            last: last.seconds(),
            least: from,
            every,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds pauses that begin each 240 s and last so many seconds; returns their growth after each.
    fn growths(lengths: &[i64]) -> Vec<Option<f64>> {
        let mut pauses = PastPauses::default();
        let at = |second: i64| UnixMs(1_800_000_000_000 + second * 1_000);
        let each = lengths.iter().enumerate().map(|(number, seconds)| {
            let began = number as i64 * 240;
            let ended = at(began + seconds);
            pauses.add_pause(PastPause { began: at(began), ended, io: true });
            assert_eq!(pauses.growth(at(began + 2_000), 5.0), None, "no pause came");
            pauses.growth(at(began + seconds + 10), 5.0).map(|growth| growth.shortest)
        });
        each.collect()
    }

    #[test]
    fn pauses_that_became_longer_are_told_for_as_long_as_they_stay_so() {
        let told = growths(&[17, 34, 50, 67, 67, 66]);
        let known = Some(17.0);
        assert_eq!(told, [None, None, known, known, known, known]);
    }

    /// The pauses of a job, as second, length and whether hosts wait for IO.
    fn pauses_of(pauses: &[(i64, i64, bool)]) -> PastPauses {
        let mut past = PastPauses::default();
        let at = |second: i64| UnixMs(1_800_000_000_000 + second * 1_000);
        for (began, seconds, io) in pauses {
            past.add_pause(PastPause { began: at(*began), ended: at(began + seconds), io: *io });
        }
        past
    }

    #[test]
    fn checkpoints_that_fall_into_evaluations_have_not_grown() {
        let now = UnixMs(1_800_001_100_000);
        let (evaluation, later) = ((30, 117, false), (200, 117, false));
        let checkpoints = [(300, 4, true), (600, 137, true), (950, 110, true)];
        let pauses = pauses_of(&[&[(0, 10, true), evaluation, later], &checkpoints[..]].concat());
        assert_eq!(pauses.growth(now, 1.0), None);
        assert_eq!(pauses.usual_seconds(1.0).map(|(longest, _)| longest.round()), Some(123.0));
        // What happened once is no evaluation.
        let pauses = pauses_of(&[&[(0, 10, true), evaluation], &checkpoints[..]].concat());
        assert_eq!(pauses.growth(now, 1.0).map(|growth| growth.last), Some(110.0));
        assert_eq!(pauses.usual_seconds(1.0).map(|(longest, _)| longest.round()), Some(123.0));
    }

    /// Samples each 30 s show a checkpoint of 45 s as one or two of them.
    #[test]
    fn length_of_a_pause_is_known_to_the_interval_of_its_samples() {
        let now = UnixMs(1_800_001_100_000);
        let pauses = pauses_of(&[(0, 30, true), (300, 60, true), (600, 60, true), (900, 90, true)]);
        assert_eq!(pauses.growth(now, 30.0), None);
        assert_eq!(pauses.usual_seconds(30.0), Some((90.0, 240.0)));
        let pauses = pauses_of(&[(0, 40, true), (300, 20, true), (600, 20, true)]);
        assert_eq!(pauses.usual_seconds(5.0).map(|(longest, _)| longest.round()), Some(32.0));
        let pauses = pauses_of(&[(0, 30, true), (600, 120, true), (900, 120, true)]);
        assert_eq!(pauses.growth(now, 30.0).map(|growth| growth.least), Some(120.0));
    }

    #[test]
    fn even_pauses_and_one_long_one_are_not_told() {
        assert_eq!(growths(&[40, 44, 38, 47, 41]), [None; 5]);
        assert_eq!(growths(&[20, 90, 21, 22]), [None; 4]);
        assert_eq!(growths(&[4, 9, 12, 12]), [None; 4], "a few seconds more");
    }
}
