//! The frame: what one node says at one instant, in the binary form that programs of this house speak among themselves.
//!
//! `exporters/schema/FRAME.md` specifies it. A frame has three parts, of which the first two are mostly left out: the
//! layout, which devices there are and what is measured on them, named by a hash of its content; the identity, who the
//! devices are and which jobs hold them; and the readings, column by column, whole or as differences to those that the
//! client holds. [`Told`] writes frames, [`Frames`] reads them. The text of the same report says the same.

mod bytes;
mod columns;
mod fault;
mod hash;
mod head;
mod holds;
mod identity;
mod layout;
mod read;
mod told;

#[cfg(test)]
mod tests;

pub use fault::Fault;
pub use hash::Hash;
pub use head::VERSION;
pub use holds::{HOLDS, Holds};
pub use layout::Layout;
pub use read::{Frames, LAYOUT_BYTES, Memory, Tidings};
pub use told::{Told, Whole, bits};

/// The media type of a frame.
pub const CONTENT_TYPE: &str = "application/vnd.gaunt.frame;version=1";

/// The media type without its version.
pub const MEDIA: &str = "application/vnd.gaunt.frame";

/// Whether a body of this media type, in lower case, is a frame of any version.
pub fn is_frame(media_type: &str) -> bool {
    media_type.split(';').next().is_some_and(|media| media.trim() == MEDIA)
}
