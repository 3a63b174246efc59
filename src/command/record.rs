//! `gaunt record`: puts what targets say into a recording until it is told to stop, and judges meanwhile, so that every segment
//! begins with what was known then.

use std::{pin::Pin, process::ExitCode, sync::atomic::Ordering, time::Duration};

use gaunt_schema::{Clock, Delivery};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::sleep,
};

use super::{Scraping, preamble};
use crate::{
    owner::{self, Owner},
    record::{Options, Recorder},
    site,
    source::Aggregator,
};

mod remote;

/// Deliveries that may wait for the recorder.
const PASSING: usize = 64;

/// Who says what is recorded.
#[derive(Debug)]
pub enum From {
    /// These targets, scraped by this process.
    Targets(Box<Scraping>),
    /// An aggregator, with what its own targets say.
    Aggregator(Aggregator),
}

/// Records until SIGTERM, SIGINT or the end of `duration`.
pub async fn run(
    from: From,
    options: Options,
    duration: Option<Duration>,
) -> anyhow::Result<ExitCode> {
    super::outlive_file_limits()?;
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let end: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
        let over = async {
            match duration {
                Some(duration) => sleep(duration).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = over => {}
        }
    });
    let recorder = match from {
        From::Targets(scraping) => local(*scraping, options, end).await?,
        From::Aggregator(aggregator) => remote::run(&aggregator, options, end).await?,
    };
    let status = recorder.status().cloned().unwrap_or_default();
    // Its thread writes what waits.
    drop(recorder);
    let (written, dropped) = (status.written.load(Ordering::Relaxed), status.dropped());
    let bytes = status.bytes.load(Ordering::Relaxed);
    tracing::info!(written, dropped, bytes, "recorded");
    if dropped > 0 {
        let why = if status.stopped().is_some() {
            "nothing could be written at the end"
        } else {
            "the disk was full or too slow"
        };
        anyhow::bail!("{dropped} of {} deliveries were not written: {why}", written + dropped);
    }
    Ok(ExitCode::SUCCESS)
}

/// Records what this process scrapes. An owner looks at the same: the oldest segments go, and those that stay are to say
/// what was known when they began.
async fn local(
    scraping: Scraping,
    options: Options,
    mut end: Pin<Box<dyn Future<Output = ()> + Send>>,
) -> anyhow::Result<Recorder> {
    if scraping.plan.is_empty() {
        anyhow::bail!(
            "no targets; name them with --targets 'gpu[001-064]', --targets-file FILE, or gather.targets \
             in the settings"
        );
    }
    let folder = options.folder.clone();
    let recorder = Recorder::start(options)?;
    let clock: Clock = owner::clock();
    let (inbox, mut passing) = mpsc::channel::<Delivery>(PASSING);
    let mut owner = Owner::new(owner::Options { says_usual: true, ..scraping.owner.clone() });
    owner.tick(clock());
    let owner = owner::resume(owner, clock.clone());
    let _preambles = preamble::start(
        owner.clone(),
        recorder.follow(),
        clock.clone(),
        Some(clock()),
        preamble::WAIT,
    );
    let _watch = site::start(scraping.site.clone(), inbox.clone()).await?;
    let gatherer = scraping.gather_into(inbox, clock.clone());
    let onward = owner.inbox();
    tracing::info!(folder = %folder.display(), "recording");
    loop {
        tokio::select! {
            () = &mut end => break,
            delivery = passing.recv() => match delivery {
                Some(delivery) => {
                    recorder.give(clock(), &delivery);
                    if onward.send(delivery).await.is_err() {
                        anyhow::bail!("{}", owner::Gone);
                    }
                }
                None => break,
            },
        }
    }
    drop(gatherer);
    Ok(recorder)
}
