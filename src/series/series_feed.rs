//! Feed of an engine: reads a server at each refresh, and delivers every page at its own instant.

use std::{collections::VecDeque, time::Duration};

use gaunt_schema::{
    Delivery, ScrapeTarget, SourceLoad, TargetSource, UnixMs, time::format_time_of_day,
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at, sleep},
};

use crate::{
    QueryError, SeriesReader, SeriesWindow, series_clock::SeriesClock, series_reader::WindowLoad,
};

/// The time between two refreshes, unless set otherwise: the usual scrape interval.
pub const REFRESH: Duration = Duration::from_secs(15);

/// Samples younger than this may not be visible yet: a cluster shows a new series after some seconds.
const SETTLE: Duration = Duration::from_secs(5);

/// A window begins this much before the end of the previous one: a scrape that is slow is stored late, with the instant
/// of its beginning.
const OVERLAP: Duration = Duration::from_secs(6);

/// The time that an answer may take before the engine waits for it.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// The time that is read at once after an outage of the server.
const LONGEST_WINDOW: Duration = Duration::from_mins(5);

/// The time that is read at all after an outage; what is older is left out.
const CATCH_UP: Duration = Duration::from_mins(15);

/// The time without any scrape after which the server has stopped to scrape.
const SILENCE: Duration = Duration::from_mins(3);

/// The time between two searches for names: exporters are added rarely.
const DISCOVERY: Duration = Duration::from_mins(5);

/// The time for which series that change rarely are not asked for again.
const RARE_REFRESH: Duration = Duration::from_mins(5);

/// Windows that wait for their instants.
const WAITING: usize = 1;

/// How far the engine is behind the present, for this time between two refreshes.
pub fn feed_lag(refresh: Duration) -> Duration {
    refresh + SETTLE + ANSWER_TIME
}

/// A running feed. Dropping it ends it.
#[derive(Debug)]
pub struct SeriesReaderHandle {
    _tasks: JoinSet<()>,
}

/// Reads what was scraped after `from`, now and at each refresh, and delivers it.
pub fn spawn_reading(
    reader: SeriesReader,
    from: UnixMs,
    refresh: Duration,
    inbox: mpsc::Sender<Delivery>,
    clock: SeriesClock,
) -> SeriesReaderHandle {
    let (send, windows) = mpsc::channel(WAITING);
    let mut tasks = JoinSet::new();
    let status = TargetSource {
        name: reader.server().clone(),
        targets: 0,
        taken: None,
        trouble: None,
        failed_since: None,
        load: None,
    };
    let refresher = SeriesRefresher {
        reader: reader.with_rare_refresh(RARE_REFRESH),
        refresh,
        until: from,
        status,
        failing: None,
        loads: VecDeque::new(),
        clock: clock.clone(),
    };
    tasks.spawn(refresher.run(send));
    tasks.spawn(deliver_windows(windows, inbox, clock));
    SeriesReaderHandle { _tasks: tasks }
}

/// A window that was read, or none if it could not be, and the state of the server.
struct RefreshResult {
    window: Option<SeriesWindow>,
    until: UnixMs,
    status: TargetSource,
}

/// Reads the server at each refresh.
struct SeriesRefresher {
    reader: SeriesReader,
    refresh: Duration,
    /// The end of the last window.
    until: UnixMs,
    status: TargetSource,
    /// Since when the server cannot be read.
    failing: Option<Instant>,
    /// What the refreshes of the last minutes have cost, and when they ended: one of them asks for everything.
    loads: VecDeque<(Instant, WindowLoad)>,
    clock: SeriesClock,
}

impl SeriesRefresher {
    async fn run(mut self, windows: mpsc::Sender<RefreshResult>) {
        let mut ticks = interval_at(Instant::now(), self.refresh);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut discovered = Instant::now();
        loop {
            ticks.tick().await;
            if discovered.elapsed() >= DISCOVERY {
                discovered = Instant::now();
                let present = self.clock.present();
                // Without an answer the names of the last one are queried, and that query says what is wrong.
                if let Err(error) = self.reader.discover_names(present - DISCOVERY, present).await {
                    tracing::debug!(%error, "cannot look for new names");
                }
            }
            // After an outage several windows follow each other.
            while self.read_next(&windows).await {}
            if windows.is_closed() {
                return;
            }
        }
    }

    /// Reads the next window and passes it on; true if another one follows at once.
    async fn read_next(&mut self, windows: &mpsc::Sender<RefreshResult>) -> bool {
        let newest = self.clock.present() - SETTLE;
        self.until = self.until.max(newest - CATCH_UP);
        let until = newest.min(self.until + LONGEST_WINDOW);
        if until <= self.until {
            return false;
        }
        let result = self.reader.read_window(self.until - OVERLAP, until).await;
        let has_more = result.is_ok() && until < newest;
        let window = match result {
            Ok(window) => {
                self.record_success(&window);
                // The next window begins at the newest scrape: by its clock the server may be behind ours.
                match window.batches.last() {
                    Some(last) => self.until = self.until.max(last.at),
                    None if has_more => self.until = until,
                    None => self.record_silence(newest),
                }
                Some(window)
            }
            Err(error) => {
                self.record_failure(&error);
                None
            }
        };
        let result = RefreshResult { window, until: self.until, status: self.status.clone() };
        // The other task ends only with the engine.
        windows.send(result).await.is_ok() && has_more
    }

    /// Notes that nothing new was scraped; that is a failure if it lasts.
    fn record_silence(&mut self, newest: UnixMs) {
        if newest.duration_since(self.until) > SILENCE {
            self.record_failure(&QueryError::NoNewScrapes {
                url: self.status.name.to_string(),
                since: format_time_of_day(self.until),
            });
        }
    }

    fn record_success(&mut self, window: &SeriesWindow) {
        // Without a scrape it may still be that none is made any more.
        if !window.batches.is_empty() && self.failing.take().is_some() {
            tracing::info!(server = %self.status.name, "the server is readable again");
        }
        let load = window.load;
        self.status.targets = window.targets.len() as u32;
        self.status.taken = Some(self.clock.now());
        self.status.trouble = None;
        self.status.failed_since = None;
        if window.batches.is_empty() {
            // Asking whether there is a new scrape costs next to nothing.
            return;
        }
        let mean = self.mean_load(load);
        self.status.load = Some(SourceLoad {
            queries: mean.queries,
            samples: mean.samples,
            answer_ms: mean.elapsed.as_secs_f64() * 1e3,
            refresh_ms: self.refresh.as_millis() as u64,
            delay_ms: feed_lag(self.refresh).as_millis() as u64,
            skew_ms: load.skew_ms,
            is_received: false,
        });
    }

    /// The mean of the refreshes of the last minutes, with this one.
    fn mean_load(&mut self, load: WindowLoad) -> WindowLoad {
        let now = Instant::now();
        self.loads.push_back((now, load));
        let is_old = |(ended, _): &(Instant, WindowLoad)| now - *ended >= RARE_REFRESH;
        while self.loads.front().is_some_and(is_old) {
            self.loads.pop_front();
        }
        let count = self.loads.len().max(1) as u64;
        let loads = || self.loads.iter().map(|(_, load)| load);
        WindowLoad {
            queries: loads().map(|load| load.queries).sum::<u64>().div_ceil(count),
            samples: loads().map(|load| load.samples).sum::<u64>().div_ceil(count),
            elapsed: loads().map(|load| load.elapsed).sum::<Duration>() / count as u32,
            skew_ms: load.skew_ms,
        }
    }

    fn record_failure(&mut self, error: &QueryError) {
        let text = error.to_string().as_str().into();
        if self.status.trouble.as_ref() != Some(&text) {
            tracing::error!(server = %self.status.name, "{error}");
        }
        self.status.trouble = Some(text);
        // The engine's clock stands still meanwhile: the outage is as long as by ours.
        let since = *self.failing.get_or_insert_with(Instant::now);
        self.status.failed_since = Some(self.clock.now() - since.elapsed());
    }
}

/// Delivers what was read, each page at its own instant by the engine's clock.
async fn deliver_windows(
    mut windows: mpsc::Receiver<RefreshResult>,
    inbox: mpsc::Sender<Delivery>,
    clock: SeriesClock,
) {
    let mut announced: Vec<ScrapeTarget> = Vec::new();
    while let Some(RefreshResult { window, until, status }) = windows.recv().await {
        if inbox.send(Delivery::Sources(vec![status])).await.is_err() {
            return;
        }
        let Some(window) = window else { continue };
        if window.targets != announced {
            announced.clone_from(&window.targets);
            if inbox.send(Delivery::Targets(window.targets)).await.is_err() {
                return;
            }
        }
        for batch in window.batches {
            clock.allow_until(batch.at);
            wait_until(&clock, batch.at).await;
            if inbox.send(Delivery::Batch(batch)).await.is_err() {
                return;
            }
        }
        clock.allow_until(until);
    }
}

async fn wait_until(clock: &SeriesClock, at: UnixMs) {
    loop {
        let wait = at.duration_since(clock.due_until());
        if wait.is_zero() {
            return;
        }
        sleep(wait).await;
    }
}
