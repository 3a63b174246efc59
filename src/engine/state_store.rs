//! State store: the state that outlives a restart, in files with checksums, written whole and put in place by renaming.
//!
//! Each part is a file: a header (magic, version, size, checksum), then the payload, compressed with zstd. A load
//! returns all of what was written last, or the reason why not; a damaged file is set aside and never overwritten. A file
//! of another version keeps its name, for the gaunt that wrote it; this one uses a file beside it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use gaunt_schema::{UnixMs, disk::Disk};

use crate::system_disk::system_disk;

/// Magic of a file.
const MAGIC: &[u8; 8] = b"gauntmem";

/// Version of the format and of its content.
const VERSION: u32 = 1;

/// Magic, version, uncompressed size, checksum of all that and of the compressed payload.
const HEADER: usize = 20;

/// The largest payload. Two thousand findings with all details need 8 MiB; the baselines of 100,000 GPUs and as many
/// ports are 600 bytes for each GPU, 60 MB.
const MAX_SIZE: usize = 256 << 20;

/// The fastest regular level of zstd: JSON shrinks ten times.
const LEVEL: i32 = 1;

/// Extensions of a part's file, of the one that is being written, and of one that could not be read; and the extension
/// while a file of another version has the first one, with this version appended.
const ENDING: &str = "gaunt";
const UNFINISHED: &str = "gaunt.new";
const ASIDE: &str = "gaunt.damaged";
const OWN_VERSION: &str = "gaunt.version";

/// The most files of one part that are set aside; then the last of them is overwritten.
const MAX_ASIDE: u32 = 9;

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// Lock file of the process that uses the directory.
const LOCK: &str = "lock";

/// Why state cannot be persisted.
#[derive(Debug, thiserror::Error)]
pub enum StateStoreError {
    /// The directory cannot be used.
    #[error("cannot store state in {}: {error}; check the path and its permissions", path.display())]
    Folder {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another process uses the directory.
    #[error("another gaunt uses the state folder {}; stop it, or set another folder", .0.display())]
    InUse(PathBuf),
    /// The part is too large.
    #[error("{size} bytes exceed the limit of {MAX_SIZE}")]
    TooLarge {
        /// Its size.
        size: usize,
    },
}

/// What was loaded at the start.
#[derive(Debug, PartialEq, Eq)]
pub enum LoadedPart {
    /// Nothing was stored.
    Nothing,
    /// The stored payload.
    Stored(Vec<u8>),
    /// A file of another version, which is left as it is.
    OtherVersion {
        /// Its version.
        version: u32,
        /// Its path.
        path: PathBuf,
        /// The path of the file that this gaunt writes instead.
        own: PathBuf,
    },
    /// A file that cannot be read; it is set aside.
    Damaged {
        /// The error.
        why: String,
        /// Its new path.
        aside: PathBuf,
    },
}

/// A part of the state with its own file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatePart {
    /// Findings, acknowledgements and counters: small, and always changing.
    Findings,
    /// All baselines: large, and slowly changing.
    Baselines,
    /// Recent GPU time: grows every minute.
    Usage,
    /// Findings that closed on the day of this number: of past days it does not change.
    Journal(i64),
}

impl StatePart {
    const ALL: [Self; 3] = [Self::Findings, Self::Baselines, Self::Usage];

    fn file_stem(self) -> String {
        match self {
            Self::Findings => "findings".to_owned(),
            Self::Baselines => "usual".to_owned(),
            Self::Usage => "usage".to_owned(),
            Self::Journal(day) => {
                let (year, month, day) = UnixMs(day.saturating_mul(DAY_MS)).to_date();
                format!("journal-{year:04}-{month:02}-{day:02}")
            }
        }
    }
}

/// The state directory, locked by this process.
#[derive(Debug)]
pub struct StateStore {
    folder: PathBuf,
    /// Checksum of each part as last written: unchanged parts are not written.
    last: BTreeMap<StatePart, u32>,
    /// The parts whose file is one of another version.
    beside: BTreeSet<StatePart>,
    /// The parts that were looked at: of the others another version may have a file.
    seen: BTreeSet<StatePart>,
    disk: Arc<dyn Disk>,
    _lock: Box<dyn fmt::Debug + Send + Sync>,
}

impl StateStore {
    /// Opens and locks the directory; creates it if it does not exist.
    pub fn open_folder(folder: &Path) -> Result<Self, StateStoreError> {
        Self::open_on_disk(system_disk(), folder)
    }

    /// The same on another disk.
    pub fn open_on_disk(disk: Arc<dyn Disk>, folder: &Path) -> Result<Self, StateStoreError> {
        let failed = |error| StateStoreError::Folder { path: folder.to_path_buf(), error };
        disk.create_folder(folder).map_err(failed)?;
        let Some(lock) = disk.lock_folder(&folder.join(LOCK)).map_err(failed)? else {
            return Err(StateStoreError::InUse(folder.to_path_buf()));
        };
        // Left by a process that was killed while writing.
        let store = Self {
            folder: folder.to_path_buf(),
            last: BTreeMap::new(),
            beside: BTreeSet::new(),
            seen: BTreeSet::new(),
            disk,
            _lock: lock,
        };
        for part in StatePart::ALL {
            match store.disk.remove_file(&store.part_path(part, UNFINISHED)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        Ok(store)
    }

    /// The directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn part_path(&self, part: StatePart, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", part.file_stem()))
    }

    /// The file of a part that this version reads and writes.
    fn own_path(&self, part: StatePart) -> PathBuf {
        if self.beside.contains(&part) {
            return self.part_path(part, &format!("{OWN_VERSION}{VERSION}"));
        }
        self.part_path(part, ENDING)
    }

    /// Whether a part was looked at: until then its file may hold what nobody loaded.
    pub fn has_seen(&self, part: StatePart) -> bool {
        self.seen.contains(&part)
    }

    /// Loads a part.
    pub fn load_part(&mut self, part: StatePart) -> Result<LoadedPart, StateStoreError> {
        let found = self.read_part(part)?;
        // What could not be read was not looked at: it must not be written over.
        self.seen.insert(part);
        Ok(found)
    }

    fn read_part(&mut self, part: StatePart) -> Result<LoadedPart, StateStoreError> {
        let path = self.own_path(part);
        let bytes = match self.disk.read_file(&path, (HEADER + MAX_SIZE) as u64) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(LoadedPart::Nothing);
            }
            // What is no file of this size is not state either.
            Err(error) if error.kind() == io::ErrorKind::Other => {
                return self.set_aside(part, &error.to_string());
            }
            Err(error) => return Err(self.folder_error(error)),
        };
        match decode_file(&bytes) {
            Ok(payload) => Ok(LoadedPart::Stored(payload)),
            Err(Unreadable::Damaged(why)) => self.set_aside(part, &why),
            Err(Unreadable::Version(version)) if self.beside.insert(part) => {
                // An earlier run of this version may have written its own beside it.
                match self.read_part(part)? {
                    LoadedPart::Nothing => {
                        let own = self.own_path(part);
                        Ok(LoadedPart::OtherVersion { version, path, own })
                    }
                    found => Ok(found),
                }
            }
            Err(Unreadable::Version(version)) => {
                self.set_aside(part, &format!("it has version {version}"))
            }
        }
    }

    /// Removes a part that is no longer kept; that there is none is no error.
    pub fn remove_part(&mut self, part: StatePart) -> Result<(), StateStoreError> {
        self.last.remove(&part);
        match self.disk.remove_file(&self.own_path(part)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.folder_error(error)),
            _ => Ok(()),
        }
    }

    /// Sets a file aside that cannot be decoded, so that it can be examined: files set aside before are not overwritten.
    pub fn set_aside(&self, part: StatePart, why: &str) -> Result<LoadedPart, StateStoreError> {
        let name = |number: u32| match number {
            1 => self.part_path(part, ASIDE),
            number => self.part_path(part, &format!("{ASIDE}.{number}")),
        };
        let free = (1..MAX_ASIDE).map(name).find(|path| !self.disk.has_file(path));
        let aside = free.unwrap_or_else(|| name(MAX_ASIDE));
        self.disk
            .rename_file(&self.own_path(part), &aside)
            .map_err(|error| self.folder_error(error))?;
        Ok(LoadedPart::Damaged { why: why.to_owned(), aside })
    }

    /// Replaces the stored part; returns whether it differed.
    pub fn save_part(&mut self, part: StatePart, payload: &[u8]) -> Result<bool, StateStoreError> {
        let sum = crc32fast::hash(payload);
        if self.last.get(&part) == Some(&sum) {
            return Ok(false);
        }
        if payload.len() > MAX_SIZE {
            return Err(StateStoreError::TooLarge { size: payload.len() });
        }
        if !self.seen.contains(&part) {
            // Its file was not looked at, as that of a day far from the clock at the start.
            self.load_part(part)?;
        }
        self.write_part_file(part, payload).map_err(|error| self.folder_error(error))?;
        self.last.insert(part, sum);
        Ok(true)
    }

    fn write_part_file(&self, part: StatePart, payload: &[u8]) -> io::Result<()> {
        let new = self.part_path(part, UNFINISHED);
        self.disk.write_file(&new, &encode_file(payload)?)?;
        // The rename must not become visible before the bytes are on the disk.
        self.disk.sync_file(&new)?;
        self.disk.rename_file(&new, &self.own_path(part))?;
        self.disk.sync_folder(&self.folder)
    }

    fn folder_error(&self, error: io::Error) -> StateStoreError {
        StateStoreError::Folder { path: self.folder.clone(), error }
    }
}

fn encode_file(payload: &[u8]) -> io::Result<Vec<u8>> {
    let packed = zstd::bulk::compress(payload, LEVEL)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&compute_checksum(&bytes, &packed).to_le_bytes());
    bytes.extend_from_slice(&packed);
    Ok(bytes)
}

/// Why a file cannot be read.
#[derive(Debug, PartialEq, Eq)]
enum Unreadable {
    /// The bytes are damaged, for this reason.
    Damaged(String),
    /// The bytes are intact, and of this version.
    Version(u32),
}

fn decode_file(bytes: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let damaged = |why: &str| Unreadable::Damaged(why.to_owned());
    let cut = || damaged("it is truncated");
    let (head, packed) = bytes.split_at_checked(HEADER).ok_or_else(cut)?;
    let number = |at: usize| head[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
    if &head[..8] != MAGIC {
        return Err(damaged("it is not a state file of gaunt"));
    }
    // Another version may have its checksum elsewhere.
    if number(8) > VERSION {
        return Err(Unreadable::Version(number(8)));
    }
    if compute_checksum(&head[..16], packed) != number(16) {
        return Err(damaged("its checksum does not match"));
    }
    if number(8) != VERSION {
        return Err(Unreadable::Version(number(8)));
    }
    let size = number(12) as usize;
    if size > MAX_SIZE {
        return Err(damaged(&format!("it has {size} bytes; the maximum is {MAX_SIZE}")));
    }
    zstd::bulk::decompress(packed, size).map_err(|error| {
        tracing::debug!(%error, "cannot decompress state");
        damaged("it cannot be decompressed")
    })
}

fn compute_checksum(head: &[u8], packed: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(head);
    sum.update(packed);
    sum.finalize()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn open_test_store() -> (tempfile::TempDir, StateStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = StateStore::open_folder(&folder.path().join("gaunt")).unwrap();
        (folder, store)
    }

    #[test]
    fn state_file_returns_what_was_written_last() {
        let (_folder, mut store) = open_test_store();
        assert_eq!(store.load_part(StatePart::Findings).unwrap(), LoadedPart::Nothing);
        assert!(store.save_part(StatePart::Findings, b"first").unwrap());
        assert!(store.save_part(StatePart::Findings, b"second").unwrap());
        assert!(!store.save_part(StatePart::Findings, b"second").unwrap(), "nothing new");
        assert_eq!(
            store.load_part(StatePart::Findings).unwrap(),
            LoadedPart::Stored(b"second".to_vec())
        );
        let folder = store.folder.clone();
        drop(store);
        let mut store = StateStore::open_folder(&folder).unwrap();
        assert_eq!(
            store.load_part(StatePart::Findings).unwrap(),
            LoadedPart::Stored(b"second".to_vec())
        );
    }

    #[test]
    fn damaged_file_is_detected_and_set_aside() {
        let (_folder, mut store) = open_test_store();
        let payload: Vec<u8> = (0..2_000_u32).flat_map(|n| (n % 251).to_le_bytes()).collect();
        store.save_part(StatePart::Findings, &payload).unwrap();
        let path = store.part_path(StatePart::Findings, ENDING);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            assert!(decode_file(&bytes).is_err(), "a bit at {at}");
            assert!(decode_file(&whole[..at]).is_err(), "cut at {at}");
        }
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let LoadedPart::Damaged { why, aside } = store.load_part(StatePart::Findings).unwrap()
        else {
            panic!("not noticed")
        };
        assert_eq!(why, "its checksum does not match");
        assert_eq!(fs::read(aside).unwrap(), whole[..whole.len() - 1]);
        assert_eq!(
            store.load_part(StatePart::Findings).unwrap(),
            LoadedPart::Nothing,
            "one begins anew"
        );
    }

    #[test]
    fn file_of_another_version_is_left_under_its_name() {
        let (_folder, mut store) = open_test_store();
        store.save_part(StatePart::Findings, b"payload").unwrap();
        let path = store.part_path(StatePart::Findings, ENDING);
        let mut bytes = fs::read(&path).unwrap();
        bytes[8] = 9;
        fs::write(&path, &bytes).unwrap();
        let folder = store.folder.clone();
        drop(store);
        let mut store = StateStore::open_folder(&folder).unwrap();
        let own = folder.join("findings.gaunt.version1");
        assert_eq!(
            store.load_part(StatePart::Findings).unwrap(),
            LoadedPart::OtherVersion { version: 9, path: path.clone(), own: own.clone() }
        );
        assert!(store.save_part(StatePart::Findings, b"of this version").unwrap());
        assert_eq!(fs::read(&path).unwrap(), bytes, "untouched");
        drop(store);
        // The next run of this version continues with its own file.
        let mut store = StateStore::open_folder(&folder).unwrap();
        assert_eq!(
            store.load_part(StatePart::Findings).unwrap(),
            LoadedPart::Stored(b"of this version".to_vec())
        );
        assert_eq!(fs::read(&path).unwrap(), bytes, "untouched");
        fs::write(&own, "damaged").unwrap();
        let found = store.load_part(StatePart::Findings).unwrap();
        assert!(matches!(found, LoadedPart::Damaged { .. }), "{found:?}");
        assert_eq!((fs::read(&path).unwrap(), own.exists()), (bytes, false));
        let damaged = |bytes: &[u8], why: &str| {
            assert_eq!(decode_file(bytes), Err(Unreadable::Damaged(why.to_owned())));
        };
        damaged(b"something else entirely", "it is not a state file of gaunt");
        damaged(b"", "it is truncated");
    }

    #[test]
    fn what_is_no_regular_file_is_set_aside_at_once() {
        let (_folder, mut store) = open_test_store();
        let path = store.part_path(StatePart::Usage, ENDING);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        let LoadedPart::Damaged { why, .. } = store.load_part(StatePart::Usage).unwrap() else {
            panic!("read")
        };
        assert_eq!(why, "it is not a regular file");
        assert!(store.save_part(StatePart::Usage, b"payload").unwrap());
    }

    #[test]
    fn file_set_aside_is_not_overwritten() {
        let (_folder, mut store) = open_test_store();
        let path = store.part_path(StatePart::Baselines, ENDING);
        let mut asides = std::collections::BTreeSet::new();
        for number in 0..u8::try_from(MAX_ASIDE).unwrap() {
            fs::write(&path, [number; 30]).unwrap();
            let LoadedPart::Damaged { aside, .. } = store.load_part(StatePart::Baselines).unwrap()
            else {
                panic!("not noticed")
            };
            assert_eq!(fs::read(&aside).unwrap(), [number; 30]);
            assert!(asides.insert(aside), "written over");
        }
        fs::write(&path, [99; 30]).unwrap();
        store.load_part(StatePart::Baselines).unwrap();
        let files = fs::read_dir(&store.folder).unwrap().count();
        assert_eq!(files, 1 + asides.len(), "there is a limit");
    }

    #[test]
    fn folder_is_locked_and_unfinished_file_is_ignored() {
        let (_folder, store) = open_test_store();
        let error = StateStore::open_folder(&store.folder).unwrap_err().to_string();
        assert!(error.starts_with("another gaunt uses the state folder "), "{error}");
        fs::write(store.part_path(StatePart::Baselines, UNFINISHED), b"half").unwrap();
        let folder = store.folder.clone();
        drop(store);
        assert_eq!(
            StateStore::open_folder(&folder).unwrap().load_part(StatePart::Findings).unwrap(),
            LoadedPart::Nothing
        );
        let file = folder.join("lock");
        assert!(matches!(StateStore::open_folder(&file), Err(StateStoreError::Folder { .. })));
    }

    #[test]
    fn state_that_is_too_large_is_not_written() {
        let (_folder, mut store) = open_test_store();
        store.save_part(StatePart::Findings, b"small").unwrap();
        let error = store.save_part(StatePart::Findings, &vec![0; MAX_SIZE + 1]).unwrap_err();
        assert!(matches!(error, StateStoreError::TooLarge { .. }));
        assert_eq!(
            store.load_part(StatePart::Findings).unwrap(),
            LoadedPart::Stored(b"small".to_vec())
        );
    }
}
