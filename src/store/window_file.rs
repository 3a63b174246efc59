//! Window file: the steps of the window that is not full yet, a record each, so that a killed program loses none that it
//! had written.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use gaunt_schema::{UnixMs, disk::Disk};

use crate::{
    backlog_file::{BacklogFileError, check_magic},
    request_batch::{RequestBatch, RequestSplitter},
    write_request::StoreSample,
};

/// First bytes of a file.
const MAGIC: &[u8; 4] = b"GSW1";

/// The largest file that is read: three steps of a million series.
const MAX_FILE: u64 = 512 << 20;

/// Bit of a series' number that says that its labels follow.
const WITH_LABELS: u32 = 1 << 31;

/// Length and checksum before the content of a record.
const HEADER: usize = 8;

/// The samples of one step: instant, then number, value and, once a file, the labels of each series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WindowRecord(Vec<u8>);

impl WindowRecord {
    pub(crate) fn new(at: UnixMs) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes.extend_from_slice(&at.0.to_le_bytes());
        Self(bytes)
    }

    /// Adds the value of a series; its labels must be in this or an earlier record of the file.
    pub(crate) fn push_sample(&mut self, number: u32, bits: u64, labels: Option<&[u8]>) {
        let flag = if labels.is_some() { WITH_LABELS } else { 0 };
        self.0.extend_from_slice(&(number | flag).to_le_bytes());
        self.0.extend_from_slice(&bits.to_le_bytes());
        if let Some(labels) = labels {
            self.0.extend_from_slice(&(labels.len() as u32).to_le_bytes());
            self.0.extend_from_slice(labels);
        }
    }

    /// The record with its length and checksum.
    fn finish(mut self) -> Vec<u8> {
        let length = (self.0.len() - HEADER) as u32;
        let checksum = crc32fast::hash(&self.0[HEADER..]);
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        self.0[4..HEADER].copy_from_slice(&checksum.to_le_bytes());
        self.0
    }
}

/// The file of the present window.
#[derive(Debug)]
pub(crate) struct WindowFile {
    path: PathBuf,
}

impl WindowFile {
    /// Creates the file. What is in its place already, a link too, is an error.
    pub(crate) fn create(disk: &dyn Disk, path: PathBuf) -> io::Result<Self> {
        disk.create_file(&path)?;
        disk.append_file(&path, MAGIC)?;
        Ok(Self { path })
    }

    /// Appends a step.
    pub(crate) fn append_record(&self, disk: &dyn Disk, record: WindowRecord) -> io::Result<()> {
        disk.append_file(&self.path, &record.finish())
    }

    /// Ends it; where it is.
    pub(crate) fn into_path(self) -> PathBuf {
        self.path
    }
}

/// A series while a file is read.
#[derive(Default)]
struct ReadSeries {
    labels: Vec<u8>,
    samples: Vec<StoreSample>,
}

/// The whole records of a file as requests; a record that is cut short is the step during which the program was killed.
pub(crate) fn read_window(
    disk: &dyn Disk,
    path: &Path,
) -> Result<Vec<RequestBatch>, BacklogFileError> {
    let bytes = disk.read_file(path, MAX_FILE)?;
    let records = check_magic(&bytes, *MAGIC)?;
    let (mut series, mut numbers) = (Vec::<ReadSeries>::new(), BTreeMap::new());
    let mut rest = records;
    while let Some((record, others)) = next_record(rest) {
        read_record(record, &mut series, &mut numbers)
            .ok_or(BacklogFileError::Damaged("a record is cut short"))?;
        rest = others;
    }
    let mut splitter = RequestSplitter::default();
    for it in series.iter().filter(|it| !it.samples.is_empty()) {
        splitter.push_series(&it.labels, &it.samples);
    }
    Ok(splitter.finish())
}

/// The content of the next whole record, and what follows it.
fn next_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (checksum, rest) = rest.split_first_chunk::<4>()?;
    let (content, others) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    (crc32fast::hash(content) == u32::from_le_bytes(*checksum)).then_some((content, others))
}

/// Adds the samples of a record; `numbers` are the places of the series by their numbers in the file.
fn read_record(
    record: &[u8],
    series: &mut Vec<ReadSeries>,
    numbers: &mut BTreeMap<u32, usize>,
) -> Option<()> {
    let (at, mut rest) = record.split_first_chunk::<8>()?;
    let at = UnixMs(i64::from_le_bytes(*at));
    while !rest.is_empty() {
        let (number, others) = rest.split_first_chunk::<4>()?;
        let (bits, others) = others.split_first_chunk::<8>()?;
        rest = others;
        let number = u32::from_le_bytes(*number);
        if number & WITH_LABELS != 0 {
            let (length, others) = rest.split_first_chunk::<4>()?;
            let (labels, others) = others.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = others;
            numbers.insert(number & !WITH_LABELS, series.len());
            series.push(ReadSeries { labels: labels.to_vec(), samples: Vec::new() });
        }
        // A series whose labels were in a record that was not kept is unknown.
        if let Some(place) = numbers.get(&(number & !WITH_LABELS)) {
            let bits = u64::from_le_bytes(*bits);
            series[*place].samples.push(StoreSample { at, bits });
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gaunt_engine::system_disk::system_disk;

    use super::*;
    use crate::write_request::{encode_labels, tests::decode_body};

    fn record(at: i64, samples: &[(u32, Option<&str>)]) -> WindowRecord {
        let mut record = WindowRecord::new(UnixMs(at));
        for (number, name) in samples {
            let labels = name.map(|name| {
                let mut labels = Vec::new();
                encode_labels(&mut [("__name__", name)], &mut labels);
                labels
            });
            record.push_sample(*number, (at as f64).to_bits(), labels.as_deref());
        }
        record
    }

    /// Name and instants of each series.
    fn read_names(path: &Path) -> Vec<(String, Vec<i64>)> {
        let batches = read_window(&*system_disk(), path).unwrap();
        let series = batches.iter().flat_map(|batch| decode_body(&batch.body).series);
        let read = series.map(|it| {
            let instants = it.samples.iter().map(|sample| sample.at).collect();
            (it.labels[0].value.clone(), instants)
        });
        read.collect()
    }

    #[test]
    fn steps_are_read_back_and_the_one_that_is_cut_short_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.window");
        let disk = &*system_disk();
        let file = WindowFile::create(disk, path.clone()).unwrap();
        file.append_record(disk, record(1, &[(0, Some("a")), (1, Some("b"))])).unwrap();
        file.append_record(disk, record(2, &[(1, None), (2, Some("c")), (7, None)])).unwrap();
        let whole = fs::read(&path).unwrap();
        let expected =
            [("a", vec![1]), ("b", vec![1, 2]), ("c", vec![2])].map(|(n, at)| (n.to_owned(), at));
        assert_eq!(read_names(&path), expected);
        // Another window in the same file begins with labels again.
        file.append_record(disk, record(3, &[(0, Some("z"))])).unwrap();
        assert_eq!(read_names(&path).last(), Some(&("z".to_owned(), vec![3])));
        let longer = fs::read(&path).unwrap();
        for end in whole.len()..longer.len() {
            fs::write(&path, &longer[..end]).unwrap();
            assert_eq!(read_names(&path), expected, "cut at {end}");
        }
        let mut damaged = longer;
        damaged[whole.len() + 12] ^= 1;
        fs::write(&path, damaged).unwrap();
        assert_eq!(read_names(&path), expected);
        fs::write(&path, "GSW").unwrap();
        assert!(read_window(disk, &path).is_err());
        assert!(WindowFile::create(disk, path).is_err(), "a file in its place is another's");
    }
}
