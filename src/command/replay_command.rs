//! `gaunt replay`: a recording is delivered once more, in its own time, to an owner like any other.

use std::{path::PathBuf, process::ExitCode, thread, time::Duration};

use gaunt_schema::{Delivery, SanitizedText, UnixMs};

use super::{console_command::has_terminal, engine_preamble, snapshot_command};
use crate::{
    answer::Question,
    answer_source::{AnswerSource, ReplayControl},
    console,
    engine::{self, Engine},
    record::{RecordError, RecordedDeliveries, Recording},
};

/// What happened so long before the instant that is sought is lived through first: judgements rest on a past, and there is
/// something to look back at.
const BEFORE: Duration = Duration::from_mins(15);

/// A replay may be led through many instants in a second: the screen is to show it.
const SHOWN: Duration = Duration::from_millis(200);

/// What is played, and how.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The folder of the recording.
    pub from: PathBuf,
    /// How many times as fast as it happened.
    pub speed: f64,
    /// How long after the beginning to start.
    pub seek: Option<Duration>,
}

/// Shows the recording in the console; without a terminal prints one snapshot of its end.
pub async fn run(
    wanted: ReplayOptions,
    owner: engine::EngineOptions,
    console: console::ConsoleOptions,
) -> anyhow::Result<ExitCode> {
    let recording = Recording::open_folder(&wanted.from)?;
    let (first, last) = recording.time_span();
    let start = first + wanted.seek.unwrap_or_default();
    if start > last {
        anyhow::bail!(
            "the recording is {} s long; seek to an instant before its end",
            last.duration_since(first).as_secs()
        );
    }
    let cluster =
        if owner.cluster.is_empty() { SanitizedText::new("replay") } else { owner.cluster.clone() };
    let owner = engine::EngineOptions { cluster, period: recording.scrape_period(), ..owner };
    let from = first.max(start - BEFORE);
    let known = engine_preamble::resume_engine(&recording, from, owner.clone())?;
    let reel = ReplayFeed {
        deliveries: recording.deliveries_from(from),
        from,
        last,
        tick_interval: engine::tick_interval(owner.period),
    };
    if !has_terminal() {
        return run_to_end(reel, known);
    }
    let player = ReplayControl::new(from, last, wanted.speed);
    player.seek_to(start);
    let (handle, beats) = engine::spawn_stepped(known, from);
    let inbox = handle.delivery_sender();
    let feeding = thread::Builder::new().name("replay".to_owned()).spawn({
        let player = player.clone();
        move || {
            reel.play_events(|moment| match moment {
                ReplayEvent::Delivered(delivery) => inbox.blocking_send(delivery).is_ok(),
                ReplayEvent::TimePassed(at) => {
                    player.wait_until(at) && beats.blocking_send(at).is_ok()
                }
            })
        }
    })?;
    let options =
        console::ConsoleOptions { player: Some(player.clone()), period: SHOWN, ..console };
    let shown = console::run(AnswerSource::Engine(handle), options).await;
    player.stop_replay();
    let fed = feeding.join().map_err(|_| anyhow::anyhow!("the replay ended with a panic"))?;
    shown?;
    fed?;
    Ok(ExitCode::SUCCESS)
}

/// What is to be lived through.
struct ReplayFeed {
    deliveries: RecordedDeliveries,
    from: UnixMs,
    last: UnixMs,
    /// From one tick to the next.
    tick_interval: Duration,
}

/// What happens next.
enum ReplayEvent {
    Delivered(Delivery),
    TimePassed(UnixMs),
}

impl ReplayFeed {
    /// Lets everything happen in its order, until `take` wants no more.
    fn play_events(self, mut take: impl FnMut(ReplayEvent) -> bool) -> Result<(), RecordError> {
        let mut tick = self.from;
        for delivery in self.deliveries {
            let (at, delivery) = delivery?;
            while tick < at {
                if !take(ReplayEvent::TimePassed(tick)) {
                    return Ok(());
                }
                tick = tick + self.tick_interval;
            }
            if !take(ReplayEvent::Delivered(delivery)) {
                return Ok(());
            }
        }
        take(ReplayEvent::TimePassed(self.last));
        Ok(())
    }
}

/// Lives through the recording and prints what is known at its end.
fn run_to_end(reel: ReplayFeed, mut owner: Engine) -> anyhow::Result<ExitCode> {
    reel.play_events(|moment| {
        match moment {
            ReplayEvent::Delivered(delivery) => owner.ingest_delivery(delivery),
            ReplayEvent::TimePassed(at) => owner.run_tick(at),
        }
        true
    })?;
    let picture = snapshot_command::FleetSnapshot::from_answers([
        owner.answer_question(&Question::Overview),
        owner.answer_question(&Question::Findings),
        owner.answer_question(&Question::Targets),
    ]);
    snapshot_command::print_page(&picture.render_text())?;
    Ok(ExitCode::SUCCESS)
}
