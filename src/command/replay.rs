//! `gaunt replay`: a recording is delivered once more, in its own time, to an owner like any other.

use std::{path::PathBuf, process::ExitCode, thread, time::Duration};

use gaunt_schema::{Delivery, Safe, UnixMs};

use super::{console::has_terminal, preamble, snapshot};
use crate::{
    answer::Question,
    console,
    owner::{self, Owner},
    record::{Deliveries, RecordError, Recording},
    source::{Player, Source},
};

/// What happened so long before the instant that is sought is lived through first: judgements rest on a past, and there is
/// something to look back at.
const BEFORE: Duration = Duration::from_mins(15);

/// A replay may be led through many instants in a second: the screen is to show it.
const SHOWN: Duration = Duration::from_millis(200);

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
    let from = first.max(start - BEFORE);
    let known = preamble::resume(&recording, from, owner.clone())?;
    let reel = Reel {
        deliveries: recording.deliveries(from),
        from,
        last,
        step: owner::tick(owner.period),
    };
    if !has_terminal() {
        return ahead(reel, known);
    }
    let player = Player::new(from, last, wanted.speed);
    player.lead(start);
    let (handle, beats) = owner::start_led(known, from);
    let inbox = handle.inbox();
    let feeding = thread::Builder::new().name("replay".to_owned()).spawn({
        let player = player.clone();
        move || {
            reel.live(|moment| match moment {
                Moment::Delivered(delivery) => inbox.blocking_send(delivery).is_ok(),
                Moment::Passed(at) => player.reach(at) && beats.blocking_send(at).is_ok(),
            })
        }
    })?;
    let options = console::Options { player: Some(player.clone()), period: SHOWN, ..console };
    let shown = console::run(Source::Owner(handle), options).await;
    player.end();
    let fed = feeding.join().map_err(|_| anyhow::anyhow!("the replay ended with a panic"))?;
    shown?;
    fed?;
    Ok(ExitCode::SUCCESS)
}

/// What is to be lived through.
struct Reel {
    deliveries: Deliveries,
    from: UnixMs,
    last: UnixMs,
    /// From one tick to the next.
    step: Duration,
}

/// What happens next.
enum Moment {
    Delivered(Delivery),
    Passed(UnixMs),
}

impl Reel {
    /// Lets everything happen in its order, until `take` wants no more.
    fn live(self, mut take: impl FnMut(Moment) -> bool) -> Result<(), RecordError> {
        let mut tick = self.from;
        for delivery in self.deliveries {
            let (at, delivery) = delivery?;
            while tick < at {
                if !take(Moment::Passed(tick)) {
                    return Ok(());
                }
                tick = tick + self.step;
            }
            if !take(Moment::Delivered(delivery)) {
                return Ok(());
            }
        }
        take(Moment::Passed(self.last));
        Ok(())
    }
}

/// Lives through the recording and prints what is known at its end.
fn ahead(reel: Reel, mut owner: Owner) -> anyhow::Result<ExitCode> {
    reel.live(|moment| {
        match moment {
            Moment::Delivered(delivery) => owner.accept(delivery),
            Moment::Passed(at) => owner.tick(at),
        }
        true
    })?;
    let picture = snapshot::Picture::gather([
        owner.answer(&Question::Overview),
        owner.answer(&Question::Findings),
        owner.answer(&Question::Targets),
    ]);
    snapshot::print(&picture.text())?;
    Ok(ExitCode::SUCCESS)
}
