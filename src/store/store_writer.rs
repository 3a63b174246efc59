//! Store writer: starts the thread, and hands it one step for each instant of the grid.

use std::{path::PathBuf, sync::Arc, thread, time::Duration};

use gaunt_schema::{SanitizedText, UnixMs, disk::Disk};
use tokio::sync::{mpsc, watch};

use crate::{
    StoreClient, StoreError, StoreLevel, StoreOptions, StoreStatus, StoreStep, StoreStepOutput,
    backlog::Backlog,
    remote_write::{parse_store_url, tenant_headers},
    series_window::{STEPS, SeriesWindow},
    store_step::StepOutput,
    store_thread,
};

/// Steps that wait for the thread: a disk that hangs for longer costs samples, never memory.
const MAX_STEPS: usize = 4;

/// Places that are free for requests: a step that is not on disk is lost only if the program is killed.
const REQUEST_PLACES: usize = 2;

/// The most series of verdicts: those of 100,000 GPUs are about 220,000.
const MAX_SERIES: usize = 1_000_000;

/// The most series of level `screens`, of about 250 bytes each: those of 100,000 GPUs are about four million.
const MAX_SCREEN_SERIES: usize = 5_000_000;

/// The time between two samples of the metrics that have history, in milliseconds.
const SCREENS_EVERY_MS: i64 = 60_000;

/// Hands steps to the thread of the store, which ends when this value is dropped.
#[derive(Debug)]
pub struct StoreWriter {
    steps: mpsc::Sender<StepOutput>,
    status: watch::Sender<StoreStatus>,
    interval: Duration,
    labels: Vec<(String, String)>,
    last: Option<UnixMs>,
    /// The series; none while a step is filled.
    window: Option<SeriesWindow>,
    level: StoreLevel,
    screens: Option<SeriesWindow>,
    /// The last minute with samples of level `screens`.
    last_minute: Option<i64>,
    /// Where steps are kept on disk.
    folder: Option<PathBuf>,
    /// Samples of requests that the thread had no room for.
    skipped: u64,
}

impl StoreWriter {
    /// Checks the address before anything is started.
    pub fn check_address(options: &StoreOptions) -> Result<(), StoreError> {
        tenant_headers(options.tenant.as_ref())?;
        parse_store_url(&options.url).map(drop)
    }

    /// Opens the backlog on this disk and starts the thread.
    pub fn start_thread(options: StoreOptions, disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        let url = parse_store_url(&options.url)?;
        let headers = tenant_headers(options.tenant.as_ref())?;
        let (writer, backlog, step_receiver, status_sender) = Self::open_backlog(&options, disk)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(StoreError::Thread)?;
        let access = options.access;
        let run = move || {
            runtime.block_on(store_thread::run(
                (url, headers),
                access,
                backlog,
                step_receiver,
                status_sender,
            ));
            runtime.shutdown_background();
        };
        thread::Builder::new().name("store".to_owned()).spawn(run).map_err(StoreError::Thread)?;
        Ok(writer)
    }

    /// Opens the backlog on this disk; the second value does the work of the thread with another client, until the writer is
    /// dropped.
    pub fn open_with_client(
        options: &StoreOptions,
        disk: Arc<dyn Disk>,
        client: Box<dyn StoreClient>,
    ) -> Result<(Self, impl Future<Output = ()> + Send + use<>), StoreError> {
        let (writer, backlog, steps, status) = Self::open_backlog(options, disk)?;
        Ok((writer, store_thread::run_with_client(client, backlog, steps, status)))
    }

    /// Opens the backlog; returns it with the thread's ends of the channels.
    fn open_backlog(
        options: &StoreOptions,
        disk: Arc<dyn Disk>,
    ) -> Result<(Self, Backlog, mpsc::Receiver<StepOutput>, watch::Sender<StoreStatus>), StoreError>
    {
        let folder = options.backlog_folder.clone();
        let backlog = Backlog::open(disk, folder, options.backlog_bytes).map_err(|why| {
            StoreError::Backlog { path: options.backlog_folder.clone().unwrap_or_default(), why }
        })?;
        let (steps, step_receiver) = mpsc::channel(MAX_STEPS);
        let status = watch::Sender::new(StoreStatus::default());
        let mut labels = vec![("cluster".to_owned(), options.cluster.to_string())];
        let replica = options.replica_label.iter();
        labels.extend(replica.map(|label| (label.clone(), options.replica.clone())));
        let writer = Self {
            steps,
            status: status.clone(),
            interval: options.interval,
            labels,
            last: None,
            window: None,
            level: options.level,
            screens: None,
            last_minute: None,
            folder: options.backlog_folder.clone(),
            skipped: 0,
        };
        Ok((writer, backlog, step_receiver, status))
    }

    /// State of the writer, updated with each step and answer.
    pub fn watch_status(&self) -> watch::Receiver<StoreStatus> {
        self.status.subscribe()
    }

    /// An empty step if an instant of the grid has passed since the last one, or since the first call: an aggregator that
    /// ran until just now has written the present instant, and Prometheus refuses a second value. `judged` is the time of the answers, `now`
    /// the wall clock: an instant is never ahead of either, for Prometheus would refuse all others until then.
    pub fn begin_step(&mut self, judged: UnixMs, now: UnixMs) -> Option<StoreStep> {
        let interval = self.interval.as_millis().max(1) as i64;
        let align = |at: UnixMs| UnixMs(at.0 - at.0.rem_euclid(interval));
        let instant = align(judged.min(now));
        let last = *self.last.get_or_insert_with(|| align(now));
        if instant <= last {
            return None;
        }
        self.last = Some(instant);
        let new_window = || SeriesWindow::new(self.labels.clone(), STEPS, MAX_SERIES);
        let window = self.window.take().unwrap_or_else(new_window);
        let minute = instant.0.div_euclid(SCREENS_EVERY_MS);
        let is_due = self.level == StoreLevel::Screens && self.last_minute != Some(minute);
        let screens = is_due.then(|| {
            self.last_minute = Some(minute);
            let new_window = || SeriesWindow::new(self.labels.clone(), 1, MAX_SCREEN_SERIES);
            self.screens.take().unwrap_or_else(new_window)
        });
        Some(StoreStep { at: instant, window, screens, is_recorded: self.folder.is_some() })
    }

    /// Whether the thread has taken all steps that were handed over.
    pub fn is_idle(&self) -> bool {
        self.steps.capacity() == MAX_STEPS
    }

    /// Whether the free places are for requests.
    fn is_busy(&self) -> bool {
        self.steps.capacity() <= REQUEST_PLACES
    }

    /// Says that the thread takes no steps: a call of the disk has not returned. The next status of the thread replaces it.
    fn note_hang(&self) {
        let Some(folder) = &self.folder else { return };
        let folder = folder.display();
        let why = format!("{folder} does not answer, samples wait; check its disk or file system");
        self.status.send_if_modified(|status| {
            let is_new = status.failure.as_deref() != Some(&why);
            if is_new {
                tracing::error!(store = %status.address, "{why}");
                status.failure = Some(SanitizedText::new(&why));
            }
            is_new
        });
    }

    /// Hands over a step. Never waits: samples of requests that the thread has no room for are counted.
    pub fn send_step(&mut self, step: StoreStepOutput) {
        let StoreStepOutput { mut window, screens, mut output } = step;
        if self.is_busy() {
            self.note_hang();
            if output.record.take().is_some() {
                // Its samples are in the requests of the window all the same.
                window.forget_records();
            }
        }
        self.window = Some(window);
        if screens.as_ref().is_some_and(|screens| screens.series_count() == 0) {
            // No node has been read yet: the next step is due again.
            self.last_minute = None;
        }
        self.screens = screens.or(self.screens.take());
        output.left_out += std::mem::take(&mut self.skipped);
        let is_empty = output.record.is_none() && output.request_count() == 0;
        if is_empty && self.is_busy() {
            self.skipped = output.left_out;
            return;
        }
        if let Err(error) = self.steps.try_send(output) {
            let output = error.into_inner();
            self.skipped = output.left_out + output.sample_count();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer_of(interval: Duration) -> (StoreWriter, mpsc::Receiver<StepOutput>) {
        let (steps, receiver) = mpsc::channel(MAX_STEPS);
        let status = watch::Sender::new(StoreStatus::default());
        let writer = StoreWriter {
            steps,
            status,
            interval,
            labels: Vec::new(),
            last: None,
            window: None,
            level: StoreLevel::Screens,
            screens: None,
            last_minute: None,
            folder: Some("/backlog".into()),
            skipped: 0,
        };
        (writer, receiver)
    }

    /// A clock that is set back adds no second value to an instant, and no instant is ahead of the clock.
    #[test]
    fn instants_are_on_the_grid_and_never_ahead_of_the_clock() {
        let (mut writer, _steps) = writer_of(Duration::from_secs(15));
        let mut instants = Vec::new();
        for (judged, now) in [
            (100_001, 100_002),
            (90_001, 100_003),
            (104_999, 105_000),
            (105_000, 105_001),
            (119_999, 119_999),
            (125_000, 119_000),
            (135_500, 121_000),
            (140_000, 90_000),
        ] {
            let step = writer.begin_step(UnixMs(judged), UnixMs(now));
            instants.extend(step.map(|step| step.at.0));
        }
        assert_eq!(instants, [105_000, 120_000], "another run may have written 90,000");
    }

    /// While the thread takes nothing, no step is written to disk, and the requests beyond the places for them are counted.
    /// Once a minute, at the same instant whoever writes, and a window of their own: none waits for three others.
    #[test]
    fn metrics_with_history_are_written_once_a_minute() {
        let (mut writer, mut steps) = writer_of(Duration::from_secs(15));
        assert!(writer.begin_step(UnixMs(100_000), UnixMs(100_000)).is_none());
        let mut samples = Vec::new();
        for number in 7..=17 {
            let at = UnixMs(number * 15_000);
            let mut step = writer.begin_step(at, at).unwrap();
            step.push_sample("a", &[], 1.0);
            // Nothing is known at first.
            if number > 8 {
                step.push_screen_sample("b", &[], 1.0);
            }
            writer.send_step(step.encode());
            let output = steps.try_recv().unwrap();
            let newest = output.screen_requests.iter().map(|request| request.newest.0 / 15_000);
            samples.extend(newest);
        }
        assert_eq!(samples, [9, 12, 16], "the first one with a value, then each full minute");
    }

    #[test]
    fn steps_without_room_are_counted_in_the_next_one() {
        let (mut writer, mut steps) = writer_of(Duration::from_millis(1));
        let status = writer.watch_status();
        assert!(writer.begin_step(UnixMs(0), UnixMs(0)).is_none());
        let mut send = |numbers: std::ops::RangeInclusive<i64>| {
            for at in numbers {
                let mut step = writer.begin_step(UnixMs(at), UnixMs(at)).unwrap();
                step.push_sample("a", &[], 1.0);
                writer.send_step(step.encode());
            }
        };
        send(1..=16);
        let taken: Vec<StepOutput> = std::iter::from_fn(|| steps.try_recv().ok()).collect();
        let kept: Vec<(bool, usize)> =
            taken.iter().map(|step| (step.record.is_some(), step.request_count())).collect();
        assert_eq!(kept, [(true, 0), (true, 0), (false, 1), (false, 1)]);
        let failure = status.borrow().failure.clone();
        let why = "/backlog does not answer, samples wait; check its disk or file system";
        assert_eq!(failure.as_deref(), Some(why));
        send(17..=17);
        let next = steps.try_recv().unwrap();
        assert_eq!((next.left_out, next.record.is_some()), (8, true));
    }
}
