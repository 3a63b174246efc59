//! The watch: a thread that keeps looking who is on the GPUs while we are, and tells at once.

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
    ending::{Ending, Kind, Reason},
    idle::Look,
};

/// The time between two looks: shorter than a job takes to get from its first call to its first kernel.
const EVERY: Duration = Duration::from_millis(5);

/// Without a look for so long, or for a quarter of the time that the whole may take if that is more, nothing is measured
/// any more: who does not see must not drive.
const BLIND_AFTER: Duration = Duration::from_secs(1);

/// What the watch says.
pub(crate) struct Watch {
    alarms: Receiver<Ending>,
    began: Instant,
    /// How long it may go without a look.
    patience: Duration,
    /// Milliseconds from `began` to the end of the last look.
    seen: Arc<AtomicU64>,
}

impl Watch {
    /// Begins to look. `tell` is called once, by the watching thread, when somebody came.
    pub(crate) fn start(
        look: Look,
        within: Duration,
        tell: impl FnOnce(&Ending) + Send + 'static,
    ) -> Self {
        let (send, alarms) = mpsc::sync_channel(1);
        let (began, seen) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let noted = Arc::clone(&seen);
        let work = move || {
            let ending = loop {
                if let Err(ending) = look.is_ours() {
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
        Self { alarms, began, patience: BLIND_AFTER.max(within / 4), seen }
    }

    /// Whether the measurement may go on.
    pub(crate) fn clear(&self) -> Result<(), Ending> {
        match self.alarms.try_recv() {
            Ok(ending) => return Err(ending),
            Err(TryRecvError::Disconnected) => return Err(blind("the watch ended")),
            Err(TryRecvError::Empty) => {}
        }
        let seen = Duration::from_millis(self.seen.load(Ordering::Relaxed));
        if self.began.elapsed().saturating_sub(seen) > self.patience {
            return Err(blind("NVML does not answer any more"));
        }
        Ok(())
    }
}

fn blind(why: &str) -> Ending {
    let why = format!("stopped: it cannot be seen who is on the GPUs: {why}");
    Ending { kind: Kind::Stopped, ..Ending::refused(Reason::Blind, why) }
}
