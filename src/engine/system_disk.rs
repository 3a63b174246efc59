//! The disk of this machine.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
    sync::Arc,
    time::UNIX_EPOCH,
};

use gaunt_schema::{
    UnixMs,
    disk::{Disk, DiskFile},
};

use crate::{private_files, regular_file};

/// The disk of this machine.
pub fn system_disk() -> Arc<dyn Disk> {
    Arc::new(SystemDisk)
}

#[derive(Clone, Copy, Debug)]
struct SystemDisk;

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

    fn list_files(&self, folder: &Path) -> io::Result<Vec<DiskFile>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let meta = match fs::metadata(&path) {
                Ok(meta) if !meta.is_dir() => meta,
                // It was removed meanwhile, or is a link that leads nowhere.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => continue,
            };
            let written = meta.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            files.push(DiskFile { path, bytes: meta.len(), modified: UnixMs(0) + written });
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }

    fn read_file(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        regular_file::read_regular_file(path, limit)
    }

    fn has_file(&self, path: &Path) -> bool {
        path.exists()
    }

    fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        private_files::open_replaced(path)?.write_all(bytes)
    }

    fn create_file(&self, path: &Path) -> io::Result<()> {
        private_files::open_new(path).map(drop)
    }

    fn append_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // Opening it again costs 3 µs of a processor; a recording has a block a second, or one for each MiB.
        private_files::open_end(path)?.write_all(bytes)
    }

    fn truncate_file(&self, path: &Path, bytes: u64) -> io::Result<()> {
        private_files::open_end(path)?.set_len(bytes)
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
