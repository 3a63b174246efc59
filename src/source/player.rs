//! The hand on a replay: it holds it, lets it go on, and tells its clock.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use gaunt_schema::{Clock, UnixMs};

/// A replay's clock, which can be held. Copies are the same clock.
#[derive(Clone, Debug)]
pub struct Player(Arc<Reel>);

#[derive(Debug)]
struct Reel {
    speed: f64,
    /// It goes no further.
    last: UnixMs,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// What it showed, and when that was; nothing passes while it is held.
    shown: UnixMs,
    since: Instant,
    held: bool,
    ended: bool,
}

impl Player {
    /// A clock that starts at `start`, runs `speed` times as fast as real time and stands still at `last`.
    pub fn new(start: UnixMs, last: UnixMs, speed: f64) -> Self {
        let state = State { shown: start, since: Instant::now(), held: false, ended: false };
        Self(Arc::new(Reel { speed, last, state: Mutex::new(state), changed: Condvar::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shows(&self, state: &State) -> UnixMs {
        if state.held {
            return state.shown;
        }
        (state.shown + state.since.elapsed().mul_f64(self.0.speed)).min(self.0.last)
    }

    /// What it shows.
    pub fn now(&self) -> UnixMs {
        self.shows(&self.state())
    }

    /// The same for those who want a clock.
    pub fn clock(&self) -> Clock {
        let player = self.clone();
        Arc::new(move || player.now())
    }

    /// Holds it, or lets it go on; says whether it is held now.
    pub fn toggle(&self) -> bool {
        let mut state = self.state();
        (state.shown, state.since) = (self.shows(&state), Instant::now());
        state.held = !state.held;
        self.0.changed.notify_all();
        state.held
    }

    /// Ends it: nobody waits for it any more.
    pub fn end(&self) {
        self.state().ended = true;
        self.0.changed.notify_all();
    }

    /// Waits until it shows this instant; false if it was ended before.
    pub fn reach(&self, at: UnixMs) -> bool {
        let mut state = self.state();
        loop {
            let ahead = at.since(self.shows(&state));
            if state.ended || ahead.is_zero() {
                return !state.ended;
            }
            let changed = &self.0.changed;
            state = if state.held {
                changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                // A little more, so that it is not woken just before.
                let wait = ahead.div_f64(self.0.speed) + Duration::from_millis(1);
                let waited = changed.wait_timeout(state, wait);
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

    #[test]
    fn it_stands_still_while_it_is_held_and_at_its_end() {
        let player = Player::new(START, START + Duration::from_mins(1), 1_000.0);
        assert!(player.toggle());
        let held = player.now();
        thread::sleep(Duration::from_millis(3));
        assert_eq!(player.now(), held);
        assert!(!player.toggle());
        assert!(player.reach(START + Duration::from_mins(1)));
        assert_eq!(player.now(), START + Duration::from_mins(1), "and no further");
    }

    #[test]
    fn who_waits_for_it_goes_on_when_it_does_and_ends_when_it_ends() {
        let player = Player::new(START, START + Duration::from_hours(1), 1_000.0);
        player.toggle();
        let waiting = thread::spawn({
            let player = player.clone();
            move || player.reach(START + Duration::from_secs(2))
        });
        player.toggle();
        assert!(waiting.join().unwrap());
        let waiting = thread::spawn({
            let player = player.clone();
            move || player.reach(START + Duration::from_hours(1))
        });
        player.toggle();
        player.end();
        assert!(!waiting.join().unwrap());
    }
}
