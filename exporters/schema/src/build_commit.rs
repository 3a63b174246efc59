//! The commit that a release is built from, as the build script reads it from the repository's files.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Length of the commit in a version: as git abbreviates it in a repository of this size.
const SHOWN_DIGITS: usize = 12;

/// The abbreviated commit of `text`, if it is a hash of git.
pub(crate) fn abbreviate_commit(text: &str) -> Option<String> {
    let text = text.trim();
    let is_hash = matches!(text.len(), SHOWN_DIGITS..=64)
        && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_hash.then(|| text[..SHOWN_DIGITS].to_owned())
}

/// The folder of git for the working tree at `root`: `.git`, or where a linked working tree keeps it.
pub(crate) fn git_folder(root: &Path) -> Option<PathBuf> {
    let entry = root.join(".git");
    if entry.is_dir() {
        return Some(entry);
    }
    let text = fs::read_to_string(entry).ok()?;
    Some(root.join(text.strip_prefix("gitdir:")?.trim()))
}

/// The commit that is checked out in a folder of git, abbreviated; none if its files do not state it.
pub(crate) fn read_commit(git: &Path) -> Option<String> {
    let head = fs::read_to_string(git.join("HEAD")).ok()?;
    let Some(branch) = head.strip_prefix("ref:").map(str::trim) else {
        return abbreviate_commit(&head);
    };
    // Branches of a linked working tree are in the folder of the repository itself.
    let shared = match fs::read_to_string(git.join("commondir")) {
        Ok(folder) => git.join(folder.trim()),
        Err(_) => git.to_path_buf(),
    };
    if let Ok(commit) = fs::read_to_string(shared.join(branch)) {
        return abbreviate_commit(&commit);
    }
    let packed = fs::read_to_string(shared.join("packed-refs")).ok()?;
    packed.lines().find_map(|line| {
        let (commit, name) = line.split_once(' ')?;
        (name == branch).then(|| abbreviate_commit(commit))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    /// Writes the files of a repository into a new folder.
    fn write_files(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("gaunt-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn commit_is_read_from_branch_packed_refs_and_detached_head() {
        let commit = format!("{COMMIT}\n");
        let packed = format!("# pack-refs\n{COMMIT} refs/heads/main\n");
        for (name, files) in [
            (
                "branch",
                &[
                    (".git/HEAD", "ref: refs/heads/main\n"),
                    (".git/refs/heads/main", commit.as_str()),
                ][..],
            ),
            (
                "packed",
                &[(".git/HEAD", "ref: refs/heads/main\n"), (".git/packed-refs", packed.as_str())][..],
            ),
            ("detached", &[(".git/HEAD", commit.as_str())][..]),
        ] {
            let root = write_files(name, files);
            let git = git_folder(&root).unwrap();
            assert_eq!(read_commit(&git).as_deref(), Some("0123456789ab"), "{name}");
            fs::remove_dir_all(root).unwrap();
        }
    }

    #[test]
    fn commit_of_a_linked_working_tree_is_in_the_shared_folder() {
        let commit = format!("{COMMIT}\n");
        let root = write_files(
            "linked",
            &[
                ("tree/.git", "gitdir: ../main/.git/worktrees/tree\n"),
                ("main/.git/worktrees/tree/HEAD", "ref: refs/heads/side\n"),
                ("main/.git/worktrees/tree/commondir", "../..\n"),
                ("main/.git/refs/heads/side", commit.as_str()),
            ],
        );
        let git = git_folder(&root.join("tree")).unwrap();
        assert_eq!(read_commit(&git).as_deref(), Some("0123456789ab"));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn commit_is_absent_without_a_repository() {
        let root = write_files("none", &[("Cargo.toml", "")]);
        assert_eq!(git_folder(&root), None);
        assert_eq!(read_commit(&root), None);
        assert_eq!(abbreviate_commit("main"), None);
        assert_eq!(abbreviate_commit("$(reboot) 0123456789"), None);
        fs::remove_dir_all(root).unwrap();
    }
}
