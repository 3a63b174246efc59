//! Clock of an engine that reads from a server: as far behind the present as its samples are, and never ahead of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use gaunt_schema::{ClockFn, UnixMs};

/// A clock that stands still while the next sample is missing, so that nothing seems to be late or gone only because
/// the server is slow or away.
#[derive(Clone)]
pub struct SeriesClock {
    present: ClockFn,
    lag: Duration,
    limit: Arc<AtomicI64>,
}

impl SeriesClock {
    /// A clock `lag` behind `present`, which stands at `at` until it is told to go on.
    pub fn new(present: ClockFn, lag: Duration, at: UnixMs) -> Self {
        Self { present, lag, limit: Arc::new(AtomicI64::new(at.0)) }
    }

    /// The clock for an engine.
    pub fn to_clock_fn(&self) -> ClockFn {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }

    /// The time.
    pub fn now(&self) -> UnixMs {
        self.due_until().min(UnixMs(self.limit.load(Relaxed)))
    }

    /// The present time, by the clock of this machine.
    pub(crate) fn present(&self) -> UnixMs {
        (self.present)()
    }

    /// The instant up to which samples are due.
    pub(crate) fn due_until(&self) -> UnixMs {
        (self.present)() - self.lag
    }

    /// Lets it go on to `at`; it never goes back.
    pub(crate) fn allow_until(&self, at: UnixMs) {
        self.limit.fetch_max(at.0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_waits_for_samples_and_never_goes_back() {
        let wall = Arc::new(AtomicI64::new(100_000));
        let present: ClockFn = {
            let wall = wall.clone();
            Arc::new(move || UnixMs(wall.load(Relaxed)))
        };
        let clock = SeriesClock::new(present, Duration::from_secs(25), UnixMs(75_000));
        let now = clock.to_clock_fn();
        assert_eq!(now(), UnixMs(75_000));
        wall.store(110_000, Relaxed);
        assert_eq!((now(), clock.due_until()), (UnixMs(75_000), UnixMs(85_000)));
        clock.allow_until(UnixMs(80_000));
        clock.allow_until(UnixMs(79_000));
        assert_eq!(now(), UnixMs(80_000));
        clock.allow_until(UnixMs(200_000));
        assert_eq!(now(), UnixMs(85_000), "samples that are not due wait");
    }
}
