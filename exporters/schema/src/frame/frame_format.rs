//! The version of the frame format and its limit of columns.

/// The version that is written, and the only one that is accepted.
pub const VERSION: u8 = 1;

/// The most columns of a layout: no more than metrics can have numbers.
pub(super) const MOST_COLUMNS: usize = 1 << 16;
