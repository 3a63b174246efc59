//! A log that another program appends to, read from where the last read ended.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    time::SystemTime,
};

/// The most bytes that are read of a file at a time. What is older is left out: the log of a fast job grows by less.
pub(super) const MAX_READ: u64 = 1 << 20;

/// The longest line: a verbose record has a line of each channel.
const MAX_LINE: usize = 1 << 18;

/// Where a log was read to.
#[derive(Debug, Default)]
pub(super) struct LogFile {
    /// Number and birth of the file: a number is used again at once.
    identity: (u64, Option<SystemTime>),
    position: u64,
    /// Whether the next line begins at the position.
    at_line: bool,
}

impl LogFile {
    /// Reads the complete lines that were added. A file that was replaced or cut is read from its beginning, and the first
    /// read of a long one begins near its end.
    pub(super) fn read_lines(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let identity = (metadata.ino(), metadata.created().ok());
        if identity != self.identity || metadata.len() < self.position {
            *self = Self { identity, at_line: true, ..Self::default() };
        }
        let first = metadata.len().saturating_sub(MAX_READ);
        if first > self.position {
            (self.position, self.at_line) = (first, false);
        }
        let mut body = vec![0; (metadata.len() - self.position) as usize];
        let length = read_at(&file, &mut body, self.position)?;
        body.truncate(length);
        let Some(end) = body.iter().rposition(|byte| *byte == b'\n') else {
            if body.len() > MAX_LINE {
                // Too long: the rest of it is left out.
                self.position += body.len() as u64;
                self.at_line = false;
            }
            return Ok(Vec::new());
        };
        body.truncate(end + 1);
        self.position += body.len() as u64;
        if !self.at_line {
            let begin = body.iter().position(|byte| *byte == b'\n').unwrap_or_default();
            body.drain(..=begin);
            self.at_line = true;
        }
        Ok(body)
    }
}

fn read_at(file: &File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read_at(&mut buffer[length..], position + length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use super::*;

    #[test]
    fn lines_are_read_once_and_only_when_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let append = |text: &str| {
            let mut file = File::options().append(true).create(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        let mut log = LogFile::default();
        let mut read = || String::from_utf8(log.read_lines(&path).unwrap()).unwrap();
        append("one\ntw");
        assert_eq!(read(), "one\n");
        assert_eq!(read(), "");
        append("o\nthree\n");
        assert_eq!(read(), "two\nthree\n");
        // Another job has a file of this name.
        fs::write(&path, "four\n").unwrap();
        assert_eq!(read(), "four\n");
        fs::remove_file(&path).unwrap();
        append("replaced: longer than the former one\n");
        assert_eq!(read(), "replaced: longer than the former one\n");
        append(&format!("{}\nlast\n", "x".repeat(MAX_READ as usize)));
        assert_eq!(read(), "last\n");
        append(&"y".repeat(MAX_LINE + 1));
        assert_eq!(read(), "");
        append("yyy\nnext\n");
        assert_eq!(read(), "next\n");
    }
}
