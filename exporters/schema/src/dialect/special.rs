//! Series of other exporters that no table can say: what takes them, by name.

use super::{assembly::Assembly, infiniband, nccl, plan::Op, rdma, snmp, table::Told};
use crate::{
    Dialect,
    text::{Reason, Sample},
};

/// Takes one series.
pub(super) type Take =
    for<'s, 'a> fn(&mut Told, &mut Assembly<'a>, &Sample<'s, 'a>) -> Result<Op, Reason>;

/// A name, and what takes its series.
#[derive(Debug)]
pub(super) struct Special {
    /// The name on the page.
    pub(super) name: &'static str,
    /// Whose name it is.
    pub(super) dialect: Dialect,
    /// What takes its series.
    pub(super) take: Take,
}

/// All of them, exporter by exporter.
pub(super) static ALL: [&[Special]; 4] =
    [&infiniband::SPECIAL, &nccl::SPECIAL, &rdma::SPECIAL, &snmp::SPECIAL];
