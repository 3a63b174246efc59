//! A disk that loses with the power what was not synchronised, and fails or hangs when it is told to.
//!
//! Names and contents are separate, as in a file system: a name may survive whose content does not. An operation that hangs
//! returns at once here, and what calls it does not run until the hang is over ([`SimulatedDisk::hung_for`]); if the process
//! ends before, neither the operation nor anything after it has happened.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gaunt_schema::{
    UnixMs,
    disk::{Disk, DiskFile},
};
use tokio::time::Instant;

use crate::{
    deliberate_bug::DeliberateBug,
    seeded_random::{SeededRandom, continue_hash},
    simulated_store::FOLDER,
};

/// So many operations that all fail.
pub(crate) const ALL: u64 = u64::MAX;

/// Bytes of a block.
const BLOCK: usize = 512;

/// The disk of one machine; clones are the same disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimulatedDisk(Arc<Mutex<DiskState>>);

#[derive(Debug, Default)]
struct DiskState {
    content: DiskContent,
    /// Operations until one fails, and how many fail from then on; all of them are as if the process ended there.
    fails_in: Option<(u64, u64)>,
    operations: u64,
    failed: u64,
    /// Operations until one hangs, and for how long.
    hangs_in: Option<(u64, Duration)>,
    hang: Option<DiskHang>,
    hangs: u64,
    locked: bool,
    bug: Option<DeliberateBug>,
    /// A hash of all operations, in order, with their contents.
    trace: u64,
}

#[derive(Clone, Debug, Default)]
struct DiskContent {
    /// The file of each name, now and after a loss of power.
    names: BTreeMap<PathBuf, usize>,
    safe_names: BTreeMap<PathBuf, usize>,
    files: Vec<SimulatedFile>,
}

/// An operation that has not returned yet.
#[derive(Clone, Debug)]
struct DiskHang {
    since: Instant,
    until: Instant,
    /// What was there before it.
    before: DiskContent,
}

#[derive(Clone, Debug, Default)]
struct SimulatedFile {
    content: Vec<u8>,
    /// The content after a loss of power; none if it was never synchronised.
    safe_content: Option<Vec<u8>>,
}

/// Unlocks the folder when it is dropped.
struct FolderLock(SimulatedDisk);

impl fmt::Debug for FolderLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FolderLock")
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        self.0.state().locked = false;
    }
}

impl SimulatedDisk {
    /// A disk behind a program with a bug.
    pub(crate) fn with_bug(bug: Option<DeliberateBug>) -> Self {
        let disk = Self::default();
        disk.state().bug = bug;
        disk
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes so many operations fail after `operations` others; [`ALL`] if all fail from then on.
    pub(crate) fn fail_in(&self, operations: u64, count: u64) {
        self.state().fails_in = Some((operations, count));
    }

    /// Makes an operation hang for so long, after `operations` others.
    pub(crate) fn hang_in(&self, operations: u64, lasts: Duration) {
        self.state().hangs_in = Some((operations, lasts));
    }

    /// For how long an operation has not returned; none if none hangs.
    pub(crate) fn hung_for(&self) -> Option<Duration> {
        let mut state = self.state();
        let now = Instant::now();
        state.hang = state.hang.take().filter(|hang| now < hang.until);
        state.hang.as_ref().map(|hang| now - hang.since)
    }

    /// The number of operations that hung so far.
    pub(crate) fn hang_count(&self) -> u64 {
        self.state().hangs
    }

    /// The process ended: an operation that had not returned has not happened.
    pub(crate) fn end_process(&self) {
        let mut state = self.state();
        if let Some(hang) = state.hang.take().filter(|hang| Instant::now() < hang.until) {
            state.content = hang.before;
        }
    }

    /// Ends all failures and hangs.
    pub(crate) fn repair(&self) {
        let mut state = self.state();
        (state.fails_in, state.hangs_in, state.hang) = (None, None, None);
    }

    /// Whether all operations fail from now on.
    pub(crate) fn is_gone(&self) -> bool {
        self.state().fails_in == Some((0, ALL))
    }

    /// The number of failed operations so far.
    pub(crate) fn failure_count(&self) -> u64 {
        self.state().failed
    }

    /// A hash of all operations so far.
    pub(crate) fn trace(&self) -> u64 {
        self.state().trace
    }

    /// The files of a folder, sorted, and their bytes.
    pub(crate) fn files_of(&self, folder: &str) -> (Vec<PathBuf>, u64) {
        let state = self.state();
        let files =
            state.content.names.iter().filter(|(path, _)| path.parent() == Some(folder.as_ref()));
        let bytes =
            files.clone().map(|(_, file)| state.content.files[*file].content.len() as u64).sum();
        (files.map(|(path, _)| path.clone()).collect(), bytes)
    }

    /// The bytes of memory that it takes, without names.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let state = self.state();
        let hung = state.hang.iter().flat_map(|hang| &hang.before.files);
        let bytes = |file: &SimulatedFile| {
            file.content.capacity() + file.safe_content.as_ref().map_or(0, Vec::capacity)
        };
        state.content.files.iter().chain(hung).map(|file| bytes(file) as u64).sum()
    }

    /// The content of a file; empty if it does not exist.
    pub(crate) fn content_of(&self, path: &Path) -> Vec<u8> {
        let mut state = self.state();
        let file = state.find_file(path);
        file.map(|file| state.content.files[file].content.clone()).unwrap_or_default()
    }

    /// Flips a bit of a file at rest; returns the place of its byte.
    pub(crate) fn flip_bit(&self, path: &Path, random: &mut SeededRandom) -> usize {
        let mut content = self.content_of(path);
        let at = random.below(content.len().max(1) as u64) as usize;
        if let Some(byte) = content.get_mut(at) {
            *byte ^= 1 << random.below(8);
        }
        self.replace_content(path, content);
        at
    }

    /// Replaces the content of a file, as another program has done that synchronised it.
    pub(crate) fn replace_content(&self, path: &Path, content: Vec<u8>) {
        let mut state = self.state();
        let Ok(file) = state.find_file(path) else { return };
        state.content.safe_names.insert(path.to_owned(), file);
        state.content.files[file] = SimulatedFile { safe_content: Some(content.clone()), content };
    }

    /// Loses the power: of what was not synchronised any part may survive.
    pub(crate) fn cut_power(&self, random: &mut SeededRandom) {
        let mut state = self.state();
        let state = &mut *state;
        // A journal keeps renames in order: all of them, or none since the last synchronisation.
        if random.once_in(2) {
            state.content.names = state.content.safe_names.clone();
        }
        for file in &mut state.content.files {
            if file.safe_content.as_ref() == Some(&file.content) {
                continue;
            }
            let survives = file.safe_content.clone().unwrap_or_default();
            file.content = match random.below(3) {
                0 => survives,
                1 => {
                    let length = random.below(file.content.len() as u64 + 1) as usize;
                    file.content[..length].to_vec()
                }
                _ => continue,
            };
        }
        for file in &mut state.content.files {
            file.safe_content = Some(file.content.clone());
        }
        state.content.safe_names = state.content.names.clone();
    }
}

impl DiskState {
    /// Counts an operation on a file or folder, with this content if it has one; an error if it fails. A failed one has no
    /// effect.
    fn begin_operation(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.operations += 1;
        self.trace = continue_hash(self.trace, path.as_os_str().as_encoded_bytes());
        self.trace = continue_hash(self.trace, content);
        match &mut self.hangs_in {
            Some((0, lasts)) if self.hang.is_none() => {
                let (since, before) = (Instant::now(), self.content.clone());
                self.hang = Some(DiskHang { since, until: since + *lasts, before });
                self.hangs_in = None;
                self.hangs += 1;
            }
            Some((left, _)) => *left = left.saturating_sub(1),
            None => {}
        }
        match &mut self.fails_in {
            Some((0, count)) => {
                if *count != ALL {
                    *count -= 1;
                    if *count == 0 {
                        self.fails_in = None;
                    }
                }
                self.failed += 1;
                // An error of the disk, or none of its space left.
                let code = if self.operations.is_multiple_of(2) { 5 } else { 28 };
                Err(io::Error::from_raw_os_error(code))
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn find_file(&mut self, path: &Path) -> io::Result<usize> {
        self.content.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// A new file without content under this name.
    fn add_file(&mut self, path: &Path) -> usize {
        self.content.files.push(SimulatedFile::default());
        let file = self.content.files.len() - 1;
        self.content.names.insert(path.to_owned(), file);
        file
    }
}

impl Disk for SimulatedDisk {
    fn create_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock_folder(&self, _: &Path) -> io::Result<Option<Box<dyn fmt::Debug + Send + Sync>>> {
        let was_locked = std::mem::replace(&mut self.state().locked, true);
        Ok((!was_locked).then(|| Box::new(FolderLock(self.clone())) as Box<_>))
    }

    fn list_files(&self, folder: &Path) -> io::Result<Vec<DiskFile>> {
        let state = self.state();
        let files = state.content.names.iter().filter(|(path, _)| path.parent() == Some(folder));
        let files = files.map(|(path, file)| DiskFile {
            path: path.clone(),
            bytes: state.content.files[*file].content.len() as u64,
            modified: UnixMs(0),
        });
        Ok(files.collect())
    }

    fn read_file(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        let file = state.find_file(path)?;
        let content = &state.content.files[file].content;
        if content.len() as u64 > limit {
            return Err(io::Error::other("it is too large"));
        }
        Ok(content.clone())
    }

    fn has_file(&self, path: &Path) -> bool {
        self.state().content.names.contains_key(path)
    }

    fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let result = state.begin_operation(path, bytes);
        // A write that fails has written a part.
        let written = if result.is_ok() { bytes.len() } else { bytes.len() / 2 };
        let file = state.find_file(path).unwrap_or_else(|_| state.add_file(path));
        state.content.files[file].content = bytes[..written].to_vec();
        result
    }

    fn create_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin_operation(path, &[])?;
        if state.content.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.add_file(path);
        Ok(())
    }

    fn append_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let result = state.begin_operation(path, bytes);
        let whole = match state.bug {
            Some(DeliberateBug::CutOffAppends) => bytes.len().min(BLOCK),
            Some(DeliberateBug::LosesAppends) if state.operations.is_multiple_of(50) => 0,
            _ => bytes.len(),
        };
        let written = if result.is_ok() { whole } else { bytes.len() / 2 };
        let file = state.find_file(path)?;
        state.content.files[file].content.extend_from_slice(&bytes[..written]);
        result
    }

    fn truncate_file(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let mut state = self.state();
        state.begin_operation(path, &bytes.to_le_bytes())?;
        let file = state.find_file(path)?;
        state.content.files[file].content.truncate(bytes as usize);
        Ok(())
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin_operation(path, &[])?;
        let file = state.find_file(path)?;
        let is_skipped = match state.bug {
            Some(DeliberateBug::NoFileSync) => true,
            Some(DeliberateBug::NoSegmentSync) => path.starts_with("recording"),
            Some(DeliberateBug::NoRequestSync) => path.starts_with(FOLDER),
            _ => false,
        };
        if is_skipped {
            return Ok(());
        }
        let file = &mut state.content.files[file];
        file.safe_content = Some(file.content.clone());
        Ok(())
    }

    fn rename_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin_operation(from, to.as_os_str().as_encoded_bytes())?;
        let file = state.find_file(from)?;
        state.content.names.remove(from);
        if state.bug == Some(DeliberateBug::UnboundedFiles) {
            let left = from.with_extension(state.operations.to_string());
            state.content.names.insert(left, file);
        }
        state.content.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin_operation(path, &[])?;
        state.find_file(path)?;
        if state.bug != Some(DeliberateBug::KeepsRemovedFiles) {
            state.content.names.remove(path);
        }
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin_operation(folder, &[])?;
        if state.bug != Some(DeliberateBug::NoFolderSync) {
            state.content.safe_names = state.content.names.clone();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contents that a file may have after a loss of power, once it was replaced like this.
    fn after_power_cuts(replace: impl Fn(&SimulatedDisk, &Path)) -> Vec<Vec<u8>> {
        let mut contents = Vec::new();
        for seed in 0..64 {
            let (disk, path) = (SimulatedDisk::default(), PathBuf::from("state"));
            disk.write_file(&path, b"before").unwrap();
            disk.sync_file(&path).unwrap();
            disk.sync_folder(Path::new("")).unwrap();
            replace(&disk, &path);
            disk.cut_power(&mut SeededRandom::new(seed));
            contents.push(disk.read_file(&path, 100).unwrap());
        }
        contents.sort();
        contents.dedup();
        contents
    }

    #[test]
    fn only_what_was_synchronised_survives_for_certain() {
        let new = Path::new("new");
        let safe = after_power_cuts(|disk, path| {
            disk.write_file(new, b"after").unwrap();
            disk.sync_file(new).unwrap();
            disk.rename_file(new, path).unwrap();
            disk.sync_folder(Path::new("")).unwrap();
        });
        assert_eq!(safe, [b"after".to_vec()]);
        let name_unsafe = after_power_cuts(|disk, path| {
            disk.write_file(new, b"after").unwrap();
            disk.sync_file(new).unwrap();
            disk.rename_file(new, path).unwrap();
        });
        assert_eq!(name_unsafe, [b"after".to_vec(), b"before".to_vec()]);
        let content_unsafe = after_power_cuts(|disk, path| {
            disk.write_file(new, b"after").unwrap();
            disk.rename_file(new, path).unwrap();
            disk.sync_folder(Path::new("")).unwrap();
        });
        assert!(content_unsafe.contains(&Vec::new()) && content_unsafe.len() > 3);
    }

    #[tokio::test(start_paused = true)]
    async fn operation_that_hangs_has_not_happened_if_the_process_ends() {
        let (disk, path) = (SimulatedDisk::default(), PathBuf::from("state"));
        for is_killed in [false, true] {
            disk.write_file(&path, b"before").unwrap();
            disk.hang_in(1, Duration::from_secs(9));
            disk.sync_file(&path).unwrap();
            assert_eq!(disk.hung_for(), None);
            disk.write_file(&path, b"after").unwrap();
            tokio::time::advance(Duration::from_secs(if is_killed { 8 } else { 9 })).await;
            assert_eq!(disk.hung_for(), is_killed.then_some(Duration::from_secs(8)));
            disk.end_process();
            let left: &[u8] = if is_killed { b"before" } else { b"after" };
            assert_eq!((disk.content_of(&path), disk.hung_for()), (left.to_vec(), None));
        }
        assert_eq!(disk.hang_count(), 2);
    }

    #[test]
    fn operations_fail_where_they_are_told_to() {
        let (disk, path) = (SimulatedDisk::default(), PathBuf::from("state"));
        disk.fail_in(1, 1);
        disk.write_file(&path, b"1").unwrap();
        assert!(disk.sync_file(&path).is_err() && disk.sync_file(&path).is_ok());
        disk.fail_in(0, ALL);
        assert!(disk.write_file(&path, b"1234").is_err() && disk.is_gone());
        assert_eq!(disk.read_file(&path, 9).unwrap(), b"12");
        disk.repair();
        assert!(disk.write_file(&path, b"1").is_ok());
        assert_eq!(disk.failure_count(), 2);
        disk.create_file(Path::new("log")).unwrap();
        disk.fail_in(1, 2);
        assert!(disk.append_file(Path::new("log"), b"12").is_ok());
        assert!(disk.append_file(Path::new("log"), b"34").is_err());
        assert!(disk.truncate_file(Path::new("log"), 2).is_err());
        assert_eq!(disk.content_of(Path::new("log")), b"123");
        assert!(disk.truncate_file(Path::new("log"), 2).is_ok());
    }
}
