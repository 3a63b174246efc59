//! Store writer: starts the thread, and hands it one step for each instant of the grid.

use std::{thread, time::Duration};

use gaunt_schema::UnixMs;
use tokio::sync::{mpsc, watch};

use crate::{
    StoreError, StoreOptions, StoreStatus, StoreStep,
    backlog::Backlog,
    remote_write::{parse_store_url, tenant_headers},
    store_thread,
};

/// Steps that wait for the thread: a disk that hangs for longer costs steps, never memory.
const MAX_STEPS: usize = 2;

/// Hands steps to the thread of the store, which ends when this value is dropped.
#[derive(Debug)]
pub struct StoreWriter {
    steps: mpsc::Sender<StoreStep>,
    status: watch::Receiver<StoreStatus>,
    interval: Duration,
    labels: Vec<(String, String)>,
    last: Option<UnixMs>,
    /// Samples of steps that the thread had no room for.
    skipped: u64,
}

impl StoreWriter {
    /// Checks the address before anything is started.
    pub fn check_address(options: &StoreOptions) -> Result<(), StoreError> {
        tenant_headers(options.tenant.as_ref())?;
        parse_store_url(&options.url).map(drop)
    }

    /// Opens the backlog and starts the thread.
    pub fn start_thread(options: StoreOptions) -> Result<Self, StoreError> {
        let url = parse_store_url(&options.url)?;
        let headers = tenant_headers(options.tenant.as_ref())?;
        let folder = options.backlog_folder.clone();
        let backlog = Backlog::open(folder, options.backlog_bytes).map_err(|why| {
            StoreError::Backlog { path: options.backlog_folder.clone().unwrap_or_default(), why }
        })?;
        let (steps, step_receiver) = mpsc::channel(MAX_STEPS);
        let (status_sender, status) = watch::channel(StoreStatus::default());
        let mut labels = vec![("cluster".to_owned(), options.cluster.to_string())];
        labels.extend(options.replica_label.map(|label| (label, options.replica)));
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
        let (last, skipped) = (None, 0);
        Ok(Self { steps, status, interval: options.interval, labels, last, skipped })
    }

    /// State of the writer, updated with each step and answer.
    pub fn watch_status(&self) -> watch::Receiver<StoreStatus> {
        self.status.clone()
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
        Some(StoreStep::new(instant, self.labels.clone()))
    }

    /// Whether the thread has taken all steps that were handed over.
    pub fn is_idle(&self) -> bool {
        self.steps.capacity() == MAX_STEPS
    }

    /// Hands over a step. Never waits: a step that the thread has no room for is counted.
    pub fn send_step(&mut self, mut step: StoreStep) {
        step.left_out += std::mem::take(&mut self.skipped);
        if let Err(error) = self.steps.try_send(step) {
            let step = error.into_inner();
            self.skipped = step.left_out + step.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer_of(interval: Duration) -> (StoreWriter, mpsc::Receiver<StoreStep>) {
        let (steps, receiver) = mpsc::channel(MAX_STEPS);
        let (_, status) = watch::channel(StoreStatus::default());
        let writer =
            StoreWriter { steps, status, interval, labels: Vec::new(), last: None, skipped: 0 };
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

    #[test]
    fn steps_without_room_are_counted_in_the_next_one() {
        let (mut writer, mut steps) = writer_of(Duration::from_secs(15));
        for at in 1..=4 {
            let mut step = StoreStep::new(UnixMs(at), Vec::new());
            step.push_sample("a", &[], 1.0);
            writer.send_step(step);
        }
        assert_eq!(steps.try_recv().unwrap().at, UnixMs(1));
        writer.send_step(StoreStep::new(UnixMs(5), Vec::new()));
        assert_eq!(steps.try_recv().unwrap().at, UnixMs(2));
        assert_eq!(steps.try_recv().unwrap().left_out, 2);
    }
}
