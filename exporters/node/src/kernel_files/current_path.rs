//! The path that a thread is currently reading, for the message of a waiting thread about where it hangs.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

thread_local! {
    /// The path record of this thread, if its reads are tracked.
    static HERE: RefCell<Option<CurrentPath>> = const { RefCell::new(None) };
}

/// The path of the file that a thread reads or read last.
#[derive(Clone, Debug, Default)]
pub(crate) struct CurrentPath(Arc<Mutex<PathBuf>>);

impl CurrentPath {
    /// Records the reads of this thread here from now on.
    pub(crate) fn track_this_thread(self) {
        HERE.set(Some(self));
    }

    /// The file that is being read, or was read last; empty before the first.
    pub(crate) fn read_path(&self) -> PathBuf {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Records that this thread is about to read the file at `path`.
pub(crate) fn record_read(path: &Path) {
    HERE.with_borrow(|current| {
        if let Some(current_path) = current {
            path.clone_into(&mut current_path.0.lock().unwrap_or_else(PoisonError::into_inner));
        }
    });
}
