//! `gaunt replay`: a recording is delivered once more, under a clock of its own, to an owner like any other.

use std::{path::PathBuf, process::ExitCode, thread, time::Duration};

use gaunt_schema::{Delivery, Safe, UnixMs};
use tokio::sync::mpsc;

use super::{console::has_terminal, snapshot};
use crate::{
    answer::Question,
    console,
    owner::{self, Owner},
    record::{Deliveries, Recording},
    source::{Player, Source},
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
    let player = Player::new(start, last, wanted.speed);
    let handle = owner::start_at(owner, player.clock(), wanted.speed);
    let inbox = handle.inbox();
    let feeding = thread::Builder::new().name("replay".to_owned()).spawn({
        let player = player.clone();
        move || feed(deliveries, &inbox, &player)
    })?;
    let options = console::Options { player: Some(player.clone()), ..console };
    let shown = console::run(Source::Owner(handle), options).await;
    player.end();
    feeding.join().map_err(|_| anyhow::anyhow!("the replay ended with a panic"))?;
    shown?;
    Ok(ExitCode::SUCCESS)
}

/// Delivers everything at its instant, until it is ended or nobody listens.
fn feed(deliveries: Deliveries, inbox: &mpsc::Sender<Delivery>, player: &Player) {
    for delivery in deliveries {
        let (at, delivery) = match delivery {
            Ok(delivery) => delivery,
            Err(error) => return tracing::error!(%error, "the replay ends early"),
        };
        if !player.reach(at) || inbox.blocking_send(delivery).is_err() {
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
