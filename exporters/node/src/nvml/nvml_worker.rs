//! The worker process: initialises the driver once, samples it each tick, and writes messages to standard output.
//!
//! It ends at the end of its standard input: in this way it stops when its parent is gone, for whatever reason.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    io, process,
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use gaunt_schema::SanitizedText;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Signal, getpid, kill_process},
};
use serde::{Deserialize, Serialize};

use super::{
    driver_call::CurrentCall,
    nvml_driver::{NvmlDriver, NvmlFeatures, XidWait, XidWaitOutcome},
    worker_pipe::{self, PipeError, WorkerMessage},
    xid_counts::XidCounts,
};
use crate::wall_clock;

/// The first argument of a worker process. The name is long to avoid accidental use.
pub(super) const ARGUMENT: &str = "--gaunt-nvml-worker";

/// The interval at which the watching thread checks the current driver call, at least and at most.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// Longer calls are reported to the parent, which knows the deadline; with a short deadline, calls over half of it.
const SLOW_CALL: Duration = Duration::from_millis(500);

/// The shortest interval of fast sampling: boards renew their power about as often.
const MIN_FAST_INTERVAL: Duration = Duration::from_millis(100);

/// The most fast samples in a period.
const MAX_FAST_SAMPLES: u32 = 10;

/// How long a call may still take after the parent asked to stop. A worker that cannot finish its call is killed:
/// nothing reads its output, and it would otherwise never end.
const GRACE: Duration = Duration::from_secs(5);

/// The most failures in the message of one tick.
const MAX_FAILURES: usize = 16;

/// Whether this process was started as a worker. Call this before anything else.
pub fn is_worker_process() -> bool {
    env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT)
}

/// Runs the worker. Call it only if [`is_worker_process`] returns true.
pub fn run() -> ExitCode {
    let Some(options) = parse_options() else { return ExitCode::FAILURE };
    let started = Instant::now();
    let worker = Arc::new(NvmlWorker {
        options,
        current_call: CurrentCall::new(started),
        stop: AtomicBool::new(false),
        output_lock: Mutex::new(()),
    });
    let (watcher, caller) = (Arc::clone(&worker), thread::current());
    let watch_loop = move || watcher.watch_calls(&caller);
    if thread::Builder::new().name("watch".to_owned()).spawn(watch_loop).is_err() {
        return ExitCode::FAILURE;
    }
    match worker.init_and_sample(started) {
        Ok(()) => ExitCode::SUCCESS,
        // The parent is gone, and with it any reader of an error.
        Err(_) => ExitCode::FAILURE,
    }
}

/// The options of a worker at its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NvmlWorkerOptions {
    /// The time between two rounds.
    pub(super) period: Duration,
    /// How long one call may take.
    pub(super) call_deadline: Duration,
    /// The enabled features.
    pub(super) wanted: NvmlFeatures,
}

/// Parses the arguments: the options, and the library if one is given.
fn parse_options() -> Option<(NvmlWorkerOptions, Option<OsString>)> {
    let mut arguments = env::args_os().skip(2);
    let options: NvmlWorkerOptions = serde_json::from_str(arguments.next()?.to_str()?).ok()?;
    (!options.period.is_zero()).then(|| (options, arguments.next()))
}

/// The state that the two threads of a worker share.
struct NvmlWorker {
    options: (NvmlWorkerOptions, Option<OsString>),
    current_call: CurrentCall,
    stop: AtomicBool,
    /// Held while a message is written, never during a driver call.
    output_lock: Mutex<()>,
}

impl NvmlWorker {
    fn send_message(&self, message: &WorkerMessage) -> Result<(), PipeError> {
        let _whole = self.output_lock.lock().unwrap_or_else(PoisonError::into_inner);
        worker_pipe::write_message(message, &mut io::stdout().lock())
    }

    fn send_trouble(&self, nothing_here: bool, message: &str) -> Result<(), PipeError> {
        self.send_message(&WorkerMessage::Trouble {
            nothing_here,
            message: SanitizedText::new(message),
        })
    }

    /// Initialises the driver and samples it each tick, until the parent asks to stop.
    fn init_and_sample(&self, started: Instant) -> Result<(), PipeError> {
        let (options, library) = &self.options;
        let mut driver =
            match NvmlDriver::init_driver(library.as_deref(), &self.current_call, options.wanted) {
                Ok(driver) => driver,
                Err(error) => {
                    return self.send_trouble(error.is_not_installed(), &error.to_string());
                }
            };
        let version = driver.driver_version();
        let result = match driver.list_gpus() {
            Ok(gpus) if gpus.is_empty() => {
                self.send_trouble(true, &format!("no GPU: the NVIDIA driver {version} lists none"))
            }
            Ok(gpus) => {
                let indexes: Vec<u32> = gpus.iter().map(|gpu| gpu.index).collect();
                let hello = WorkerMessage::Hello {
                    version: worker_pipe::VERSION,
                    pid: process::id(),
                    driver: version,
                };
                self.send_message(&hello)
                    .and_then(|()| self.send_message(&WorkerMessage::Inventory { gpus }))
                    .and_then(|()| self.sample_until_stopped(&mut driver, &indexes, started))
            }
            Err(error) => {
                let message = format!("the NVIDIA driver {version} cannot list its GPUs: {error}");
                self.send_trouble(false, &message)
            }
        };
        driver.shutdown_driver();
        result
    }

    fn sample_until_stopped(
        &self,
        driver: &mut NvmlDriver<'_>,
        indexes: &[u32],
        started: Instant,
    ) -> Result<(), PipeError> {
        let period = self.options.0.period;
        let (mut waiting, mut xids) = (None, XidCounts::default());
        while !self.stop.load(Ordering::Acquire) {
            let (time, seconds) = (wall_clock::now(), started.elapsed().as_secs_f64());
            let mut failures = BTreeSet::new();
            let gpus =
                indexes.iter().map(|index| driver.sample_gpu(*index, &mut failures)).collect();
            let failures =
                failures.into_iter().take(MAX_FAILURES).map(SanitizedText::from).collect();
            self.send_message(&WorkerMessage::Tick { at: time, seconds, gpus, failures })?;
            if waiting.is_none() {
                waiting = driver.begin_xid_wait();
            }
            let next =
                Instant::now() + wall_clock::until_tick(wall_clock::now(), period, Duration::ZERO);
            self.wait_until_tick(next, driver, &mut waiting, &mut xids)?;
            // Before the next call: it may not return.
            xids.take_message(Instant::now())
                .map_or(Ok(()), |message| self.send_message(&message))?;
            if !driver.is_unchanged() {
                let message =
                    "the NVIDIA driver was reloaded or lists other GPUs; restarting the worker";
                self.send_trouble(false, message)?;
                break;
            }
        }
        if let Some(waiting) = waiting {
            driver.end_xid_wait(waiting);
        }
        Ok(())
    }

    /// Waits until the next tick with fast sampling, and sends XIDs as they arrive.
    fn wait_until_tick(
        &self,
        next: Instant,
        driver: &mut NvmlDriver<'_>,
        waiting: &mut Option<XidWait>,
        xids: &mut XidCounts,
    ) -> Result<(), PipeError> {
        let options = &self.options.0;
        let interval = (options.period / MAX_FAST_SAMPLES).max(MIN_FAST_INTERVAL);
        // Far shorter than the deadline, so that only a hanging wait is reported as slow.
        let max_wait = (options.call_deadline / 4).min(MIN_FAST_INTERVAL);
        let mut next_sample = Instant::now() + interval;
        while !self.stop.load(Ordering::Acquire)
            && let Some(rest) = next.checked_duration_since(Instant::now())
        {
            let wait = rest.min(next_sample.saturating_duration_since(Instant::now()));
            let event =
                waiting.as_ref().map(|waiting| driver.wait_for_xid(waiting, wait.min(max_wait)));
            match event {
                Some(XidWaitOutcome::Xid(gpu, code)) => xids.add_xid(gpu, code, wall_clock::now()),
                Some(XidWaitOutcome::Nothing) => {}
                Some(XidWaitOutcome::Broken) => {
                    // A wait that fails immediately would fail a million times a second.
                    if let Some(waiting) = waiting.take() {
                        driver.end_xid_wait(waiting);
                    }
                }
                None => thread::park_timeout(wait),
            }
            xids.due_message(Instant::now(), interval)
                .map_or(Ok(()), |message| self.send_message(&message))?;
            // The tick itself counts as a sample.
            if next_sample <= Instant::now()
                && next_sample + interval / 2 < next
                && options.wanted.fast_sampling
            {
                driver.sample_fast();
            }
            if next_sample <= Instant::now() {
                next_sample += interval;
            }
        }
        Ok(())
    }

    /// Reports slow calls to the parent, and waits for the end of standard input.
    fn watch_calls(&self, caller: &thread::Thread) {
        let deadline = self.options.0.call_deadline;
        let (interval, slow) = (deadline / 4, SLOW_CALL.min(deadline / 2));
        let interval = interval.clamp(LOOK_EVERY.0, LOOK_EVERY.1);
        let interval = Timespec { tv_sec: 0, tv_nsec: i64::from(interval.subsec_nanos()) };
        let stdin = io::stdin();
        loop {
            let mut input = [PollFd::new(&stdin, PollFlags::IN)];
            let ready = poll(&mut input, Some(&interval));
            // The parent never writes, so any event is the end of input.
            if ready.is_ok_and(|count| count > 0) {
                break;
            }
            if let Some(call) = self.current_call.ongoing_call()
                && u128::from(call.millis) >= slow.as_millis()
                && self.send_message(&WorkerMessage::Calling(call)).is_err()
            {
                break;
            }
        }
        self.stop.store(true, Ordering::Release);
        caller.unpark();
        thread::sleep(GRACE);
        // Nothing else ends a thread that is blocked in the driver, and an exit would run the driver's own handlers.
        _ = kill_process(getpid(), Signal::KILL);
    }
}
