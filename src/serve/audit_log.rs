//! The audit log: who acted on which finding, when and how it ended, one line of JSON for each action.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{SanitizedText, UnixMs};
use rustix::fs::OFlags;
use serde::Serialize;
use tokio::task::spawn_blocking;

/// The size at which the file is renamed to `FILE.1`, in place of the one before: about 200,000 actions.
const LARGEST_FILE: u64 = 64 << 20;

/// Where actions are logged, besides the program's log; nowhere without a file.
#[derive(Clone, Debug, Default)]
pub(super) struct AuditLog(Option<Arc<AuditFile>>);

/// The file. It is opened for each line, so that logrotate may rename it at any time.
#[derive(Debug)]
struct AuditFile {
    path: PathBuf,
    /// One line at a time, also while the file is renamed.
    turn: Mutex<()>,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the audit log {}: {error}; check the path and its permissions", path.display())]
pub struct AuditLogError {
    path: PathBuf,
    error: io::Error,
}

/// One action or its refusal.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AuditEntry {
    /// What was asked for: `acknowledge`, `accept`, `withdraw`, or `unknown` where the token was missing or wrong.
    pub(super) action: &'static str,
    /// How it ended: `done`, or why it was refused, as in the API's `refused`.
    pub(super) outcome: String,
    /// The id of the finding.
    pub(super) finding: SanitizedText,
    /// The user: as the proxy authenticated it, else as the client gave it.
    pub(super) by: SanitizedText,
    /// The user's note.
    pub(super) note: SanitizedText,
    /// The name of the client's token, or the user of the proxy; empty if it was not recognised.
    pub(super) client: SanitizedText,
    /// The address of the client.
    pub(super) peer: String,
}

/// An entry with its time.
#[derive(Serialize)]
struct AuditLine<'a> {
    time: String,
    #[serde(flatten)]
    entry: &'a AuditEntry,
}

impl AuditLog {
    /// Logs to this file. It must be writable now.
    pub(super) fn to_file(path: &Path) -> Result<Self, AuditLogError> {
        let file = AuditFile { path: path.to_owned(), turn: Mutex::default() };
        file.append_line("").map_err(|error| AuditLogError { path: path.to_owned(), error })?;
        Ok(Self(Some(Arc::new(file))))
    }

    /// Writes an entry. A failure is logged, and does not undo the action.
    pub(super) async fn write_entry(&self, entry: AuditEntry) {
        let Some(file) = self.0.clone() else { return };
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = UnixMs(i64::try_from(at.as_millis()).unwrap_or(i64::MAX)).to_rfc3339();
        let written = spawn_blocking(move || {
            let mut line = serde_json::to_string(&AuditLine { time, entry: &entry })?;
            line.push('\n');
            file.append_line(&line)
                .map_err(|error| io::Error::other(format!("{}: {error}", file.path.display())))
        });
        match written.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "cannot write the audit log; check the disk"),
            Err(error) => tracing::error!(%error, "writing the audit log ended unexpectedly"),
        }
    }
}

impl AuditFile {
    fn append_line(&self, line: &str) -> io::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if fs::metadata(&self.path).is_ok_and(|metadata| metadata.len() >= LARGEST_FILE) {
            let mut previous = self.path.clone().into_os_string();
            previous.push(".1");
            fs::rename(&self.path, previous)?;
        }
        // A link is not followed: in a folder that others may write to, it could lead to any file.
        let no_follow = OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(no_follow)
            .open(&self.path);
        file?.write_all(line.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn sample_entry(note: &str) -> AuditEntry {
        AuditEntry {
            action: "acknowledge",
            outcome: "done".to_owned(),
            finding: "port_down/gpu001/mlx5_0/1".into(),
            by: "alice".into(),
            note: SanitizedText::new(note),
            client: "oncall".into(),
            peer: "10.0.0.7:51000".to_owned(),
        }
    }

    #[tokio::test]
    async fn each_action_is_one_line_of_json() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let log = AuditLog::to_file(&path).unwrap();
        log.write_entry(sample_entry("cable\nordered \"today\"")).await;
        fs::rename(&path, folder.path().join("rotated")).unwrap();
        log.write_entry(sample_entry("")).await;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(folder.path().join("rotated")).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["action"], &line["by"]), (&"acknowledge".into(), &"alice".into()));
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
        assert_eq!(line["note"], "cable\u{fffd}ordered \"today\"");
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1, "opened again");
    }

    #[tokio::test]
    async fn large_file_is_renamed_and_unusable_one_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let log = AuditLog::to_file(&path).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(LARGEST_FILE).unwrap();
        log.write_entry(sample_entry("")).await;
        assert_eq!(fs::metadata(folder.path().join("audit.jsonl.1")).unwrap().len(), LARGEST_FILE);
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
        std::os::unix::fs::symlink(&path, folder.path().join("link")).unwrap();
        assert!(AuditLog::to_file(&folder.path().join("link")).is_err());
        let error = AuditLog::to_file(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("cannot write the audit log "), "{error}");
        AuditLog::default().write_entry(sample_entry("")).await;
    }
}
