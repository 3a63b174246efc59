//! The supervisor of the worker processes: starts them, listens to them, and says when one hangs.
//!
//! A worker that hangs in the driver is left alone: ending it can take the GPU with it. A spare is started beside it, and
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

/// Messages that wait to be heard. A worker that works sends a tick and ten sums of errors a period, one that has just come
/// back as many; the pipe holds the rest back. What is said again anyway, a slow call, is dropped where there is no room.
const MAX_WAITING: usize = 64;

/// Messages that are heard in one step; what is left is heard in the next one, so that no worker keeps a tick waiting.
const MAX_HEARD: usize = 16 * MAX_WAITING;

/// The first and the longest wait before a worker that ended is started again.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// How much longer each further spare is waited for, and at most, in waits for the first one.
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

/// Why the last worker that ended did so.
#[derive(Clone, Debug)]
struct WorkerTrouble {
    nothing_here: bool,
    message: SanitizedText,
}

/// A message that is to be acted upon.
pub(super) enum WorkerEvent {
    /// A worker said this.
    Said(u64, WorkerMessage),
    /// A worker is gone.
    Gone(u64),
}

/// How the workers are.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum WorkerHealth {
    /// The first worker is on its way.
    Starting,
    /// Ticks come in time.
    Working,
    /// A driver call does not return.
    Blocked(OngoingCall),
    /// Ticks do not come in time, and no single call is to blame.
    Slow,
    /// There is no GPU here, and this is why.
    NothingHere(SanitizedText),
    /// The worker ended, and this is why; it will be started again.
    Down(SanitizedText),
}

impl WorkerSupervisor {
    /// A supervisor without workers: the first step starts one.
    pub(super) fn new(options: &SamplerOptions) -> Self {
        let own = || PathBuf::from("/proc/self/exe");
        let mut arguments: Vec<OsString> = vec![nvml_worker::ARGUMENT.into()];
        let orders = NvmlWorkerOptions {
            period: options.period,
            call_deadline: options.call_deadline,
            wanted: NvmlFeatures {
                gpm: options.is_enabled(ReadingSource::Gpm),
                glances: options.is_enabled(ReadingSource::Glances),
                xid: options.is_enabled(ReadingSource::Xid),
                processes: options.is_enabled(ReadingSource::Processes),
            },
        };
        // Numbers and yes or no: that becomes JSON always.
        arguments.push(serde_json::to_string(&orders).unwrap_or_default().into());
        arguments.extend(options.nvml_library.iter().map(|path| path.clone().into_os_string()));
        let (tell, hear) = sync_channel(MAX_WAITING);
        Self {
            // The link leads to the executable even after an upgrade replaced the file.
            program: options.worker_program.clone().unwrap_or_else(own),
            arguments,
            period: options.period,
            call_deadline: options.call_deadline,
            init_deadline: options.init_deadline,
            spare_after: options.spare_after,
            max_hung: options.max_hung_workers,
            workers: Vec::new(),
            event_sender: tell,
            events: hear,
            started: 0,
            next_start: None,
            back_off: BACK_OFF.0,
            trouble: None,
        }
    }

    /// Hears what the workers said since the last step, and starts, retires and buries them. Never waits.
    pub(super) fn poll_workers(&mut self, now: Instant) -> Vec<WorkerEvent> {
        let mut heard = Vec::new();
        let events = some_of(&self.events);
        heard.extend(events.into_iter().filter_map(|event| self.handle_pipe_event(event)));
        self.reap_workers(now, &mut heard);
        for worker in &mut self.workers {
            let hangs = worker.is_hung_at(now, self.period, self.call_deadline, self.init_deadline);
            worker.hangs = hangs.then(|| worker.hangs.unwrap_or(now));
        }
        self.retire_spares();
        self.start_due_worker(now);
        heard
    }

    /// How many workers wait in a driver call that does not return.
    pub(super) fn count_hung(&self) -> usize {
        self.workers.iter().filter(|worker| !worker.gone && worker.hangs.is_some()).count()
    }

    /// Whether as many hang as may, so that no more are started.
    pub(super) fn is_hung_limit_reached(&self) -> bool {
        self.count_hung() >= self.max_hung
    }

    /// How the workers are now.
    pub(super) fn worker_health(&self, now: Instant) -> WorkerHealth {
        let live = || self.workers.iter().filter(|worker| !worker.retired && !worker.gone);
        if live().any(|worker| worker.has_ticked() && worker.hangs.is_none()) {
            return WorkerHealth::Working;
        }
        if let Some(worker) = live().find(|worker| worker.hangs.is_some()) {
            return worker.ongoing_call_at(now).map_or(WorkerHealth::Slow, WorkerHealth::Blocked);
        }
        match &self.trouble {
            Some(trouble) if trouble.nothing_here => {
                WorkerHealth::NothingHere(trouble.message.clone())
            }
            Some(trouble) => WorkerHealth::Down(trouble.message.clone()),
            None => WorkerHealth::Starting,
        }
    }

    /// Takes one event into its worker's state; what is to be acted upon is returned.
    fn handle_pipe_event(&mut self, event: WorkerPipeEvent) -> Option<WorkerEvent> {
        let worker = self.workers.iter_mut().find(|worker| worker.number == event.worker)?;
        match event.what {
            Err(error) => {
                tracing::debug!(worker = event.worker, %error, "worker's pipe ended");
                worker.gone = true;
                None
            }
            Ok(WorkerMessage::Calling(calling)) => {
                worker.calling = Some((calling, event.at));
                None
            }
            Ok(WorkerMessage::Trouble { nothing_here, message }) => {
                self.trouble = Some(WorkerTrouble { nothing_here, message });
                None
            }
            Ok(_) if worker.retired => None,
            Ok(message) => {
                worker.progress = event.at;
                worker.calling = None;
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

    /// Takes the ended processes from the list.
    fn reap_workers(&mut self, now: Instant, heard: &mut Vec<WorkerEvent>) {
        let mut at = 0;
        while at < self.workers.len() {
            let worker = &mut self.workers[at];
            // Its pipe ends first, so that nothing that it said is lost.
            let Some(status) =
                worker.gone.then(|| worker.child.try_wait().ok().flatten()).flatten()
            else {
                at += 1;
                continue;
            };
            let worker = self.workers.remove(at);
            heard.push(WorkerEvent::Gone(worker.number));
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
        let works = |worker: &WorkerProcess| {
            worker.has_ticked() && worker.hangs.is_none() && !worker.retired
        };
        let Some(newest) = self.workers.iter().filter(|w| works(w)).map(|w| w.number).max() else {
            return;
        };
        for worker in self.workers.iter_mut().filter(|w| works(w) && w.number != newest) {
            tracing::info!(
                worker = worker.number,
                "a worker that hung came back and is not needed"
            );
            worker.retired = true;
            worker.child.stdin = None;
        }
    }

    /// When a worker is to be started: where none is left that was not asked to stop, or all of them have been hanging for
    /// longer and longer.
    fn is_start_due(&self, now: Instant) -> bool {
        let mut newest = None;
        for worker in self.workers.iter().filter(|worker| !worker.retired) {
            let Some(since) = worker.hangs else { return false };
            newest = newest.max(Some(since));
        }
        let Some(since) = newest else {
            return self.next_start.is_none_or(|at| now >= at);
        };
        let (factor, most) = SPARE_BACK_OFF;
        let times = factor.saturating_pow(self.count_hung().saturating_sub(1) as u32).min(most);
        let due = now >= since + self.spare_after * times;
        due && !self.is_hung_limit_reached() && self.next_start.is_none_or(|at| now >= at)
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

/// What waits, but for what would keep the tick.
fn some_of<T>(hear: &Receiver<T>) -> Vec<T> {
    hear.try_iter().take(MAX_HEARD).collect()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn messages_of_workers_that_never_fall_silent_end_no_step_late_and_none_is_lost() {
        let (tell, hear) = sync_channel(MAX_WAITING);
        let many = 200 * MAX_HEARD;
        let telling = thread::spawn(move || (0..many).all(|nth| tell.send(nth).is_ok()));
        let (mut heard, mut steps) = (Vec::new(), 0);
        while heard.len() < many {
            let some = some_of(&hear);
            assert!(some.len() <= MAX_HEARD);
            heard.extend(some);
            steps += 1;
        }
        assert!(telling.join().unwrap());
        assert!(steps >= 200 && heard.is_sorted(), "{steps}");
    }
}
