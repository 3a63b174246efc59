//! Compatible output: the same report under the names of other exporters, with their units, labels and raw values, so
//! that dashboards and rules written for them work unchanged.

mod dcgm_output;
mod node_exporter_output;

use super::{ExpositionFormat, write_sample};
use crate::{
    AbsenceReason, Device, Dialect, MetricId, Reading, Report,
    catalogue::UnitScale,
    unit::{MetricKind, Unit},
};

/// The formats that a page has in addition to our own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompatOptions {
    /// dcgm-exporter's names: `DCGM_FI_*`.
    pub dcgm: bool,
    /// node_exporter's names: `node_infiniband_*`.
    pub node: bool,
    /// Whether XIDs are monitored, so that a GPU without one can be reported to have none.
    pub xid: bool,
}

/// Appends the families that `compat` selects.
pub(super) fn write_compat(
    report: &Report,
    format: ExpositionFormat,
    compat: CompatOptions,
    out: &mut String,
) {
    if compat.dcgm {
        dcgm_output::write_dcgm(report, format, compat.xid, out);
    }
    if compat.node {
        node_exporter_output::write_node_exporter(report, format, out);
    }
}

/// One value under a foreign name.
struct ForeignValue {
    /// Its foreign name.
    name: &'static str,
    /// Our row.
    metric: MetricId,
    /// The position of its device in the report.
    device: u32,
    /// The value in the foreign unit.
    value: f64,
}

/// Every value that has a name in `dialect`, by metric, then device. Where gaunt reports a counter as saturated, other
/// exporters write its maximum.
fn collect_values(report: &Report, dialect: Dialect) -> Vec<ForeignValue> {
    let mut values = Vec::new();
    for sample in &report.samples {
        let is_known = usize::from(sample.metric.0) < crate::catalogue::CATALOGUE.len();
        if !is_known || sample.device as usize >= report.devices.len() {
            continue;
        }
        let row = sample.metric.catalogue_row();
        let Some(value) = raw_value(sample.reading, row.kind) else { continue };
        for foreign in row.foreign.iter().filter(|foreign| foreign.dialect == dialect) {
            values.push(ForeignValue {
                name: foreign.name,
                metric: sample.metric,
                device: sample.device,
                value: to_foreign_value(value, foreign.scale, row.unit),
            });
        }
    }
    // A stable sort: of duplicate readings the first is kept, as on our own page.
    values.sort_by_key(|value| (value.metric, value.name, value.device));
    values.dedup_by_key(|value| (value.name, value.device));
    values
}

fn raw_value(reading: Reading, kind: MetricKind) -> Option<f64> {
    match (reading, kind) {
        (Reading::Value(value), _) => value.is_finite().then_some(value),
        (Reading::Absent { absent: AbsenceReason::Saturated }, MetricKind::Counter(width)) => {
            width.max_value()
        }
        (Reading::Absent { .. }, _) => None,
    }
}

/// Converts a value; other exporters count whole mebibytes.
fn to_foreign_value(value: f64, scale: UnitScale, unit: Unit) -> f64 {
    let foreign = scale.to_foreign_unit(value);
    if unit == Unit::Bytes && scale != UnitScale::Same { foreign.floor() } else { foreign }
}

/// Appends one family after another; `labels` returns the foreign labels of a device.
fn write_families<'a, L>(
    values: &[ForeignValue],
    format: ExpositionFormat,
    mut kind: impl FnMut(&ForeignValue) -> MetricKind,
    labels: impl Fn(u32) -> L,
    out: &mut String,
) where
    L: IntoIterator<Item = (&'a str, &'a str)>,
{
    let mut family = "";
    for value in values {
        if family != value.name {
            family = value.name;
            let unit = if value.name.ends_with("_total") {
                value.metric.catalogue_row().unit
            } else {
                Unit::Count
            };
            format.write_family_header(
                family,
                value.metric.catalogue_row().help,
                kind(value),
                unit,
                out,
            );
        }
        write_sample(value.name, labels(value.device), value.value, out);
    }
}

/// The labels that identify a device on our own page, which node_exporter uses as well.
fn own_labels(device: &Device) -> impl Iterator<Item = (&str, &str)> {
    device.key_labels().map(|(name, value)| (name, value.as_str()))
}
