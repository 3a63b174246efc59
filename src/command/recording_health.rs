//! Whether a recording is complete: what is damaged is named, and makes the exit code that of partial data.

use std::process::ExitCode;

use gaunt_engine::record::Recording;

use super::FAILED;

/// Reports damage and an unfinished end; returns the exit code of a command that reads the whole recording.
pub(super) fn report_recording_health(recording: &Recording) -> ExitCode {
    if recording.unfinished_bytes() > 0 {
        tracing::warn!(
            bytes = recording.unfinished_bytes(),
            "the recording was not ended properly: its last block is unfinished and is skipped"
        );
    }
    let damaged = recording.damaged_segments();
    for (path, bytes) in damaged {
        tracing::error!(
            "partial data: {bytes} bytes of {} are damaged and skipped; check the disk",
            path.display()
        );
    }
    if damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
}
