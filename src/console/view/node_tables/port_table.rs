//! Tables of a node's RDMA ports and of the kernel's network devices.

use gaunt_schema::{
    DeviceClass, MetricId,
    catalogue::{host, port},
};
use ratatui::{style::Style, text::Line};

use super::{
    PAST, StyledCell, history_width, metric_key, metric_rate, of, render_heading, render_rate_sum,
    render_reading,
};
use crate::{
    display_text,
    theme::{StyleRole, Theme},
    widget::{
        sparkline,
        text_table::{self, ColumnLayout, number_column, text_column},
    },
};
use gaunt_api::{DeviceDetail, NodeDetail};

/// Renders the RDMA ports.
///
/// ```text
///  PORT       state   line rate  in %  last 2m     out %  last 2m     errors/s
///  mlx5_0/1   active   400 Gb/s    41  ▅▅▅▅▅▅▅▅▅▅     40  ▅▅▅▅▅▅▅▅▅▅         0
/// ```
pub(crate) fn render_ports(detail: &NodeDetail, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let graph_width = history_width(width);
    let all = [
        text_column("PORT", 10),
        text_column("state", 7),
        number_column("line rate", 9),
        number_column("in %", 5),
        text_column(PAST, graph_width),
        number_column("out %", 5),
        text_column(PAST, graph_width),
        number_column("errors/s", 8),
        number_column("ECN/s", 8),
        text_column("rail", 5),
        text_column("leaf", 12),
    ];
    render_device_table(detail, DeviceClass::Port, &all, width, theme, |device| {
        port_cells(device, graph_width, theme)
    })
}

fn port_cells(device: &DeviceDetail, graph_width: usize, theme: Theme) -> [StyledCell; 11] {
    let line_rate = full_rate(device);
    let share = |metric: MetricId| {
        let share = metric_rate(device, metric).zip(line_rate).map(|(rate, line)| rate / line);
        (display_text::format_whole_percent(share), Style::new())
    };
    let history = |metric: MetricId| {
        let top = line_rate.map(|rate| rate as f32);
        (
            sparkline::render_sparkline(device.recent_points(metric_key(metric)), top, graph_width),
            theme.style_for(StyleRole::Neutral),
        )
    };
    let who = |label: &str| {
        let value = device.info.get(metric_key(port::INFO)).and_then(|labels| labels.get(label));
        (value.map_or_else(|| display_text::ABSENT.into(), ToString::to_string), Style::new())
    };
    [
        (device.name.to_string(), Style::new()),
        render_port_state(device, theme),
        render_reading(device, port::RATE, theme, |rate| theme.units().format_rate(rate)),
        share(port::RECEIVE_BYTES),
        history(port::RECEIVE_BYTES),
        share(port::TRANSMIT_BYTES),
        history(port::TRANSMIT_BYTES),
        render_rate_sum(device, &PORT_ERRORS, theme),
        render_rate_sum(device, &[port::ECN_MARKED], theme),
        who("rail"),
        who("leaf"),
    ]
}

/// Returns the line rate of a port that is up: a port that is down often reports a lower rate, which must not be used.
pub(crate) fn full_rate(device: &DeviceDetail) -> Option<f64> {
    let recent =
        device.recent_points(metric_key(port::RATE)).iter().flatten().map(|rate| f64::from(*rate));
    let rates = recent.chain(device.last_value(metric_key(port::RATE)));
    rates.filter(|rate| rate.is_finite() && *rate > 0.0).reduce(f64::max)
}

/// Returns the line rate of a port, unless it is down and its rate from before is not known.
pub(crate) fn usable_rate(device: &DeviceDetail) -> Option<f64> {
    let is_active =
        device.last_value(metric_key(port::STATE)).is_none_or(|state| state as i64 == 4);
    let now = device.last_value(metric_key(port::RATE));
    full_rate(device).filter(|rate| is_active || now.is_none_or(|now| now < *rate))
}

/// Port error counters: each of them counts lost packets or lost links.
const PORT_ERRORS: [MetricId; 6] = [
    port::SYMBOL_ERRORS,
    port::LINK_DOWNED,
    port::LINK_ERROR_RECOVERY,
    port::RECEIVE_ERRORS,
    port::TRANSMIT_DISCARDS,
    port::PACKET_SEQUENCE_ERRORS,
];

pub(crate) fn render_port_state(device: &DeviceDetail, theme: Theme) -> StyledCell {
    let (word, meaning) = match device.last_value(metric_key(port::STATE)).map(|state| state as i64)
    {
        Some(4) => ("active", StyleRole::Plain),
        Some(3) => ("armed", StyleRole::Waiting),
        Some(2) => ("init", StyleRole::Waiting),
        Some(1) => ("DOWN", StyleRole::Bad),
        Some(_) => ("other", StyleRole::Waiting),
        None => return render_reading(device, port::STATE, theme, |_| String::new()),
    };
    (word.into(), theme.style_for(meaning))
}

/// Renders the network devices of the kernel.
///
/// ```text
///  NETWORK     link  errors/s  line rate         in  last 2m           out  last 2m
///  eth0        up           0    25 Gb/s  1.20 Mb/s  ▃▃▃▃▃▃▃▃▃▃   320 kb/s  ▃▃▃▃▃▃▃▃▃▃
/// ```
pub(crate) fn render_netdevs(
    detail: &NodeDetail,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let graph_width = history_width(width);
    let all = [
        text_column("NETWORK", 10),
        text_column("link", 4),
        number_column("errors/s", 8),
        number_column("line rate", 9),
        number_column("in", 9),
        text_column(PAST, graph_width),
        number_column("out", 9),
        text_column(PAST, graph_width),
    ];
    render_device_table(detail, DeviceClass::Netdev, &all, width, theme, |device| {
        netdev_cells(device, graph_width, theme)
    })
}

fn netdev_cells(device: &DeviceDetail, graph_width: usize, theme: Theme) -> [StyledCell; 8] {
    let link = match device.last_value(metric_key(host::NETDEV_CARRIER)) {
        Some(value) if value > 0.0 => ("up".to_owned(), Style::new()),
        Some(_) => ("DOWN".to_owned(), theme.style_for(StyleRole::Waiting)),
        None => render_reading(device, host::NETDEV_CARRIER, theme, |_| String::new()),
    };
    let traffic = |metric: MetricId| {
        let rate = metric_rate(device, metric);
        (
            rate.map_or_else(
                || display_text::ABSENT.into(),
                |rate| theme.units().format_rate(rate),
            ),
            Style::new(),
        )
    };
    let history = |metric: MetricId| {
        (
            sparkline::render_sparkline(
                device.recent_points(metric_key(metric)),
                None,
                graph_width,
            ),
            theme.style_for(StyleRole::Neutral),
        )
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
        render_rate_sum(device, &lost, theme),
        render_reading(device, host::NETDEV_SPEED, theme, |rate| theme.units().format_rate(rate)),
        traffic(host::NETDEV_RECEIVE_BYTES),
        history(host::NETDEV_RECEIVE_BYTES),
        traffic(host::NETDEV_TRANSMIT_BYTES),
        history(host::NETDEV_TRANSMIT_BYTES),
    ]
}

/// Renders a table of the devices of one class with as many columns as fit; nothing without a device.
fn render_device_table<const CELLS: usize>(
    detail: &NodeDetail,
    class: DeviceClass,
    all: &[ColumnLayout],
    width: usize,
    theme: Theme,
    cells: impl Fn(&DeviceDetail) -> [StyledCell; CELLS],
) -> Vec<Line<'static>> {
    let (fits, _) = text_table::fit_columns(all, width.saturating_sub(2));
    let columns = &all[..fits];
    let rows = of(detail, class).map(|device| text_table::render_row(columns, cells(device)));
    let mut lines: Vec<Line<'static>> = rows.collect();
    if !lines.is_empty() {
        lines.insert(0, render_heading(detail, columns, theme));
        lines.insert(0, Line::default());
    }
    lines
}
