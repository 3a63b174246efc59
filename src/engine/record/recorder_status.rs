//! Recorder status: counted by the recorder thread, sent to the engine by the recording inbox.

use std::{
    io::{self, ErrorKind},
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use gaunt_schema::{RecordingStatus, RecordingStop, RecordingStopReason, SanitizedText, UnixMs};
use tokio::time::Instant;

/// The longest time for which a disk may not answer without a word. The thread comes back once a second, or waits for up to
/// 10 s for a preamble.
const ANSWERS_WITHIN: Duration = Duration::from_secs(15);

/// How long it is reported that deliveries are missing because the disk was behind.
const REPORTED_FOR: Duration = Duration::from_mins(1);

/// Status of a recording.
#[derive(Debug, Default)]
pub struct RecorderStatus {
    folder: SanitizedText,
    /// Entries written.
    pub written: AtomicU64,
    /// Bytes written.
    pub bytes: AtomicU64,
    /// Entries dropped because the disk was behind.
    pub behind: AtomicU64,
    /// Entries dropped because writing failed.
    pub missed: AtomicU64,
    /// When the thread last did something else than wait for the disk.
    alive: Mutex<Option<Instant>>,
    stopped: Mutex<Option<(RecordingStop, SanitizedText)>>,
}

impl RecorderStatus {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: SanitizedText::new(&folder.to_string_lossy()), ..Self::default() }
    }

    /// Dropped entries, for any reason.
    pub fn dropped_entries(&self) -> u64 {
        self.behind.load(Ordering::Relaxed) + self.missed.load(Ordering::Relaxed)
    }

    /// Why writing fails now, if it does.
    pub fn stop_reason(&self) -> Option<RecordingStopReason> {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        stopped.as_ref().map(|(stopped, _)| stopped.reason)
    }

    /// Records that the thread does not wait for the disk now.
    pub(super) fn record_alive(&self) {
        *self.alive.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether a call of the disk has not returned for long.
    fn is_hung(&self) -> bool {
        let alive = *self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        alive.is_some_and(|alive| alive.elapsed() > ANSWERS_WITHIN)
    }

    /// Records that writing fails since now; logged once.
    pub(super) fn record_stop(&self, error: &io::Error, at: UnixMs) {
        let reason = reason_of_error(error);
        let why = SanitizedText::new(&format!(
            "recording stopped: cannot write to {}: {error}; {}",
            self.folder,
            next(reason)
        ));
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let since = stopped.as_ref().map_or(at, |(stopped, _)| stopped.since);
        let before = stopped.replace((RecordingStop { reason, since }, why.clone()));
        if before.is_none_or(|(before, _)| before.reason != reason) {
            tracing::error!("{why}; everything else continues");
        }
    }

    /// Records that writing works again.
    pub(super) fn record_resume(&self) {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner).take();
        if stopped.is_some() {
            let missing = self.missed.load(Ordering::Relaxed);
            tracing::info!(folder = %self.folder, missing, "recording resumed");
        }
    }

    fn to_recording_status(&self) -> RecordingStatus {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (stopped, trouble) = stopped.unzip();
        RecordingStatus {
            folder: self.folder.clone(),
            written: self.written.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            dropped_behind: self.behind.load(Ordering::Relaxed),
            dropped_stopped: self.missed.load(Ordering::Relaxed),
            stopped,
            trouble,
        }
    }
}

/// Reports the status of a recording when it changes.
#[derive(Debug, Default)]
pub(super) struct RecorderStatusReporter {
    last_status: Option<RecordingStatus>,
    /// When deliveries were last dropped because the disk was behind.
    behind: Option<UnixMs>,
    /// Whether the disk hung at the last report.
    was_hung: bool,
}

impl RecorderStatusReporter {
    /// The current status, unless it was reported before.
    pub(super) fn changed_status(
        &mut self,
        status: &RecorderStatus,
        now: UnixMs,
    ) -> Option<RecordingStatus> {
        let mut current = status.to_recording_status();
        let before = self.last_status.as_ref().map_or(0, |last| last.dropped_behind);
        if current.dropped_behind > before {
            if self.behind.is_none() {
                tracing::warn!(
                    folder = %current.folder,
                    missing = current.dropped_behind,
                    "recording is behind: the disk is too slow, batches are dropped"
                );
            }
            self.behind = Some(now);
        }
        self.behind = self.behind.filter(|seen| now.duration_since(*seen) <= REPORTED_FOR);
        if self.behind.is_some() && current.trouble.is_none() {
            current.trouble = Some(SanitizedText::new(&format!(
                "recording is behind: {} batches are missing in {}; record to a faster disk, or \
                 record less",
                current.dropped_behind, current.folder
            )));
        }
        let is_hung = status.is_hung();
        if is_hung {
            let limit = ANSWERS_WITHIN.as_secs();
            let why = SanitizedText::new(&format!(
                "recording waits: {} does not answer within {limit} s; check its disk or file system",
                current.folder
            ));
            if !self.was_hung {
                tracing::error!("{why}; everything else continues");
            }
            current.trouble = Some(why);
        }
        self.was_hung = is_hung;
        if self.last_status.as_ref() == Some(&current) {
            return None;
        }
        self.last_status = Some(current.clone());
        Some(current)
    }
}

/// The stop reason of a disk error.
fn reason_of_error(error: &io::Error) -> RecordingStopReason {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => RecordingStopReason::NoSpace,
        ErrorKind::FileTooLarge => RecordingStopReason::TooLarge,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            RecordingStopReason::NoPermission
        }
        _ => RecordingStopReason::Error,
    }
}

/// The next step for a stop reason.
const fn next(reason: RecordingStopReason) -> &'static str {
    match reason {
        RecordingStopReason::NoSpace => "free disk space, or lower record.max_size",
        RecordingStopReason::TooLarge => "raise the limit of file sizes (ulimit -f, LimitFSIZE=)",
        RecordingStopReason::NoPermission => "give this user write permission",
        RecordingStopReason::Error => "check the disk",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_reported_until_space_is_free() {
        let (status, mut reporter) =
            (RecorderStatus::new(Path::new("/rec")), RecorderStatusReporter::default());
        let mut next_status = |now| reporter.changed_status(&status, UnixMs(now));
        assert_eq!(next_status(0).unwrap().folder, "/rec");
        assert_eq!(next_status(0), None, "nothing is new");
        let full = io::Error::from(ErrorKind::StorageFull);
        status.record_stop(&full, UnixMs(5));
        status.record_stop(&full, UnixMs(9));
        let changed = next_status(9).unwrap();
        assert_eq!(
            changed.stopped,
            Some(RecordingStop { reason: RecordingStopReason::NoSpace, since: UnixMs(5) })
        );
        let trouble = changed.trouble.unwrap();
        assert!(trouble.starts_with("recording stopped: cannot write to /rec: "), "{trouble}");
        assert!(trouble.ends_with("; free disk space, or lower record.max_size"), "{trouble}");
        status.record_resume();
        let changed = next_status(10).unwrap();
        assert_eq!((changed.stopped, changed.trouble), (None, None));
    }

    #[test]
    fn disk_that_does_not_answer_is_reported_until_it_does() {
        let (status, mut reporter) =
            (RecorderStatus::new(Path::new("/rec")), RecorderStatusReporter::default());
        let mut next_status = |alive: Instant| {
            *status.alive.lock().unwrap() = Some(alive);
            reporter.changed_status(&status, UnixMs(0))
        };
        let now = Instant::now();
        assert_eq!(next_status(now).unwrap().trouble, None);
        let trouble = next_status(now - ANSWERS_WITHIN).unwrap().trouble.unwrap();
        let expected =
            "recording waits: /rec does not answer within 15 s; check its disk or file system";
        assert_eq!(trouble, expected);
        assert_eq!(next_status(now - ANSWERS_WITHIN), None, "it is said once");
        assert_eq!(next_status(Instant::now()).unwrap().trouble, None);
    }

    #[test]
    fn dropped_batches_are_reported_for_a_minute() {
        let (status, mut reporter) =
            (RecorderStatus::new(Path::new("/rec")), RecorderStatusReporter::default());
        let mut next_status = |now| reporter.changed_status(&status, UnixMs(now));
        next_status(0);
        status.behind.store(7, Ordering::Relaxed);
        let trouble = next_status(1_000).unwrap().trouble.unwrap();
        assert!(trouble.contains("7 batches are missing in /rec"), "{trouble}");
        assert_eq!(next_status(60_000), None);
        assert_eq!(next_status(62_000).unwrap().trouble, None);
    }

    #[test]
    fn disk_error_has_a_stop_reason() {
        for (kind, reason) in [
            (ErrorKind::QuotaExceeded, RecordingStopReason::NoSpace),
            (ErrorKind::FileTooLarge, RecordingStopReason::TooLarge),
            (ErrorKind::ReadOnlyFilesystem, RecordingStopReason::NoPermission),
            (ErrorKind::TimedOut, RecordingStopReason::Error),
        ] {
            assert_eq!(reason_of_error(&kind.into()), reason);
        }
    }
}
