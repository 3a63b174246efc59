//! The errors of frame decoding.

use super::frame_format::{MOST_COLUMNS, VERSION};

/// Why a frame is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It does not begin with the magic bytes.
    #[error("wrong magic bytes")]
    NotAFrame,
    /// Its version is not supported.
    #[error("version {0} is not supported, only version {VERSION}; upgrade the older program")]
    Version(u8),
    /// It has a flag that this version does not know.
    #[error("flags unknown to version {VERSION}: {0:#04x}")]
    Marks(u8),
    /// Its length differs from the one in the header.
    #[error("length mismatch: {0} bytes received, {1} announced")]
    Torn(usize, u32),
    /// Its checksum does not match.
    #[error("checksum mismatch: changed in transit")]
    Checksum,
    /// A part of it ends too early.
    #[error("its {0} is truncated")]
    Short(&'static str),
    /// Bytes are left after the end of a part.
    #[error("its {0} has {1} excess bytes")]
    Long(&'static str, usize),
    /// A number is out of range.
    #[error("its {0} has number {1} out of range (limit {2})")]
    Number(&'static str, u64, u64),
    /// It has more columns than there can be metrics.
    #[error("{0} columns, over the limit of {MOST_COLUMNS}")]
    Columns(u64),
    /// The hash of its layout does not match the header.
    #[error("its layout does not match its hash")]
    WrongLayout,
    /// It has no layout, and the layout in its header is not stored here.
    #[error("unknown layout hash without a layout")]
    UnknownLayout,
    /// It is a difference to a tick that is not stored here.
    #[error("difference to an unknown tick")]
    UnknownTick,
    /// Readings without an identity.
    #[error("whole frame without an identity")]
    NoIdentity,
    /// A column has an encoding that this version does not know.
    #[error("column code unknown to version {VERSION}: {0:#04x}")]
    Code(u8),
    /// All layouts together would exceed the limit.
    #[error("no space for its layout: {0} bytes of layouts stored")]
    NoRoom(usize),
}
