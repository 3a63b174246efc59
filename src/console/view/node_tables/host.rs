//! What is known about a node's host: processors, pressure, memory.

use gaunt_schema::{Class, MetricId, catalogue::host};
use ratatui::text::{Line, Span};

use super::{super::titled, key, of, past_width, rate};
use crate::{
    answer::NodeDetail,
    console::{
        format,
        theme::{Meaning, Theme},
        widget::spark,
    },
};

/// The host: processors, what its tasks wait for, memory.
///
/// ```text
///  HOST      CPU      12.3 of 64 busy, the busiest 100 %   ▁▂▂▃▇▇
///            waiting  input/output 34 %   CPU 3 %   memory 0 %   ▁▁▁▃▃▃
///            memory   412 of 1,024 GiB used
/// ```
pub(in super::super) fn lines(
    detail: &NodeDetail,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let Some(node) = of(detail, Class::Node).next() else { return Vec::new() };
    let cpus = node.value(key(host::CPUS));
    let busy = rate(node, host::CPU_BUSY)
        .map_or_else(|| format::ABSENT.into(), |rate| format!("{rate:.1}"));
    let busiest = format::whole_percent(node.value(key(host::CPU_BUSIEST)));
    let cpu = format!("{busy} of {} busy, the busiest {busiest} %", format::whole(cpus));
    let share = |metric: MetricId| format::whole_percent(rate(node, metric));
    let waiting = format!(
        "input/output {} %   CPU {} %   memory {} %",
        share(host::IO_PRESSURE),
        share(host::CPU_PRESSURE),
        share(host::MEMORY_PRESSURE),
    );
    let memory = node.value(key(host::MEMORY_TOTAL)).map_or_else(
        || format::ABSENT.into(),
        |total| {
            let free = node.value(key(host::MEMORY_AVAILABLE));
            let used = free.map_or_else(|| format::ABSENT.into(), |f| format::gibibytes(total - f));
            format!("{used} of {} GiB used", format::gibibytes(total))
        },
    );
    let past = past_width(width);
    let top = cpus.map(|cpus| cpus as f32);
    let cpu_past = spark::line(node.past(key(host::CPU_BUSY)), top, past);
    let io_past = spark::line(node.past(key(host::IO_PRESSURE)), Some(1.0), past);
    let line = |title: &str, name: &str, words: String, past: &str| {
        let picture = Span::styled(past.trim_start().to_owned(), theme.style(Meaning::Neutral));
        titled(title, vec![Span::raw(format!("{name:<9}{words}   ")), picture], theme)
    };
    vec![
        Line::default(),
        line("HOST", "CPU", cpu, &cpu_past),
        line("", "waiting", waiting, &io_past),
        line("", "memory", memory, ""),
    ]
}
