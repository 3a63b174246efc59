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

/// The time between two looks: shorter than a job takes to get from its first call to its first kernel.
const EVERY: Duration = Duration::from_millis(5);

/// Without a look for so long, or for a quarter of the time that the whole may take if that is more, nothing is
/// measured any more: who does not see must not drive.
const BLIND_AFTER: Duration = Duration::from_secs(1);

/// What the watch says.
pub(crate) struct GpuIdleWatch {
    alarms: Receiver<ProbeExit>,
    began: Instant,
    /// How long it may go without a look.
    max_gap: Duration,
    /// Milliseconds from `began` to the end of the last look.
    last_check_millis: Arc<AtomicU64>,
}

impl GpuIdleWatch {
    /// Begins to look. `tell` is called once, by the watching thread, when somebody came.
    pub(crate) fn spawn_watch(
        look: GpuIdleCheck,
        within: Duration,
        tell: impl FnOnce(&ProbeExit) + Send + 'static,
    ) -> Self {
        let (send, alarms) = mpsc::sync_channel(1);
        let (began, seen) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let noted = Arc::clone(&seen);
        let work = move || {
            let ending = loop {
                if let Err(ending) = look.check_exclusive() {
                    break ending;
                }
                noted.store(began.elapsed().as_millis() as u64, Ordering::Relaxed);
                thread::sleep(EVERY);
            };
            tell(&ending);
            // Without a receiver the measurement is over.
            _ = send.send(ending);
        };
        // Without its thread the watch is blind, and says so.
        drop(thread::Builder::new().name("watch".to_owned()).spawn(work));
        Self { alarms, began, max_gap: BLIND_AFTER.max(within / 4), last_check_millis: seen }
    }

    /// Whether the measurement may go on.
    pub(crate) fn clear(&self) -> Result<(), ProbeExit> {
        match self.alarms.try_recv() {
            Ok(ending) => return Err(ending),
            Err(TryRecvError::Disconnected) => return Err(watch_failed("the watch ended")),
            Err(TryRecvError::Empty) => {}
        }
        let seen = Duration::from_millis(self.last_check_millis.load(Ordering::Relaxed));
        if self.began.elapsed().saturating_sub(seen) > self.max_gap {
            return Err(watch_failed("NVML does not answer any more"));
        }
        Ok(())
    }
}

fn watch_failed(why: &str) -> ProbeExit {
    let why = format!("stopped: it cannot be seen who is on the GPUs: {why}");
    ProbeExit { kind: ExitKind::Stopped, ..ProbeExit::new_refused(SkipReason::Blind, why) }
}
