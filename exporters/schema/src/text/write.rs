//! A report becomes a page: families in catalogue order, devices in report order, what is absent said at the end.

use std::fmt::Write;

use super::labels::is_label_name;
use crate::{
    Absent, Device, Info, MetricId, Reading, Report,
    catalogue::{
        exporter::{ABSENT, ABSENT_HELP},
        host,
    },
    unit::Kind,
};

/// The label that names the metric in a mark of absence.
pub(crate) const ABSENT_METRIC: &str = "metric";

/// The label that gives the value of the metric's fixed label in a mark of absence: its own name may be `reason` too.
pub(crate) const ABSENT_TAG: &str = "tag";

/// The label that gives the reason in a mark of absence.
pub(crate) const ABSENT_REASON: &str = "reason";

/// The label that carries the node's own name.
pub(crate) const NODE: &str = "node";

/// Numbers from here up, and below the inverse of this, are written with an exponent.
const EXPONENT_FROM: f64 = 1e17;

/// Something that becomes one line.
#[derive(Clone, Copy, PartialEq)]
enum Entry {
    NodeName,
    NodeTime,
    Info(usize),
    Sample(usize),
}

/// Appends the page of `report` to `out`. Of two readings of one metric of one device the first is written.
pub fn write(report: &Report, out: &mut String) {
    let entries = in_page_order(report);
    let mut family = "";
    let mut last_sample = None;
    let mut absences = Vec::new();
    for &(metric, device, entry) in &entries {
        let id = MetricId(metric);
        let row = id.row();
        let place = report.devices.get(device as usize);
        let place = place.into_iter().flat_map(Device::labels);
        let place = place.map(|(name, value)| (name, value.as_str()));
        let value = match entry {
            Entry::NodeName | Entry::Info(_) => 1.0,
            Entry::NodeTime => report.node_time.map_or(0.0, crate::UnixMs::seconds),
            Entry::Sample(at) => {
                if last_sample.replace((metric, device)) == Some((metric, device)) {
                    continue;
                }
                let reading = report.samples[at].reading;
                match reading.value().map_or(reading, Reading::of) {
                    Reading::Value(value) => value,
                    Reading::Absent { absent } => {
                        absences.push((id, device, absent));
                        continue;
                    }
                }
            }
        };
        if family != row.name {
            family = row.name;
            header(id, out);
        }
        match entry {
            Entry::Sample(_) => series(row.name, place.chain(row.tag), value, out),
            Entry::NodeTime => series(row.name, [], value, out),
            Entry::NodeName => series(row.name, node_label(report), value, out),
            Entry::Info(at) => {
                let labels = info_labels(report, &report.infos[at]);
                series(row.name, place.chain(labels), value, out);
            }
        }
    }
    write_absences(report, &absences, out);
}

/// Appends the HELP and TYPE lines of a metric.
pub fn header(metric: MetricId, out: &mut String) {
    let row = metric.row();
    let kind = if matches!(row.kind, Kind::Counter(_)) { "counter" } else { "gauge" };
    help_and_type(row.name, row.help, kind, out);
}

/// Appends one sample. Label names must follow the grammar; values may be any text.
pub fn series<'a>(
    name: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    value: f64,
    out: &mut String,
) {
    out.push_str(name);
    let mut open = '{';
    for (name, value) in labels {
        out.push(open);
        open = ',';
        out.push_str(name);
        out.push_str("=\"");
        escape(value, out);
        out.push('"');
    }
    if open == ',' {
        out.push('}');
    }
    out.push(' ');
    number(value, out);
    out.push('\n');
}

/// Everything that becomes a line, by metric, then device, then as the report has it.
fn in_page_order(report: &Report) -> Vec<(u16, u32, Entry)> {
    let devices = report.devices.len() as u32;
    let samples = report.samples.iter().enumerate();
    let samples = samples.map(|(at, sample)| (sample.metric.0, sample.device, Entry::Sample(at)));
    let infos = report.infos.iter().enumerate();
    let infos = infos.map(|(at, info)| (info.metric.0, info.device, Entry::Info(at)));
    let mut entries: Vec<_> = infos.chain(samples).collect();
    entries.retain(|(metric, device, _)| {
        *device < devices && usize::from(*metric) < crate::catalogue::CATALOGUE.len()
    });
    if report.node.is_some() && !entries.iter().any(|entry| entry.0 == host::NODE_INFO.0) {
        entries.push((host::NODE_INFO.0, u32::MAX, Entry::NodeName));
    }
    if report.node_time.is_some() && !entries.iter().any(|entry| entry.0 == host::NODE_TIME.0) {
        entries.push((host::NODE_TIME.0, u32::MAX, Entry::NodeTime));
    }
    // Stable: what shares metric and device stays in the order of the report.
    entries.sort_by_key(|(metric, device, _)| (*metric, *device));
    entries
}

fn node_label(report: &Report) -> Option<(&str, &str)> {
    report.node.as_ref().map(|node| (NODE, node.as_str()))
}

/// The labels of an info series that can stand on a page: named by the grammar, once, and not like the device's own.
/// The node's info carries the node's name even if the report has it elsewhere.
fn info_labels<'a>(report: &'a Report, info: &'a Info) -> impl Iterator<Item = (&'a str, &'a str)> {
    let taken = info.metric.row().class.labels();
    let named = info.labels.iter().any(|(name, _)| *name == NODE);
    let node = (info.metric == host::NODE_INFO && !named).then(|| node_label(report)).flatten();
    let labels = info.labels.iter().enumerate().filter(move |(at, (name, _))| {
        let twin = info.labels[..*at].iter().any(|(earlier, _)| earlier == name);
        is_label_name(name) && !twin && !taken.contains(&name.as_str())
    });
    node.into_iter().chain(labels.map(|(_, (name, value))| (name.as_str(), value.as_str())))
}

fn write_absences(report: &Report, absences: &[(MetricId, u32, Absent)], out: &mut String) {
    if absences.is_empty() {
        return;
    }
    help_and_type(ABSENT, ABSENT_HELP, "gauge", out);
    for (metric, device, reason) in absences {
        let row = metric.row();
        let place = report.devices[*device as usize].labels();
        let labels = place
            .map(|(name, value)| (name, value.as_str()))
            .chain([(ABSENT_METRIC, row.name)])
            .chain(row.tag.map(|(_, value)| (ABSENT_TAG, value)))
            .chain([(ABSENT_REASON, reason.as_str())]);
        series(ABSENT, labels, 1.0, out);
    }
}

fn help_and_type(name: &str, help: &str, kind: &str, out: &mut String) {
    // Help texts are constants of ours: one line, no backslash.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn escape(value: &str, out: &mut String) {
    for character in value.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            plain => out.push(plain),
        }
    }
}

/// The shortest decimal number that reads back as the same double. A `String` takes all that is written to it.
fn number(value: f64, out: &mut String) {
    let size = value.abs();
    let _ = if value.is_nan() {
        out.write_str("NaN")
    } else if value.is_infinite() {
        out.write_str(if value > 0.0 { "+Inf" } else { "-Inf" })
    } else if size == 0.0 || (EXPONENT_FROM.recip()..EXPONENT_FROM).contains(&size) {
        write!(out, "{value}")
    } else {
        write!(out, "{value:e}")
    };
}
