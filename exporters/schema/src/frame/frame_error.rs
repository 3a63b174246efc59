//! The errors of frame decoding.

use super::{frame_header::VERSION, frame_layout::MOST_COLUMNS};

/// Why a frame is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It does not begin with the magic bytes.
    #[error("it does not begin as a frame does")]
    NotAFrame,
    /// Its version is not supported.
    #[error("it is of version {0}, and {VERSION} is read; upgrade the older of both programs")]
    Version(u8),
    /// It has a flag that this version does not know.
    #[error("it has marks that version {VERSION} does not know: {0:#04x}")]
    Marks(u8),
    /// Its length differs from the one in the header.
    #[error("it is torn: {0} bytes came, and it says {1}")]
    Torn(usize, u32),
    /// Its checksum does not match.
    #[error("its checksum differs: it was changed on its way")]
    Checksum,
    /// A part of it ends too early.
    #[error("its {0} ends in its middle")]
    Short(&'static str),
    /// Bytes are left after the end of a part.
    #[error("its {0} has {1} bytes too many")]
    Long(&'static str, usize),
    /// A number is out of range.
    #[error("its {0} names number {1} of {2}")]
    Number(&'static str, u64, u64),
    /// It has more columns than there can be metrics.
    #[error("it has {0} columns, over the limit of {MOST_COLUMNS}")]
    Columns(u64),
    /// The hash of its layout does not match the header.
    #[error("its layout is not the one that it names")]
    WrongLayout,
    /// It has no layout, and the layout in its header is not stored here.
    #[error("it names a layout that is not held here, and does not send it")]
    UnknownLayout,
    /// It is a difference to a tick that is not stored here.
    #[error("it is a difference to a tick that is not held here")]
    UnknownTick,
    /// Readings without an identity.
    #[error("it is whole, and has no identity")]
    NoIdentity,
    /// A column has an encoding that this version does not know.
    #[error("it has a column of code {0:#04x}, which version {VERSION} does not know")]
    Code(u8),
    /// All layouts together would exceed the limit.
    #[error("there is no room for its layout: {0} bytes are held already")]
    NoRoom(usize),
}
