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
    let tick = owner.options.period.min(SLOWEST_TICK).div_f64(speed.max(f64::MIN_POSITIVE));
    let tick = tick.clamp(FASTEST_TICK, SLOWEST_TICK);
    let (handle, ends) = Handle::new(owner.published());
    tokio::spawn(run(owner, clock, tick, ends));
    handle
}

async fn run(mut owner: Owner, clock: Clock, tick: Duration, ends: Ends) {
    let Ends { mut deliveries, mut asked, published } = ends;
    let mut ticks = interval(tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            asked = asked.recv() => match asked {
                Some(asked) => serve(&mut owner, asked, &published),
                None => return,
            },
            _ = ticks.tick() => {
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
