//! The engine's loop: queries first, then the tick, then ingest, one thing at a time.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{ClockFn, UnixMs};
use tokio::{
    sync::mpsc,
    time::{Interval, MissedTickBehavior, interval},
};

use super::{
    Engine, EngineHandle, EngineOptions,
    engine_end::EngineEnd,
    engine_handle::{EngineChannels, INBOX},
    ingest_quota::IngestQuota,
    query_scheduler::QueryScheduler,
};

/// The longest time between two ticks: a screen that is older than this looks frozen.
const SLOWEST_TICK: Duration = Duration::from_secs(1);

/// The shortest time between two ticks, so that a tiny period cannot keep the engine busy.
const FASTEST_TICK: Duration = Duration::from_millis(50);

/// Minimum number of judgements per period: targets that are scraped every ten seconds change little each second.
const JUDGEMENTS: u32 = 4;

/// A tick that comes later than this is late.
const LATE: Duration = Duration::from_millis(50);

/// Pause after a judgement, as a multiple of its duration.
const REST: u32 = 3;

/// The longest such pause: on an overloaded machine, something has to be late.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// A clock that never goes back: the monotonic clock, anchored to the wall clock once, here.
pub fn monotonic_clock() -> ClockFn {
    let anchor = Instant::now();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Arc::new(move || UnixMs(0) + (wall + anchor.elapsed()))
}

/// Starts an engine on the current tokio runtime. It ends when the last handle is dropped.
pub fn spawn_new(options: EngineOptions, clock: ClockFn) -> EngineHandle {
    let mut engine = Engine::new(options);
    engine.run_tick(clock());
    spawn_existing(engine, clock)
}

/// Like [`spawn_new`], with an engine that has state already.
pub fn spawn_existing(engine: Engine, clock: ClockFn) -> EngineHandle {
    let mut timer = interval(tick_interval(engine.options.period));
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    spawn_loop(engine, TickSource::Timer(timer, clock))
}

/// Starts an engine in virtual time: it ticks at each instant that is sent, after all earlier deliveries are ingested.
pub fn spawn_stepped(mut engine: Engine, start: UnixMs) -> (EngineHandle, mpsc::Sender<UnixMs>) {
    engine.run_tick(start);
    let (send, instants) = mpsc::channel(1);
    (spawn_loop(engine, TickSource::Channel(instants)), send)
}

fn spawn_loop(engine: Engine, tick_source: TickSource) -> EngineHandle {
    let (handle, ends) = EngineHandle::new(engine.published_state());
    let running = tokio::spawn(run(engine, tick_source, ends));
    tokio::spawn(async move {
        let end = running.await.unwrap_or_else(|error| Err(EngineEnd::of_task("the loop", error)));
        let Err(end) = end;
        end.log();
    });
    handle
}

/// Source of ticks.
enum TickSource {
    /// A timer, and the clock to read at each tick.
    Timer(Interval, ClockFn),
    /// A channel of instants.
    Channel(mpsc::Receiver<UnixMs>),
}

impl TickSource {
    /// The next instant and its lateness; pending forever once the channel is closed.
    async fn next(&mut self) -> (UnixMs, Duration) {
        match self {
            Self::Timer(timer, clock) => {
                let due = timer.tick().await;
                (clock(), due.elapsed())
            }
            Self::Channel(instants) => match instants.recv().await {
                Some(at) => (at, Duration::ZERO),
                None => std::future::pending().await,
            },
        }
    }
}

/// The time between two ticks for targets that are scraped once per period.
pub fn tick_interval(period: Duration) -> Duration {
    period.clamp(FASTEST_TICK, SLOWEST_TICK)
}

/// The interval of ticks and judgements.
#[derive(Clone, Copy, Debug)]
struct TickPace {
    /// The time between two ticks.
    tick: Duration,
    /// The ticks from one judgement to the next.
    judge_every: u32,
}

impl TickPace {
    /// The pace for targets that are scraped once per period.
    fn of(period: Duration) -> Self {
        let (tick, between) = (tick_interval(period), period / JUDGEMENTS);
        Self { tick, judge_every: (between.div_duration_f64(tick) as u32).max(1) }
    }

    /// The ticks without a judgement after one that took `spent`: deliveries wait during a judgement, and must not
    /// wait most of the time.
    fn ticks_to_skip(self, spent: Duration) -> u32 {
        let needed = (spent * REST).min(LONGEST_REST).div_duration_f64(self.tick) as u32;
        needed.max(self.judge_every - 1)
    }
}

/// Schedules the next judgement.
#[derive(Debug)]
struct JudgePacer {
    pace: TickPace,
    /// Ticks until it is due.
    left: u32,
    /// Ticks since the last one, while deliveries wait that came during it: they come first. Another judgement before
    /// them would add to the backlog each time, and lose pages.
    behind: Option<u32>,
}

impl JudgePacer {
    fn new(pace: TickPace) -> Self {
        Self { pace, left: 0, behind: None }
    }

    /// Updates the number of waiting deliveries.
    fn update_backlog(&mut self, deliveries: usize) {
        if deliveries == 0 {
            self.behind = None;
        }
    }

    /// Whether a judgement is due at this tick.
    fn take_due(&mut self) -> bool {
        let longest = LONGEST_REST.div_duration_f64(self.pace.tick) as u32;
        let waits = self.behind.is_some_and(|ticks| ticks < longest);
        self.behind = self.behind.map(|ticks| ticks + 1);
        let is_due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_due && !waits
    }

    /// Records a judgement and its duration.
    fn record_judgement(&mut self, spent: Duration) {
        (self.left, self.behind) = (self.pace.ticks_to_skip(spent), Some(0));
    }
}

/// Runs until all handles are dropped, or until a task panics.
async fn run(
    engine: Engine,
    mut tick_source: TickSource,
    ends: EngineChannels,
) -> Result<Infallible, EngineEnd> {
    let EngineChannels { mut deliveries, requests, published } = ends;
    let mut pacer = JudgePacer::new(TickPace::of(engine.options.period));
    let mut scheduler = QueryScheduler::new(engine, requests, published);
    let mut budget = IngestQuota::default();
    loop {
        scheduler.update_backlog(deliveries.len());
        pacer.update_backlog(deliveries.len());
        tokio::select! {
            biased;
            served = scheduler.serve_next() => served?,
            (now, late) = tick_source.next() => {
                // In virtual time nothing is late: all earlier deliveries are ingested, and no judgement is skipped.
                let is_virtual = matches!(tick_source, TickSource::Channel(_));
                while let Some(delivery) = is_virtual.then(|| deliveries.try_recv().ok()).flatten() {
                    scheduler.engine_mut().await?.ingest_delivery(delivery);
                }
                if is_virtual {
                    pacer.update_backlog(0);
                }
                if let Some(late) = own_lateness(pacer.pace, late, deliveries.len()) {
                    scheduler.engine_mut().await?.excuse_lateness(late);
                }
                let (begun, judges) = (Instant::now(), pacer.take_due());
                step_engine(&mut scheduler, now, judges).await?;
                if judges {
                    pacer.record_judgement(if is_virtual { Duration::ZERO } else { begun.elapsed() });
                }
            }
            Some(delivery) = deliveries.recv(), if scheduler.is_free() => {
                budget.ingest_within_quota(scheduler.engine_mut().await?, delivery);
                scheduler.record_ingested();
            }
        }
    }
}

/// The lateness of this process, if any: its tick came late, or so many deliveries wait that those of a whole tick are
/// among them. No target counts as missed for that time.
fn own_lateness(pace: TickPace, late: Duration, waiting: usize) -> Option<Duration> {
    let late = if waiting >= INBOX / 2 { late.max(pace.tick) } else { late };
    (late >= LATE).then_some(late)
}

/// One tick. Its long parts run on a thread of their own while queries are answered: on a large fleet a judgement
/// takes longer than a query may wait.
async fn step_engine(
    scheduler: &mut QueryScheduler,
    now: UnixMs,
    judges: bool,
) -> Result<(), EngineEnd> {
    if judges {
        let Some(judging) = scheduler.engine_mut().await?.begin_tick(now) else { return Ok(()) };
        let judge = move |engine: &Engine| judging.run(&engine.cluster);
        let result = scheduler.serve_during("the judgement", judge).await?;
        scheduler.engine_mut().await?.end_tick(result);
    } else {
        scheduler.engine_mut().await?.tick_without_judgement(now);
    }
    let output = scheduler.serve_during("the output of a tick", Engine::build_tick_output).await?;
    scheduler.engine_mut().await?.publish_tick(output);
    scheduler.publish_state();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_scrapes_are_judged_rarely_and_shown_every_second() {
        let pace = |millis| {
            let TickPace { tick, judge_every } = TickPace::of(Duration::from_millis(millis));
            (tick.as_millis(), judge_every)
        };
        assert_eq!(pace(1), (50, 1));
        assert_eq!(pace(200), (200, 1));
        assert_eq!(pace(1_000), (1_000, 1));
        assert_eq!(pace(7_900), (1_000, 1));
        assert_eq!(pace(10_000), (1_000, 2));
        assert_eq!(pace(60_000), (1_000, 15));
    }

    #[test]
    fn own_lateness_is_a_late_tick_or_a_full_inbox() {
        let pace = TickPace::of(Duration::from_secs(10));
        let (soon, late) = (Duration::from_millis(20), Duration::from_secs(3));
        assert_eq!(own_lateness(pace, soon, 100), None);
        assert_eq!(own_lateness(pace, late, 0), Some(late));
        assert_eq!(own_lateness(pace, soon, INBOX), Some(pace.tick));
        assert_eq!(own_lateness(pace, late, INBOX), Some(late));
    }

    #[test]
    fn judgement_that_takes_long_runs_rarely() {
        let rest = |period, spent| {
            TickPace::of(Duration::from_secs(period)).ticks_to_skip(Duration::from_millis(spent))
        };
        assert_eq!((rest(1, 20), rest(10, 20)), (0, 1));
        assert_eq!((rest(1, 300), rest(10, 700)), (0, 2));
        assert_eq!((rest(1, 700), rest(10, 1_600)), (2, 4));
        assert_eq!(rest(1, 90_000), 5);
    }

    #[test]
    fn judgement_waits_for_the_backlog_but_not_forever() {
        let mut pacer = JudgePacer::new(TickPace::of(Duration::from_secs(1)));
        let judged = |pacer: &mut JudgePacer| {
            let due = pacer.take_due();
            if due {
                pacer.record_judgement(Duration::from_millis(300));
            }
            due
        };
        // While nothing waits, every tick.
        assert!((0..3).all(|_| {
            pacer.update_backlog(0);
            judged(&mut pacer)
        }));
        // The backlog is ingested in time.
        pacer.update_backlog(700);
        assert!(!judged(&mut pacer));
        pacer.update_backlog(20);
        assert!(!judged(&mut pacer));
        pacer.update_backlog(0);
        pacer.update_backlog(3);
        assert!(judged(&mut pacer), "what came since counts at the next one");
        // On a machine that is too slow, judgements are rarer but do not stop.
        let often = (0..60).filter(|_| {
            pacer.update_backlog(5_000);
            judged(&mut pacer)
        });
        assert_eq!(often.count(), 10);
    }
}
