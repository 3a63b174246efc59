//! The files of a folder that may be dumps: named PREFIX and rank, in the folder or in one subfolder a host.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::Context as _;
use gaunt_schema::SanitizedText;

/// The largest file that is read: 100,000 operations with their stacks.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The most files and subfolders that are listed.
const MAX_FILES: usize = 1 << 17;

/// One file of a rank.
#[derive(Debug)]
pub(super) struct DumpFile {
    pub(super) path: PathBuf,
    /// The subfolder that it is in: the host, if each host has one.
    pub(super) host: Option<SanitizedText>,
    modified: SystemTime,
}

/// The files of a folder by rank, and the names of those that are not read.
#[derive(Debug, Default)]
pub(super) struct DumpFolder {
    pub(super) files: BTreeMap<u32, DumpFile>,
    /// Older dumps of a rank that has a newer one.
    pub(super) older: Vec<PathBuf>,
    listed: usize,
}

impl DumpFolder {
    /// Lists a folder.
    pub(super) fn list_files(folder: &Path) -> anyhow::Result<Self> {
        let mut files = Self::default();
        let subfolders = files.add_folder(folder, None)?;
        for subfolder in subfolders {
            let host =
                subfolder.file_name().map(|name| SanitizedText::new(&name.to_string_lossy()));
            files.add_folder(&subfolder, host.as_ref())?;
        }
        Ok(files)
    }

    fn add_folder(
        &mut self,
        folder: &Path,
        host: Option<&SanitizedText>,
    ) -> anyhow::Result<Vec<PathBuf>> {
        let describe = || format!("cannot list the folder {}; check its path", folder.display());
        let mut subfolders = Vec::new();
        for entry in fs::read_dir(folder).with_context(describe)? {
            let path = entry.with_context(describe)?.path();
            self.listed += 1;
            if self.listed > MAX_FILES {
                anyhow::bail!(
                    "{} has more than {MAX_FILES} files; keep the dumps of one job in a folder",
                    folder.display()
                );
            }
            // A link without a target is no dump.
            let Ok(metadata) = fs::metadata(&path) else { continue };
            if metadata.is_dir() && host.is_none() {
                subfolders.push(path);
            } else if let (true, Some(rank)) = (metadata.is_file(), rank_of_name(&path)) {
                let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                self.add_file(rank, DumpFile { path, host: host.cloned(), modified });
            }
        }
        subfolders.sort();
        Ok(subfolders)
    }

    fn add_file(&mut self, rank: u32, file: DumpFile) {
        let is_newer =
            |other: &DumpFile| (other.modified, &other.path) > (file.modified, &file.path);
        if self.files.get(&rank).is_some_and(is_newer) {
            self.older.push(file.path);
        } else if let Some(older) = self.files.insert(rank, file) {
            self.older.push(older.path);
        }
    }
}

/// The rank in a file name: the digits at its end, before an extension.
fn rank_of_name(path: &Path) -> Option<u32> {
    const EXTENSIONS: [&str; 3] = [".json", ".pickle", ".pkl"];
    let name = path.file_name()?.to_str()?;
    let stem = EXTENSIONS.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let digits = stem.len() - stem.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    stem[stem.len() - digits..].parse().ok()
}

/// Reads a file as a whole, up to the limit.
pub(super) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let text = format!("larger than {} MiB; dump fewer operations", MAX_FILE_BYTES >> 20);
        return Err(io::Error::other(text));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_is_the_number_at_the_end_of_a_name() {
        for (name, rank) in [
            ("nccl_trace_rank_0", Some(0)),
            ("comm_lib_trace_rank_1023", Some(1023)),
            ("dump-7.json", Some(7)),
            ("rank12.pickle", Some(12)),
            ("5.pkl", Some(5)),
            ("notes.txt", None),
            ("rank_", None),
            ("rank_99999999999", None),
            ("rank_3.txt", None),
        ] {
            assert_eq!(rank_of_name(Path::new(name)), rank, "{name}");
        }
    }

    #[test]
    fn newer_dump_of_a_rank_replaces_the_older_one() {
        let seconds = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        let file =
            |path: &str, at| DumpFile { path: path.into(), host: None, modified: seconds(at) };
        for order in [[("old_0", 1), ("new_0", 2)], [("new_0", 2), ("old_0", 1)]] {
            let mut folder = DumpFolder::default();
            for (path, at) in order {
                folder.add_file(0, file(path, at));
            }
            assert_eq!(folder.files[&0].path, Path::new("new_0"));
            assert_eq!(folder.older, [Path::new("old_0")]);
        }
    }
}
