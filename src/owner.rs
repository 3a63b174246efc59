//! The owner: holds everything that is known and judged, and is the only place where time enters.

mod handle;

pub use handle::{Gone, Handle, INBOX, QUESTIONS};
