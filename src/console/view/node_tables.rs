//! Shared parts of the node tables: values, absent values, and histories.

use std::time::Duration;

use gaunt_schema::{AbsenceReason, DeviceClass, GpuState, MetricId};
use ratatui::{
    style::Style,
    text::{Line, Span},
};

use crate::{
    display_text,
    theme::{self, StyleRole, Theme},
    widget::text_table::{self, ColumnLayout},
};
use gaunt_api::{DeviceDetail, NodeDetail};

pub(crate) mod gpu_table;
pub(crate) mod host_table;
pub(crate) mod port_table;
pub(crate) mod probe_table;

/// Cell of a table with its style.
pub(crate) type StyledCell = (String, Style);

/// Returns the devices of one class.
pub(crate) fn of(detail: &NodeDetail, class: DeviceClass) -> impl Iterator<Item = &DeviceDetail> {
    detail.devices.iter().filter(move |device| device.class == class)
}

/// Returns the key of a metric in a device's values.
pub(crate) fn metric_key(metric: MetricId) -> &'static str {
    metric.catalogue_row().name
}

/// Renders a GPU state with its symbol.
pub(crate) fn render_gpu_state(state: GpuState, theme: Theme) -> Span<'static> {
    let text = format!("{} {}", theme::state_sign(state), state.as_str());
    Span::styled(text, theme.state_style(state))
}

/// Returns the columns of a history graph, by the width of the screen.
pub(crate) const fn history_width(width: usize) -> usize {
    match width {
        0..100 => 10,
        100..140 => 20,
        _ => 30,
    }
}

/// Renders a value as `show` writes it, or a short label for why it is absent.
pub(crate) fn render_reading(
    device: &DeviceDetail,
    metric: MetricId,
    theme: Theme,
    show: impl Fn(f64) -> String,
) -> StyledCell {
    match device.values.get(metric_key(metric)) {
        None => (display_text::ABSENT.into(), theme.style_for(StyleRole::Dim)),
        Some(reading) => match (reading.value(), reading.absence_reason()) {
            (Some(value), _) => (show(value), Style::new()),
            (None, reason) => (absence_label(reason).into(), theme.style_for(StyleRole::Dim)),
        },
    }
}

/// Returns why a value is absent, in at most five columns.
pub(crate) const fn absence_label(reason: Option<AbsenceReason>) -> &'static str {
    match reason {
        None | Some(AbsenceReason::Unsupported) => display_text::ABSENT,
        Some(AbsenceReason::NoPermission) => "perm",
        Some(AbsenceReason::Stale) => "old",
        Some(AbsenceReason::Saturated) => "full",
        Some(AbsenceReason::Lost) => "lost",
        Some(AbsenceReason::Error) => "error",
    }
}

pub(crate) fn render_percent(device: &DeviceDetail, metric: MetricId, theme: Theme) -> StyledCell {
    render_reading(device, metric, theme, |value| display_text::format_whole_percent(Some(value)))
}

pub(crate) fn metric_rate(device: &DeviceDetail, metric: MetricId) -> Option<f64> {
    device.rates.get(metric_key(metric)).copied().filter(|rate| rate.is_finite())
}

/// Returns the title of a history column: the length of the history.
pub(crate) fn history_title(detail: &NodeDetail) -> String {
    let points = detail.devices.iter().flat_map(|device| &device.history);
    let longest = points.map(|series| series.points.len()).max().unwrap_or(0);
    let span = detail.history_step_ms.saturating_mul(longest as u64);
    format!("last {}", display_text::format_duration(Duration::from_millis(span)))
}

/// Renders a heading; columns named [`PAST`] show the length of the history.
pub(crate) fn render_heading(
    detail: &NodeDetail,
    columns: &[ColumnLayout],
    theme: Theme,
) -> Line<'static> {
    let past_title = history_title(detail);
    let style = theme.style_for(StyleRole::Title);
    let names = columns.iter().map(|column| {
        (if column.title == PAST { past_title.clone() } else { column.title.to_owned() }, style)
    });
    text_table::render_row(columns, names)
}

/// Name of a column with a history graph.
pub(crate) const PAST: &str = "past";

/// Renders the sum of the known rates; absent if none is known.
pub(crate) fn render_rate_sum(
    device: &DeviceDetail,
    metrics: &[MetricId],
    theme: Theme,
) -> StyledCell {
    let known = metrics.iter().filter_map(|metric| metric_rate(device, *metric));
    match known.reduce(|sum, rate| sum + rate) {
        None => (display_text::ABSENT.into(), theme.style_for(StyleRole::Dim)),
        Some(0.0) => ("0".into(), Style::new()),
        Some(sum) if sum < 10.0 => (format!("{sum:.1}"), theme.style_for(StyleRole::Bad)),
        Some(sum) => (display_text::format_count(sum as u64), theme.style_for(StyleRole::Bad)),
    }
}
