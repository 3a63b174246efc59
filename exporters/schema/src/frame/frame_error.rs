//! What can be wrong with a frame.

use super::{frame_header::VERSION, frame_layout::MOST_COLUMNS};

/// Why a frame is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It does not begin as a frame does.
    #[error("it does not begin as a frame does")]
    NotAFrame,
    /// It is of a version that is not read here.
    #[error("it is of version {0}, and {VERSION} is read; upgrade the older of both programs")]
    Version(u8),
    /// It has a mark that this version does not know.
    #[error("it has marks that version {VERSION} does not know: {0:#04x}")]
    Marks(u8),
    /// It is not as long as it says.
    #[error("it is torn: {0} bytes came, and it says {1}")]
    Torn(usize, u32),
    /// Its checksum is another one.
    #[error("its checksum differs: it was changed on its way")]
    Checksum,
    /// A part of it goes on where it has no bytes any more.
    #[error("its {0} ends in its middle")]
    Short(&'static str),
    /// Bytes are left where it should end.
    #[error("its {0} has {1} bytes too many")]
    Long(&'static str, usize),
    /// A number of it cannot be.
    #[error("its {0} names number {1} of {2}")]
    Number(&'static str, u64, u64),
    /// It has more columns than there can be metrics.
    #[error("it has {0} columns, over the limit of {MOST_COLUMNS}")]
    Columns(u64),
    /// Its layout has another hash than it says.
    #[error("its layout is not the one that it names")]
    WrongLayout,
    /// It has no layout, and the one that it names is not held here.
    #[error("it names a layout that is not held here, and does not send it")]
    UnknownLayout,
    /// It is a difference to a tick that is not held here.
    #[error("it is a difference to a tick that is not held here")]
    UnknownTick,
    /// Readings without who tells them.
    #[error("it is whole, and has no identity")]
    NoIdentity,
    /// A column is written in a way that this version does not know.
    #[error("it has a column of code {0:#04x}, which version {VERSION} does not know")]
    Code(u8),
    /// All layouts together would hold too much.
    #[error("there is no room for its layout: {0} bytes are held already")]
    NoRoom(usize),
}
