//! The idle watch: a thread that repeats the idle check during a measurement, and reports other users immediately.

use std::{
    sync::Arc,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    exit_code::{ExitKind, ProbeExit, SkipReason},
    idle_check::GpuIdleCheck,
};

/// The interval of checks: shorter than the time from a job's first call to its first kernel.
const EVERY: Duration = Duration::from_millis(5);

/// The measurement stops after so long without a check, or after a quarter of its deadline if that is longer.
const BLIND_AFTER: Duration = Duration::from_secs(1);

/// The running watch.
pub(crate) struct GpuIdleWatch {
    alarms: Receiver<ProbeExit>,
    started: Instant,
    /// The maximum time between two checks.
    max_gap: Duration,
    /// Milliseconds from `started` to the end of the last check.
    last_check_millis: Arc<AtomicU64>,
}

impl GpuIdleWatch {
    /// Starts the watch thread, which calls `on_other_use` once, when another process uses the GPUs.
    pub(crate) fn spawn_watch(
        idle_check: GpuIdleCheck,
        deadline: Duration,
        on_other_use: impl FnOnce(&ProbeExit) + Send + 'static,
    ) -> Self {
        let (exit_sender, alarms) = mpsc::sync_channel(1);
        let (started, last_check) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let check_time = Arc::clone(&last_check);
        let watch_loop = move || {
            let exit = loop {
                if let Err(exit) = idle_check.check_exclusive() {
                    break exit;
                }
                check_time.store(started.elapsed().as_millis() as u64, Ordering::Relaxed);
                thread::sleep(EVERY);
            };
            on_other_use(&exit);
            // Without a receiver the measurement is over.
            _ = exit_sender.send(exit);
        };
        // Without its thread the watch fails at the next check.
        drop(thread::Builder::new().name("watch".to_owned()).spawn(watch_loop));
        Self {
            alarms,
            started,
            max_gap: BLIND_AFTER.max(deadline / 4),
            last_check_millis: last_check,
        }
    }

    /// Whether the measurement may continue.
    pub(crate) fn clear(&self) -> Result<(), ProbeExit> {
        match self.alarms.try_recv() {
            Ok(exit) => return Err(exit),
            Err(TryRecvError::Disconnected) => return Err(watch_failed("the watch thread ended")),
            Err(TryRecvError::Empty) => {}
        }
        let last_check = Duration::from_millis(self.last_check_millis.load(Ordering::Relaxed));
        if self.started.elapsed().saturating_sub(last_check) > self.max_gap {
            return Err(watch_failed("NVML no longer responds"));
        }
        Ok(())
    }
}

fn watch_failed(why: &str) -> ProbeExit {
    let why = format!("stopped: cannot check which processes use the GPUs: {why}");
    ProbeExit { kind: ExitKind::Stopped, ..ProbeExit::new_refused(SkipReason::Blind, why) }
}
