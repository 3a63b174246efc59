//! The disk as an argument: whole files and files that grow, and when they are safe from a loss of power. No I/O.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use crate::UnixMs;

/// A file of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFile {
    /// Its path.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was last written, by the clock of its file system.
    pub modified: UnixMs,
}

/// A disk. What is written, renamed or removed may be lost with the power until it is synchronised. Created files and
/// folders are for their owner only, and no file is created or written through a link.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Creates a folder and those above it; existing ones keep their mode.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Locks a folder by the file at `lock` until the returned value is dropped; none if another process has it locked.
    fn lock_folder(&self, lock: &Path) -> io::Result<Option<Box<dyn fmt::Debug + Send + Sync>>>;

    /// The files of a folder, without folders in it, sorted by path.
    fn list_files(&self, folder: &Path) -> io::Result<Vec<DiskFile>>;

    /// The content of a regular file of at most `limit` bytes; of another file it is an error, which comes at once.
    fn read_file(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>>;

    /// Whether there is anything at `path`.
    fn has_file(&self, path: &Path) -> bool;

    /// Creates or replaces a file. Of a failed one a part may be written.
    fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Creates an empty file, which must not exist.
    fn create_file(&self, path: &Path) -> io::Result<()>;

    /// Appends to a file, which must exist. If it fails, a part may be written.
    fn append_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Cuts a file off after so many bytes.
    fn truncate_file(&self, path: &Path, bytes: u64) -> io::Result<()>;

    /// Makes the content of a file safe.
    fn sync_file(&self, path: &Path) -> io::Result<()>;

    /// Renames a file; one of the new name is replaced.
    fn rename_file(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Makes the names of the files in a folder safe.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}
