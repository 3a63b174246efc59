//! One worker process: how it is started and listened to, and how to tell that it hangs.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{SyncSender, TrySendError},
    thread,
    time::{Duration, Instant},
};

use gaunt_schema::Safe;

use crate::nvml::{
    call::{Call, Calling},
    pipe::{self, Message, PipeError},
};

/// A slow call is told again every quarter of a second; one that was not for this long is over.
const CALLING_HOLDS: Duration = Duration::from_millis(1500);

/// The most that is logged of what the driver library writes to standard error, in bytes and for each worker.
const MAX_STDERR: u64 = 64 * 1024;

/// One worker process.
pub(super) struct Worker {
    /// Its number, never used twice.
    pub(super) number: u64,
    /// The process, with the input whose end asks it to stop.
    pub(super) child: Child,
    /// When it last got something done: started, initialised, finished a round.
    pub(super) progress: Instant,
    /// The driver call that it last called slow, and when it said so.
    pub(super) calling: Option<(Calling, Instant)>,
    /// How far it has come.
    pub(super) stage: Stage,
    /// Since when it hangs.
    pub(super) hangs: Option<Instant>,
    /// Whether it was asked to stop.
    pub(super) retired: bool,
    /// Whether its pipe ended.
    pub(super) gone: bool,
}

/// How far a worker has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The driver is being initialised.
    Starting,
    /// The driver is there.
    Ready,
    /// A round is finished.
    Ticking,
}

/// Something that a worker's pipe brought.
pub(super) struct Event {
    /// Whose pipe.
    pub(super) worker: u64,
    /// When it was heard.
    pub(super) at: Instant,
    /// What it was; an error is the last.
    pub(super) what: Result<Message, PipeError>,
}

impl Worker {
    /// Starts a worker, and the threads that listen to it.
    pub(super) fn spawn(
        number: u64,
        program: &Path,
        arguments: &[OsString],
        tell: &SyncSender<Event>,
        now: Instant,
    ) -> io::Result<Self> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let tell = tell.clone();
        thread::Builder::new()
            .name("nvml-pipe".to_owned())
            .spawn(move || stdout.map(|stdout| listen(number, stdout, &tell)))?;
        thread::Builder::new()
            .name("nvml-stderr".to_owned())
            .spawn(move || stderr.map(|stderr| log(number, stderr)))?;
        Ok(Self {
            number,
            child,
            progress: now,
            calling: None,
            stage: Stage::Starting,
            hangs: None,
            retired: false,
            gone: false,
        })
    }

    /// Whether it has finished a round.
    pub(super) fn ticks(&self) -> bool {
        self.stage == Stage::Ticking
    }

    /// The slow call that is still under way, with its time up to now.
    pub(super) fn calling_at(&self, now: Instant) -> Option<Calling> {
        let (calling, told) = self.calling?;
        let since = now.saturating_duration_since(told);
        let millis = calling.millis + since.as_millis() as u64;
        (since < CALLING_HOLDS).then_some(Calling { millis, ..calling })
    }

    /// Whether it hangs: a call that does not return, or no progress where there should be.
    pub(super) fn hangs_at(
        &self,
        now: Instant,
        period: Duration,
        call: Duration,
        init: Duration,
    ) -> bool {
        let idle = now.saturating_duration_since(self.progress);
        let limit = if self.stage == Stage::Starting { init } else { period + call };
        let calling = self.calling_at(now).is_some_and(|calling| {
            let limit = if calling.call == Call::Init { init } else { call };
            u128::from(calling.millis) >= limit.as_millis()
        });
        calling || idle > limit
    }
}

/// Passes on what a worker says until its pipe ends. A slow call is said again a moment later, so that it never holds up
/// what comes after it.
fn listen(worker: u64, mut pipe: impl Read, tell: &SyncSender<Event>) {
    let mut buffer = Vec::new();
    loop {
        let what = pipe::read(&mut pipe, &mut buffer);
        let ended = what.is_err();
        let repeated = matches!(what, Ok(Message::Calling(_)));
        let event = Event { worker, at: Instant::now(), what };
        let closed = if repeated {
            matches!(tell.try_send(event), Err(TrySendError::Disconnected(_)))
        } else {
            tell.send(event).is_err()
        };
        if closed || ended {
            return;
        }
    }
}

/// Logs what the driver library writes to standard error, which on a screen of ours would be in the way.
fn log(worker: u64, stderr: impl Read) {
    let mut lines = BufReader::new(stderr.take(MAX_STDERR));
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        let text = Safe::new(String::from_utf8_lossy(&line).trim_end());
        if !text.is_empty() {
            tracing::warn!(worker, %text, "the NVML library says");
        }
        line.clear();
    }
    // What exceeds the limit is read and dropped, so that the library never waits for us.
    _ = io::copy(&mut lines.into_inner().into_inner(), &mut io::sink());
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn slow_calls_never_hold_up_what_is_said_after_them() {
        let mut said = Vec::new();
        let calling = Calling { call: Call::PowerUsage, gpu: Some(0), millis: 500 };
        for _ in 0..10_000 {
            pipe::write(&Message::Calling(calling), &mut said).unwrap();
        }
        let xids = Message::Xids { counts: Vec::new() };
        pipe::write(&xids, &mut said).unwrap();
        let (tell, hear) = sync_channel(8);
        let listening = thread::spawn(move || listen(1, &*said, &tell));
        let heard: Vec<_> = hear.iter().map(|event| event.what).collect();
        listening.join().unwrap();
        assert!(heard.iter().any(|what| matches!(what, Ok(Message::Xids { .. }))));
        assert!(matches!(heard.last(), Some(Err(PipeError::Io(_)))));
    }
}
