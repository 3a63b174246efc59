//! What the node's own probe said: each transfer that it measured, when that was, and why it kept its hands off.

use std::time::Duration;

use gaunt_schema::{Class, MetricId, catalogue::probe};
use ratatui::{style::Style, text::Line};

use super::{super::titled, Field, key, of};
use crate::{
    answer::{DeviceDetail, NodeDetail},
    console::{
        format,
        theme::{Meaning, Theme},
        widget::table::{self, number, text},
    },
};

/// Below this share of what is usual something changed.
const CHANGED: f64 = 0.9;

/// What a probe on this node measured; nothing where none ever ran.
///
/// ```text
///  PROBE               between  each link carried  of its usual %  of the model's %
///  all_reduce          gpu0..7          412.0 GB/s             99               103
///            measured 4m ago in 2.1s, 12 times so far; not run: 3 in_use, 1 job
/// ```
pub(in super::super) fn lines(
    detail: &NodeDetail,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let Some(node) = of(detail, Class::Node).next() else { return Vec::new() };
    let columns = [
        text("PROBE", 20),
        text("between", 12),
        number("each link", 10),
        number("of usual %", 10),
        number("of model %", 10),
        number("wrong", 6),
    ];
    let (fits, _) = table::fitting(&columns, width.saturating_sub(2));
    let rows =
        of(detail, Class::Probe).map(|device| table::row(&columns[..fits], cells(device, theme)));
    let mut lines: Vec<Line<'static>> = rows.collect();
    let told = told(detail, node);
    if lines.is_empty() && told.is_none() {
        return lines;
    }
    lines.insert(0, table::heading(&columns[..fits], theme.style(Meaning::Title)));
    lines.insert(0, Line::default());
    if let Some(text) = told {
        for line in format::wrap(&text, width.saturating_sub(super::super::INDENT + 1)) {
            lines.push(titled("", vec![line.into()], theme).style(theme.style(Meaning::Dim)));
        }
    }
    lines
}

fn cells(device: &DeviceDetail, theme: Theme) -> [Field; 6] {
    let label = |name: &str| device.labels.get(name).map_or_else(String::new, ToString::to_string);
    let value = |metric: MetricId| device.value(key(metric)).filter(|value| value.is_finite());
    let share = |metric: MetricId, least: f64| {
        let share = value(metric);
        let meaning = match share {
            None => Meaning::Dim,
            Some(share) if share < least => Meaning::Bad,
            Some(_) => Meaning::Plain,
        };
        (format::whole_percent(share), theme.style(meaning))
    };
    let carried = value(probe::BUS_BANDWIDTH).map_or_else(
        || (format::ABSENT.into(), theme.style(Meaning::Dim)),
        |value| (format!("{:.1} GB/s", value / 1e9), Style::new()),
    );
    let wrong = value(probe::WRONG);
    let bad = wrong.is_some_and(|wrong| wrong > 0.0);
    let meaning = if bad { Meaning::Worst } else { Meaning::Dim };
    [
        (label("collective"), Style::new()),
        (label("between"), Style::new()),
        carried,
        share(probe::BASELINE_RATIO, CHANGED),
        share(probe::REFERENCE_RATIO, 1.0),
        (format::whole(wrong), theme.style(meaning)),
    ]
}

/// When it ran last, and why it did not; none if no probe is told of.
fn told(detail: &NodeDetail, node: &DeviceDetail) -> Option<String> {
    let value = |metric: MetricId| node.value(&metric.key()).filter(|value| value.is_finite());
    let mut parts = Vec::new();
    if let Some(last) = value(probe::LAST_RUN).filter(|last| *last > 0.0) {
        // The node's own clock wrote this.
        let skew = detail.clock_skew_ms.unwrap_or(0) as f64 / 1e3;
        let ago = (detail.at.0 as f64 / 1e3 + skew - last).clamp(0.0, 1e12);
        let took = value(probe::DURATION)
            .filter(|took| (0.0..1e9).contains(took))
            .map_or_else(String::new, |took| format!(" in {took:.1} s"));
        let ago = format::span(Duration::from_secs_f64(ago));
        parts.push(format!("measured {ago} ago{took}"));
    }
    if let Some(runs) = value(probe::RUNS) {
        parts.push(format!("{runs:.0} times so far"));
    }
    if let Some(code) = value(probe::LAST_CODE).filter(|code| *code != 0.0) {
        parts.push(format!("the last try ended with exit code {code:.0}"));
    }
    let skipped: Vec<String> = probe::SKIPPED
        .iter()
        .filter_map(|(reason, metric)| {
            let count = value(*metric).filter(|count| *count > 0.0)?;
            Some(format!("{count:.0} {}", reason.replace('_', " ")))
        })
        .collect();
    if !skipped.is_empty() {
        parts.push(format!("not run: {}", skipped.join(", ")));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}
