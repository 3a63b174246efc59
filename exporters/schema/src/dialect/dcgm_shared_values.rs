//! Values of a GPU or MIG instance that dcgm-exporter has for the device itself and again for each pod that shares it. That of
//! the device counts, wherever it is on the page: a server that stores samples gives them back in another order.

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet, hash_map::Entry};

use super::report_builder::ReportBuilder;
use crate::{MetricId, Reading};

/// Which samples and fields have the value of a pod so far.
#[derive(Debug, Default)]
pub(super) struct SharedValues {
    /// Samples whose value is of a line that names a pod or job.
    of_holders: HashSet<u32, RandomState>,
    /// The fields of instances that are decoded, with their line if that names a pod or job.
    instance_fields: HashMap<(u32, MetricId), Option<HolderLine>, RandomState>,
}

/// A line that names a pod or job and is the value of an instance: its place in the plan, and the sample that it was added to.
#[derive(Clone, Copy, Debug)]
pub(super) struct HolderLine {
    /// The position of its operation in the plan.
    op: usize,
    /// The sum, as a position in the report, and the summand.
    sum: Option<(u32, Reading)>,
}

impl SharedValues {
    /// Records that a sample has the value of a line that names a pod or job.
    pub(super) fn add_holder_sample(&mut self, index: u32) {
        self.of_holders.insert(index);
    }

    /// Whether a line replaces the value of a sample: it names no pod or job, and the line before did.
    pub(super) fn replaces_sample(&mut self, index: u32, has_holder: bool) -> bool {
        !has_holder && self.of_holders.remove(&index)
    }

    /// Whether a line is the value of a field of an instance: the first one, or one that names no pod or job after one that
    /// does, which is then withdrawn.
    pub(super) fn is_instance_value(
        &mut self,
        builder: &mut ReportBuilder<'_>,
        field: (u32, MetricId),
        has_holder: bool,
    ) -> bool {
        match self.instance_fields.entry(field) {
            Entry::Vacant(entry) => {
                entry.insert(None);
                true
            }
            Entry::Occupied(mut entry) if !has_holder => match entry.get_mut().take() {
                Some(line) => {
                    builder.withdraw_line(line.op, line.sum);
                    true
                }
                None => false,
            },
            Entry::Occupied(_) => false,
        }
    }

    /// Records the line of a pod or job that is the value of a field of an instance, before its operation is planned.
    pub(super) fn add_holder_line(
        &mut self,
        builder: &ReportBuilder<'_>,
        field: (u32, MetricId),
        sum: Option<(u32, Reading)>,
    ) {
        self.instance_fields.insert(field, Some(HolderLine { op: builder.plan.ops.len(), sum }));
    }
}
