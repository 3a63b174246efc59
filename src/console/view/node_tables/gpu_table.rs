//! Table of a node's GPUs, or the reason for their absence.

use gaunt_schema::{DeviceClass, GpuState, MetricId, catalogue::gpu, unit::Unit};
use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::{
    super::{INDENT, render_titled_line},
    PAST, StyledCell, history_width, metric_key, of, render_heading, render_percent,
    render_reading,
};
use crate::{
    display_text,
    theme::{self, StyleRole, Theme},
    widget::{
        sparkline,
        text_table::{self, ColumnLayout, number_column, text_column},
    },
};
use gaunt_api::{DeviceDetail, NodeDetail};

/// Order of the GPU columns if a clock is throttled: power, temperature and the reason come first.
const HELD: [usize; 12] = [0, 1, 2, 5, 6, 10, 3, 4, 7, 8, 9, 11];

/// Renders the GPUs.
///
/// ```text
///  GPU  state              util %  last 2m     SM %  tensor %   mem GiB    power W   °C
///  0    ░ waiting   100  ▇▇▇▇▇▇▇▇▇▇     –         –  61.2/80.0   180/700   52
/// ```
pub(in super::super) fn render_gpus(
    detail: &NodeDetail,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let (graph_width, units) = (history_width(width), theme.units());
    let all = [
        text_column("GPU", 4),
        text_column("state", 19),
        number_column("util %", 6),
        text_column(PAST, graph_width),
        number_column(if units.heading(Unit::Bytes) == "GB" { "mem GB" } else { "mem GiB" }, 9),
        number_column("power W", 8),
        number_column(units.heading(Unit::Celsius), 4),
        number_column("SM %", 4),
        number_column("tensor %", 8),
        number_column("MHz", 5),
        text_column("throttled by", 14),
        text_column("job", 16),
    ];
    // A throttled clock explains more than the utilization of the units.
    let is_throttled = of(detail, DeviceClass::Gpu).any(is_fault_throttled);
    let order = if is_throttled { HELD } else { [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] };
    let all: Vec<ColumnLayout> = order.iter().map(|&at| all[at]).collect();
    let (fits, _) = text_table::fit_columns(&all, width.saturating_sub(2));
    let columns = &all[..fits];
    let mut lines = vec![render_heading(detail, columns, theme)];
    for device in of(detail, DeviceClass::Gpu) {
        let mut cells = gpu_cells(device, graph_width, theme);
        let cells = order.iter().map(|&at| std::mem::take(&mut cells[at]));
        lines.push(text_table::render_row(columns, cells));
    }
    if lines.len() == 1 {
        return render_no_gpu(detail, width, theme);
    }
    lines
}

/// Renders the absence of GPUs with the status of the driver's collector.
fn render_no_gpu(detail: &NodeDetail, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let driver = of(detail, DeviceClass::Collector).find(|collector| is_driver(collector));
    let why = driver
        .and_then(DeviceDetail::collector_message)
        .map_or_else(|| "none on this node".to_owned(), ToString::to_string);
    let titles = std::iter::once("GPU").chain(std::iter::repeat(""));
    let text = titles.zip(display_text::wrap_text(&why, width.saturating_sub(INDENT + 1)));
    let style = theme.style_for(StyleRole::Dim);
    text.map(|(title, line)| render_titled_line(title, vec![Span::styled(line, style)], theme))
        .collect()
}

/// Returns whether a collector reads GPUs from their driver.
pub(in super::super) fn is_driver(collector: &DeviceDetail) -> bool {
    collector.labels.get("collector").is_some_and(|name| *name == "nvml")
}

fn gpu_cells(device: &DeviceDetail, graph_width: usize, theme: Theme) -> [StyledCell; 12] {
    let state = device.state.unwrap_or(GpuState::Unknown);
    let style = theme.state_style(state);
    let busy = device.recent_points(metric_key(gpu::UTILIZATION));
    let (plain, units) = (Style::new(), theme.units());
    let index = device.labels.get("gpu").unwrap_or(&device.name).to_string();
    let of_total = |part: MetricId, total: MetricId, show: &dyn Fn(f64) -> String| {
        render_reading(device, part, theme, |value| {
            let total = device
                .last_value(metric_key(total))
                .map_or_else(|| display_text::ABSENT.into(), show);
            format!("{}/{total}", show(value))
        })
    };
    let whole = |value: f64| display_text::format_whole(Some(value));
    [
        (index, plain),
        (format!("{} {}", theme::state_sign(state), state.as_str()), style),
        render_percent(device, gpu::UTILIZATION, theme),
        (sparkline::render_sparkline(busy, Some(1.0), graph_width), style),
        of_total(gpu::MEMORY_USED, gpu::MEMORY_TOTAL, &|bytes| {
            units.format_number(bytes, Unit::Bytes)
        }),
        of_total(gpu::POWER, gpu::POWER_LIMIT, &whole),
        render_reading(device, gpu::TEMPERATURE, theme, |value| {
            units.format_number(value, Unit::Celsius)
        }),
        render_percent(device, gpu::SM_ACTIVE, theme),
        render_percent(device, gpu::TENSOR_ACTIVE, theme),
        render_reading(device, gpu::SM_CLOCK, theme, |value| format!("{:.0}", value / 1e6)),
        (throttle_reasons(device), theme.style_for(StyleRole::Waiting)),
        (job_name(device), theme.style_for(StyleRole::Dim)),
    ]
}

/// Returns the current throttle reasons of a GPU, without idleness.
fn throttle_reasons(device: &DeviceDetail) -> String {
    let events = gpu::CLOCK_EVENTS.iter().filter(|(_, metric)| *metric != gpu::CLOCK_EVENT_IDLE);
    let active = events.filter(|(_, metric)| device.last_value(&metric.series_key()) == Some(1.0));
    let names: Vec<&str> = active
        .filter_map(|(_, metric)| metric.catalogue_row().tag.map(|(_, reason)| reason))
        .collect();
    names.join(" ")
}

/// Throttle reasons that are faults; the others also occur on healthy GPUs.
const FAULTS: [MetricId; 4] = [
    gpu::CLOCK_EVENT_HW_SLOWDOWN,
    gpu::CLOCK_EVENT_SW_THERMAL,
    gpu::CLOCK_EVENT_HW_THERMAL,
    gpu::CLOCK_EVENT_HW_POWER_BRAKE,
];

fn is_fault_throttled(device: &DeviceDetail) -> bool {
    FAULTS.iter().any(|metric| device.last_value(&metric.series_key()) == Some(1.0))
}

fn job_name(device: &DeviceDetail) -> String {
    let labels = device.info.get(metric_key(gpu::JOB_INFO));
    let name = |label: &str| labels?.get(label).filter(|value| !value.is_empty());
    name("name").or_else(|| name("job")).map_or_else(String::new, ToString::to_string)
}
