//! What the tables of a node share: how a value, its absence and its past are written.

use std::time::Duration;

use gaunt_schema::{Absent, Class, MetricId};
use ratatui::{style::Style, text::Line};

use crate::{
    answer::{DeviceDetail, NodeDetail},
    console::{
        format,
        theme::{Meaning, Theme},
        widget::table::{self, Column},
    },
};

pub(super) mod gpus;
pub(super) mod host;
pub(super) mod ports;
pub(super) mod probe;

/// A cell of a table.
pub(super) type Field = (String, Style);

/// The devices of one class.
pub(super) fn of(detail: &NodeDetail, class: Class) -> impl Iterator<Item = &DeviceDetail> {
    detail.devices.iter().filter(move |device| device.class == class)
}

/// The key under which a metric is found.
pub(super) fn key(metric: MetricId) -> &'static str {
    metric.row().name
}

/// Columns of a picture of the past, by how wide the screen is.
pub(super) const fn past_width(width: usize) -> usize {
    match width {
        0..100 => 10,
        100..140 => 20,
        _ => 30,
    }
}

/// A value as `show` writes it, or a short word for why there is none.
pub(super) fn field(
    device: &DeviceDetail,
    metric: MetricId,
    theme: Theme,
    show: impl Fn(f64) -> String,
) -> Field {
    match device.values.get(key(metric)) {
        None => (format::ABSENT.into(), theme.style(Meaning::Dim)),
        Some(reading) => match (reading.value(), reading.reason()) {
            (Some(value), _) => (show(value), Style::new()),
            (None, reason) => (absence(reason).into(), theme.style(Meaning::Dim)),
        },
    }
}

/// Why there is no value, in at most five columns.
pub(super) const fn absence(reason: Option<Absent>) -> &'static str {
    match reason {
        None | Some(Absent::Unsupported) => format::ABSENT,
        Some(Absent::NoPermission) => "perm",
        Some(Absent::Stale) => "old",
        Some(Absent::Saturated) => "full",
        Some(Absent::Lost) => "lost",
        Some(Absent::Error) => "error",
    }
}

pub(super) fn percent_field(device: &DeviceDetail, metric: MetricId, theme: Theme) -> Field {
    field(device, metric, theme, |value| format::whole_percent(Some(value)))
}

pub(super) fn rate(device: &DeviceDetail, metric: MetricId) -> Option<f64> {
    device.rates.get(key(metric)).copied().filter(|rate| rate.is_finite())
}

/// The title of a past: how far back it goes.
pub(super) fn past_title(detail: &NodeDetail) -> String {
    let points = detail.devices.iter().flat_map(|device| &device.history);
    let longest = points.map(|series| series.points.len()).max().unwrap_or(0);
    let span = detail.history_step_ms.saturating_mul(longest as u64);
    format!("last {}", format::span(Duration::from_millis(span)))
}

/// A heading whose columns named `past` say how far back they go.
pub(super) fn heading(detail: &NodeDetail, columns: &[Column], theme: Theme) -> Line<'static> {
    let past = past_title(detail);
    let style = theme.style(Meaning::Title);
    let names = columns.iter().map(|column| {
        (if column.title == PAST { past.clone() } else { column.title.to_owned() }, style)
    });
    table::row(columns, names)
}

/// The name of a column that shows the past.
pub(super) const PAST: &str = "past";

/// The sum of the rates that are known; none if none is.
pub(super) fn errors(device: &DeviceDetail, metrics: &[MetricId], theme: Theme) -> Field {
    let known = metrics.iter().filter_map(|metric| rate(device, *metric));
    match known.reduce(|sum, rate| sum + rate) {
        None => (format::ABSENT.into(), theme.style(Meaning::Dim)),
        Some(0.0) => ("0".into(), Style::new()),
        Some(sum) if sum < 10.0 => (format!("{sum:.1}"), theme.style(Meaning::Bad)),
        Some(sum) => (format::count(sum as u64), theme.style(Meaning::Bad)),
    }
}
