//! Setup of an engine that reads from a Prometheus: its recent past is played first, so that the first screen has
//! baselines and history; then every refresh is delivered at its own instants.

use std::time::Duration;

use gaunt_schema::{ClockFn, Delivery, UnixMs};
use gaunt_series::{
    QueryError, RECEIVE_LAG, SeriesClock, SeriesOptions, SeriesReader, SeriesReaderHandle,
    SeriesWindow, feed_lag, spawn_reading, wait_for_first_scrape,
};
use tokio::{sync::mpsc, task::block_in_place};

use super::progress_line::ProgressLine;
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
    /// The first slice with pages, and what follows it.
    first: SeriesWindow,
    slices: RecentSlices,
    progress: ProgressLine,
}

/// The slices of the recent past, up to the time at which the last one is asked for: what is scraped while it is read
/// belongs to the feed. A slice that ends at the present would be followed by another one for ever, as long as each takes
/// its time.
#[derive(Clone, Copy, Debug)]
struct RecentSlices {
    from: UnixMs,
    is_last: bool,
}

impl RecentSlices {
    /// The beginning, which is no part of it, and the end of the next slice, where samples up to `due` can be read.
    fn next_slice(&mut self, due: UnixMs) -> Option<(UnixMs, UnixMs)> {
        if self.is_last || self.from >= due {
            return None;
        }
        let from = self.from;
        self.from = (from + SLICE).min(due);
        self.is_last = self.from == due;
        Some((from, self.from))
    }
}

impl SeriesSetup {
    /// The same as [`Self::open`] for what runs for long: a server that was started with it has no scrape yet, and is waited for.
    pub async fn open_patiently(
        options: &SeriesOptions,
        refresh: Duration,
        recent: Duration,
    ) -> Result<Self, QueryError> {
        let open = async || Self::open(options, refresh, recent).await;
        wait_for_first_scrape(feed_lag(refresh), open).await
    }

    /// Reads the first slice of this much of the recent past, or says why it cannot be read.
    pub async fn open(
        options: &SeriesOptions,
        refresh: Duration,
        recent: Duration,
    ) -> Result<Self, QueryError> {
        let recent = recent.clamp(RECENT, LONGEST_RECENT);
        let mut reader = SeriesReader::open(options).await?;
        let now = gaunt_engine::monotonic_clock()() - feed_lag(refresh);
        let from = now - recent;
        let mut progress = ProgressLine::new("reading the recent past", (from, now));
        progress.during(from, reader.discover_names(from, now)).await?;
        let mut slices = RecentSlices { from, is_last: false };
        let mut silence = None;
        while let Some((from, until)) = slices.next_slice(now) {
            match progress.during(from, reader.read_window(from, until)).await {
                Ok(first) if !first.batches.is_empty() => {
                    slices.is_last = false;
                    return Ok(Self { reader, refresh, first, slices, progress });
                }
                Ok(_) => silence = None,
                Err(error @ QueryError::NoScrapes { .. }) => silence = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(silence.unwrap_or_else(|| reader.no_series()))
    }

    /// The time between two scrapes of a target by the server.
    pub fn scrape_period(&self) -> Duration {
        self.first.scrape_period()
    }

    /// Plays the recent past, unless the engine has state of its own, and returns the feed for what follows.
    pub(super) async fn play_recent(mut self, engine: &mut Engine) -> anyhow::Result<SeriesFeed> {
        let present = gaunt_engine::monotonic_clock();
        let (plays, mut tick, mut from) = (engine.is_new(), None, self.slices.from);
        loop {
            let window = std::mem::take(&mut self.first);
            // What follows begins at the newest scrape: by its clock the server may be behind ours.
            from = window.batches.last().map_or(from, |batch| batch.at);
            if plays {
                block_in_place(|| play_window(engine, window, &mut tick));
            }
            let due = present() - feed_lag(self.refresh);
            let Some((begin, until)) = self.slices.next_slice(due) else { break };
            match self.progress.during(begin, self.reader.read_window(begin, until)).await {
                Ok(window) => self.first = window,
                Err(QueryError::NoScrapes { .. }) => {}
                Err(error) => return Err(error.into()),
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that takes its time: the present goes on while a slice is read.
    #[test]
    fn recent_past_ends_although_the_present_goes_on() {
        let mut due = UnixMs(0) + SLICE * 2 + Duration::from_secs(90);
        let mut slices = RecentSlices { from: UnixMs(0), is_last: false };
        let mut read = Vec::new();
        while let Some((from, until)) = slices.next_slice(due) {
            assert!(until <= due, "nothing is asked for that is not there yet");
            read.push((from.0 / 1_000, until.0 / 1_000));
            due = due + Duration::from_secs(20);
        }
        assert_eq!(read, [(0, 300), (300, 600), (600, 730)]);
        assert_eq!(RecentSlices { from: due, is_last: false }.next_slice(due), None);
    }
}
