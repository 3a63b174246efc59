//! Reads of files under a deadline: a network file system that is away never answers.
//!
//! A call that blocks in the kernel cannot be cancelled: its thread waits on, and nobody waits for the thread.

use std::{io, time::Duration};

use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{Instant, timeout_at},
};

/// The deadline of a read. A busy network file system answers within a second.
pub const READ_DEADLINE: Duration = Duration::from_secs(5);

/// A read that is repeated. While one does not return, no other is started: a file that never answers costs one thread.
#[derive(Debug)]
pub struct RepeatedRead<T> {
    running: Option<JoinHandle<T>>,
}

impl<T> Default for RepeatedRead<T> {
    fn default() -> Self {
        Self { running: None }
    }
}

impl<T: Send + 'static> RepeatedRead<T> {
    /// Starts a read on a thread that may block, unless one is still running.
    pub fn start_read(&mut self, read: impl FnOnce() -> T + Send + 'static) {
        self.running.get_or_insert_with(|| spawn_blocking(read));
    }

    /// The result of the read that was started, or an error at this time; the read then runs on.
    pub async fn wait_until(&mut self, deadline: Instant) -> io::Result<T> {
        let Some(running) = &mut self.running else {
            return Err(io::Error::other("no read was started"));
        };
        let Ok(result) = timeout_at(deadline, running).await else {
            let limit = READ_DEADLINE.as_secs();
            return Err(io::Error::other(format!(
                "its file system does not answer within {limit} s"
            )));
        };
        self.running = None;
        result.map_err(|error| {
            tracing::error!(%error, "reading a file ended unexpectedly");
            io::Error::other("reading it ended unexpectedly; see the log")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    #[tokio::test]
    async fn read_that_hangs_is_waited_for_by_one_thread_only() {
        let (gate, mut reads) = (Arc::new(Barrier::new(2)), RepeatedRead::default());
        let blocked = gate.clone();
        reads.start_read(move || {
            blocked.wait();
            "the first"
        });
        for _ in 0..3 {
            let error = reads.wait_until(Instant::now()).await.unwrap_err().to_string();
            assert_eq!(error, "its file system does not answer within 5 s");
            reads.start_read(|| "another");
        }
        gate.wait();
        let far = Instant::now() + Duration::from_mins(1);
        assert_eq!(reads.wait_until(far).await.unwrap(), "the first");
        reads.start_read(|| "another");
        assert_eq!(reads.wait_until(far).await.unwrap(), "another");
        assert!(reads.wait_until(far).await.is_err(), "nothing was started");
    }
}
