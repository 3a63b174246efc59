//! Writes frames on a thread of its own: a terminal that takes nothing stops drawing, never the console.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, SyncSender, TrySendError},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::tty_device::TtyDevice;

/// How long the end of the program waits for a terminal that takes nothing.
const SETTLE: Duration = Duration::from_millis(300);

/// Frames that may wait: none is drawn before the last one is written, but the brackets of entering, the bell and the
/// clipboard may come between.
const QUEUE: usize = 8;

/// The way to the terminal.
pub(super) struct TerminalWriter {
    frames: SyncSender<Vec<u8>>,
    /// Frames that are not written yet.
    waiting: watch::Sender<usize>,
    /// How long the last one took to be written, in microseconds.
    took: Arc<AtomicU64>,
}

impl TerminalWriter {
    /// Starts the thread. Once the terminal is given back, frames that still wait are thrown away.
    pub(super) fn spawn_writer(line: Arc<TtyDevice>) -> io::Result<Self> {
        let (frames, taken) = mpsc::sync_channel::<Vec<u8>>(QUEUE);
        let (waiting, _) = watch::channel(0);
        let (written, took) = (waiting.clone(), Arc::new(AtomicU64::new(0)));
        let spent = Arc::clone(&took);
        thread::Builder::new().name("terminal".into()).spawn(move || {
            for frame in taken {
                let begun = Instant::now();
                line.write_frame(&frame);
                spent.store(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
                written.send_modify(|waiting| *waiting -= 1);
            }
        })?;
        Ok(Self { frames, waiting, took })
    }

    /// Hands over a frame. What finds no room, because the terminal takes nothing, is dropped: nobody may wait for it.
    pub(super) fn queue_frame(&self, frame: Vec<u8>) -> io::Result<()> {
        self.waiting.send_modify(|waiting| *waiting += 1);
        match self.frames.try_send(frame) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => {
                self.waiting.send_modify(|waiting| *waiting -= 1);
                Ok(())
            }
            Err(TrySendError::Disconnected(_)) => {
                Err(io::Error::other("the thread that writes to the terminal has ended"))
            }
        }
    }

    /// How long the terminal took to take the last frame.
    pub(super) fn last_write_duration(&self) -> Duration {
        Duration::from_micros(self.took.load(Ordering::Relaxed))
    }

    /// Whether everything is written.
    pub(super) fn is_idle(&self) -> bool {
        *self.waiting.borrow() == 0
    }

    /// Waits until everything is written.
    pub(super) async fn wait_until_idle(&self) {
        let mut waiting = self.waiting.subscribe();
        // The sender is ours, so it cannot be gone.
        let _ = waiting.wait_for(|waiting| *waiting == 0).await;
    }

    /// Waits for the last frame, but not for ever.
    pub(super) fn flush_with_timeout(&self) {
        let deadline = Instant::now() + SETTLE;
        while !self.is_idle() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
