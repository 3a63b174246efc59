//! Files that change at runtime: bounded reads, and polling for changes.
//!
//! Files are polled rather than watched through the kernel: polling also detects changes on network file systems,
//! behind symbolic links that change, and by renaming a file into place.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use gaunt_schema::GlobPattern;

/// A file that was changed less than this before it was read may change again within the resolution of its timestamp.
const SETTLED: Duration = Duration::from_secs(2);

/// Maximum number of files that match one pattern.
pub(super) const MAX_FILES: usize = 1_000;

/// What identifies a version of a file: replacing or writing it changes one of these fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileMark {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    /// Whether it was unchanged for long enough that its timestamps reveal the next change.
    settled: bool,
}

impl FileMark {
    /// The mark of the file at `path`, following symbolic links.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        let age = meta.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        Ok(Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
            // A time in the future never settles, and the file is read at each poll: rare, and safe.
            settled: age.is_some_and(|age| age > SETTLED),
        })
    }

    /// Whether the file need not be read again: this mark was taken before it was read, `earlier` the time before.
    pub(super) fn is_same(&self, earlier: &Self) -> bool {
        self == earlier && self.settled
    }
}

/// The text of a file of at most `limit` bytes.
pub(super) fn read_bounded(path: &Path, limit: u64) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::other("it is a folder"));
    }
    file.take(limit + 1).read_to_string(&mut text)?;
    if text.len() as u64 > limit {
        return Err(io::Error::other(format!("it is larger than {limit} bytes")));
    }
    Ok(text)
}

/// The files that match a pattern now, in order: `*` and `?` are wildcards in the last part of the path only.
pub(super) fn matching_files(pattern: &Path) -> io::Result<Vec<PathBuf>> {
    let name = pattern.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !name.contains(['*', '?']) {
        return Ok(vec![pattern.to_path_buf()]);
    }
    let folder = match pattern.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let (glob, mut found) = (GlobPattern::new(name), Vec::new());
    for entry in fs::read_dir(folder)? {
        let entry = entry?.file_name();
        // Editors and package managers leave hidden files behind.
        let Some(entry) = entry.to_str().filter(|entry| !entry.starts_with('.')) else { continue };
        if glob.matches_text(entry) {
            found.push(folder.join(entry));
        }
        if found.len() > MAX_FILES {
            return Err(io::Error::other(format!("it matches more than {MAX_FILES} files")));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_files_in_order_and_no_hidden_ones() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.json", "a.json", ".c.json", "d.txt"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found = matching_files(&folder.path().join("*.json")).unwrap();
        assert_eq!(found, [folder.path().join("a.json"), folder.path().join("b.json")]);
        assert!(matching_files(Path::new("/nowhere/*.json")).is_err());
        assert_eq!(matching_files(Path::new("/nowhere/a.json")).unwrap().len(), 1);
    }

    #[test]
    fn file_mark_changes_when_file_is_replaced_or_written() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&path, "1").unwrap();
        let first = FileMark::of(&path).unwrap();
        assert!(!first.is_same(&first), "it was written just now");
        let old = SystemTime::now() - Duration::from_mins(1);
        File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        let first = FileMark::of(&path).unwrap();
        assert!(first.is_same(&first));
        fs::write(&other, "1").unwrap();
        File::options().write(true).open(&other).unwrap().set_modified(old).unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(
            !FileMark::of(&path).unwrap().is_same(&first),
            "same size, same time, another file"
        );
    }
}
