//! The owner's loop: questions first, then the tick, then what the senders bring, one thing at a time.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{Clock, UnixMs};
use tokio::{
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use super::{
    Handle, Judged, Judging, Options, Owner,
    handle::{Asked, Ends, Published},
};

/// The longest time between two ticks: a screen that is older than this looks frozen.
const SLOWEST_TICK: Duration = Duration::from_secs(1);

/// The shortest time between two ticks, so that a tiny period cannot make the owner spin.
const FASTEST_TICK: Duration = Duration::from_millis(50);

/// Judgements in one period at least: targets that are read every ten seconds say little that is new in each second.
const JUDGEMENTS: u32 = 4;

/// A clock that never goes back: the monotonic clock, anchored to the wall clock once, here.
pub fn clock() -> Clock {
    let anchor = Instant::now();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Arc::new(move || UnixMs(0) + (wall + anchor.elapsed()))
}

/// Starts an owner on the current tokio runtime. It ends when the last handle is dropped.
pub fn start(options: Options, clock: Clock) -> Handle {
    start_at(options, clock, 1.0)
}

/// The same under a clock that runs this many times as fast as real time.
pub fn start_at(options: Options, clock: Clock, speed: f64) -> Handle {
    let mut owner = Owner::new(options);
    owner.tick(clock());
    go(owner, clock, speed)
}

/// The same with an owner that knows something already.
pub fn resume(owner: Owner, clock: Clock) -> Handle {
    go(owner, clock, 1.0)
}

fn go(owner: Owner, clock: Clock, speed: f64) -> Handle {
    let pace = Pace::of(owner.options.period, speed);
    let (handle, ends) = Handle::new(owner.published());
    tokio::spawn(run(owner, clock, pace, ends));
    handle
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
    /// The pace for targets that are read once a period, of a clock that runs this many times as fast as real time.
    fn of(period: Duration, speed: f64) -> Self {
        let speed = speed.max(f64::MIN_POSITIVE);
        let tick = period.min(SLOWEST_TICK).div_f64(speed).clamp(FASTEST_TICK, SLOWEST_TICK);
        let between = period.div_f64(speed) / JUDGEMENTS;
        Self { tick, judge_every: (between.div_duration_f64(tick) as u32).max(1) }
    }
}

async fn run(mut owner: Owner, clock: Clock, pace: Pace, ends: Ends) {
    let Ends { mut deliveries, mut asked, published } = ends;
    let mut ticks = interval(pace.tick);
    let mut until_judged = 0;
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            asked = asked.recv() => match asked {
                Some(asked) => serve(&mut owner, asked, &published),
                None => return,
            },
            _ = ticks.tick() => {
                if until_judged > 0 {
                    until_judged -= 1;
                    owner.pass(clock());
                    published.send_replace(owner.published());
                    continue;
                }
                until_judged = pace.judge_every - 1;
                let Some(judging) = owner.begin_tick(clock()) else { continue };
                let judged = meanwhile(&mut owner, &mut asked, &published, judging).await;
                let Some(judged) = judged else { return };
                owner.end_tick(judged);
                published.send_replace(owner.published());
            }
            Some(delivery) = deliveries.recv() => owner.accept(delivery),
        }
    }
}

/// Answers questions while the judge judges on a thread of his own: on a large fleet that takes longer than a question
/// may wait. None if nobody is left to ask, or if the judge panicked.
async fn meanwhile(
    owner: &mut Owner,
    asked: &mut mpsc::Receiver<Asked>,
    published: &watch::Sender<Published>,
    judging: Judging,
) -> Option<Judged> {
    let mut judging = spawn_blocking(move || judging.run());
    loop {
        tokio::select! {
            biased;
            judged = &mut judging => return judged.ok(),
            asked = asked.recv() => serve(owner, asked?, published),
        }
    }
}

/// Does what is asked. Whoever asked may have given up; then the answer is dropped.
fn serve(owner: &mut Owner, asked: Asked, published: &watch::Sender<Published>) {
    match asked {
        Asked::Question(question, back) => drop(back.send(owner.answer(&question))),
        Asked::Act(act, back) => {
            let answer = owner.act(&act);
            published.send_replace(owner.published());
            drop(back.send(answer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_read_seldom_is_judged_seldom_and_shown_every_second() {
        let told = |millis, speed| {
            let Pace { tick, judge_every } = Pace::of(Duration::from_millis(millis), speed);
            (tick.as_millis(), judge_every)
        };
        assert_eq!(told(200, 1.0), (200, 1));
        assert_eq!(told(1_000, 1.0), (1_000, 1));
        assert_eq!(told(7_900, 1.0), (1_000, 1));
        assert_eq!(told(10_000, 1.0), (1_000, 2));
        assert_eq!(told(60_000, 1.0), (1_000, 15));
        assert_eq!(told(10_000, 10.0), (100, 2));
        assert_eq!(told(1_000, 1e9), (50, 1));
    }
}
