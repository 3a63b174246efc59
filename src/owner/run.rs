//! The owner's loop: questions first, then the tick, then what the senders bring, one thing at a time.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{Clock, UnixMs};
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{Interval, MissedTickBehavior, interval},
};

use super::{
    Handle, Options, Owner,
    desk::Desk,
    handle::{Asked, Ends, INBOX},
    ingest_budget::IngestBudget,
};

/// The longest time between two ticks: a screen that is older than this looks frozen.
const SLOWEST_TICK: Duration = Duration::from_secs(1);

/// The shortest time between two ticks, so that a tiny period cannot make the owner spin.
const FASTEST_TICK: Duration = Duration::from_millis(50);

/// Judgements in one period at least: targets that are read every ten seconds say little that is new in each second.
const JUDGEMENTS: u32 = 4;

/// A tick that comes later than this is late.
const LATE: Duration = Duration::from_millis(50);

/// So many times as long as a judgement took, none is made.
const REST: u32 = 3;

/// The longest time without a judgement for that reason: on a machine that is too busy, something has to be late.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// A clock that never goes back: the monotonic clock, anchored to the wall clock once, here.
pub fn clock() -> Clock {
    let anchor = Instant::now();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Arc::new(move || UnixMs(0) + (wall + anchor.elapsed()))
}

/// Starts an owner on the current tokio runtime. It ends when the last handle is dropped.
pub fn start(options: Options, clock: Clock) -> Handle {
    let mut owner = Owner::new(options);
    owner.tick(clock());
    resume(owner, clock)
}

/// The same with an owner that knows something already.
pub fn resume(owner: Owner, clock: Clock) -> Handle {
    let mut timer = interval(tick(owner.options.period));
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    go(owner, Beats::Timer(timer, clock))
}

/// The same with an owner for whom time passes when it is told: it ticks at each instant that is sent, after all that
/// was delivered before.
pub fn start_led(mut owner: Owner, start: UnixMs) -> (Handle, mpsc::Sender<UnixMs>) {
    owner.tick(start);
    let (send, told) = mpsc::channel(1);
    (go(owner, Beats::Told(told)), send)
}

fn go(owner: Owner, beats: Beats) -> Handle {
    let (handle, ends) = Handle::new(owner.published());
    tokio::spawn(run(owner, beats, ends));
    handle
}

/// What lets time pass.
enum Beats {
    /// A timer, and the clock to read then.
    Timer(Interval, Clock),
    /// Somebody who says which instant it is.
    Told(mpsc::Receiver<UnixMs>),
}

impl Beats {
    /// The next instant, and how late it comes; never, once nobody tells it any more.
    async fn next(&mut self) -> (UnixMs, Duration) {
        match self {
            Self::Timer(timer, clock) => {
                let due = timer.tick().await;
                (clock(), due.elapsed())
            }
            Self::Told(told) => match told.recv().await {
                Some(at) => (at, Duration::ZERO),
                None => std::future::pending().await,
            },
        }
    }
}

/// The time between two ticks for targets that are read once a period.
pub fn tick(period: Duration) -> Duration {
    period.clamp(FASTEST_TICK, SLOWEST_TICK)
}

/// How often time passes.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// The time between two ticks.
    tick: Duration,
    /// The ticks from one judgement to the next.
    judge_every: u32,
}

impl Pace {
    /// The pace for targets that are read once a period.
    fn of(period: Duration) -> Self {
        let (tick, between) = (tick(period), period / JUDGEMENTS);
        Self { tick, judge_every: (between.div_duration_f64(tick) as u32).max(1) }
    }

    /// The ticks without a judgement after one that took so long: deliveries wait while the judge judges, and must not
    /// wait most of the time.
    fn rest(self, spent: Duration) -> u32 {
        let needed = (spent * REST).min(LONGEST_REST).div_duration_f64(self.tick) as u32;
        needed.max(self.judge_every - 1)
    }
}

/// When the next judgement is made.
#[derive(Debug)]
struct Turn {
    pace: Pace,
    /// Ticks that pass before it is due.
    left: u32,
    /// Ticks since the last one, as long as deliveries wait that came while it was made: they come first. Who judged
    /// again before would fall behind further with each, and lose pages.
    behind: Option<u32>,
}

impl Turn {
    fn new(pace: Pace) -> Self {
        Self { pace, left: 0, behind: None }
    }

    /// So many deliveries wait.
    fn count(&mut self, deliveries: usize) {
        if deliveries == 0 {
            self.behind = None;
        }
    }

    /// Whether it is made at this tick.
    fn take(&mut self) -> bool {
        let longest = LONGEST_REST.div_duration_f64(self.pace.tick) as u32;
        let waits = self.behind.is_some_and(|ticks| ticks < longest);
        self.behind = self.behind.map(|ticks| ticks + 1);
        let is_due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_due && !waits
    }

    /// It was made, and took so long.
    fn made(&mut self, spent: Duration) {
        (self.left, self.behind) = (self.pace.rest(spent), Some(0));
    }
}

/// Runs until nobody is left to ask, or until a part of it panicked.
async fn run(owner: Owner, mut beats: Beats, ends: Ends) {
    let Ends { mut deliveries, asked, published } = ends;
    let mut turn = Turn::new(Pace::of(owner.options.period));
    let mut desk = Desk::new(owner, asked, published);
    let mut budget = IngestBudget::default();
    loop {
        desk.count(deliveries.len());
        turn.count(deliveries.len());
        tokio::select! {
            biased;
            going_on = desk.serve() => if !going_on { return },
            (now, late) = beats.next() => {
                // Time that is told does not press: all that came before counts, and no judgement is left out.
                let is_told = matches!(beats, Beats::Told(_));
                while let Some(delivery) = is_told.then(|| deliveries.try_recv().ok()).flatten() {
                    let Some(owner) = desk.owner().await else { return };
                    owner.accept(delivery);
                }
                if is_told {
                    turn.count(0);
                }
                if let Some(late) = own_lateness(turn.pace, late, deliveries.len()) {
                    let Some(owner) = desk.owner().await else { return };
                    owner.excuse(late);
                }
                let (begun, judges) = (Instant::now(), turn.take());
                if step(&mut desk, now, judges).await.is_none() {
                    return;
                }
                if judges {
                    turn.made(if is_told { Duration::ZERO } else { begun.elapsed() });
                }
            }
            Some(delivery) = deliveries.recv(), if desk.is_free() => {
                let Some(owner) = desk.owner().await else { return };
                budget.accept(owner, delivery);
                desk.took();
            }
        }
    }
}

/// By how much this process is late, if it is: its tick came late, or so many deliveries wait that those of a whole tick
/// are among them. Nobody is missed for that.
fn own_lateness(pace: Pace, late: Duration, waiting: usize) -> Option<Duration> {
    let late = if waiting >= INBOX / 2 { late.max(pace.tick) } else { late };
    (late >= LATE).then_some(late)
}

/// One tick. What takes long in it is done on a thread of its own while questions are answered: on a large fleet a
/// judgement takes longer than a question may wait.
async fn step(desk: &mut Desk, now: UnixMs, judges: bool) -> Option<()> {
    if judges {
        let Some(judging) = desk.owner().await?.begin_tick(now) else { return Some(()) };
        let done = desk.during(spawn_blocking(move || judging.run())).await?;
        desk.owner().await?.end_tick(done);
    } else {
        desk.owner().await?.pass(now);
    }
    let owner = desk.shared();
    let told = desk.during(spawn_blocking(move || owner.told())).await?;
    desk.owner().await?.publish(told);
    desk.publish();
    Some(())
}

/// The way in which questions come.
pub(super) type Questions = mpsc::Receiver<Asked>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_read_seldom_is_judged_seldom_and_shown_every_second() {
        let told = |millis| {
            let Pace { tick, judge_every } = Pace::of(Duration::from_millis(millis));
            (tick.as_millis(), judge_every)
        };
        assert_eq!(told(1), (50, 1));
        assert_eq!(told(200), (200, 1));
        assert_eq!(told(1_000), (1_000, 1));
        assert_eq!(told(7_900), (1_000, 1));
        assert_eq!(told(10_000), (1_000, 2));
        assert_eq!(told(60_000), (1_000, 15));
    }

    #[test]
    fn own_lateness_is_a_late_tick_or_a_full_inbox() {
        let pace = Pace::of(Duration::from_secs(10));
        let (soon, late) = (Duration::from_millis(20), Duration::from_secs(3));
        assert_eq!(own_lateness(pace, soon, 100), None);
        assert_eq!(own_lateness(pace, late, 0), Some(late));
        assert_eq!(own_lateness(pace, soon, INBOX), Some(pace.tick));
        assert_eq!(own_lateness(pace, late, INBOX), Some(late));
    }

    #[test]
    fn a_judgement_that_takes_long_is_made_seldom() {
        let rest = |period, spent| {
            Pace::of(Duration::from_secs(period)).rest(Duration::from_millis(spent))
        };
        assert_eq!((rest(1, 20), rest(10, 20)), (0, 1));
        assert_eq!((rest(1, 300), rest(10, 700)), (0, 2));
        assert_eq!((rest(1, 700), rest(10, 1_600)), (2, 4));
        assert_eq!(rest(1, 90_000), 5);
    }

    #[test]
    fn who_is_behind_takes_what_waits_before_the_next_judgement_and_not_for_ever() {
        let mut turn = Turn::new(Pace::of(Duration::from_secs(1)));
        let made = |turn: &mut Turn| {
            let due = turn.take();
            if due {
                turn.made(Duration::from_millis(300));
            }
            due
        };
        // While nothing waits, every tick.
        assert!((0..3).all(|_| {
            turn.count(0);
            made(&mut turn)
        }));
        // What waits is taken in time.
        turn.count(700);
        assert!(!made(&mut turn));
        turn.count(20);
        assert!(!made(&mut turn));
        turn.count(0);
        turn.count(3);
        assert!(made(&mut turn), "what came since counts at the next one");
        // A machine that is too slow for all is judged now and then.
        let often = (0..60).filter(|_| {
            turn.count(5_000);
            made(&mut turn)
        });
        assert_eq!(often.count(), 10);
    }
}
