//! Lateness of this process's own timers: what it could not handle in time is not the targets' fault.
//!
//! A timer tick is due every [`BEAT`], on a simulated network every [`SIMULATED_BEAT`]. A delay of the tick is time in
//! which this process ran no task: an attempt with a delay of a large part of its deadline carries no information about
//! its target.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::AbortHandle,
    time::{Instant, sleep},
};

/// The time between two ticks.
pub(super) const BEAT: Duration = Duration::from_millis(20);

/// The same where the clock is simulated and never late: each tick costs as much as some steps of a connection.
pub(super) const SIMULATED_BEAT: Duration = Duration::from_secs(1);

/// A smaller delay counts as on time: it is within timer resolution.
const TOLERATED: Duration = Duration::from_millis(10);

/// An attempt with lateness above this share of its deadline is not judged.
const SHARE: f64 = 0.2;

/// The total lateness of the ticks.
#[derive(Debug)]
pub(super) struct TimerLateness {
    start: Instant,
    sum: LatenessSum,
}

/// Total lateness until the last tick, and the time of that tick, in microseconds since the start.
#[derive(Debug)]
struct LatenessSum {
    /// The time between two ticks.
    beat: u64,
    late: AtomicU64,
    last: AtomicU64,
}

impl LatenessSum {
    fn new(beat: Duration) -> Self {
        let beat = u64::try_from(beat.as_micros()).unwrap_or(u64::MAX);
        Self { beat, late: AtomicU64::new(0), last: AtomicU64::new(0) }
    }

    /// Records a tick at this time.
    fn record_beat(&self, now: u64) {
        let last = self.last.swap(now, Ordering::Relaxed);
        self.late.fetch_add(self.overdue_micros(now, last), Ordering::Relaxed);
    }

    /// Total lateness until this time, that of the overdue tick included.
    fn total_at(&self, now: u64) -> Duration {
        let last = self.last.load(Ordering::Relaxed);
        Duration::from_micros(self.late.load(Ordering::Relaxed) + self.overdue_micros(now, last))
    }

    /// Delay of a tick between two times, in microseconds; 0 if it is within timer resolution.
    fn overdue_micros(&self, now: u64, last: u64) -> u64 {
        let late = now.saturating_sub(last).saturating_sub(self.beat);
        if late <= TOLERATED.as_micros() as u64 { 0 } else { late }
    }
}

/// Stops the timer when it is dropped.
#[derive(Debug)]
pub(super) struct LatenessTaskGuard(AbortHandle);

impl Drop for LatenessTaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl TimerLateness {
    /// Starts the timer, with this time between two ticks.
    pub(super) fn spawn_timer(beat: Duration) -> (Arc<Self>, LatenessTaskGuard) {
        let lateness = Arc::new(Self { start: Instant::now(), sum: LatenessSum::new(beat) });
        let timer = lateness.clone();
        let ticks = tokio::spawn(async move {
            loop {
                sleep(beat).await;
                timer.sum.record_beat(timer.since_start());
            }
        });
        (lateness, LatenessTaskGuard(ticks.abort_handle()))
    }

    /// Total lateness until now.
    pub(super) fn total_lateness(&self) -> Duration {
        self.sum.total_at(self.since_start())
    }

    /// The lateness since the total was `before`, if it is too much for an attempt with this deadline to be judged.
    pub(super) fn excessive_lateness(
        &self,
        before: Duration,
        deadline: Duration,
    ) -> Option<Duration> {
        lateness_over_share(self.total_lateness().saturating_sub(before), deadline)
    }

    fn since_start(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// The lateness during an attempt with this deadline, if it is too much for the attempt to be judged.
fn lateness_over_share(late: Duration, deadline: Duration) -> Option<Duration> {
    (late >= deadline.mul_f64(SHARE)).then_some(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;

    #[test]
    fn lateness_counts_stalls_and_ignores_timer_jitter() {
        let sum = LatenessSum::new(BEAT);
        // Ten seconds without load, with normal timer resolution.
        for tick in 1..=500 {
            sum.record_beat(tick * 20 * MS + tick % 3 * MS);
        }
        let now = 500 * 20 * MS + 2 * MS;
        assert_eq!(sum.total_at(now), Duration::ZERO);
        // No task runs for two seconds: that is detected before the next tick, and counted once.
        let expected = Duration::from_millis(2_000 - 20);
        assert_eq!(sum.total_at(now + 2_000 * MS), expected);
        sum.record_beat(now + 2_000 * MS);
        assert_eq!(sum.total_at(now + 2_000 * MS), expected);
        sum.record_beat(now + 2_020 * MS);
        assert_eq!(sum.total_at(now + 2_025 * MS), expected);
        // Many short stalls add up: a busy machine is always a little late.
        (1..=10).for_each(|tick| sum.record_beat(now + 2_020 * MS + tick * 60 * MS));
        assert_eq!(sum.total_at(now + 2_620 * MS), expected + Duration::from_millis(10 * 40));
    }

    #[test]
    fn lateness_of_a_small_part_of_the_deadline_leaves_the_attempt_judged() {
        let late = Duration::from_millis(120);
        assert_eq!(lateness_over_share(late, Duration::from_secs(4)), None);
        assert_eq!(lateness_over_share(late, Duration::from_millis(400)), Some(late));
        assert_eq!(lateness_over_share(Duration::ZERO, Duration::from_millis(1)), None);
    }
}
