//! `gaunt_absent`: a series that could exist and does not, and why.

use super::{decode_plan::DecodeOp, report_builder::ReportBuilder};
use crate::{
    AbsenceReason, MetricId,
    catalogue::{CATALOGUE, NamedRows, exporter::ABSENT, find_rows},
    text::{
        Reason, TextSample,
        page_writer::{ABSENT_METRIC, ABSENT_REASON, ABSENT_TAG},
    },
};

/// The name of the series.
pub(super) const NAME: &str = ABSENT;

/// Decodes one absence mark.
pub(super) fn decode_absence<'a>(
    builder: &mut ReportBuilder<'a>,
    sample: &TextSample<'_, 'a>,
) -> Result<DecodeOp, Reason> {
    let op = builder.plan.require_value(sample.value);
    if sample.value == 0.0 {
        // The mark was withdrawn: nothing is absent.
        return Ok(op);
    }
    let result = add_absent_reading(builder, sample);
    // With another value the line would not be rejected.
    builder.not_replayable |= result.is_err();
    result.map(|()| op)
}

fn add_absent_reading<'a>(
    builder: &mut ReportBuilder<'a>,
    sample: &TextSample<'_, 'a>,
) -> Result<(), Reason> {
    let value = |name| sample.find_label(name).map(crate::text::SeriesLabel::unescaped_value);
    let metric =
        value(ABSENT_METRIC).and_then(|name| find_rows(&name)).ok_or(Reason::BadAbsence)?;
    let reason = value(ABSENT_REASON).and_then(|text| AbsenceReason::parse(&text));
    let reason = reason.ok_or(Reason::BadAbsence)?;
    let id = find_tagged_row(metric, value(ABSENT_TAG).as_deref()).ok_or(Reason::BadAbsence)?;
    let device =
        builder.device_of_sample(id.catalogue_row().class, sample).ok_or(Reason::NoDevice)?;
    builder.add_constant(device, id, reason)
}

/// The row of a name whose fixed label has this value.
pub(super) fn find_tagged_row(named: NamedRows, tag: Option<&str>) -> Option<MetricId> {
    let first = usize::from(named.first.0);
    let rows = &CATALOGUE[first..first + usize::from(named.rows)];
    let index = rows.iter().position(|row| row.tag.map(|(_, value)| value) == tag)?;
    Some(MetricId((first + index) as u16))
}
