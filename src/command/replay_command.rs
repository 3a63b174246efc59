//! `gaunt replay`: delivers a recording again, at its original pace, to an ordinary engine.

use std::{path::PathBuf, process::ExitCode, thread, time::Duration};

use gaunt_schema::{Delivery, SanitizedText, UnixMs};

use super::{console_command::has_terminal, engine_preamble, snapshot_command};
use crate::answer_source::AnswerSource;
use gaunt_api::Question;
use gaunt_console::ReplayControl;
use gaunt_engine::{
    Engine,
    record::{RecordError, RecordedDeliveries, Recording},
};

/// This much time before the requested position is simulated first: judgements need history, and so do graphs.
const BEFORE: Duration = Duration::from_mins(15);

/// A replay that seeks may pass many instants in a second: the screen is updated at this interval.
const SHOWN: Duration = Duration::from_millis(200);

/// Recording, speed and position.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// Directory of the recording.
    pub from: PathBuf,
    /// Speed factor.
    pub speed: f64,
    /// Start position after the beginning.
    pub seek: Option<Duration>,
}

/// Shows the recording in the console; without a terminal prints one snapshot of its end.
pub async fn run(
    wanted: ReplayOptions,
    owner: gaunt_engine::EngineOptions,
    console: gaunt_console::ConsoleOptions,
) -> anyhow::Result<ExitCode> {
    let recording = Recording::open_folder(&wanted.from)?;
    let (first, last) = recording.time_span();
    let start = first + wanted.seek.unwrap_or_default();
    if start > last {
        anyhow::bail!(
            "the recording is {} s long; seek to a time before its end",
            last.duration_since(first).as_secs()
        );
    }
    let cluster =
        if owner.cluster.is_empty() { SanitizedText::new("replay") } else { owner.cluster.clone() };
    let owner = gaunt_engine::EngineOptions { cluster, period: recording.scrape_period(), ..owner };
    let from = first.max(start - BEFORE);
    let known = engine_preamble::resume_engine(&recording, from, owner.clone())?;
    let reel = ReplayFeed {
        deliveries: recording.deliveries_from(from),
        from,
        last,
        tick_interval: gaunt_engine::tick_interval(owner.period),
    };
    if !has_terminal() {
        return run_to_end(reel, known);
    }
    let player = ReplayControl::new(from, last, wanted.speed);
    player.seek_to(start);
    let (handle, beats) = gaunt_engine::spawn_stepped(known, from);
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
        gaunt_console::ConsoleOptions { player: Some(player.clone()), period: SHOWN, ..console };
    let shown = gaunt_console::run(AnswerSource::Engine(handle), options).await;
    player.stop_replay();
    let fed = feeding.join().map_err(|_| anyhow::anyhow!("the replay ended with a panic"))?;
    shown?;
    fed?;
    Ok(ExitCode::SUCCESS)
}

/// Deliveries and ticks of a replay.
struct ReplayFeed {
    deliveries: RecordedDeliveries,
    from: UnixMs,
    last: UnixMs,
    /// Time between two ticks.
    tick_interval: Duration,
}

/// The next event.
enum ReplayEvent {
    Delivered(Delivery),
    TimePassed(UnixMs),
}

impl ReplayFeed {
    /// Plays all events in order, until `take` returns false.
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

/// Plays the recording and prints the state at its end.
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
