//! `gaunt replay`: a recording is delivered once more, under a clock of its own, to an owner like any other.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use gaunt_schema::{Clock, Delivery, Safe, UnixMs};
use tokio::sync::mpsc;

use super::{console::has_terminal, snapshot};
use crate::{
    answer::Question,
    console,
    owner::{self, Owner},
    record::{Deliveries, Recording},
    source::Source,
};

/// A running owner never waits longer than this from one tick to the next; nor does it here.
const SLOWEST_TICK: Duration = Duration::from_secs(1);

/// What is played, and how.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The folder of the recording.
    pub from: PathBuf,
    /// How many times as fast as it happened.
    pub speed: f64,
    /// How long after the beginning to start.
    pub seek: Option<Duration>,
}

/// Shows the recording in the console; without a terminal prints one snapshot of its end.
pub async fn run(
    wanted: Wanted,
    owner: owner::Options,
    console: console::Options,
) -> anyhow::Result<ExitCode> {
    let recording = Recording::open(&wanted.from)?;
    let (first, last) = recording.span();
    let start = first + wanted.seek.unwrap_or_default();
    if start > last {
        anyhow::bail!(
            "the recording is {} s long; seek to an instant before its end",
            last.since(first).as_secs()
        );
    }
    let cluster =
        if owner.cluster.is_empty() { Safe::new("replay") } else { owner.cluster.clone() };
    let owner = owner::Options { cluster, period: recording.period(), ..owner };
    let deliveries = recording.deliveries(start);
    if !has_terminal() {
        return ahead(deliveries, start, owner);
    }
    let clock = clock(start, last, wanted.speed);
    let handle = owner::start_at(owner, clock.clone(), wanted.speed);
    let (stop, stopped) = channel::<()>();
    let inbox = handle.inbox();
    let speed = wanted.speed;
    let feeding = thread::Builder::new().name("replay".to_owned()).spawn(move || {
        feed(deliveries, &inbox, &clock, |span| stopped.recv_timeout(span.div_f64(speed)));
    })?;
    let shown = console::run(Source::Owner(handle), console).await;
    drop(stop);
    feeding.join().map_err(|_| anyhow::anyhow!("the replay ended with a panic"))?;
    shown?;
    Ok(ExitCode::SUCCESS)
}

/// A clock that starts at `start`, runs `speed` times as fast as real time and stands still at `last`.
fn clock(start: UnixMs, last: UnixMs, speed: f64) -> Clock {
    let begun = Instant::now();
    Arc::new(move || (start + begun.elapsed().mul_f64(speed)).min(last))
}

/// Delivers everything at its instant, until it is stopped or nobody listens.
fn feed(
    deliveries: Deliveries,
    inbox: &mpsc::Sender<Delivery>,
    clock: &Clock,
    wait: impl Fn(Duration) -> Result<(), RecvTimeoutError>,
) {
    for delivery in deliveries {
        let (at, delivery) = match delivery {
            Ok(delivery) => delivery,
            Err(error) => return tracing::error!(%error, "the replay ends early"),
        };
        let ahead = at.since(clock());
        if !ahead.is_zero() && wait(ahead) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        if inbox.blocking_send(delivery).is_err() {
            return;
        }
    }
}

/// Lives through the recording in virtual time and prints what is known at its end.
fn ahead(
    deliveries: Deliveries,
    start: UnixMs,
    options: owner::Options,
) -> anyhow::Result<ExitCode> {
    let step = options.period.min(SLOWEST_TICK);
    let mut owner = Owner::new(options);
    let mut tick = start;
    for delivery in deliveries {
        let (at, delivery) = delivery?;
        while tick < at {
            owner.tick(tick);
            tick = tick + step;
        }
        owner.accept(delivery);
    }
    owner.tick(tick);
    let picture = snapshot::Picture::gather([
        owner.answer(&Question::Overview),
        owner.answer(&Question::Findings),
        owner.answer(&Question::Targets),
    ]);
    snapshot::print(&picture.text())?;
    Ok(ExitCode::SUCCESS)
}
