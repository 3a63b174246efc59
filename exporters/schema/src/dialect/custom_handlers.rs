//! Handlers, by metric name, for series of other exporters that no table can express.

use super::{
    decode_plan::DecodeOp, dialect_table::DecodeContext, infiniband_exporter, nccl_inspector,
    rdma_exporter, report_builder::ReportBuilder, snmp_exporter,
};
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

/// All handlers, exporter by exporter.
pub(super) static ALL: [&[CustomHandler]; 4] = [
    &infiniband_exporter::SPECIAL,
    &nccl_inspector::SPECIAL,
    &rdma_exporter::SPECIAL,
    &snmp_exporter::SPECIAL,
];
