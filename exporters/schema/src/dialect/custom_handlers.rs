//! Series of other exporters that no table can say: what takes them, by name.

use super::{
    decode_plan::DecodeOp, dialect_table::DecodeContext, infiniband_exporter, nccl_inspector,
    rdma_exporter, report_builder::ReportBuilder, snmp_exporter,
};
use crate::{
    Dialect,
    text::{Reason, TextSample},
};

/// Takes one series.
pub(super) type DecodeFn = for<'s, 'a> fn(
    &mut DecodeContext,
    &mut ReportBuilder<'a>,
    &TextSample<'s, 'a>,
) -> Result<DecodeOp, Reason>;

/// A name, and what takes its series.
#[derive(Debug)]
pub(super) struct CustomHandler {
    /// The name on the page.
    pub(super) name: &'static str,
    /// Whose name it is.
    pub(super) dialect: Dialect,
    /// What takes its series.
    pub(super) decode: DecodeFn,
}

/// All of them, exporter by exporter.
pub(super) static ALL: [&[CustomHandler]; 4] = [
    &infiniband_exporter::SPECIAL,
    &nccl_inspector::SPECIAL,
    &rdma_exporter::SPECIAL,
    &snmp_exporter::SPECIAL,
];
