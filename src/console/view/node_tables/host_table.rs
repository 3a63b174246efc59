//! Table of a node's host: CPUs, pressure (PSI), memory.

use gaunt_schema::{DeviceClass, MetricId, catalogue::host, unit::Unit};
use ratatui::text::{Line, Span};

use super::{super::render_titled_line, history_width, metric_key, metric_rate, of};
use crate::{
    display_text,
    theme::{StyleRole, Theme},
    widget::sparkline,
};
use gaunt_api::NodeDetail;

/// Renders the host: CPUs, pressure (PSI), memory.
///
/// ```text
///  HOST      CPU      12.3 of 64 busy, busiest 100 %   ▁▂▂▃▇▇
///            PSI      IO 34 %   CPU 3 %   memory 0 %   ▁▁▁▃▃▃
///            memory   412 of 1,024 GiB used
/// ```
pub(in super::super) fn render_host(
    detail: &NodeDetail,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let Some(node) = of(detail, DeviceClass::Node).next() else { return Vec::new() };
    let cpus = node.last_value(metric_key(host::CPUS));
    let busy = metric_rate(node, host::CPU_BUSY)
        .map_or_else(|| display_text::ABSENT.into(), |rate| format!("{rate:.1}"));
    let percent = |share: Option<f64>| match share {
        Some(_) => format!("{} %", display_text::format_whole_percent(share)),
        None => display_text::ABSENT.to_owned(),
    };
    let busiest = percent(node.last_value(metric_key(host::CPU_BUSIEST)));
    let cpu = format!("{busy} of {} busy, busiest {busiest}", display_text::format_whole(cpus));
    let share = |metric: MetricId| percent(metric_rate(node, metric));
    let waiting = format!(
        "IO {}   CPU {}   memory {}",
        share(host::IO_PRESSURE),
        share(host::CPU_PRESSURE),
        share(host::MEMORY_PRESSURE),
    );
    let units = theme.units();
    let memory = node.last_value(metric_key(host::MEMORY_TOTAL)).map_or_else(
        || display_text::ABSENT.into(),
        |total| {
            let free = node.last_value(metric_key(host::MEMORY_AVAILABLE));
            let used = free.map_or_else(
                || display_text::ABSENT.into(),
                |f| units.format_number(total - f, Unit::Bytes),
            );
            format!("{used} of {} used", units.format_value(total, Unit::Bytes))
        },
    );
    let graph_width = history_width(width);
    let top = cpus.map(|cpus| cpus as f32);
    let cpu_past = sparkline::render_sparkline(
        node.recent_points(metric_key(host::CPU_BUSY)),
        top,
        graph_width,
    );
    let io_past = sparkline::render_sparkline(
        node.recent_points(metric_key(host::IO_PRESSURE)),
        Some(1.0),
        graph_width,
    );
    let line = |title: &str, name: &str, words: String, graph: &str| {
        let graph_span =
            Span::styled(graph.trim_start().to_owned(), theme.style_for(StyleRole::Neutral));
        render_titled_line(
            title,
            vec![Span::raw(format!("{name:<9}{words}   ")), graph_span],
            theme,
        )
    };
    vec![
        Line::default(),
        line("HOST", "CPU", cpu, &cpu_past),
        line("", "PSI", waiting, &io_past),
        line("", "memory", memory, ""),
    ]
}
