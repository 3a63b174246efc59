//! The tables of a node: GPUs, RDMA ports, network devices, and the host itself.

use std::time::Duration;

use gaunt_schema::{
    Absent, Class, MetricId,
    catalogue::{gpu, host, port},
};
use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::{INDENT, node, titled};
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

/// A cell of a table.
type Field = (String, Style);

/// The devices of one class.
fn of(detail: &NodeDetail, class: Class) -> impl Iterator<Item = &DeviceDetail> {
    detail.devices.iter().filter(move |device| device.class == class)
}

/// The key under which a metric is found.
fn key(metric: MetricId) -> &'static str {
    metric.row().name
}

/// Columns of a picture of the past, by how wide the screen is.
const fn past_width(width: usize) -> usize {
    match width {
        0..100 => 10,
        100..140 => 20,
        _ => 30,
    }
}

/// A value as `show` writes it, or a short word for why there is none.
fn field(
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
const fn absence(reason: Option<Absent>) -> &'static str {
    match reason {
        None | Some(Absent::Unsupported) => format::ABSENT,
        Some(Absent::NoPermission) => "perm",
        Some(Absent::Stale) => "old",
        Some(Absent::Saturated) => "full",
        Some(Absent::Lost) => "lost",
        Some(Absent::Error) => "error",
    }
}

fn percent_field(device: &DeviceDetail, metric: MetricId, theme: Theme) -> Field {
    field(device, metric, theme, |value| format::whole_percent(Some(value)))
}

fn rate(device: &DeviceDetail, metric: MetricId) -> Option<f64> {
    device.rates.get(key(metric)).copied().filter(|rate| rate.is_finite())
}

/// The title of a past: how far back it goes.
fn past_title(detail: &NodeDetail) -> String {
    let points = detail.devices.iter().flat_map(|device| &device.history);
    let longest = points.map(|series| series.points.len()).max().unwrap_or(0);
    let span = detail.history_step_ms.saturating_mul(longest as u64);
    format!("last {}", format::span(Duration::from_millis(span)))
}

/// A heading whose columns named `past` say how far back they go.
fn heading(detail: &NodeDetail, columns: &[Column], theme: Theme) -> Line<'static> {
    let past = past_title(detail);
    let style = theme.style(Meaning::Title);
    let names = columns.iter().map(|column| {
        (if column.title == PAST { past.clone() } else { column.title.to_owned() }, style)
    });
    table::row(columns, names)
}

/// The name of a column that shows the past.
const PAST: &str = "past";

/// The order of a GPU's columns when some clock is held down: power, temperature and the reason come first.
const HELD: [usize; 12] = [0, 1, 2, 5, 6, 10, 3, 4, 7, 8, 9, 11];

/// The GPUs.
///
/// ```text
///  GPU  doing              busy %  last 2m     SM %  tensor %   mem GiB    power W   °C
///  0    ░ waiting for peers   100  ▇▇▇▇▇▇▇▇▇▇     –         –  61.2/80.0   180/700   52
/// ```
pub(super) fn gpus(detail: &NodeDetail, width: usize, theme: Theme) -> Vec<Line<'static>> {
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
    let held = of(detail, Class::Gpu).any(|device| !held_by(device).is_empty());
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
        .and_then(node::message)
        .map_or_else(|| "none on this node".to_owned(), |message| format!("none: {message}"));
    let titles = std::iter::once("GPU").chain(std::iter::repeat(""));
    let text = titles.zip(format::wrap(&why, width.saturating_sub(INDENT + 1)));
    let style = theme.style(Meaning::Dim);
    text.map(|(title, line)| titled(title, vec![Span::styled(line, style)], theme)).collect()
}

/// Whether a collector is the one that reads GPUs from their driver.
pub(super) fn is_driver(collector: &DeviceDetail) -> bool {
    collector.labels.get("collector").is_some_and(|name| *name == "nvml")
}

fn gpu_cells(device: &DeviceDetail, past: usize, theme: Theme) -> [Field; 12] {
    let state = device.state.unwrap_or(gaunt_schema::GpuState::Unknown);
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

fn job(device: &DeviceDetail) -> String {
    let labels = device.info.get(key(gpu::JOB_INFO));
    let name = |label: &str| labels?.get(label).filter(|value| !value.is_empty());
    name("name").or_else(|| name("job")).map_or_else(String::new, ToString::to_string)
}

/// The RDMA ports.
///
/// ```text
///  PORT       state   line rate  in %  last 2m     out %  last 2m     errors/s
///  mlx5_0/1   active   400 Gb/s    41  ▅▅▅▅▅▅▅▅▅▅     40  ▅▅▅▅▅▅▅▅▅▅         0
/// ```
pub(super) fn ports(detail: &NodeDetail, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let past = past_width(width);
    let all = [
        text("PORT", 10),
        text("state", 7),
        number("line rate", 9),
        number("in %", 5),
        text(PAST, past),
        number("out %", 5),
        text(PAST, past),
        number("errors/s", 8),
        number("marked/s", 8),
        text("rail", 5),
        text("leaf", 12),
    ];
    let (fits, _) = table::fitting(&all, width.saturating_sub(2));
    let columns = &all[..fits];
    let mut lines: Vec<Line<'static>> = of(detail, Class::Port)
        .map(|device| table::row(columns, port_cells(device, past, theme)))
        .collect();
    if !lines.is_empty() {
        lines.insert(0, heading(detail, columns, theme));
        lines.insert(0, Line::default());
    }
    lines
}

fn port_cells(device: &DeviceDetail, past: usize, theme: Theme) -> [Field; 11] {
    let line_rate = device.value(key(port::RATE)).filter(|rate| *rate > 0.0);
    let share = |metric: MetricId| {
        let share = rate(device, metric).zip(line_rate).map(|(rate, line)| rate / line);
        (format::whole_percent(share), Style::new())
    };
    let history = |metric: MetricId| {
        let top = line_rate.map(|rate| rate as f32);
        (spark::line(device.past(key(metric)), top, past), theme.style(Meaning::Neutral))
    };
    let who = |label: &str| {
        let value = device.info.get(key(port::INFO)).and_then(|labels| labels.get(label));
        (value.map_or_else(|| format::ABSENT.into(), ToString::to_string), Style::new())
    };
    [
        (device.name.to_string(), Style::new()),
        port_state(device, theme),
        field(device, port::RATE, theme, format::bit_rate),
        share(port::RECEIVE_BYTES),
        history(port::RECEIVE_BYTES),
        share(port::TRANSMIT_BYTES),
        history(port::TRANSMIT_BYTES),
        errors(device, &PORT_ERRORS, theme),
        errors(device, &[port::ECN_MARKED], theme),
        who("rail"),
        who("leaf"),
    ]
}

/// What counts as an error on a port: each of these is a packet or a link that was lost.
const PORT_ERRORS: [MetricId; 6] = [
    port::SYMBOL_ERRORS,
    port::LINK_DOWNED,
    port::LINK_ERROR_RECOVERY,
    port::RECEIVE_ERRORS,
    port::TRANSMIT_DISCARDS,
    port::PACKET_SEQUENCE_ERRORS,
];

/// The sum of the rates that are known; none if none is.
fn errors(device: &DeviceDetail, metrics: &[MetricId], theme: Theme) -> Field {
    let known = metrics.iter().filter_map(|metric| rate(device, *metric));
    match known.reduce(|sum, rate| sum + rate) {
        None => (format::ABSENT.into(), theme.style(Meaning::Dim)),
        Some(0.0) => ("0".into(), Style::new()),
        Some(sum) if sum < 10.0 => (format!("{sum:.1}"), theme.style(Meaning::Bad)),
        Some(sum) => (format::count(sum as u64), theme.style(Meaning::Bad)),
    }
}

fn port_state(device: &DeviceDetail, theme: Theme) -> Field {
    let (word, meaning) = match device.value(key(port::STATE)).map(|state| state as i64) {
        Some(4) => ("active", Meaning::Plain),
        Some(3) => ("armed", Meaning::Waiting),
        Some(2) => ("init", Meaning::Waiting),
        Some(1) => ("DOWN", Meaning::Bad),
        Some(_) => ("other", Meaning::Waiting),
        None => return field(device, port::STATE, theme, |_| String::new()),
    };
    (word.into(), theme.style(meaning))
}

/// The network devices of the kernel.
///
/// ```text
///  NETWORK     link  errors/s  line rate         in  last 2m           out  last 2m
///  eth0        up           0    25 Gb/s  1.20 Mb/s  ▃▃▃▃▃▃▃▃▃▃   320 kb/s  ▃▃▃▃▃▃▃▃▃▃
/// ```
pub(super) fn netdevs(detail: &NodeDetail, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let past = past_width(width);
    let all = [
        text("NETWORK", 10),
        text("link", 4),
        number("errors/s", 8),
        number("line rate", 9),
        number("in", 9),
        text(PAST, past),
        number("out", 9),
        text(PAST, past),
    ];
    let (fits, _) = table::fitting(&all, width.saturating_sub(2));
    let columns = &all[..fits];
    let mut lines: Vec<Line<'static>> = of(detail, Class::Netdev)
        .map(|device| table::row(columns, netdev_cells(device, past, theme)))
        .collect();
    if !lines.is_empty() {
        lines.insert(0, heading(detail, columns, theme));
        lines.insert(0, Line::default());
    }
    lines
}

fn netdev_cells(device: &DeviceDetail, past: usize, theme: Theme) -> [Field; 8] {
    let link = match device.value(key(host::NETDEV_CARRIER)) {
        Some(value) if value > 0.0 => ("up".to_owned(), Style::new()),
        Some(_) => ("DOWN".to_owned(), theme.style(Meaning::Waiting)),
        None => field(device, host::NETDEV_CARRIER, theme, |_| String::new()),
    };
    let traffic = |metric: MetricId| {
        let rate = rate(device, metric);
        (rate.map_or_else(|| format::ABSENT.into(), format::bit_rate), Style::new())
    };
    let history = |metric: MetricId| {
        (spark::line(device.past(key(metric)), None, past), theme.style(Meaning::Neutral))
    };
    let lost = [
        host::NETDEV_RECEIVE_ERRORS,
        host::NETDEV_TRANSMIT_ERRORS,
        host::NETDEV_RECEIVE_DROPS,
        host::NETDEV_TRANSMIT_DROPS,
    ];
    [
        (device.name.to_string(), Style::new()),
        link,
        errors(device, &lost, theme),
        field(device, host::NETDEV_SPEED, theme, format::bit_rate),
        traffic(host::NETDEV_RECEIVE_BYTES),
        history(host::NETDEV_RECEIVE_BYTES),
        traffic(host::NETDEV_TRANSMIT_BYTES),
        history(host::NETDEV_TRANSMIT_BYTES),
    ]
}

/// The host: processors, what its tasks wait for, memory.
///
/// ```text
///  HOST      CPU      12.3 of 64 busy, the busiest 100 %   ▁▂▂▃▇▇
///            waiting  input/output 34 %   CPU 3 %   memory 0 %   ▁▁▁▃▃▃
///            memory   412 of 1,024 GiB used
/// ```
pub(super) fn host(detail: &NodeDetail, width: usize, theme: Theme) -> Vec<Line<'static>> {
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
