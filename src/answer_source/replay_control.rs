//! The hand on a replay: it lets its instants come one after the other, as fast as they happened or as it is led, or holds
//! it.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use gaunt_schema::UnixMs;

/// Who has come further behind than this, because instants take longer than they may, does not hurry to catch up.
const BEHIND: Duration = Duration::from_secs(1);

/// A replay's hand. Copies are the same hand.
#[derive(Clone, Debug)]
pub struct ReplayControl(Arc<ReplayControlInner>);

/// How far a replay is, and how it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayProgress {
    /// The instant that was reached.
    pub now: UnixMs,
    /// It goes no further.
    pub last: UnixMs,
    /// Whether it is held.
    pub paused: bool,
    /// The instant to which it is led without waiting, until it is there.
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
    /// When the instant that was reached was due; time does not count while it is held or led.
    since: Instant,
    ended: bool,
}

impl ReplayControl {
    /// One that is at `start`, goes on `speed` times as fast as it happened, and no further than to `last`.
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

    /// How far it is.
    pub fn current_progress(&self) -> ReplayProgress {
        self.lock_state().playing
    }

    /// Holds it, also where it is being led, or lets it go on.
    pub fn toggle_pause(&self) {
        self.update_state(|state| {
            state.playing.paused ^= true;
            state.playing.seek_target = None;
        });
    }

    /// Leads it to an instant as fast as that can be lived through; it stays held if it is held.
    pub fn seek_to(&self, to: UnixMs) {
        self.update_state(|state| {
            let ReplayProgress { now, last, .. } = state.playing;
            state.playing.seek_target = Some(to.min(last)).filter(|to| *to > now);
        });
    }

    /// Ends it: nobody waits for it any more.
    pub fn stop_replay(&self) {
        self.update_state(|state| state.ended = true);
    }

    /// Waits until this instant may come, and is there then; false if it was ended before.
    pub fn wait_until(&self, at: UnixMs) -> bool {
        let mut state = self.lock_state();
        loop {
            let ReplayState {
                playing: ReplayProgress { now, paused: held, seek_target: led, .. },
                since,
                ended,
            } = *state;
            let due = since + at.duration_since(now).div_f64(self.0.speed);
            let ahead = due.saturating_duration_since(Instant::now());
            let is_led = led.is_some_and(|led| at <= led);
            if ended {
                return false;
            }
            if is_led || !held && ahead.is_zero() {
                let late = due.elapsed() > BEHIND;
                state.since = if is_led || late { Instant::now() } else { due };
                state.playing.now = now.max(at);
                state.playing.seek_target = led.filter(|led| *led > at);
                return true;
            }
            // What it was led to lies between two of its instants: it is as good as there.
            state.playing.seek_target = None;
            let changed = &self.0.changed;
            state = if held {
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
    fn instants_come_at_its_speed_and_none_while_it_is_held() {
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
        let held =
            ReplayProgress { now: after_start(20), last: LAST, paused: true, seek_target: None };
        assert_eq!((player.current_progress(), waiting.is_finished()), (held, false));
        player.toggle_pause();
        assert!(waiting.join().unwrap());
        assert_eq!(player.current_progress().now, after_start(21));
    }

    #[test]
    fn where_it_is_led_it_is_at_once_and_then_goes_on_as_before() {
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
