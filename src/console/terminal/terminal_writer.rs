//! Writes frames on a separate thread: a terminal that does not read stops the drawing, never the console.

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

/// How long the exit waits for a terminal that does not read.
const SETTLE: Duration = Duration::from_millis(300);

/// Capacity of the frame queue: no frame is drawn before the previous one is written, but the enter and leave
/// sequences, the bell and the clipboard may come between.
const QUEUE: usize = 8;

/// Handle of the writer thread.
pub(super) struct TerminalWriter {
    frames: SyncSender<Vec<u8>>,
    /// Number of frames that are not written yet.
    waiting: watch::Sender<usize>,
    /// Write time of the last frame, in microseconds.
    took: Arc<AtomicU64>,
}

impl TerminalWriter {
    /// Starts the thread. Once the terminal is restored, frames that still wait are discarded.
    pub(super) fn spawn_writer(line: Arc<TtyDevice>) -> io::Result<Self> {
        let (frames, queued_frames) = mpsc::sync_channel::<Vec<u8>>(QUEUE);
        let (waiting, _) = watch::channel(0);
        let (written, took) = (waiting.clone(), Arc::new(AtomicU64::new(0)));
        let spent = Arc::clone(&took);
        thread::Builder::new().name("terminal".into()).spawn(move || {
            for frame in queued_frames {
                let begun = Instant::now();
                line.write_frame(&frame);
                spent.store(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
                written.send_modify(|waiting| *waiting -= 1);
            }
        })?;
        Ok(Self { frames, waiting, took })
    }

    /// Queues a frame. If the queue is full because the terminal does not read, the frame is dropped: the caller must
    /// not block.
    pub(super) fn queue_frame(&self, frame: Vec<u8>) -> io::Result<()> {
        self.waiting.send_modify(|waiting| *waiting += 1);
        match self.frames.try_send(frame) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => {
                self.waiting.send_modify(|waiting| *waiting -= 1);
                Ok(())
            }
            Err(TrySendError::Disconnected(_)) => {
                Err(io::Error::other("the terminal writer thread has ended"))
            }
        }
    }

    /// Returns the write time of the last frame.
    pub(super) fn last_write_duration(&self) -> Duration {
        Duration::from_micros(self.took.load(Ordering::Relaxed))
    }

    /// Returns whether all frames are written.
    pub(super) fn is_idle(&self) -> bool {
        *self.waiting.borrow() == 0
    }

    /// Waits until all frames are written.
    pub(super) async fn wait_until_idle(&self) {
        let mut waiting = self.waiting.subscribe();
        // `self` holds the sender, so it cannot be dropped.
        let _ = waiting.wait_for(|waiting| *waiting == 0).await;
    }

    /// Waits for the last frame, with a timeout.
    pub(super) fn flush_with_timeout(&self) {
        let deadline = Instant::now() + SETTLE;
        while !self.is_idle() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
