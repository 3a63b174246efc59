//! Fields: the driver's way of answering many questions in one call.

use gaunt_schema::{Absent, MetricId, catalogue::gpu_health as health};
use nvml_wrapper::error::NvmlError;

use super::{Door, Handle, Round};
use crate::nvml::{call::Call, door::Field};

/// A field's number in NVML, the metric that it is, and from its unit to ours.
struct Row(u32, MetricId, f64);

/// What changes from tick to tick.
const QUICK: &[Row] = &[
    Row(82, health::MEMORY_TEMPERATURE, 1.0),
    Row(186, health::POWER_INSTANT, 1e-3),
    Row(94, health::PCIE_REPLAYS, 1.0),
    Row(74, health::VIOLATION_POWER, 1e-9),
    Row(75, health::VIOLATION_THERMAL, 1e-9),
    Row(76, health::VIOLATION_SYNC_BOOST, 1e-9),
    Row(77, health::VIOLATION_BOARD_LIMIT, 1e-9),
    Row(78, health::VIOLATION_LOW_UTILIZATION, 1e-9),
    Row(79, health::VIOLATION_RELIABILITY, 1e-9),
];

/// What is looked at now and then.
const SLOW: &[Row] = &[
    Row(189, health::POWER_DEFAULT_LIMIT, 1e-3),
    Row(3, health::ECC_CORRECTED_VOLATILE, 1.0),
    Row(4, health::ECC_UNCORRECTED_VOLATILE, 1.0),
    Row(5, health::ECC_CORRECTED_AGGREGATE, 1.0),
    Row(6, health::ECC_UNCORRECTED_AGGREGATE, 1.0),
    Row(29, health::RETIRED_CORRECTED, 1.0),
    Row(30, health::RETIRED_UNCORRECTED, 1.0),
    Row(31, health::RETIRED_PENDING, 1.0),
    Row(38, health::NVLINK_CRC_FLIT, 1.0),
    Row(45, health::NVLINK_CRC_DATA, 1.0),
    Row(142, health::REMAPPED_CORRECTED, 1.0),
    Row(143, health::REMAPPED_UNCORRECTED, 1.0),
    Row(144, health::REMAP_PENDING, 1.0),
    Row(145, health::REMAP_FAILED, 1.0),
    Row(230, health::RECOVERY_ACTION, 1.0),
];

/// Every metric that comes from a field that is asked rarely.
pub(super) fn rare() -> impl Iterator<Item = &'static MetricId> {
    SLOW.iter().map(|Row(_, metric, _)| metric)
}

/// Every metric that comes from a field.
pub(super) fn all() -> impl Iterator<Item = &'static MetricId> {
    QUICK.iter().chain(SLOW).map(|Row(_, metric, _)| metric)
}

/// Asks for what changes from tick to tick.
pub(super) fn quick(round: &mut Round<'_>, door: Door<'_>, handle: Handle) {
    rows(QUICK, round, door, handle);
}

/// Asks for what is looked at now and then.
pub(super) fn slow(round: &mut Round<'_>, door: Door<'_>, handle: Handle) {
    rows(SLOW, round, door, handle);
}

fn rows(rows: &[Row], round: &mut Round<'_>, door: Door<'_>, handle: Handle) {
    let questions: Vec<_> = rows.iter().map(|Row(id, ..)| (*id, 0)).collect();
    let answers = ask(&questions, round, door, handle);
    for (Row(_, metric, scale), answer) in rows.iter().zip(answers) {
        // A division is exact to the last bit where the product with a fraction is not.
        let scaled = |value| if *scale < 1.0 { value / scale.recip().round() } else { value };
        round.put(*metric, answer.map(scaled));
    }
}

/// Asks for fields by number and scope. Without the whole call each of them is absent for its reason.
pub(super) fn ask(
    questions: &[(u32, u32)],
    round: &mut Round<'_>,
    door: Door<'_>,
    handle: Handle,
) -> Vec<Result<f64, Absent>> {
    let silent = |(id, scope): &(u32, u32)| Field {
        id: *id,
        scope: *scope,
        value: Err(NvmlError::NotSupported),
    };
    let mut fields: Vec<_> = questions.iter().map(silent).collect();
    match round.ask(Call::Fields, || door.fields(handle, &mut fields)) {
        Ok(()) => fields.into_iter().map(|field| value(round, &field)).collect(),
        Err(reason) => vec![Err(reason); questions.len()],
    }
}

/// The value of one field. A number that the driver does not know belongs to a newer one.
fn value(round: &mut Round<'_>, field: &Field) -> Result<f64, Absent> {
    match &field.value {
        Ok(value) => Ok(*value),
        Err(NvmlError::InvalidArg | NvmlError::NoData) => Err(Absent::Unsupported),
        Err(error) => Err(round.reason(Call::Fields, error)),
    }
}
