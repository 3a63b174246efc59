//! Past deliveries: what a Prometheus scraped in a span of its past, read slice by slice on a thread of its own.

use std::{sync::mpsc, thread, time::Duration};

use gaunt_schema::{Delivery, ScrapeTarget, UnixMs};
use gaunt_series::{QueryError, SeriesOptions, SeriesReader, SeriesWindow, SpanSlices};

/// Slices that are read ahead.
const AHEAD: usize = 1;

/// The most samples of one slice, whatever the budget of a refresh: 10,000 GPUs with 100 fields, scraped each 15 s.
const MAX_SLICE_SAMPLES: u64 = 40_000_000;

/// A span of a server's past.
#[derive(Clone, Debug)]
pub struct PastOptions {
    /// The server.
    pub series: SeriesOptions,
    /// The beginning of the span; not part of it.
    pub from: UnixMs,
    /// The end of the span.
    pub until: UnixMs,
}

/// The deliveries of a span, in order of time.
pub(super) struct PastDeliveries {
    slices: mpsc::Receiver<Result<SeriesWindow, QueryError>>,
    current: Option<SliceDeliveries>,
    targets: Vec<ScrapeTarget>,
    /// The time between two scrapes of a target.
    pub(super) period: Duration,
    /// When the first scrape was.
    pub(super) first: UnixMs,
}

type SliceDeliveries = Box<dyn Iterator<Item = (UnixMs, Delivery)> + Send>;

impl PastDeliveries {
    /// Starts to read, and waits for the first slice with pages.
    pub(super) fn open(options: PastOptions) -> anyhow::Result<Self> {
        let (send, slices) = mpsc::sync_channel(AHEAD);
        thread::Builder::new().name("past".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(read_slices(&options, &send)),
                // The receiver waits and gets an error of its own.
                Err(error) => tracing::error!(%error, "cannot start to read"),
            }
        })?;
        let mut past = Self {
            slices,
            current: None,
            targets: Vec::new(),
            period: Duration::ZERO,
            first: UnixMs::default(),
        };
        let Ok(slice) = past.slices.recv() else {
            anyhow::bail!("reading the server ended unexpectedly; see the log");
        };
        let slice = slice?;
        past.period = slice.scrape_period();
        past.first = slice.batches.first().map_or(UnixMs::default(), |batch| batch.at);
        past.begin_slice(slice);
        Ok(past)
    }

    fn begin_slice(&mut self, slice: SeriesWindow) {
        let first = slice.batches.first().map(|batch| batch.at);
        let announced = first.filter(|_| slice.targets != self.targets).map(|at| {
            self.targets.clone_from(&slice.targets);
            (at, Delivery::Targets(slice.targets))
        });
        let batches = slice.batches.into_iter().map(|batch| (batch.at, Delivery::Batch(batch)));
        self.current = Some(Box::new(announced.into_iter().chain(batches)));
    }
}

impl Iterator for PastDeliveries {
    type Item = Result<(UnixMs, Delivery), QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(delivery) = self.current.as_mut().and_then(Iterator::next) {
                return Some(Ok(delivery));
            }
            match self.slices.recv() {
                Ok(Ok(slice)) => self.begin_slice(slice),
                Ok(Err(error)) => return Some(Err(error)),
                Err(mpsc::RecvError) => return None,
            }
        }
    }
}

/// Reads the whole span; slices without a scrape are left out, unless all are.
async fn read_slices(
    options: &PastOptions,
    slices: &mpsc::SyncSender<Result<SeriesWindow, QueryError>>,
) {
    if let Err(error) = send_slices(options, slices).await {
        // The receiver may have ended.
        _ = slices.send(Err(error));
    }
}

async fn send_slices(
    options: &PastOptions,
    slices: &mpsc::SyncSender<Result<SeriesWindow, QueryError>>,
) -> Result<(), QueryError> {
    let series = SeriesOptions { max_samples: MAX_SLICE_SAMPLES, ..options.series.clone() };
    let mut reader = SeriesReader::open(&series).await?.with_remote_read();
    reader.discover_names(options.from, options.until).await?;
    let mut parts = SpanSlices::new(options.from, options.until);
    let (mut empty, mut has_pages) = (None, false);
    while let Some((from, until)) = parts.next_slice() {
        let mut samples = 0;
        match reader.read_window(from, until).await {
            Ok(window) if window.batches.is_empty() => {}
            Ok(window) => {
                has_pages = true;
                samples = window.load.samples;
                if slices.send(Ok(window)).is_err() {
                    return Ok(());
                }
            }
            Err(error @ QueryError::NoScrapes { .. }) => empty = Some(error),
            Err(QueryError::OverBudget { .. }) if parts.shorten() => continue,
            Err(error) => return Err(error),
        }
        parts.advance(samples);
    }
    match (has_pages, empty) {
        (true, _) => Ok(()),
        (false, Some(error)) => Err(error),
        (false, None) => Err(reader.no_series()),
    }
}
