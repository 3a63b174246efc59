//! What the files of a backlog have in common: their first bytes, and why one cannot be read.

use std::io;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BacklogFileError {
    /// Its first bytes are those of another version of gaunt, which can read it.
    #[error("it is of another version of gaunt")]
    OtherVersion,
    /// It is no such file, or a part of one.
    #[error("{0}")]
    Damaged(&'static str),
    /// The disk refused it.
    #[error("{0}")]
    Disk(#[from] io::Error),
}

/// What follows the magic of a file: three letters of its kind, and a digit or letter of its version.
pub(crate) fn check_magic(bytes: &[u8], magic: [u8; 4]) -> Result<&[u8], BacklogFileError> {
    match bytes.split_first_chunk::<4>() {
        Some((found, rest)) if *found == magic => Ok(rest),
        Some((found, _)) if found[..3] == magic[..3] && found[3].is_ascii_alphanumeric() => {
            Err(BacklogFileError::OtherVersion)
        }
        Some(_) => Err(BacklogFileError::Damaged("it begins with other bytes")),
        None => Err(BacklogFileError::Damaged("it is cut short")),
    }
}
