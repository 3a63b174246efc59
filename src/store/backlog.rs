//! Backlog: requests that the store does not have yet, oldest first, bounded; on disk where there is a folder.
//!
//! The steps of the window that is not full are kept in a file of their own until its requests are kept: a program that is
//! killed loses at most the step that it was writing.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use gaunt_schema::{UnixMs, disk::Disk};

use crate::{
    backlog_file::{BacklogFileError, check_magic},
    request_batch::RequestBatch,
    window_file::{WindowFile, WindowRecord, read_window},
};

/// The most requests: at one a minute 69 days.
const MAX_REQUESTS: usize = 100_000;

/// The most bytes in memory, where there is no folder or it cannot be written.
const MAX_MEMORY: u64 = 64 << 20;

/// The largest file that is read.
const MAX_FILE: u64 = 64 << 20;

/// First bytes of a file.
const MAGIC: &[u8; 4] = b"GRW1";

/// Bytes before the body: magic, checksum, samples, oldest and newest instant.
const HEADER: usize = 4 + 4 + 4 + 8 + 8;

/// Ending of a request's file.
const REQUEST: &str = "rw";

/// Ending of the file of a window that is not full.
const WINDOW: &str = "window";

/// Where the bytes of a request are.
#[derive(Debug)]
enum RequestPlace {
    File(PathBuf),
    Memory(Vec<u8>),
}

/// A request that waits.
#[derive(Debug)]
struct WaitingRequest {
    id: u64,
    place: RequestPlace,
    bytes: u64,
    samples: u32,
    oldest: UnixMs,
    /// The file of its window, which is removed with it: not all requests of the window could be written.
    window: Option<PathBuf>,
}

/// Samples that were given up, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BacklogLoss {
    /// The backlog was full.
    pub(crate) full: u64,
    /// A file was damaged; the samples of one whose header is damaged are unknown and not counted.
    pub(crate) damaged: u64,
}

/// Requests that wait.
#[derive(Debug)]
pub(crate) struct Backlog {
    disk: Arc<dyn Disk>,
    folder: Option<PathBuf>,
    max_bytes: u64,
    waiting: VecDeque<WaitingRequest>,
    bytes: u64,
    memory_bytes: u64,
    next_number: u64,
    next_id: u64,
    /// The window that is not full, with its number: its requests have the same one.
    window: Option<(u64, WindowFile)>,
    /// Whether a record of this window could not be written: those after it are useless.
    is_window_cut: bool,
    loss: BacklogLoss,
    /// Files of another version of gaunt, which stay as they are.
    foreign_files: u64,
    /// Why the folder cannot be written; none if it can.
    failure: Option<String>,
}

impl Backlog {
    /// A backlog in this folder, which is created, or in memory. Requests of an earlier run come first.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        folder: Option<PathBuf>,
        max_bytes: u64,
    ) -> io::Result<Self> {
        let mut backlog = Self {
            disk,
            folder,
            max_bytes,
            waiting: VecDeque::new(),
            bytes: 0,
            memory_bytes: 0,
            next_number: 0,
            next_id: 0,
            window: None,
            is_window_cut: false,
            loss: BacklogLoss::default(),
            foreign_files: 0,
            failure: None,
        };
        if let Some(folder) = backlog.folder.clone() {
            backlog.disk.create_folder(&folder)?;
            backlog.load_folder(&folder)?;
        }
        Ok(backlog)
    }

    /// Reads the files of an earlier run. Its windows become requests.
    fn load_folder(&mut self, folder: &Path) -> io::Result<()> {
        let (mut requests, mut windows) = (Vec::new(), Vec::new());
        let disk = self.disk.clone();
        for file in disk.list_files(folder)? {
            let path = file.path;
            let number = file_number(&path);
            match (path.extension().and_then(|ending| ending.to_str()), number) {
                (Some(REQUEST), Some(number)) => requests.push((number, path)),
                (Some(WINDOW), Some(number)) => windows.push((number, path)),
                (Some("tmp"), _) => remove_file(&*disk, &path),
                _ => continue,
            }
            self.next_number = self.next_number.max(number.map_or(0, |number| number + 1));
        }
        requests.sort();
        windows.sort();
        let mut restored = Vec::new();
        for (number, path) in windows {
            match read_window(&*disk, &path) {
                Ok(batches) => {
                    // It is removed when all its requests are kept: those that are there were not sent.
                    let number = if batches.is_empty() {
                        number
                    } else {
                        let replaced = requests.extract_if(.., |(other, _)| *other == number);
                        self.clear_number(number, replaced.map(|(_, file)| file).collect())
                    };
                    restored.push((number, path, batches));
                }
                Err(error) => self.set_file_apart(&path, &error),
            }
        }
        for (_, path) in requests {
            match read_batch(&*disk, &path) {
                Ok(batch) => {
                    let bytes = (batch.body.len() + HEADER) as u64;
                    self.push_waiting(RequestPlace::File(path), bytes, &batch);
                }
                Err(error) => self.set_file_apart(&path, &error),
            }
        }
        for (number, path, batches) in restored {
            self.push_numbered(number, batches, Some(path));
        }
        self.enforce_limits();
        Ok(())
    }

    /// Removes the requests that a window makes anew; the number for them, which is another one if a request of another version
    /// has this one.
    fn clear_number(&mut self, number: u64, requests: Vec<PathBuf>) -> u64 {
        let before = self.foreign_files;
        for path in requests {
            match read_batch(&*self.disk.clone(), &path) {
                Err(error @ BacklogFileError::OtherVersion) => self.set_file_apart(&path, &error),
                _ => remove_file(&*self.disk, &path),
            }
        }
        if self.foreign_files == before { number } else { self.take_number() }
    }

    /// Leaves a file of another version as it is, and removes one that is damaged.
    fn set_file_apart(&mut self, path: &Path, error: &BacklogFileError) {
        let file = path.display();
        if let BacklogFileError::OtherVersion = error {
            self.foreign_files += 1;
            tracing::warn!(%file, "a file of the store's backlog is of another version of gaunt and stays");
        } else {
            tracing::warn!(%file, %error, "dropping a damaged file of the store's backlog");
            remove_file(&*self.disk, path);
        }
    }

    fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Keeps a step on disk until [`Self::push_window`].
    pub(crate) fn keep_step(&mut self, record: WindowRecord) {
        let Some(folder) = self.folder.clone().filter(|_| !self.is_window_cut) else { return };
        let kept = if let Some((_, window)) = &mut self.window {
            window.append_record(&*self.disk, record)
        } else {
            let number = self.take_number();
            let path = folder.join(format!("{number:012}.{WINDOW}"));
            WindowFile::create(&*self.disk, path).and_then(|window| {
                let appended = window.append_record(&*self.disk, record);
                self.window = Some((number, window));
                appended
            })
        };
        if let Err(error) = kept {
            self.is_window_cut = true;
            self.note_failure(&folder, &error);
        }
    }

    /// Adds the requests of a full window. Gives up the oldest beyond the limits.
    pub(crate) fn push_window(&mut self, batches: Vec<RequestBatch>) {
        let window = self.window.take();
        let number = window.as_ref().map(|(number, _)| *number);
        let number = number.unwrap_or_else(|| self.take_number());
        self.push_numbered(number, batches, window.map(|(_, window)| window.into_path()));
        self.is_window_cut = false;
    }

    /// Adds other requests. Gives up the oldest beyond the limits.
    pub(crate) fn push_requests(&mut self, batches: Vec<RequestBatch>) {
        let number = self.take_number();
        self.push_numbered(number, batches, None);
    }

    /// Adds requests, and removes the file of their window. If they cannot be written, it is kept until they are sent.
    fn push_numbered(&mut self, number: u64, batches: Vec<RequestBatch>, window: Option<PathBuf>) {
        let mut is_kept = true;
        for (part, batch) in batches.into_iter().enumerate() {
            let file = self.folder.clone().and_then(|folder| {
                let path = folder.join(format!("{number:012}-{part:04}.{REQUEST}"));
                match write_batch(&*self.disk, &path, &batch) {
                    Ok(()) => {
                        self.failure = None;
                        Some(path)
                    }
                    Err(error) => {
                        self.note_failure(&folder, &error);
                        None
                    }
                }
            });
            let bytes = (batch.body.len() + HEADER) as u64;
            let (samples, oldest, newest) = (batch.samples, batch.oldest, batch.newest);
            let header = RequestBatch { body: Vec::new(), samples, oldest, newest };
            is_kept &= file.is_some();
            let place = file.map_or_else(|| RequestPlace::Memory(batch.body), RequestPlace::File);
            self.push_waiting(place, bytes, &header);
        }
        // The names are safe before the window's file is removed. A folder that cannot be synchronised was written to.
        drop(self.folder.as_ref().map(|folder| self.disk.sync_folder(folder)));
        match (window, self.waiting.back_mut()) {
            (Some(window), Some(last)) if !is_kept => last.window = Some(window),
            (Some(window), _) => remove_file(&*self.disk, &window),
            (None, _) => {}
        }
        self.enforce_limits();
    }

    fn push_waiting(&mut self, place: RequestPlace, bytes: u64, batch: &RequestBatch) {
        self.bytes += bytes;
        if matches!(place, RequestPlace::Memory(_)) {
            self.memory_bytes += bytes;
        }
        let (samples, oldest) = (batch.samples, batch.oldest);
        let (id, window) = (self.next_id, None);
        self.waiting.push_back(WaitingRequest { id, place, bytes, samples, oldest, window });
        self.next_id += 1;
    }

    fn note_failure(&mut self, folder: &Path, error: &io::Error) {
        let why = format!(
            "cannot write {}: {error}; free space or check its permissions",
            folder.display()
        );
        if self.failure.as_ref() != Some(&why) {
            tracing::warn!(why, "the backlog of the store is kept in memory");
            self.failure = Some(why);
        }
    }

    /// Gives up the oldest requests beyond the limits.
    fn enforce_limits(&mut self) {
        while self.bytes > self.max_bytes
            || self.memory_bytes > MAX_MEMORY
            || self.waiting.len() > MAX_REQUESTS
        {
            let Some(dropped) = self.remove_oldest() else { return };
            self.loss.full += u64::from(dropped);
        }
    }

    /// Id and body of the oldest request; damaged files are dropped.
    pub(crate) fn read_oldest(&mut self) -> Option<(u64, Vec<u8>)> {
        loop {
            let oldest = self.waiting.front()?;
            let (id, samples) = (oldest.id, oldest.samples);
            match &oldest.place {
                RequestPlace::Memory(body) => return Some((id, body.clone())),
                RequestPlace::File(path) => match read_batch(&*self.disk, path) {
                    Ok(batch) => return Some((id, batch.body)),
                    Err(error) => {
                        let path = path.clone();
                        self.set_file_apart(&path, &error);
                        self.loss.damaged += u64::from(samples);
                        self.forget_oldest();
                    }
                },
            }
        }
    }

    /// Removes the request that was read last, unless it was given up meanwhile; returns its samples.
    pub(crate) fn remove_request(&mut self, id: u64) -> Option<u32> {
        if self.waiting.front()?.id == id { self.remove_oldest() } else { None }
    }

    /// Removes the oldest request; returns its samples.
    fn remove_oldest(&mut self) -> Option<u32> {
        let request = self.forget_oldest()?;
        if let RequestPlace::File(path) = request.place {
            remove_file(&*self.disk, &path);
        }
        Some(request.samples)
    }

    /// Takes the oldest request off the list; its own file stays.
    fn forget_oldest(&mut self) -> Option<WaitingRequest> {
        let request = self.waiting.pop_front()?;
        self.bytes -= request.bytes;
        if matches!(request.place, RequestPlace::Memory(_)) {
            self.memory_bytes -= request.bytes;
        }
        if let Some(window) = &request.window {
            remove_file(&*self.disk, window);
        }
        Some(request)
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes that wait.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.bytes
    }

    /// The oldest instant that waits.
    pub(crate) fn oldest_instant(&self) -> Option<UnixMs> {
        self.waiting.front().map(|request| request.oldest)
    }

    /// Samples given up.
    pub(crate) fn loss(&self) -> BacklogLoss {
        self.loss
    }

    /// Why the folder cannot be written; else what the files of another version need.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.clone().or_else(|| {
            let folder = self.folder.as_ref().filter(|_| self.foreign_files > 0)?;
            Some(format!(
                "{} files in {} are of another version of gaunt, and their samples are not sent; start that \
                 version to send them, or remove them",
                self.foreign_files,
                folder.display()
            ))
        })
    }
}

/// The number of a file: that of its window, or of the requests that were made with it.
fn file_number(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.split('-').next()?.parse().ok()
}

/// Removes a file; one that is already gone is fine.
fn remove_file(disk: &dyn Disk, path: &Path) {
    if let Err(error) = disk.remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(file = %path.display(), %error, "cannot remove a file of the store's backlog");
    }
}

/// Writes a request whole: a file that is cut short has another name, or another checksum.
fn write_batch(disk: &dyn Disk, path: &Path, batch: &RequestBatch) -> io::Result<()> {
    let mut rest = Vec::with_capacity(batch.body.len() + HEADER);
    rest.extend_from_slice(&batch.samples.to_le_bytes());
    rest.extend_from_slice(&batch.oldest.0.to_le_bytes());
    rest.extend_from_slice(&batch.newest.0.to_le_bytes());
    rest.extend_from_slice(&batch.body);
    let checksum = crc32fast::hash(&rest).to_le_bytes();
    let temporary = path.with_extension("tmp");
    remove_file(disk, &temporary);
    // A file or link in its place is an error: its mode, or where it leads, would be another's choice.
    disk.create_file(&temporary)?;
    disk.append_file(&temporary, &[MAGIC.as_slice(), &checksum, &rest].concat())?;
    disk.sync_file(&temporary)?;
    disk.rename_file(&temporary, path)
}

fn read_batch(disk: &dyn Disk, path: &Path) -> Result<RequestBatch, BacklogFileError> {
    let cut = || BacklogFileError::Damaged("it is cut short");
    let file = disk.read_file(path, MAX_FILE)?;
    let rest = check_magic(&file, *MAGIC)?;
    let (checksum, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    if crc32fast::hash(rest) != u32::from_le_bytes(*checksum) {
        return Err(BacklogFileError::Damaged("its checksum is wrong"));
    }
    let (samples, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let (oldest, rest) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
    let (newest, body) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
    Ok(RequestBatch {
        body: body.to_vec(),
        samples: u32::from_le_bytes(*samples),
        oldest: UnixMs(i64::from_le_bytes(*oldest)),
        newest: UnixMs(i64::from_le_bytes(*newest)),
    })
}

#[cfg(test)]
mod tests;
