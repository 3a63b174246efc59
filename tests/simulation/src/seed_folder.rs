//! The folder of a seed's files. Its path is in what an aggregator saves, and depends on the seed alone: another run of the
//! seed, in this process or another one, waits until it is removed.

use std::{
    env,
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Files that change every second cost less in memory than on a disk.
const MEMORY_FOLDER: &str = "/dev/shm";

/// A folder, which is removed at the end of the run.
#[derive(Debug)]
pub(crate) struct SeedFolder {
    path: PathBuf,
    /// It is locked as long as this is open.
    _lock: File,
}

impl SeedFolder {
    /// The empty folder of this seed.
    pub(crate) fn create(seed: u64) -> io::Result<Self> {
        let memory = Path::new(MEMORY_FOLDER);
        let parent = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
        Self::create_at(parent.join(format!("gaunt-seed-{seed}")))
    }

    fn create_at(path: PathBuf) -> io::Result<Self> {
        loop {
            match fs::create_dir_all(&path) {
                // It was there, and another run has removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                created => created?,
            }
            let Some(lock) = lock_folder(&path)? else { continue };
            // A run that was killed has left its files.
            for entry in fs::read_dir(&path)? {
                fs::remove_file(entry?.path())?;
            }
            return Ok(Self { path, _lock: lock });
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SeedFolder {
    fn drop(&mut self) {
        // What is left is removed by the next run.
        _ = fs::remove_dir_all(&self.path);
    }
}

/// Waits for the lock of a folder; none if it was removed meanwhile.
fn lock_folder(path: &Path) -> io::Result<Option<File>> {
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let folder = match File::open(path) {
        Err(error) if is_gone(&error) => return Ok(None),
        opened => opened?,
    };
    folder.lock()?;
    let locked = folder.metadata()?;
    match fs::metadata(path) {
        Err(error) if is_gone(&error) => Ok(None),
        found => {
            let found = found?;
            let is_same = (found.dev(), found.ino()) == (locked.dev(), locked.ino());
            Ok(is_same.then_some(folder))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn runs_of_one_seed_have_its_folder_one_after_the_other() {
        let parent = tempfile::tempdir().unwrap();
        let (path, inside) = (parent.path().join("seed"), AtomicUsize::new(0));
        // A run that was killed has left a file.
        fs::create_dir(&path).unwrap();
        fs::write(path.join("left"), "").unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let folder = SeedFolder::create_at(path.clone()).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
                        fs::write(folder.path().join("file"), "").unwrap();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(!path.exists());
    }
}
