//! The disk as the state store sees it: whole files, and when they are safe from a loss of power.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

use crate::{private_files, regular_file};

/// A disk. What is written, renamed or removed may be lost with the power until it is synchronised.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Creates a folder and those above it.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Locks a folder by the file at `lock` until the returned value is dropped; none if another process has it locked.
    fn lock_folder(&self, lock: &Path) -> io::Result<Option<Box<dyn fmt::Debug + Send + Sync>>>;

    /// The content of a regular file of at most `limit` bytes.
    fn read_file(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>>;

    /// Whether there is anything at `path`.
    fn has_file(&self, path: &Path) -> bool;

    /// Creates or replaces a file that only its owner may read.
    fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Makes the content of a file safe.
    fn sync_file(&self, path: &Path) -> io::Result<()>;

    /// Renames a file; one of the new name is replaced.
    fn rename_file(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Makes the names of the files in a folder safe.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// The disk of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemDisk;

impl Disk for SystemDisk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        private_files::create_folder(folder)
    }

    fn lock_folder(&self, lock: &Path) -> io::Result<Option<Box<dyn fmt::Debug + Send + Sync>>> {
        let file = private_files::open_lock(lock)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn read_file(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        regular_file::read_regular_file(path, limit)
    }

    fn has_file(&self, path: &Path) -> bool {
        path.exists()
    }

    fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        private_files::create_file(path)?.write_all(bytes)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        // Every descriptor of a file synchronises all of it.
        File::open(path)?.sync_all()
    }

    fn rename_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}
