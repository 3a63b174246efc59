//! Setup of an engine that reads from a Prometheus: its recent past is played first, so that the first screen has
//! baselines and history; then every refresh is delivered at its own instants.

use std::time::Duration;

use gaunt_schema::{ClockFn, Delivery, UnixMs};
use gaunt_series::{
    QueryError, RECEIVE_LAG, SeriesClock, SeriesOptions, SeriesReader, SeriesReaderHandle,
    SeriesWindow, feed_lag, spawn_reading,
};
use tokio::{sync::mpsc, task::block_in_place};

use crate::answer_source::play_window;
use gaunt_engine::Engine;

/// The recent past that is played at the start, at least: judgements need history, and so do graphs.
pub const RECENT: Duration = Duration::from_mins(15);

/// The longest recent past that is played: what the engine keeps of usage.
const LONGEST_RECENT: Duration = gaunt_engine::USAGE;

/// The time that is read at once.
const SLICE: Duration = Duration::from_mins(5);

/// A server that answers, and the beginning of its recent past.
#[derive(Debug)]
pub struct SeriesSetup {
    reader: SeriesReader,
    refresh: Duration,
    /// The first slice with pages, and its end.
    first: SeriesWindow,
    until: UnixMs,
}

impl SeriesSetup {
    /// Reads the first slice of this much of the recent past, or says why it cannot be read.
    pub async fn open(
        options: &SeriesOptions,
        refresh: Duration,
        recent: Duration,
    ) -> Result<Self, QueryError> {
        let recent = recent.clamp(RECENT, LONGEST_RECENT);
        let mut reader = SeriesReader::open(options).await?;
        let now = gaunt_engine::monotonic_clock()() - feed_lag(refresh);
        reader.discover_names(now - recent, now).await?;
        let mut from = now - recent;
        loop {
            let until = (from + SLICE).min(now);
            let result = reader.read_window(from, until).await;
            match result {
                Ok(first) if !first.batches.is_empty() => {
                    return Ok(Self { reader, refresh, first, until });
                }
                Ok(_) if until == now => return Err(reader.no_series()),
                Err(error @ QueryError::NoScrapes { .. }) if until == now => return Err(error),
                Ok(_) | Err(QueryError::NoScrapes { .. }) => from = until,
                Err(error) => return Err(error),
            }
        }
    }

    /// The time between two scrapes of a target by the server.
    pub fn scrape_period(&self) -> Duration {
        self.first.scrape_period()
    }

    /// Plays the recent past, unless the engine has state of its own, and returns the feed for what follows.
    pub(super) async fn play_recent(mut self, engine: &mut Engine) -> anyhow::Result<SeriesFeed> {
        let present = gaunt_engine::monotonic_clock();
        let (plays, mut tick, mut from) = (engine.is_new(), None, self.until);
        loop {
            let window = std::mem::take(&mut self.first);
            // What follows begins at the newest scrape: by its clock the server may be behind ours.
            from = window.batches.last().map_or(from, |batch| batch.at);
            if plays {
                block_in_place(|| play_window(engine, window, &mut tick));
            }
            let due = present() - feed_lag(self.refresh);
            if self.until >= due {
                break;
            }
            let until = (self.until + SLICE).min(due);
            match self.reader.read_window(self.until, until).await {
                Ok(window) => self.first = window,
                Err(QueryError::NoScrapes { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            self.until = until;
        }
        let clock = SeriesClock::new(present, feed_lag(self.refresh), from);
        Ok(SeriesFeed { reader: self.reader, refresh: self.refresh, from, clock })
    }
}

/// The clock of an engine whose pages are received: it stands still until the first page.
pub(super) fn start_receive_clock() -> SeriesClock {
    let present = gaunt_engine::monotonic_clock();
    let begin = present() - RECEIVE_LAG;
    SeriesClock::new(present, RECEIVE_LAG, begin)
}

/// What feeds the engine from now on.
pub(super) struct SeriesFeed {
    reader: SeriesReader,
    refresh: Duration,
    from: UnixMs,
    clock: SeriesClock,
}

impl SeriesFeed {
    /// The engine's clock: behind the present.
    pub(super) fn clock(&self) -> ClockFn {
        self.clock.to_clock_fn()
    }

    /// Starts to read.
    pub(super) fn start_reading(self, inbox: mpsc::Sender<Delivery>) -> SeriesReaderHandle {
        spawn_reading(self.reader, self.from, self.refresh, inbox, self.clock)
    }
}
