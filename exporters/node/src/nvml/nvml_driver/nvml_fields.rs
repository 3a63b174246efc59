//! NVML fields: the driver's API for many values in one call.

use gaunt_schema::{AbsenceReason, MetricId, catalogue::gpu_health as health};
use nvml_wrapper::error::NvmlError;

use super::{GpuSamplingRound, NvmlDeviceHandle, NvmlFunctions};
use crate::nvml::{
    driver_call::{Call, CurrentCall},
    nvml_ffi::NvmlFieldQuery,
};

/// A field's number, its metric, and the scale to our unit.
struct NvmlFieldRow(u32, MetricId, f64);

/// `NVML_FI_DEV_POWER_INSTANT`, in milliwatts.
const POWER_INSTANT_FIELD: u32 = 186;

/// The fields that are read each tick.
const QUICK: &[NvmlFieldRow] = &[
    NvmlFieldRow(82, health::MEMORY_TEMPERATURE, 1.0),
    NvmlFieldRow(POWER_INSTANT_FIELD, health::POWER_INSTANT, 1e-3),
    NvmlFieldRow(94, health::PCIE_REPLAYS, 1.0),
];

/// The fields that are read periodically.
const SLOW: &[NvmlFieldRow] = &[
    NvmlFieldRow(189, health::POWER_DEFAULT_LIMIT, 1e-3),
    NvmlFieldRow(74, health::VIOLATION_POWER, 1e-9),
    NvmlFieldRow(75, health::VIOLATION_THERMAL, 1e-9),
    NvmlFieldRow(76, health::VIOLATION_SYNC_BOOST, 1e-9),
    NvmlFieldRow(77, health::VIOLATION_BOARD_LIMIT, 1e-9),
    NvmlFieldRow(78, health::VIOLATION_LOW_UTILIZATION, 1e-9),
    NvmlFieldRow(79, health::VIOLATION_RELIABILITY, 1e-9),
    NvmlFieldRow(3, health::ECC_CORRECTED_VOLATILE, 1.0),
    NvmlFieldRow(4, health::ECC_UNCORRECTED_VOLATILE, 1.0),
    NvmlFieldRow(5, health::ECC_CORRECTED_AGGREGATE, 1.0),
    NvmlFieldRow(6, health::ECC_UNCORRECTED_AGGREGATE, 1.0),
    NvmlFieldRow(29, health::RETIRED_CORRECTED, 1.0),
    NvmlFieldRow(30, health::RETIRED_UNCORRECTED, 1.0),
    NvmlFieldRow(31, health::RETIRED_PENDING, 1.0),
    NvmlFieldRow(38, health::NVLINK_CRC_FLIT, 1.0),
    NvmlFieldRow(45, health::NVLINK_CRC_DATA, 1.0),
    NvmlFieldRow(142, health::REMAPPED_CORRECTED, 1.0),
    NvmlFieldRow(143, health::REMAPPED_UNCORRECTED, 1.0),
    NvmlFieldRow(144, health::REMAP_PENDING, 1.0),
    NvmlFieldRow(145, health::REMAP_FAILED, 1.0),
    NvmlFieldRow(230, health::RECOVERY_ACTION, 1.0),
];

/// Every metric of a periodic field.
pub(super) fn slow_metrics() -> impl Iterator<Item = &'static MetricId> {
    SLOW.iter().map(|NvmlFieldRow(_, metric, _)| metric)
}

/// Every metric of a field.
pub(super) fn all_metrics() -> impl Iterator<Item = &'static MetricId> {
    QUICK.iter().chain(SLOW).map(|NvmlFieldRow(_, metric, _)| metric)
}

/// Samples the fields of each tick.
pub(super) fn sample_quick_fields(
    round: &mut GpuSamplingRound<'_>,
    functions: NvmlFunctions<'_>,
    handle: NvmlDeviceHandle,
) {
    sample_field_rows(QUICK, round, functions, handle);
}

/// Samples the periodic fields.
pub(super) fn sample_slow_fields(
    round: &mut GpuSamplingRound<'_>,
    functions: NvmlFunctions<'_>,
    handle: NvmlDeviceHandle,
) {
    sample_field_rows(SLOW, round, functions, handle);
}

fn sample_field_rows(
    rows: &[NvmlFieldRow],
    round: &mut GpuSamplingRound<'_>,
    functions: NvmlFunctions<'_>,
    handle: NvmlDeviceHandle,
) {
    let questions: Vec<_> = rows.iter().map(|NvmlFieldRow(id, ..)| (*id, 0)).collect();
    let answers = query_fields(&questions, round, functions, handle);
    for (NvmlFieldRow(_, metric, scale), answer) in rows.iter().zip(answers) {
        // A division is exact where the product with a fraction is not.
        let scaled = |value| if *scale < 1.0 { value / scale.recip().round() } else { value };
        round.record_reading(*metric, answer.map(scaled));
    }
}

/// Queries fields by number and scope. If the whole call fails, each field is absent for that reason.
pub(super) fn query_fields(
    questions: &[(u32, u32)],
    round: &mut GpuSamplingRound<'_>,
    functions: NvmlFunctions<'_>,
    handle: NvmlDeviceHandle,
) -> Vec<Result<f64, AbsenceReason>> {
    let query = |(id, scope): &(u32, u32)| NvmlFieldQuery {
        id: *id,
        scope: *scope,
        value: Err(NvmlError::NotSupported),
    };
    let mut fields: Vec<_> = questions.iter().map(query).collect();
    match round.call_driver(Call::Fields, || functions.query_fields(handle, &mut fields)) {
        Ok(()) => fields.into_iter().map(|field| field_value(round, &field)).collect(),
        Err(reason) => vec![Err(reason); questions.len()],
    }
}

/// Queries the board's present power between two rounds, in watts; none if the driver or the board lacks it.
pub(super) fn query_power_instant(
    current_call: &CurrentCall,
    functions: NvmlFunctions<'_>,
    handle: NvmlDeviceHandle,
    index: u32,
) -> Option<f64> {
    let unread = Err(NvmlError::NotSupported);
    let mut field = [NvmlFieldQuery { id: POWER_INSTANT_FIELD, scope: 0, value: unread }];
    let query = || functions.query_fields(handle, &mut field);
    current_call.run_call(Call::Fields, Some(index), query).ok()?;
    let [field] = field;
    field.value.ok().map(|milliwatts| milliwatts / 1e3)
}

/// The value of one field. A number that the driver does not know belongs to a newer driver.
fn field_value(
    round: &mut GpuSamplingRound<'_>,
    field: &NvmlFieldQuery,
) -> Result<f64, AbsenceReason> {
    match &field.value {
        Ok(value) => Ok(*value),
        Err(NvmlError::InvalidArg | NvmlError::NoData) => Err(AbsenceReason::Unsupported),
        Err(error) => Err(round.absent_reason(Call::Fields, error)),
    }
}
