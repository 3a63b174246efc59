//! Replay control: paces the instants of a replay by its speed, seeks, and pauses.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use gaunt_schema::UnixMs;

/// A replay that is further behind than this, because instants take longer than their time, does not catch up.
const BEHIND: Duration = Duration::from_secs(1);

/// Controls a replay. Clones control the same replay.
#[derive(Clone, Debug)]
pub struct ReplayControl(Arc<ReplayControlInner>);

/// Position and pace of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayProgress {
    /// Current position.
    pub now: UnixMs,
    /// Last position.
    pub last: UnixMs,
    /// Whether it is paused.
    pub paused: bool,
    /// Target of a seek in progress.
    pub seek_target: Option<UnixMs>,
}

#[derive(Debug)]
struct ReplayControlInner {
    speed: f64,
    state: Mutex<ReplayState>,
    changed: Condvar,
}

#[derive(Debug)]
struct ReplayState {
    playing: ReplayProgress,
    /// When the current position was due; time does not count while paused or seeking.
    since: Instant,
    ended: bool,
}

impl ReplayControl {
    /// Creates a control at `start` that plays at `speed` times real time up to `last`.
    pub fn new(start: UnixMs, last: UnixMs, speed: f64) -> Self {
        let playing = ReplayProgress { now: start, last, paused: false, seek_target: None };
        let state = ReplayState { playing, since: Instant::now(), ended: false };
        Self(Arc::new(ReplayControlInner {
            speed,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    fn lock_state(&self) -> MutexGuard<'_, ReplayState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update_state(&self, change: impl FnOnce(&mut ReplayState)) {
        let mut state = self.lock_state();
        change(&mut state);
        state.since = Instant::now();
        self.0.changed.notify_all();
    }

    /// Current progress.
    pub fn current_progress(&self) -> ReplayProgress {
        self.lock_state().playing
    }

    /// Pauses, also during a seek, or resumes.
    pub fn toggle_pause(&self) {
        self.update_state(|state| {
            state.playing.paused ^= true;
            state.playing.seek_target = None;
        });
    }

    /// Seeks to a position as fast as the replay allows; a paused replay stays paused.
    pub fn seek_to(&self, to: UnixMs) {
        self.update_state(|state| {
            let ReplayProgress { now, last, .. } = state.playing;
            state.playing.seek_target = Some(to.min(last)).filter(|to| *to > now);
        });
    }

    /// Stops the replay: all waits end.
    pub fn stop_replay(&self) {
        self.update_state(|state| state.ended = true);
    }

    /// Waits until this instant is due, and moves there; false if the replay was stopped before.
    pub fn wait_until(&self, at: UnixMs) -> bool {
        let mut state = self.lock_state();
        loop {
            let ReplayState {
                playing: ReplayProgress { now, paused, seek_target: target, .. },
                since,
                ended,
            } = *state;
            let due = since + at.duration_since(now).div_f64(self.0.speed);
            let ahead = due.saturating_duration_since(Instant::now());
            let is_seeking = target.is_some_and(|target| at <= target);
            if ended {
                return false;
            }
            if is_seeking || !paused && ahead.is_zero() {
                let late = due.elapsed() > BEHIND;
                state.since = if is_seeking || late { Instant::now() } else { due };
                state.playing.now = now.max(at);
                state.playing.seek_target = target.filter(|target| *target > at);
                return true;
            }
            // The seek target lies between two instants: it is reached.
            state.playing.seek_target = None;
            let changed = &self.0.changed;
            state = if paused {
                changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                let waited = changed.wait_timeout(state, ahead);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const START: UnixMs = UnixMs(1_000_000);
    const LAST: UnixMs = UnixMs(1_060_000);

    fn after_start(seconds: u64) -> UnixMs {
        START + Duration::from_secs(seconds)
    }

    #[test]
    fn replay_clock_advances_at_its_speed_and_stops_while_paused() {
        let player = ReplayControl::new(START, LAST, 1_000.0);
        let begun = Instant::now();
        assert!(player.wait_until(after_start(10)) && player.wait_until(after_start(20)));
        assert!(begun.elapsed() >= Duration::from_millis(20));
        player.toggle_pause();
        let waiting = thread::spawn({
            let player = player.clone();
            move || player.wait_until(after_start(21))
        });
        thread::sleep(Duration::from_millis(20));
        let expected =
            ReplayProgress { now: after_start(20), last: LAST, paused: true, seek_target: None };
        assert_eq!((player.current_progress(), waiting.is_finished()), (expected, false));
        player.toggle_pause();
        assert!(waiting.join().unwrap());
        assert_eq!(player.current_progress().now, after_start(21));
    }

    #[test]
    fn replay_seek_jumps_at_once_and_then_resumes() {
        let player = ReplayControl::new(START, LAST, 1e-3);
        player.toggle_pause();
        player.seek_to(after_start(30));
        assert_eq!(player.current_progress().seek_target, Some(after_start(30)));
        assert!((1..=30).all(|second| player.wait_until(after_start(second))));
        assert_eq!(
            player.current_progress(),
            ReplayProgress { now: after_start(30), last: LAST, paused: true, seek_target: None }
        );
        player.seek_to(after_start(3_600));
        assert_eq!(player.current_progress().seek_target, Some(LAST), "there is no more");
        player.toggle_pause();
        assert_eq!(
            player.current_progress(),
            ReplayProgress { now: after_start(30), last: LAST, paused: false, seek_target: None }
        );
        let waiting = thread::spawn({
            let player = player.clone();
            move || player.wait_until(after_start(31))
        });
        player.stop_replay();
        assert!(!waiting.join().unwrap(), "who waits for it ends when it does");
    }
}
