//! The table of a node's GPUs, or why there is none.

use gaunt_schema::{Class, GpuState, MetricId, catalogue::gpu};
use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::{
    super::{INDENT, titled},
    Field, PAST, field, heading, key, of, past_width, percent_field,
};
use crate::{
    answer::{DeviceDetail, NodeDetail},
    console::{
        format,
        theme::{self, Meaning, Theme},
        widget::{
            spark,
            table::{self, Column, number, text},
        },
    },
};

/// The order of a GPU's columns when some clock is held down: power, temperature and the reason come first.
const HELD: [usize; 12] = [0, 1, 2, 5, 6, 10, 3, 4, 7, 8, 9, 11];

/// The GPUs.
///
/// ```text
///  GPU  doing              busy %  last 2m     SM %  tensor %   mem GiB    power W   °C
///  0    ░ waiting for peers   100  ▇▇▇▇▇▇▇▇▇▇     –         –  61.2/80.0   180/700   52
/// ```
pub(in super::super) fn gpus(
    detail: &NodeDetail,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let past = past_width(width);
    let all = [
        text("GPU", 4),
        text("doing", 19),
        number("busy %", 6),
        text(PAST, past),
        number("mem GiB", 9),
        number("power W", 8),
        number("°C", 3),
        number("SM %", 4),
        number("tensor %", 8),
        number("MHz", 5),
        text("clock held by", 14),
        text("job", 16),
    ];
    // A clock that is held down explains more than how busy the parts are.
    let held = of(detail, Class::Gpu).any(is_held_down);
    let order = if held { HELD } else { [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] };
    let all: Vec<Column> = order.iter().map(|&at| all[at]).collect();
    let (fits, _) = table::fitting(&all, width.saturating_sub(2));
    let columns = &all[..fits];
    let mut lines = vec![heading(detail, columns, theme)];
    for device in of(detail, Class::Gpu) {
        let mut cells = gpu_cells(device, past, theme);
        let cells = order.iter().map(|&at| std::mem::take(&mut cells[at]));
        lines.push(table::row(columns, cells));
    }
    if lines.len() == 1 {
        return no_gpu(detail, width, theme);
    }
    lines
}

/// There is no GPU, and what the driver's collector says about that.
fn no_gpu(detail: &NodeDetail, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let driver = of(detail, Class::Collector).find(|collector| is_driver(collector));
    let why = driver
        .and_then(DeviceDetail::message)
        .map_or_else(|| "none on this node".to_owned(), ToString::to_string);
    let titles = std::iter::once("GPU").chain(std::iter::repeat(""));
    let text = titles.zip(format::wrap(&why, width.saturating_sub(INDENT + 1)));
    let style = theme.style(Meaning::Dim);
    text.map(|(title, line)| titled(title, vec![Span::styled(line, style)], theme)).collect()
}

/// Whether a collector is the one that reads GPUs from their driver.
pub(in super::super) fn is_driver(collector: &DeviceDetail) -> bool {
    collector.labels.get("collector").is_some_and(|name| *name == "nvml")
}

fn gpu_cells(device: &DeviceDetail, past: usize, theme: Theme) -> [Field; 12] {
    let state = device.state.unwrap_or(GpuState::Unknown);
    let style = theme.state(state);
    let busy = device.past(key(gpu::UTILIZATION));
    let plain = Style::new();
    let index = device.labels.get("gpu").unwrap_or(&device.name).to_string();
    let of_total = |part: MetricId, total: MetricId, show: &dyn Fn(f64) -> String| {
        field(device, part, theme, |value| {
            let total = device.value(key(total)).map_or_else(|| format::ABSENT.into(), show);
            format!("{}/{total}", show(value))
        })
    };
    let whole = |value: f64| format::whole(Some(value));
    [
        (index, plain),
        (format!("{} {}", theme::state_sign(state), theme::state_words(state)), style),
        percent_field(device, gpu::UTILIZATION, theme),
        (spark::line(busy, Some(1.0), past), style),
        of_total(gpu::MEMORY_USED, gpu::MEMORY_TOTAL, &format::gibibytes),
        of_total(gpu::POWER, gpu::POWER_LIMIT, &whole),
        field(device, gpu::TEMPERATURE, theme, whole),
        percent_field(device, gpu::SM_ACTIVE, theme),
        percent_field(device, gpu::TENSOR_ACTIVE, theme),
        field(device, gpu::SM_CLOCK, theme, |value| format!("{:.0}", value / 1e6)),
        (held_by(device), theme.style(Meaning::Waiting)),
        (job(device), theme.style(Meaning::Dim)),
    ]
}

/// The reasons that hold the clock of a GPU down now; idleness is none.
fn held_by(device: &DeviceDetail) -> String {
    let events = gpu::CLOCK_EVENTS.iter().filter(|(_, metric)| *metric != gpu::CLOCK_EVENT_IDLE);
    let held = events.filter(|(_, metric)| device.value(&metric.key()) == Some(1.0));
    let names: Vec<&str> =
        held.filter_map(|(_, metric)| metric.row().tag.map(|(_, reason)| reason)).collect();
    names.join(" ")
}

/// Reasons that are a fault; the others hold the clock of a healthy GPU too.
const FAULTS: [MetricId; 4] = [
    gpu::CLOCK_EVENT_HW_SLOWDOWN,
    gpu::CLOCK_EVENT_SW_THERMAL,
    gpu::CLOCK_EVENT_HW_THERMAL,
    gpu::CLOCK_EVENT_HW_POWER_BRAKE,
];

fn is_held_down(device: &DeviceDetail) -> bool {
    FAULTS.iter().any(|metric| device.value(&metric.key()) == Some(1.0))
}

fn job(device: &DeviceDetail) -> String {
    let labels = device.info.get(key(gpu::JOB_INFO));
    let name = |label: &str| labels?.get(label).filter(|value| !value.is_empty());
    name("name").or_else(|| name("job")).map_or_else(String::new, ToString::to_string)
}
