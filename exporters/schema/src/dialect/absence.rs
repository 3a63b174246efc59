//! `gaunt_absent`: a series that could exist and does not, and why.

use super::{assembly::Assembly, plan::Op};
use crate::{
    Absent, MetricId,
    catalogue::{CATALOGUE, Named, exporter::ABSENT, named},
    text::{
        Reason, Sample,
        write::{ABSENT_METRIC, ABSENT_REASON, ABSENT_TAG},
    },
};

/// The name of the series.
pub(super) const NAME: &str = ABSENT;

/// Takes one mark of absence.
pub(super) fn take<'a>(assembly: &mut Assembly<'a>, sample: &Sample<'_, 'a>) -> Result<Op, Reason> {
    let op = assembly.plan.only(sample.value);
    if sample.value == 0.0 {
        // The mark was taken back: nothing is said to be absent.
        return Ok(op);
    }
    let taken = mark(assembly, sample);
    // With another value the line would not be refused.
    assembly.unsteady |= taken.is_err();
    taken.map(|()| op)
}

fn mark<'a>(assembly: &mut Assembly<'a>, sample: &Sample<'_, 'a>) -> Result<(), Reason> {
    let value = |name| sample.label(name).map(crate::text::Label::value);
    let metric = value(ABSENT_METRIC).and_then(|name| named(&name)).ok_or(Reason::BadAbsence)?;
    let reason = value(ABSENT_REASON).and_then(|word| Absent::parse(&word));
    let reason = reason.ok_or(Reason::BadAbsence)?;
    let id = tagged(metric, value(ABSENT_TAG).as_deref()).ok_or(Reason::BadAbsence)?;
    let device = assembly.device_of(id.row().class, sample).ok_or(Reason::NoDevice)?;
    assembly.constant(device, id, reason)
}

/// The row among those of a name whose fixed label has this value.
pub(super) fn tagged(named: Named, tag: Option<&str>) -> Option<MetricId> {
    let first = usize::from(named.first.0);
    let rows = &CATALOGUE[first..first + usize::from(named.rows)];
    let at = rows.iter().position(|row| row.tag.map(|(_, value)| value) == tag)?;
    Some(MetricId((first + at) as u16))
}
