//! The same report in the words of other exporters, with their units, labels and raw values, so that dashboards and
//! rules written for them work unchanged.

mod dcgm;
mod node;

use super::{Form, series};
use crate::{
    Absent, Device, Dialect, MetricId, Reading, Report,
    catalogue::Scale,
    unit::{Kind, Unit},
};

/// In whose words a page speaks beside our own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Compat {
    /// dcgm-exporter's: `DCGM_FI_*`.
    pub dcgm: bool,
    /// node_exporter's: `node_infiniband_*`.
    pub node: bool,
    /// Whether XIDs are watched, so that a GPU without one can be said to have none.
    pub xid: bool,
}

/// Appends the families that `compat` asks for.
pub(super) fn write(report: &Report, form: Form, compat: Compat, out: &mut String) {
    if compat.dcgm {
        dcgm::write(report, form, compat.xid, out);
    }
    if compat.node {
        node::write(report, form, out);
    }
}

/// One value under a foreign name.
struct Foreign {
    /// Its name there.
    name: &'static str,
    /// Our row.
    metric: MetricId,
    /// The position of its device in the report.
    device: u32,
    /// The value in their unit.
    value: f64,
}

/// Every value that has a name in `dialect`, by metric, then device. Where we say that a counter stands at its end,
/// others write its end.
fn values(report: &Report, dialect: Dialect) -> Vec<Foreign> {
    let mut found = Vec::new();
    for sample in &report.samples {
        let known = usize::from(sample.metric.0) < crate::catalogue::CATALOGUE.len();
        if !known || sample.device as usize >= report.devices.len() {
            continue;
        }
        let row = sample.metric.row();
        let Some(value) = raw(sample.reading, row.kind) else { continue };
        for foreign in row.foreign.iter().filter(|foreign| foreign.dialect == dialect) {
            found.push(Foreign {
                name: foreign.name,
                metric: sample.metric,
                device: sample.device,
                value: theirs(value, foreign.scale, row.unit),
            });
        }
    }
    // Stable: of two readings of one metric of one device the first is kept, as on our own page.
    found.sort_by_key(|value| (value.metric, value.name, value.device));
    found.dedup_by_key(|value| (value.name, value.device));
    found
}

fn raw(reading: Reading, kind: Kind) -> Option<f64> {
    match (reading, kind) {
        (Reading::Value(value), _) => value.is_finite().then_some(value),
        (Reading::Absent { absent: Absent::Saturated }, Kind::Counter(width)) => width.max(),
        (Reading::Absent { .. }, _) => None,
    }
}

/// Others count whole mebibytes.
fn theirs(value: f64, scale: Scale, unit: Unit) -> f64 {
    let theirs = scale.invert(value);
    if unit == Unit::Bytes && scale != Scale::Same { theirs.floor() } else { theirs }
}

/// Appends one family after another; `labels` says how a device is labelled there.
fn families<'a, L>(
    values: &[Foreign],
    form: Form,
    mut kind: impl FnMut(&Foreign) -> Kind,
    labels: impl Fn(u32) -> L,
    out: &mut String,
) where
    L: IntoIterator<Item = (&'a str, &'a str)>,
{
    let mut family = "";
    for value in values {
        if family != value.name {
            family = value.name;
            let unit =
                if value.name.ends_with("_total") { value.metric.row().unit } else { Unit::Count };
            form.family(family, value.metric.row().help, kind(value), unit, out);
        }
        series(value.name, labels(value.device), value.value, out);
    }
}

/// The labels that name a device on our own page, which are those of node_exporter as well.
fn own_labels(device: &Device) -> impl Iterator<Item = (&str, &str)> {
    device.labels().map(|(name, value)| (name, value.as_str()))
}
