//! Reads of files on a thread of their own: a network file system that is away never answers, and nobody waits for it
//! longer than a deadline.
//!
//! A call that blocks in the kernel cannot be cancelled: its thread waits on.

use std::{
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

/// The deadline of a read at a start. A busy network file system answers within a second.
pub const READ_DEADLINE: Duration = Duration::from_secs(5);

/// A read that runs on its own thread.
#[derive(Debug)]
pub struct ThreadRead<T>(Receiver<T>);

impl<T: Send + 'static> ThreadRead<T> {
    /// Starts a read.
    pub fn start_read(read: impl FnOnce() -> T + Send + 'static) -> io::Result<Self> {
        let (sender, result) = sync_channel(1);
        // Nobody may wait for the result any more.
        let run = move || drop(sender.send(read()));
        thread::Builder::new().name("file-read".to_owned()).spawn(run)?;
        Ok(Self(result))
    }

    /// Waits for the result, at most this long; none while the read runs.
    pub fn wait_for(&self, time: Duration) -> Option<io::Result<T>> {
        match self.0.recv_timeout(time) {
            Ok(result) => Some(Ok(result)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(Err(io::Error::other("reading it ended unexpectedly; see the log")))
            }
        }
    }
}

/// Reads under a deadline, for which the calling thread waits.
pub fn read_on_thread<T: Send + 'static>(
    deadline: Duration,
    read: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let result = ThreadRead::start_read(read)?.wait_for(deadline);
    result.unwrap_or_else(|| Err(no_answer(deadline)))
}

/// The error of a file that does not answer.
pub(crate) fn no_answer(deadline: Duration) -> io::Error {
    let seconds = deadline.as_secs_f64();
    io::Error::other(format!("its file system does not answer within {seconds} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_that_hangs_is_not_waited_for() {
        let (gate, blocked) = sync_channel::<()>(0);
        let hangs = move || blocked.recv().is_ok();
        let error = read_on_thread(Duration::from_millis(20), hangs).unwrap_err().to_string();
        assert_eq!(error, "its file system does not answer within 0.02 s");
        drop(gate);
        assert_eq!(read_on_thread(Duration::from_mins(1), || 7).unwrap(), 7);
        let panics = || assert!(!std::hint::black_box(true), "a deliberate panic");
        let error = read_on_thread(Duration::from_mins(1), panics).unwrap_err().to_string();
        assert_eq!(error, "reading it ended unexpectedly; see the log");
    }
}
