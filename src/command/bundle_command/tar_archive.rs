//! A tar archive in memory, in POSIX's format ustar: regular files only.

use gaunt_schema::UnixMs;

/// The size of a block; a header is one, and content is padded to whole ones.
const BLOCK: usize = 512;

/// The folder of all files.
const FOLDER: &str = "gaunt-support/";

/// The archive so far.
pub(super) struct TarArchive {
    bytes: Vec<u8>,
    /// Seconds since the epoch.
    modified: u64,
}

impl TarArchive {
    /// Without files; those that follow have this time.
    pub(super) fn new(modified: UnixMs) -> Self {
        Self { bytes: Vec::new(), modified: u64::try_from(modified.0 / 1_000).unwrap_or(0) }
    }

    /// Adds a file. Its name has at most 85 bytes; a longer one is cut.
    pub(super) fn add_file(&mut self, name: &str, content: &[u8]) {
        let mut header = [0_u8; BLOCK];
        let mut put = |at: usize, text: &str| {
            header[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        let end = name.floor_char_boundary(85);
        put(0, &format!("{FOLDER}{}", &name[..end]));
        put(100, "0000600\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, &format!("{:011o}\0", content.len()));
        put(136, &format!("{:011o}\0", self.modified));
        // The checksum counts its own field as spaces.
        put(148, "        ");
        put(156, "0");
        put(257, "ustar\0");
        put(263, "00");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
    }

    /// The archive, with the two empty blocks that end it.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tar_extracts_every_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = TarArchive::new(UnixMs(1_795_000_000_000));
        archive.add_file("answers/overview.json", b"{}");
        archive.add_file("empty", b"");
        archive.add_file("block", &[b'x'; BLOCK]);
        archive.add_file(&"é".repeat(60), b"cut");
        std::fs::write(folder.path().join("a.tar"), archive.into_bytes()).unwrap();
        let tar = Command::new("tar").args(["-xf", "a.tar"]).current_dir(folder.path()).output();
        let tar = tar.unwrap();
        assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
        let read = |name: &str| std::fs::read(folder.path().join(FOLDER).join(name)).unwrap();
        assert_eq!(read("answers/overview.json"), b"{}");
        assert_eq!(read("empty"), b"");
        assert_eq!(read("block"), [b'x'; BLOCK]);
        assert_eq!(read(&"é".repeat(42)), b"cut");
    }
}
