//! `gaunt replay`: delivers a recording again, at its original pace, to an ordinary engine.

use std::{
    env, fs,
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    process::{self, ExitCode},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use gaunt_schema::{Delivery, SanitizedText, UnixMs};

use super::{
    PastOptions, console_command::has_terminal, engine_preamble, progress_line::ProgressLine,
    record_command, recording_health::report_recording_health, replay_instants::ReplayInstants,
    snapshot_command,
};
use crate::answer_source::AnswerSource;
use gaunt_api::Question;
use gaunt_console::ReplayControl;
use gaunt_engine::{
    Engine,
    record::{RecordError, RecordOptions, RecordedDeliveries, Recording},
};

/// The largest temporary recording, as for `record` unless set otherwise; the oldest part of a longer one is left out.
const MAX_TEMPORARY: u64 = 4 << 30;

/// This much time before the requested position is simulated first: judgements need history, and so do graphs.
const BEFORE: Duration = Duration::from_mins(15);

/// A replay that seeks may pass many instants in a second: the screen is updated at this interval.
const SHOWN: Duration = Duration::from_millis(200);

/// What is replayed.
#[derive(Clone, Debug)]
pub enum ReplaySource {
    /// The directory of a recording.
    Folder(PathBuf),
    /// A span of the past of a Prometheus.
    Prometheus(Box<PastOptions>),
}

/// Recording, speed and position.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// What is replayed.
    pub from: ReplaySource,
    /// Speed factor.
    pub speed: f64,
    /// Start position after the beginning.
    pub seek: Option<Duration>,
}

/// A recording that is deleted with this value.
struct TemporaryRecording(PathBuf);

impl Drop for TemporaryRecording {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "cannot delete the temporary recording");
        }
    }
}

impl TemporaryRecording {
    /// Reads a span of a server's past.
    async fn read_past(past: PastOptions) -> anyhow::Result<Self> {
        let (id, now) = (process::id(), gaunt_engine::monotonic_clock()());
        let folder = env::temp_dir().join(format!("gaunt-replay-{id}-{}", now.0));
        let created = fs::DirBuilder::new().mode(0o700).create(&folder);
        created.with_context(|| {
            format!("cannot create {}; set TMPDIR to a folder with free space", folder.display())
        })?;
        let recording = Self(folder);
        let options = RecordOptions {
            folder: recording.0.clone(),
            max_size: MAX_TEMPORARY,
            max_age: Duration::MAX,
            period: Duration::ZERO,
        };
        record_command::record_past(past, options).await?;
        Ok(recording)
    }
}

/// Shows the recording in the console; without a terminal prints one snapshot of its end.
pub async fn run(
    replay: ReplayOptions,
    engine_options: gaunt_engine::EngineOptions,
    console: gaunt_console::ConsoleOptions,
) -> anyhow::Result<ExitCode> {
    let (folder, _temporary) = match replay.from {
        ReplaySource::Folder(folder) => (folder, None),
        ReplaySource::Prometheus(past) => {
            let temporary = TemporaryRecording::read_past(*past).await?;
            (temporary.0.clone(), Some(temporary))
        }
    };
    let recording = Recording::open_folder(&folder)?;
    let (first, last) = recording.time_span();
    let start = first + replay.seek.unwrap_or_default();
    if start > last {
        anyhow::bail!(
            "the recording is {} s long; seek to a time before its end",
            last.duration_since(first).as_secs()
        );
    }
    let cluster = if engine_options.cluster.is_empty() {
        SanitizedText::new("replay")
    } else {
        engine_options.cluster.clone()
    };
    let engine_options = gaunt_engine::EngineOptions {
        cluster,
        period: recording.scrape_period(),
        ..engine_options
    };
    let from = first.max(start - BEFORE);
    let engine = engine_preamble::resume_engine(&recording, from, engine_options.clone())?;
    let feed = ReplayFeed {
        deliveries: recording.deliveries_from(from),
        from,
        last,
        tick_interval: gaunt_engine::tick_interval(engine_options.period),
    };
    let exit_code = report_recording_health(&recording);
    if !has_terminal() {
        run_to_end(feed, engine)?;
        return Ok(exit_code);
    }
    let player = ReplayControl::new(from, last, replay.speed);
    player.seek_to(start);
    let (handle, ticks) = gaunt_engine::spawn_stepped(engine, from);
    let inbox = handle.delivery_sender();
    let feeder = thread::Builder::new().name("replay".to_owned()).spawn({
        let player = player.clone();
        move || {
            feed.play_events(|event| match event {
                ReplayEvent::Delivered(delivery) => inbox.blocking_send(delivery).is_ok(),
                ReplayEvent::TimePassed(at) => {
                    player.wait_until(at) && ticks.blocking_send(at).is_ok()
                }
            })
        }
    })?;
    let options =
        gaunt_console::ConsoleOptions { player: Some(player.clone()), period: SHOWN, ..console };
    let result = gaunt_console::run(AnswerSource::Engine(handle), options).await;
    player.stop_replay();
    let feed_result =
        feeder.join().map_err(|_| anyhow::anyhow!("the replay ended with a panic"))?;
    result?;
    feed_result?;
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
    /// Plays all events in order, until `handle_event` returns false.
    fn play_events(
        self,
        mut handle_event: impl FnMut(ReplayEvent) -> bool,
    ) -> Result<(), RecordError> {
        let mut instants = ReplayInstants::new(self.from, self.tick_interval);
        for delivery in self.deliveries {
            let (at, delivery) = delivery?;
            while let Some(instant) = instants.next_before(at) {
                if !handle_event(ReplayEvent::TimePassed(instant)) {
                    return Ok(());
                }
            }
            if !handle_event(ReplayEvent::Delivered(delivery)) {
                return Ok(());
            }
        }
        handle_event(ReplayEvent::TimePassed(self.last));
        Ok(())
    }
}

/// Plays the recording and prints the state at its end.
fn run_to_end(feed: ReplayFeed, mut engine: Engine) -> anyhow::Result<()> {
    let mut progress = ProgressLine::new("replaying", (feed.from, feed.last));
    feed.play_events(|event| {
        match event {
            ReplayEvent::Delivered(delivery) => engine.ingest_delivery(delivery),
            ReplayEvent::TimePassed(at) => {
                engine.run_tick(at);
                progress.advance_to(at);
            }
        }
        true
    })?;
    drop(progress);
    let snapshot = snapshot_command::FleetSnapshot::from_answers([
        engine.answer_question(&Question::Overview),
        engine.answer_question(&Question::Findings),
        engine.answer_question(&Question::Targets),
    ]);
    snapshot_command::print_page(&snapshot.render_text())
}
