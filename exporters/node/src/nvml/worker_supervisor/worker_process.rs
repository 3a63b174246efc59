//! One worker process: how it is started, how its messages are read, and how a hang is detected.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{SyncSender, TrySendError},
    thread,
    time::{Duration, Instant},
};

use gaunt_schema::SanitizedText;

use crate::nvml::{
    driver_call::{Call, OngoingCall},
    worker_pipe::{self, PipeError, WorkerMessage},
};

/// A slow call is reported every quarter of a second; one without a report for this long is over.
const CALLING_HOLDS: Duration = Duration::from_millis(1500);

/// The most of a worker's standard error that is logged, in bytes.
const MAX_STDERR: u64 = 64 * 1024;

/// One worker process.
pub(super) struct WorkerProcess {
    /// Its number, never used twice.
    pub(super) number: u64,
    /// The process; closing its standard input asks it to stop.
    pub(super) child: Child,
    /// Its last progress: started, initialised, finished a round.
    pub(super) progress: Instant,
    /// The slow call that it last reported, and when.
    pub(super) slow_call: Option<(OngoingCall, Instant)>,
    /// Its stage.
    pub(super) stage: WorkerStage,
    /// Since when it hangs.
    pub(super) hung_since: Option<Instant>,
    /// Whether it was asked to stop.
    pub(super) retired: bool,
    /// Whether its pipe ended.
    pub(super) gone: bool,
}

/// The stage of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorkerStage {
    /// The driver is being initialised.
    Starting,
    /// The driver is initialised.
    Ready,
    /// A round is finished.
    Ticking,
}

/// An event of a worker's pipe.
pub(super) struct WorkerPipeEvent {
    /// The worker.
    pub(super) worker: u64,
    /// When it arrived.
    pub(super) at: Instant,
    /// The message; an error is the last event.
    pub(super) message: Result<WorkerMessage, PipeError>,
}

impl WorkerProcess {
    /// Starts a worker, and the threads that read its output.
    pub(super) fn spawn_worker(
        number: u64,
        program: &Path,
        arguments: &[OsString],
        event_sender: &SyncSender<WorkerPipeEvent>,
        now: Instant,
    ) -> io::Result<Self> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let event_sender = event_sender.clone();
        thread::Builder::new()
            .name("nvml-pipe".to_owned())
            .spawn(move || stdout.map(|stdout| forward_messages(number, stdout, &event_sender)))?;
        thread::Builder::new()
            .name("nvml-stderr".to_owned())
            .spawn(move || stderr.map(|stderr| log_stderr(number, stderr)))?;
        Ok(Self {
            number,
            child,
            progress: now,
            slow_call: None,
            stage: WorkerStage::Starting,
            hung_since: None,
            retired: false,
            gone: false,
        })
    }

    /// Whether it has finished a round.
    pub(super) fn has_ticked(&self) -> bool {
        self.stage == WorkerStage::Ticking
    }

    /// The slow call in progress, with its time up to now.
    pub(super) fn ongoing_call_at(&self, now: Instant) -> Option<OngoingCall> {
        let (call, reported_at) = self.slow_call?;
        let elapsed = now.saturating_duration_since(reported_at);
        let millis = call.millis + elapsed.as_millis() as u64;
        (elapsed < CALLING_HOLDS).then_some(OngoingCall { millis, ..call })
    }

    /// Whether it hangs: a call that does not return, or no progress where there should be.
    pub(super) fn is_hung_at(
        &self,
        now: Instant,
        period: Duration,
        call: Duration,
        init: Duration,
    ) -> bool {
        let idle = now.saturating_duration_since(self.progress);
        let limit = if self.stage == WorkerStage::Starting { init } else { period + call };
        let hangs = self.ongoing_call_at(now).is_some_and(|hangs| {
            let limit = if hangs.call == Call::Init { init } else { call };
            u128::from(hangs.millis) >= limit.as_millis()
        });
        hangs || idle > limit
    }
}

/// Forwards the messages of a worker until its pipe ends. A slow call is reported again shortly after, so it never
/// blocks later messages.
fn forward_messages(worker: u64, mut pipe: impl Read, event_sender: &SyncSender<WorkerPipeEvent>) {
    let mut buffer = Vec::new();
    loop {
        let what = worker_pipe::read_message(&mut pipe, &mut buffer);
        let ended = what.is_err();
        let repeated = matches!(what, Ok(WorkerMessage::Calling(_)));
        let event = WorkerPipeEvent { worker, at: Instant::now(), message: what };
        let closed = if repeated {
            matches!(event_sender.try_send(event), Err(TrySendError::Disconnected(_)))
        } else {
            event_sender.send(event).is_err()
        };
        if closed || ended {
            return;
        }
    }
}

/// Logs the driver library's standard error, which would disturb a terminal UI.
fn log_stderr(worker: u64, stderr: impl Read) {
    let mut lines = BufReader::new(stderr.take(MAX_STDERR));
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        let text = SanitizedText::new(String::from_utf8_lossy(&line).trim_end());
        if !text.is_empty() {
            tracing::warn!(worker, %text, "message of the NVML library");
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
    fn slow_call_messages_never_block_later_messages() {
        let mut pipe = Vec::new();
        let slow_call = OngoingCall { call: Call::PowerUsage, gpu: Some(0), millis: 500 };
        for _ in 0..10_000 {
            worker_pipe::write_message(&WorkerMessage::Calling(slow_call), &mut pipe).unwrap();
        }
        let xids = WorkerMessage::Xids { counts: Vec::new() };
        worker_pipe::write_message(&xids, &mut pipe).unwrap();
        let (event_sender, events) = sync_channel(8);
        let listening = thread::spawn(move || forward_messages(1, &*pipe, &event_sender));
        let messages: Vec<_> = events.iter().map(|event| event.message).collect();
        listening.join().unwrap();
        assert!(messages.iter().any(|message| matches!(message, Ok(WorkerMessage::Xids { .. }))));
        assert!(matches!(messages.last(), Some(Err(PipeError::Io(_)))));
    }
}
