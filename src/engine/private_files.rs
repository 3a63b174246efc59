//! Files and folders that only their owner may read: they tell names of jobs, users and nodes.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

/// The modes of a file and a folder.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Creates a folder and those above it. Existing ones keep their mode, which is the operator's choice.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)
}

/// Creates a file, or truncates it. A link in its place is an error: it could lead to any file.
pub(crate) fn open_replaced(path: &Path) -> io::Result<File> {
    options().write(true).create(true).truncate(true).open(path)
}

/// Opens the file that a process locks, and leaves its content. A link in its place is an error.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    options().write(true).create(true).truncate(false).open(path)
}

/// Creates a file, which must not exist.
pub(crate) fn open_new(path: &Path) -> io::Result<File> {
    options().append(true).create_new(true).open(path)
}

/// Opens a file, which must exist, to append to it. A link in its place is an error.
pub(crate) fn open_end(path: &Path) -> io::Result<File> {
    options().append(true).open(path)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits();
    options.mode(FILE_MODE).custom_flags(no_follow.cast_signed());
    options
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn created_files_and_folders_are_private() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("state/inner");
        create_folder(&folder).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        for create in [open_replaced, open_lock, open_new] {
            let path = folder.join("file");
            drop(create(&path).unwrap());
            assert_eq!(mode(&path), 0o600);
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn files_are_never_opened_through_a_link() {
        let root = tempfile::tempdir().unwrap();
        let (target, link) = (root.path().join("target"), root.path().join("lock"));
        fs::write(&target, "content").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        for create in [open_replaced, open_lock, open_new, open_end] {
            assert!(create(&link).is_err());
        }
        assert_eq!(fs::read_to_string(target).unwrap(), "content");
    }
}
