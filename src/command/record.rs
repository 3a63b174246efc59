//! `gaunt record`: scrapes targets into a recording, judging nothing, until it is told to stop.

use std::{process::ExitCode, sync::atomic::Ordering, time::Duration};

use gaunt_schema::{Clock, Delivery};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::sleep,
};

use super::Scraping;
use crate::{
    owner,
    record::{Options, Recorder},
};

/// Deliveries that may wait for the recorder.
const PASSING: usize = 64;

/// Records until SIGTERM, SIGINT or the end of `duration`.
pub async fn run(
    scraping: Scraping,
    options: Options,
    duration: Option<Duration>,
) -> anyhow::Result<ExitCode> {
    if scraping.plan.is_empty() {
        anyhow::bail!(
            "no targets; name them with --targets 'gpu[001-064]', --targets-file FILE, or gather.targets \
             in the settings"
        );
    }
    let folder = options.folder.clone();
    let recorder = Recorder::start(options)?;
    let status = recorder.status().clone();
    let clock: Clock = owner::clock();
    let (inbox, mut passing) = mpsc::channel::<Delivery>(PASSING);
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let gatherer = scraping.gather_into(inbox, clock.clone());
    tracing::info!(folder = %folder.display(), "recording");
    let end = async {
        match duration {
            Some(duration) => sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(end);
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = &mut end => break,
            delivery = passing.recv() => match delivery {
                Some(delivery) => recorder.give(clock(), &delivery),
                None => break,
            },
        }
    }
    drop(gatherer);
    // Its thread writes what waits.
    drop(recorder);
    let (written, dropped) =
        (status.written.load(Ordering::Relaxed), status.dropped.load(Ordering::Relaxed));
    let bytes = status.bytes.load(Ordering::Relaxed);
    tracing::info!(written, dropped, bytes, "recorded");
    if dropped > 0 {
        anyhow::bail!(
            "{dropped} of {} deliveries were not written: the disk was full or too slow",
            written + dropped
        );
    }
    Ok(ExitCode::SUCCESS)
}
