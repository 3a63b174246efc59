//! `gaunt record`: records what targets report until it is stopped, and judges meanwhile, so that every segment begins
//! with the state of that time.

use std::{
    io::{self, Write as _},
    path::Path,
    pin::Pin,
    process::ExitCode,
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use gaunt_schema::{ClockFn, Delivery};
use gaunt_signals::ServiceSignals;
use tokio::{sync::mpsc, task::spawn_blocking};

use super::{
    PastOptions, ScrapingSetup, engine_preamble, past_deliveries::PastDeliveries,
    progress_line::ProgressLine, series_setup::SeriesFeed,
};
use crate::answer_source::AggregatorClient;
use gaunt_engine::{
    Engine,
    record::{RecordOptions, Recorder, Recording},
};

mod remote_recorder;

/// Deliveries that may be queued for the recorder.
const PASSING: usize = 64;

/// The wait for the recorder's thread while its queue is full.
const DRAIN: Duration = Duration::from_millis(5);

/// Source of a recording.
#[derive(Debug)]
pub enum RecordSource {
    /// These targets, scraped by this process, or what a Prometheus scrapes from now on.
    Targets(Box<ScrapingSetup>),
    /// An aggregator, which forwards what its targets report.
    Aggregator(AggregatorClient),
}

/// Records until a signal ends it, or until the end of `duration`.
pub async fn run(
    source: RecordSource,
    options: RecordOptions,
    duration: Option<Duration>,
    signals: ServiceSignals,
) -> anyhow::Result<ExitCode> {
    super::catch_file_size_signal()?;
    let folder = options.folder.clone();
    let recorder = match source {
        RecordSource::Targets(scraping) => {
            record_local(*scraping, options, (duration, signals)).await?
        }
        RecordSource::Aggregator(aggregator) => {
            remote_recorder::run(&aggregator, options, (duration, signals)).await?
        }
    };
    finish_recording(recorder, &folder)
}

/// Takes over the signals when the first delivery can be recorded; before that they end the program at once. Waits for one
/// that ends it, or for the end of `duration`.
fn start_until_end(
    (duration, signals): (Option<Duration>, ServiceSignals),
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let (mut end, _) = signals.take_over();
    Box::pin(async move {
        let time_up = ProgressLine::show_for("recording", duration);
        tokio::select! {
            () = end.wait() => {}
            () = time_up => {}
        }
    })
}

/// Records a span of the past of a Prometheus.
pub async fn record_past(past: PastOptions, options: RecordOptions) -> anyhow::Result<ExitCode> {
    super::catch_file_size_signal()?;
    let (folder, until) = (options.folder.clone(), past.until);
    let deliveries = spawn_blocking(move || PastDeliveries::open(past)).await??;
    let options = RecordOptions { period: deliveries.period, ..options };
    // The writer's thread sets the pace.
    let recorded = spawn_blocking(move || -> anyhow::Result<Recorder> {
        let recorder = Recorder::start_recording(options)?;
        let mut progress = ProgressLine::new("recording", (deliveries.first, until));
        for delivery in deliveries {
            let (at, delivery) = delivery?;
            progress.advance_to(at);
            while !recorder.has_capacity() {
                thread::sleep(DRAIN);
            }
            recorder.record_delivery(at, &delivery);
        }
        Ok(recorder)
    });
    finish_recording(recorded.await??, &folder)
}

/// Writes what waits, and says what was recorded.
fn finish_recording(recorder: Recorder, folder: &Path) -> anyhow::Result<ExitCode> {
    let status = recorder.disk_status().cloned().unwrap_or_default();
    // Its thread writes the pending entries.
    drop(recorder);
    let (written, dropped) = (status.written.load(Ordering::Relaxed), status.dropped_entries());
    let bytes = status.bytes.load(Ordering::Relaxed);
    tracing::info!(written, dropped, bytes, "recorded");
    let segments = Recording::segment_count(folder);
    print_status(&format!(
        "recorded {written} deliveries in {bytes} bytes; {} has {segments} segment{}",
        folder.display(),
        if segments == 1 { "" } else { "s" }
    ));
    if dropped > 0 {
        let why = if status.stop_reason().is_some() {
            "writing failed at the end"
        } else {
            "the disk was full or too slow"
        };
        anyhow::bail!("{dropped} of {} deliveries were not written: {why}", written + dropped);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints one line for the user; a closed standard error does not affect the recording.
fn print_status(line: &str) {
    drop(writeln!(io::stderr(), "gaunt: {line}"));
}

/// Records what this process scrapes, or reads from a Prometheus. An engine observes the same: the oldest segments are removed, and the remaining
/// ones must contain the state at their start.
async fn record_local(
    mut scraping: ScrapingSetup,
    options: RecordOptions,
    until: (Option<Duration>, ServiceSignals),
) -> anyhow::Result<Recorder> {
    let series = scraping.series.take();
    if scraping.plan.is_empty() && series.is_none() {
        anyhow::bail!(
            "no targets; name them with --targets 'gpu[001-064]', --targets-file FILE, or gather.targets \
             in the settings, a Prometheus that scrapes them with --prometheus URL, or record an aggregator's with \
             --aggregator URL"
        );
    }
    let folder = options.folder.clone();
    let recorder = Recorder::start_recording(options)?;
    let (inbox, mut deliveries) = mpsc::channel::<Delivery>(PASSING);
    let mut engine =
        Engine::new(gaunt_engine::EngineOptions { says_usual: true, ..scraping.engine.clone() });
    // The first segment begins with what the recent past of a server teaches.
    let feed = match series {
        Some(setup) => Some(Box::pin(setup.play_recent(&mut engine)).await?),
        None => None,
    };
    let mut end = start_until_end(until);
    let clock: ClockFn =
        feed.as_ref().map_or_else(gaunt_engine::monotonic_clock, SeriesFeed::clock);
    engine.run_tick(clock());
    let engine = gaunt_engine::spawn_existing(engine, clock.clone());
    let _preambles = engine_preamble::spawn_preamble_task(
        engine.clone(),
        recorder.follow_handle(),
        clock.clone(),
        Some(clock()),
        engine_preamble::WAIT,
    );
    let _watch = gaunt_site::start_watching(scraping.site.clone(), inbox.clone()).await;
    let (reading, manager) = if let Some(feed) = feed {
        (Some(feed.start_reading(inbox)), None)
    } else {
        let no_ras_status = Arc::new(|_| false);
        (None, Some(scraping.spawn_scrape_manager(inbox, clock.clone(), no_ras_status)))
    };
    let engine_sender = engine.delivery_sender();
    tracing::info!(folder = %folder.display(), "recording");
    let mut is_announced = false;
    loop {
        tokio::select! {
            () = &mut end => break,
            delivery = deliveries.recv() => match delivery {
                Some(delivery) => {
                    // The first list is empty where a file or a service has it.
                    if let Delivery::Targets(targets) = &delivery
                        && !targets.is_empty()
                        && !std::mem::replace(&mut is_announced, true)
                    {
                        let (count, folder) = (targets.len(), folder.display());
                        let s = if count == 1 { "" } else { "s" };
                        print_status(&format!("recording {count} target{s} to {folder}; Ctrl-C ends it"));
                    }
                    recorder.record_delivery(clock(), &delivery);
                    if engine_sender.send(delivery).await.is_err() {
                        anyhow::bail!("{}", gaunt_engine::EngineStopped);
                    }
                }
                None => break,
            },
        }
    }
    drop((reading, manager));
    Ok(recorder)
}
