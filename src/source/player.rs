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
pub struct Player(Arc<Reel>);

/// How far a replay is, and how it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Playing {
    /// The instant that was reached.
    pub now: UnixMs,
    /// It goes no further.
    pub last: UnixMs,
    /// Whether it is held.
    pub held: bool,
    /// The instant to which it is led without waiting, until it is there.
    pub led: Option<UnixMs>,
}

#[derive(Debug)]
struct Reel {
    speed: f64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    playing: Playing,
    /// When the instant that was reached was due; time does not count while it is held or led.
    since: Instant,
    ended: bool,
}

impl Player {
    /// One that is at `start`, goes on `speed` times as fast as it happened, and no further than to `last`.
    pub fn new(start: UnixMs, last: UnixMs, speed: f64) -> Self {
        let playing = Playing { now: start, last, held: false, led: None };
        let state = State { playing, since: Instant::now(), ended: false };
        Self(Arc::new(Reel { speed, state: Mutex::new(state), changed: Condvar::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        state.since = Instant::now();
        self.0.changed.notify_all();
    }

    /// How far it is.
    pub fn playing(&self) -> Playing {
        self.state().playing
    }

    /// Holds it, also where it is being led, or lets it go on.
    pub fn toggle(&self) {
        self.change(|state| {
            state.playing.held ^= true;
            state.playing.led = None;
        });
    }

    /// Leads it to an instant as fast as that can be lived through; it stays held if it is held.
    pub fn lead(&self, to: UnixMs) {
        self.change(|state| {
            let Playing { now, last, .. } = state.playing;
            state.playing.led = Some(to.min(last)).filter(|to| *to > now);
        });
    }

    /// Ends it: nobody waits for it any more.
    pub fn end(&self) {
        self.change(|state| state.ended = true);
    }

    /// Waits until this instant may come, and is there then; false if it was ended before.
    pub fn reach(&self, at: UnixMs) -> bool {
        let mut state = self.state();
        loop {
            let State { playing: Playing { now, held, led, .. }, since, ended } = *state;
            let due = since + at.since(now).div_f64(self.0.speed);
            let ahead = due.saturating_duration_since(Instant::now());
            let is_led = led.is_some_and(|led| at <= led);
            if ended {
                return false;
            }
            if is_led || !held && ahead.is_zero() {
                let late = due.elapsed() > BEHIND;
                state.since = if is_led || late { Instant::now() } else { due };
                state.playing.now = now.max(at);
                state.playing.led = led.filter(|led| *led > at);
                return true;
            }
            // What it was led to lies between two of its instants: it is as good as there.
            state.playing.led = None;
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

    fn after(seconds: u64) -> UnixMs {
        START + Duration::from_secs(seconds)
    }

    #[test]
    fn instants_come_at_its_speed_and_none_while_it_is_held() {
        let player = Player::new(START, LAST, 1_000.0);
        let begun = Instant::now();
        assert!(player.reach(after(10)) && player.reach(after(20)));
        assert!(begun.elapsed() >= Duration::from_millis(20));
        player.toggle();
        let waiting = thread::spawn({
            let player = player.clone();
            move || player.reach(after(21))
        });
        thread::sleep(Duration::from_millis(20));
        let held = Playing { now: after(20), last: LAST, held: true, led: None };
        assert_eq!((player.playing(), waiting.is_finished()), (held, false));
        player.toggle();
        assert!(waiting.join().unwrap());
        assert_eq!(player.playing().now, after(21));
    }

    #[test]
    fn where_it_is_led_it_is_at_once_and_then_goes_on_as_before() {
        let player = Player::new(START, LAST, 1e-3);
        player.toggle();
        player.lead(after(30));
        assert_eq!(player.playing().led, Some(after(30)));
        assert!((1..=30).all(|second| player.reach(after(second))));
        assert_eq!(player.playing(), Playing { now: after(30), last: LAST, held: true, led: None });
        player.lead(after(3_600));
        assert_eq!(player.playing().led, Some(LAST), "there is no more");
        player.toggle();
        assert_eq!(
            player.playing(),
            Playing { now: after(30), last: LAST, held: false, led: None }
        );
        let waiting = thread::spawn({
            let player = player.clone();
            move || player.reach(after(31))
        });
        player.end();
        assert!(!waiting.join().unwrap(), "who waits for it ends when it does");
    }
}
