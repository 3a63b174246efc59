//! Access to the kernel's file trees: small files that are read repeatedly, kept open where that is cheap.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

pub(crate) mod current_path;

/// The largest file that is read, in bytes: `/proc/stat` of a host with 512 CPUs and its long line of interrupts
/// takes about 100 KiB.
const MAX_FILE: usize = 1 << 20;

/// The buffer for one value of sysfs, which never exceeds a page.
const FIRST_READ: usize = 4096;

/// A small file of the kernel that is read each tick.
///
/// A kept descriptor makes a read ten times cheaper than opening again; one that the kernel invalidated is reopened.
#[derive(Debug)]
pub(crate) struct KernelFile {
    path: PathBuf,
    keep_open: bool,
    file: Option<File>,
}

impl KernelFile {
    /// The file at `path`, opened when it is first read and then kept open if `keep_open`.
    pub(crate) fn new(path: PathBuf, keep_open: bool) -> Self {
        Self { path, keep_open, file: None }
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The current content of the file, without surrounding white space.
    pub(crate) fn read_text<'a>(&mut self, buffer: &'a mut Vec<u8>) -> io::Result<&'a str> {
        current_path::record_read(&self.path);
        if let Some(file) = self.file.take()
            && read_whole(&file, buffer).is_ok()
        {
            self.file = Some(file);
        } else {
            let file = File::open(&self.path)?;
            read_whole(&file, buffer)?;
            self.file = self.keep_open.then_some(file);
        }
        let text = str::from_utf8(buffer).map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
        Ok(text?.trim())
    }
}

/// Reads the whole file from its beginning, wherever earlier reads ended.
fn read_whole(file: &File, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.resize(buffer.capacity().max(FIRST_READ), 0);
    let mut length = 0;
    loop {
        if length == buffer.len() {
            if length >= MAX_FILE {
                return Err(io::Error::from(io::ErrorKind::FileTooLarge));
            }
            buffer.resize(length * 2, 0);
        }
        match file.read_at(&mut buffer[length..], length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(length);
    Ok(())
}

/// The content of a file that is read once, without surrounding white space; none if it cannot be read.
pub(crate) fn read_once(path: &Path) -> Option<String> {
    let mut buffer = Vec::new();
    let text = KernelFile::new(path.to_path_buf(), false).read_text(&mut buffer).ok()?.to_owned();
    (!text.is_empty()).then_some(text)
}

/// The names in a folder, in order; those that are not UTF-8 are left out.
pub(crate) fn list_names(folder: &Path) -> io::Result<Vec<String>> {
    current_path::record_read(folder);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.extend(entry?.file_name().into_string());
    }
    names.sort_by(|a, b| natural_key(a).cmp(&natural_key(b)));
    Ok(names)
}

/// Orders `mlx5_10` after `mlx5_9`: the name without its trailing number, then the number.
fn natural_key(name: &str) -> (&str, u64) {
    let prefix = name.trim_end_matches(|character: char| character.is_ascii_digit());
    (prefix, name[prefix.len()..].parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_file_returns_current_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("carrier");
        let mut buffer = Vec::new();
        let mut attribute = KernelFile::new(path.clone(), true);
        assert_eq!(attribute.read_text(&mut buffer).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&path, "1\n").unwrap();
        assert_eq!(attribute.read_text(&mut buffer).unwrap(), "1");
        fs::write(&path, "23456789\n").unwrap();
        assert_eq!(attribute.read_text(&mut buffer).unwrap(), "23456789");
        fs::write(&path, "0\n").unwrap();
        assert_eq!(attribute.read_text(&mut buffer).unwrap(), "0");
    }

    #[test]
    fn long_file_is_read_completely() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stat");
        let text = "cpu 1 2 3\n".repeat(2_000);
        fs::write(&path, &text).unwrap();
        let mut buffer = Vec::new();
        assert_eq!(KernelFile::new(path, true).read_text(&mut buffer).unwrap(), text.trim());
    }

    #[test]
    fn device_names_are_sorted_by_number() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["mlx5_10", "mlx5_2", "mlx5_0", "eth1", "bond"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let names = list_names(folder.path()).unwrap();
        assert_eq!(names, ["bond", "eth1", "mlx5_0", "mlx5_2", "mlx5_10"]);
    }
}
