//! The text form of a report: the Prometheus exposition format 0.0.4, written and read; OpenMetrics, written.
//!
//! [`write_text()`] makes a page of a report, [`write_page()`] one in either form and also in the formats of other exporters.
//! [`TextReader`] splits a page into lines and gives the reason for each line that it rejects. [`decode_page()`] builds a
//! report from these lines, whichever exporter's format the page has.

mod busiest_cpu;
mod families;
mod labels;
pub mod limits;
mod number;
pub mod openmetrics;
mod page_line;
mod page_template;
pub mod page_writer;
pub mod reject_reason;
mod series;
pub mod template_cache;
pub mod text_decode;
pub mod text_reader;

pub use labels::SeriesLabel;
pub use limits::PageLimits;
pub use openmetrics::{decode_open_metrics, is_open_metrics};
pub use page_line::{PageLine, TextSample};
pub use page_writer::{CompatOptions, DcgmNames, ExpositionFormat, write_page, write_text};
pub use reject_reason::Reason;
pub use template_cache::{TemplateCache, TemplateCacheStats, TemplateState};
pub use text_decode::decode_page;
pub use text_reader::{RejectedLine, TextReader};

/// The media type of a page of text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The media type of a page of OpenMetrics.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[cfg(test)]
mod differential_tests;
#[cfg(test)]
mod malformed_inputs;
#[cfg(test)]
pub(crate) mod round_trip;
#[cfg(test)]
mod template_tests;
