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

/// The names and units of a version of dcgm-exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DcgmNames {
    /// Those of all versions before 4.9, which later ones still have on request.
    Before4_9,
    /// Those of 4.9: base units, and ratios of 0 to 1.
    Since4_9,
}

/// The formats that a page has in addition to our own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompatOptions {
    /// dcgm-exporter's names: `DCGM_FI_*`, and whose.
    pub dcgm: Option<DcgmNames>,
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
    if let Some(names) = compat.dcgm {
        dcgm_output::write_dcgm(report, format, names, compat.xid, out);
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

/// Every value that has a foreign name, by metric, then device. Where gaunt reports a counter as saturated, other exporters
/// write its maximum.
fn collect_values(
    report: &Report,
    name_of: impl Fn(MetricId) -> Option<(&'static str, UnitScale)>,
) -> Vec<ForeignValue> {
    let mut values = Vec::new();
    for sample in &report.samples {
        let is_known = usize::from(sample.metric.0) < crate::catalogue::CATALOGUE.len();
        if !is_known || sample.device as usize >= report.devices.len() {
            continue;
        }
        let row = sample.metric.catalogue_row();
        let Some(value) = raw_value(sample.reading, row.kind) else { continue };
        if let Some((name, scale)) = name_of(sample.metric) {
            values.push(ForeignValue {
                name,
                metric: sample.metric,
                device: sample.device,
                value: to_foreign_value(value, scale, row.unit),
            });
        }
    }
    // A stable sort: of duplicate readings the first is kept, as on our own page.
    values.sort_by_key(|value| (value.metric, value.name, value.device));
    values.dedup_by_key(|value| (value.name, value.device));
    values
}

/// The name of a metric in a dialect, and its unit there.
fn foreign_name(metric: MetricId, dialect: Dialect) -> Option<(&'static str, UnitScale)> {
    let mut names = metric.catalogue_row().foreign.iter();
    let name = names.find(|foreign| foreign.dialect == dialect)?;
    Some((name.name, name.scale))
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
