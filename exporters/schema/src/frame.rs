//! Frames: the binary form of a node's report at one instant, exchanged between gaunt programs.
//!
//! `exporters/schema/FRAME.md` specifies it. A frame has three parts, of which the first two are mostly left out: the
//! layout (which devices there are and what is measured on them), addressed by a hash of its content; the identity (the
//! names of the devices and the jobs that hold them); and the readings, column by column, whole or as differences to
//! those that the client has. [`FrameEncoder`] writes frames, [`FrameDecoder`] reads them. The text form of the same
//! report has the same content.

mod bytes;
mod client_state;
mod column_encoding;
mod frame_decoder;
mod frame_encoder;
mod frame_error;
mod frame_format;
mod frame_header;
mod frame_identity;
mod frame_layout;
mod layout_hash;

#[cfg(test)]
mod tests;

pub use client_state::{ClientState, HOLDS};
pub use frame_decoder::{FrameDecodeState, FrameDecoder, FrameDecoderStats, LAYOUT_BYTES};
pub use frame_encoder::{FrameEncoder, FrameParts, encode_reading};
pub use frame_error::FrameError;
pub use frame_format::VERSION;
pub use frame_layout::FrameLayout;
pub use layout_hash::LayoutHash;

/// The media type of a frame.
pub const CONTENT_TYPE: &str = "application/vnd.gaunt.frame;version=1";

/// The media type without its version.
pub const MEDIA: &str = "application/vnd.gaunt.frame";

/// Whether a body of this media type, in lower case, is a frame of any version.
pub fn is_frame(media_type: &str) -> bool {
    media_type.split(';').next().is_some_and(|media| media.trim() == MEDIA)
}
