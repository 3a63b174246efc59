//! The handler, by metric name, of a series of another exporter that no table can express.

use super::{decode_plan::DecodeOp, dialect_table::DecodeContext, report_builder::ReportBuilder};
use crate::{
    Dialect,
    text::{Reason, TextSample},
};

/// Decodes one series.
pub(super) type DecodeFn = for<'s, 'a> fn(
    &mut DecodeContext,
    &mut ReportBuilder<'a>,
    &TextSample<'s, 'a>,
) -> Result<DecodeOp, Reason>;

/// A name, and the handler of its series.
#[derive(Debug)]
pub(super) struct CustomHandler {
    /// The name on the page.
    pub(super) name: &'static str,
    /// The exporter that uses the name.
    pub(super) dialect: Dialect,
    /// The handler.
    pub(super) decode: DecodeFn,
}
