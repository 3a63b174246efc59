//! The owner's loop: questions first, then the tick, then what the senders bring, one thing at a time.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{Clock, UnixMs};
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use super::{
    Handle, Options, Owner,
    desk::Desk,
    handle::{Asked, Ends},
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

/// Runs until nobody is left to ask, or until a part of it panicked.
async fn run(owner: Owner, clock: Clock, tick: Duration, ends: Ends) {
    let Ends { mut deliveries, asked, published } = ends;
    let mut desk = Desk::new(owner, asked, published);
    let mut ticks = interval(tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        desk.count(deliveries.len());
        tokio::select! {
            biased;
            going_on = desk.serve() => if !going_on { return },
            _ = ticks.tick() => {
                if step(&mut desk, clock()).await.is_none() {
                    return;
                }
            }
            Some(delivery) = deliveries.recv(), if desk.is_free() => {
                let Some(owner) = desk.owner().await else { return };
                owner.accept(delivery);
                desk.took();
            }
        }
    }
}

/// One tick. What takes long in it is done on a thread of its own while questions are answered: on a large fleet a
/// judgement takes longer than a question may wait.
async fn step(desk: &mut Desk, now: UnixMs) -> Option<()> {
    let Some(judging) = desk.owner().await?.begin_tick(now) else { return Some(()) };
    let judged = desk.during(spawn_blocking(move || judging.run())).await?;
    desk.owner().await?.end_tick(judged);
    let owner = desk.shared();
    let told = desk.during(spawn_blocking(move || owner.told())).await?;
    desk.owner().await?.publish(told);
    desk.publish();
    Some(())
}

/// The way in which questions come.
pub(super) type Questions = mpsc::Receiver<Asked>;
