//! Table of the node's own probe: each measured transfer, its age, and why runs were skipped.

use std::time::Duration;

use gaunt_schema::{DeviceClass, MetricId, catalogue::probe_results};
use ratatui::{style::Style, text::Line};

use super::{super::render_titled_line, StyledCell, metric_key, of};
use crate::{
    display_text,
    theme::{StyleRole, Theme},
    widget::text_table::{self, number_column, text_column},
};
use gaunt_api::{DeviceDetail, NodeDetail};

/// Share of the baseline below which a value counts as changed.
const CHANGED: f64 = 0.9;

/// Renders the measurements of a probe on this node; nothing if none ever ran.
///
/// ```text
///  PROBE                 between            busbw  baseline %     model %   wrong
///  all_reduce            gpu0..7       412.0 GB/s          99         103       0
///            measured 4m ago in 2.1 s; 12 runs; skipped: 3 in use, 1 job
/// ```
pub(in super::super) fn render_probes(
    detail: &NodeDetail,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let Some(node) = of(detail, DeviceClass::Node).next() else { return Vec::new() };
    let columns = [
        text_column("PROBE", 20),
        text_column("between", 12),
        number_column("busbw", 10),
        number_column("baseline %", 10),
        number_column("model %", 10),
        number_column("wrong", 6),
    ];
    let (fits, _) = text_table::fit_columns(&columns, width.saturating_sub(2));
    let rows = of(detail, DeviceClass::Probe)
        .map(|device| text_table::render_row(&columns[..fits], probe_cells(device, theme)));
    let mut lines: Vec<Line<'static>> = rows.collect();
    let last_run = render_last_run(detail, node);
    if lines.is_empty() && last_run.is_none() {
        return lines;
    }
    lines
        .insert(0, text_table::render_heading(&columns[..fits], theme.style_for(StyleRole::Title)));
    lines.insert(0, Line::default());
    if let Some(text) = last_run {
        for line in display_text::wrap_text(&text, width.saturating_sub(super::super::INDENT + 1)) {
            lines.push(
                render_titled_line("", vec![line.into()], theme)
                    .style(theme.style_for(StyleRole::Dim)),
            );
        }
    }
    lines
}

fn probe_cells(device: &DeviceDetail, theme: Theme) -> [StyledCell; 6] {
    let label = |name: &str| device.labels.get(name).map_or_else(String::new, ToString::to_string);
    let value =
        |metric: MetricId| device.last_value(metric_key(metric)).filter(|value| value.is_finite());
    let share = |metric: MetricId, least: f64| {
        let share = value(metric);
        let meaning = match share {
            None => StyleRole::Dim,
            Some(share) if share < least => StyleRole::Bad,
            Some(_) => StyleRole::Plain,
        };
        (display_text::format_whole_percent(share), theme.style_for(meaning))
    };
    let carried = value(probe_results::BUS_BANDWIDTH).map_or_else(
        || (display_text::ABSENT.into(), theme.style_for(StyleRole::Dim)),
        |value| (format!("{:.1} GB/s", value / 1e9), Style::new()),
    );
    let wrong = value(probe_results::WRONG);
    let bad = wrong.is_some_and(|wrong| wrong > 0.0);
    let meaning = if bad { StyleRole::Worst } else { StyleRole::Dim };
    [
        (label("collective"), Style::new()),
        (label("between"), Style::new()),
        carried,
        share(probe_results::BASELINE_RATIO, CHANGED),
        share(probe_results::REFERENCE_RATIO, 1.0),
        (display_text::format_whole(wrong), theme.style_for(meaning)),
    ]
}

/// Renders when the probe last ran and why it did not run; none if no probe is reported.
fn render_last_run(detail: &NodeDetail, node: &DeviceDetail) -> Option<String> {
    let value =
        |metric: MetricId| node.last_value(&metric.series_key()).filter(|value| value.is_finite());
    let mut parts = Vec::new();
    if let Some(last) = value(probe_results::LAST_RUN).filter(|last| *last > 0.0) {
        // The timestamp is by the node's own clock.
        let skew = detail.clock_skew_ms.unwrap_or(0) as f64 / 1e3;
        let ago = (detail.at.0 as f64 / 1e3 + skew - last).clamp(0.0, 1e12);
        let took = value(probe_results::DURATION)
            .filter(|took| (0.0..1e9).contains(took))
            .map_or_else(String::new, |took| format!(" in {took:.1} s"));
        let ago = display_text::format_duration(Duration::from_secs_f64(ago));
        parts.push(format!("measured {ago} ago{took}"));
    }
    if let Some(runs) = value(probe_results::RUNS) {
        parts.push(format!("{runs:.0} runs"));
    }
    if let Some(code) = value(probe_results::LAST_CODE).filter(|code| *code != 0.0) {
        parts.push(format!("last try: exit code {code:.0}"));
    }
    let skipped: Vec<String> = probe_results::SKIPPED
        .iter()
        .filter_map(|(reason, metric)| {
            let count = value(*metric).filter(|count| *count > 0.0)?;
            Some(format!("{count:.0} {}", reason.replace('_', " ")))
        })
        .collect();
    if !skipped.is_empty() {
        parts.push(format!("skipped: {}", skipped.join(", ")));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}
