//! The supervisor of the worker processes: starts them, receives their messages, and detects hangs.
//!
//! A worker that hangs in the driver is not killed: that can take the GPU with it. A spare is started beside it, and
//! another one if that hangs too, each after a longer wait and up to a limit.

use std::{
    ffi::OsString,
    path::PathBuf,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    time::{Duration, Instant},
};

use gaunt_schema::SanitizedText;

use super::{
    driver_call::OngoingCall,
    nvml_driver::NvmlFeatures,
    nvml_worker::{self, NvmlWorkerOptions},
    worker_pipe::WorkerMessage,
};
use crate::{ReadingSource, SamplerOptions};

mod worker_process;

use worker_process::{WorkerPipeEvent, WorkerProcess, WorkerStage};

/// The capacity of the message channel. A healthy worker sends a tick and ten XID messages a period, one that has just
/// resumed as many; the pipe buffers the rest. Messages that repeat anyway (slow calls) are dropped if it is full.
const MAX_WAITING: usize = 64;

/// The most messages that one step handles; the rest is left for the next step, so that no worker delays a tick.
const MAX_HEARD: usize = 16 * MAX_WAITING;

/// The first and the longest backoff before a worker that ended is restarted.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// The backoff factor of each further spare, and its maximum, in multiples of the wait for the first one.
const SPARE_BACK_OFF: (u32, u32) = (6, 60);

/// The workers of this process.
pub(super) struct WorkerSupervisor {
    program: PathBuf,
    arguments: Vec<OsString>,
    period: Duration,
    call_deadline: Duration,
    init_deadline: Duration,
    /// How long a worker hangs before the first spare is started.
    spare_after: Duration,
    /// The most workers that may hang at a time.
    max_hung: usize,
    workers: Vec<WorkerProcess>,
    event_sender: SyncSender<WorkerPipeEvent>,
    events: Receiver<WorkerPipeEvent>,
    started: u64,
    next_start: Option<Instant>,
    back_off: Duration,
    trouble: Option<WorkerTrouble>,
}

/// Why the last worker ended.
#[derive(Clone, Debug)]
struct WorkerTrouble {
    nothing_here: bool,
    message: SanitizedText,
}

/// A message to act upon.
pub(super) enum WorkerEvent {
    /// A worker sent this.
    Said(u64, WorkerMessage),
    /// A worker ended.
    Gone(u64),
}

/// The health of the workers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum WorkerHealth {
    /// The first worker is starting.
    Starting,
    /// Ticks arrive in time.
    Working,
    /// A driver call does not return.
    Blocked(OngoingCall),
    /// Ticks arrive late, without a single call to blame.
    Slow,
    /// There is no GPU here; the text is the reason.
    NothingHere(SanitizedText),
    /// The worker ended, and will be restarted; the text is the reason.
    Down(SanitizedText),
}

impl WorkerSupervisor {
    /// A supervisor without workers: the first step starts one.
    pub(super) fn new(options: &SamplerOptions) -> Self {
        let own_program = || PathBuf::from("/proc/self/exe");
        let mut arguments: Vec<OsString> = vec![nvml_worker::ARGUMENT.into()];
        let worker_options = NvmlWorkerOptions {
            period: options.period,
            call_deadline: options.call_deadline,
            wanted: NvmlFeatures {
                gpm: options.is_enabled(ReadingSource::Gpm),
                fast_sampling: options.is_enabled(ReadingSource::FastSampling),
                xid: options.is_enabled(ReadingSource::Xid),
                processes: options.is_enabled(ReadingSource::Processes),
            },
        };
        // Numbers and booleans: serialisation never fails.
        arguments.push(serde_json::to_string(&worker_options).unwrap_or_default().into());
        arguments.extend(options.nvml_library.iter().map(|path| path.clone().into_os_string()));
        let (event_sender, events) = sync_channel(MAX_WAITING);
        Self {
            // The link is valid even after an upgrade replaced the file.
            program: options.worker_program.clone().unwrap_or_else(own_program),
            arguments,
            period: options.period,
            call_deadline: options.call_deadline,
            init_deadline: options.init_deadline,
            spare_after: options.spare_after,
            max_hung: options.max_hung_workers,
            workers: Vec::new(),
            event_sender,
            events,
            started: 0,
            next_start: None,
            back_off: BACK_OFF.0,
            trouble: None,
        }
    }

    /// Handles the messages since the last step, and starts, retires and reaps workers. Never waits.
    pub(super) fn poll_workers(&mut self, now: Instant) -> Vec<WorkerEvent> {
        let mut handled = Vec::new();
        let events = some_of(&self.events);
        handled.extend(events.into_iter().filter_map(|event| self.handle_pipe_event(event)));
        self.reap_workers(now, &mut handled);
        for worker in &mut self.workers {
            let hangs = worker.is_hung_at(now, self.period, self.call_deadline, self.init_deadline);
            worker.hung_since = hangs.then(|| worker.hung_since.unwrap_or(now));
        }
        self.retire_spares();
        self.start_due_worker(now);
        handled
    }

    /// How many workers hang in a driver call.
    pub(super) fn count_hung(&self) -> usize {
        self.workers.iter().filter(|worker| !worker.gone && worker.hung_since.is_some()).count()
    }

    /// Whether the limit of hung workers is reached, so that no more are started.
    pub(super) fn is_hung_limit_reached(&self) -> bool {
        self.count_hung() >= self.max_hung
    }

    /// The current health of the workers.
    pub(super) fn worker_health(&self, now: Instant) -> WorkerHealth {
        let live = || self.workers.iter().filter(|worker| !worker.retired && !worker.gone);
        if live().any(|worker| worker.has_ticked() && worker.hung_since.is_none()) {
            return WorkerHealth::Working;
        }
        if let Some(worker) = live().find(|worker| worker.hung_since.is_some()) {
            return worker.ongoing_call_at(now).map_or(WorkerHealth::Slow, WorkerHealth::Blocked);
        }
        match &self.trouble {
            Some(failure) if failure.nothing_here => {
                WorkerHealth::NothingHere(failure.message.clone())
            }
            Some(failure) => WorkerHealth::Down(failure.message.clone()),
            None => WorkerHealth::Starting,
        }
    }

    /// Applies one event to its worker's state; returns the event to act upon.
    fn handle_pipe_event(&mut self, event: WorkerPipeEvent) -> Option<WorkerEvent> {
        let worker = self.workers.iter_mut().find(|worker| worker.number == event.worker)?;
        match event.message {
            Err(error) => {
                tracing::debug!(worker = event.worker, %error, "worker's pipe ended");
                worker.gone = true;
                None
            }
            Ok(WorkerMessage::Calling(call)) => {
                worker.slow_call = Some((call, event.at));
                None
            }
            Ok(WorkerMessage::Trouble { nothing_here, message }) => {
                self.trouble = Some(WorkerTrouble { nothing_here, message });
                None
            }
            Ok(_) if worker.retired => None,
            Ok(message) => {
                worker.progress = event.at;
                worker.slow_call = None;
                worker.stage = worker.stage.max(WorkerStage::Ready);
                if matches!(message, WorkerMessage::Tick { .. }) {
                    worker.stage = WorkerStage::Ticking;
                    self.back_off = BACK_OFF.0;
                    self.trouble = None;
                }
                Some(WorkerEvent::Said(event.worker, message))
            }
        }
    }

    /// Removes the ended processes.
    fn reap_workers(&mut self, now: Instant, handled: &mut Vec<WorkerEvent>) {
        let mut index = 0;
        while index < self.workers.len() {
            let worker = &mut self.workers[index];
            // Its pipe ends first, so that no message is lost.
            let Some(status) =
                worker.gone.then(|| worker.child.try_wait().ok().flatten()).flatten()
            else {
                index += 1;
                continue;
            };
            let worker = self.workers.remove(index);
            handled.push(WorkerEvent::Gone(worker.number));
            if worker.retired {
                continue;
            }
            if !status.success() || (worker.has_ticked() && self.trouble.is_none()) {
                let message = format!("the NVML worker ended unexpectedly ({status})");
                tracing::warn!(worker = worker.number, %status, "the NVML worker ended");
                self.trouble = Some(WorkerTrouble { nothing_here: false, message: message.into() });
            }
            self.next_start = Some(now + self.back_off);
            self.back_off = (self.back_off * 2).min(BACK_OFF.1);
        }
    }

    /// Asks all but the newest of the workers that work to stop.
    fn retire_spares(&mut self) {
        let is_working = |worker: &WorkerProcess| {
            worker.has_ticked() && worker.hung_since.is_none() && !worker.retired
        };
        let Some(newest) = self
            .workers
            .iter()
            .filter(|worker| is_working(worker))
            .map(|worker| worker.number)
            .max()
        else {
            return;
        };
        for worker in
            self.workers.iter_mut().filter(|other| is_working(other) && other.number != newest)
        {
            tracing::info!(
                worker = worker.number,
                "a hung worker resumed and is no longer needed; stopping it"
            );
            worker.retired = true;
            worker.child.stdin = None;
        }
    }

    /// Whether a worker is to be started: none is left that was not asked to stop, or all of them have been hanging for
    /// long enough.
    fn is_start_due(&self, now: Instant) -> bool {
        let mut newest = None;
        for worker in self.workers.iter().filter(|worker| !worker.retired) {
            let Some(since) = worker.hung_since else { return false };
            newest = newest.max(Some(since));
        }
        let Some(since) = newest else {
            return self.next_start.is_none_or(|next_start| now >= next_start);
        };
        let (factor, max) = SPARE_BACK_OFF;
        let times = factor.saturating_pow(self.count_hung().saturating_sub(1) as u32).min(max);
        let due = now >= since + self.spare_after * times;
        due && !self.is_hung_limit_reached()
            && self.next_start.is_none_or(|next_start| now >= next_start)
    }

    /// Starts a worker where one is missing, or a spare beside those that hang.
    fn start_due_worker(&mut self, now: Instant) {
        if !self.is_start_due(now) {
            return;
        }
        self.started += 1;
        match WorkerProcess::spawn_worker(
            self.started,
            &self.program,
            &self.arguments,
            &self.event_sender,
            now,
        ) {
            Ok(worker) => self.workers.push(worker),
            Err(error) => {
                let program = self.program.display();
                let message = format!("cannot start the NVML worker {program}: {error}");
                self.trouble = Some(WorkerTrouble { nothing_here: false, message: message.into() });
                self.next_start = Some(now + self.back_off);
                self.back_off = (self.back_off * 2).min(BACK_OFF.1);
            }
        }
    }
}

/// The waiting messages, up to the limit of a step.
fn some_of<T>(receiver: &Receiver<T>) -> Vec<T> {
    receiver.try_iter().take(MAX_HEARD).collect()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn poll_is_bounded_under_constant_messages_and_loses_none() {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let sent = 200 * MAX_HEARD;
        let sending = thread::spawn(move || (0..sent).all(|nth| sender.send(nth).is_ok()));
        let (mut collected, mut steps) = (Vec::new(), 0);
        while collected.len() < sent {
            let batch = some_of(&receiver);
            assert!(batch.len() <= MAX_HEARD);
            collected.extend(batch);
            steps += 1;
        }
        assert!(sending.join().unwrap());
        assert!(steps >= 200 && collected.is_sorted(), "{steps}");
    }
}
