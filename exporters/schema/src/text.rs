//! The text form of a report: the Prometheus exposition format 0.0.4, written and read; OpenMetrics, written.
//!
//! [`write()`] makes a page of a report, [`write_page()`] one in either form and in other exporters' words as well. [`Reader`] takes any page apart, line by line, and says of each line that it
//! cannot take why. [`decode()`] puts a report together from what the reader finds, in whoever's words the page is.

pub mod decode;
mod families;
mod labels;
mod layout;
pub mod layouts;
pub mod limits;
mod number;
pub mod open;
pub mod reader;
pub mod reason;
mod series;
pub mod write;

pub use decode::decode;
pub use labels::Label;
pub use layouts::{Layouts, Memory, Tidings};
pub use limits::Limits;
pub use open::{decode_open_metrics, is_open_metrics};
pub use reader::{Line, Reader, Reject, Sample};
pub use reason::Reason;
pub use write::{Compat, Form, write, write_page};

/// The media type of a page of text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The media type of a page of OpenMetrics.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[cfg(test)]
mod differential;
#[cfg(test)]
mod hard_cases;
#[cfg(test)]
mod repeats;
#[cfg(test)]
pub(crate) mod round_trip;
