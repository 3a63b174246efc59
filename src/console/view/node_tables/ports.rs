//! The tables of a node's RDMA ports and of the kernel's network devices.

use gaunt_schema::{
    Class, MetricId,
    catalogue::{host, port},
};
use ratatui::{style::Style, text::Line};

use super::{Field, PAST, errors, field, heading, key, of, past_width, rate};
use crate::{
    answer::{DeviceDetail, NodeDetail},
    console::{
        format,
        theme::{Meaning, Theme},
        widget::{
            spark,
            table::{self, Column, number, text},
        },
    },
};

/// The RDMA ports.
///
/// ```text
///  PORT       state   line rate  in %  last 2m     out %  last 2m     errors/s
///  mlx5_0/1   active   400 Gb/s    41  ▅▅▅▅▅▅▅▅▅▅     40  ▅▅▅▅▅▅▅▅▅▅         0
/// ```
pub(in super::super) fn ports(
    detail: &NodeDetail,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
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
    devices(detail, Class::Port, &all, width, theme, |device| port_cells(device, past, theme))
}

fn port_cells(device: &DeviceDetail, past: usize, theme: Theme) -> [Field; 11] {
    let line_rate = full_rate(device);
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

/// The rate that a port runs at when it is up: one that is down often shows a lower one, which is no measure.
pub(in super::super) fn full_rate(device: &DeviceDetail) -> Option<f64> {
    let past = device.past(key(port::RATE)).iter().flatten().map(|rate| f64::from(*rate));
    let rates = past.chain(device.value(key(port::RATE)));
    rates.filter(|rate| rate.is_finite() && *rate > 0.0).reduce(f64::max)
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

pub(in super::super) fn port_state(device: &DeviceDetail, theme: Theme) -> Field {
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
pub(in super::super) fn netdevs(
    detail: &NodeDetail,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
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
    devices(detail, Class::Netdev, &all, width, theme, |device| netdev_cells(device, past, theme))
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

/// A table of the devices of one class, as many columns as fit; nothing at all without a device.
fn devices<const CELLS: usize>(
    detail: &NodeDetail,
    class: Class,
    all: &[Column],
    width: usize,
    theme: Theme,
    cells: impl Fn(&DeviceDetail) -> [Field; CELLS],
) -> Vec<Line<'static>> {
    let (fits, _) = table::fitting(all, width.saturating_sub(2));
    let columns = &all[..fits];
    let rows = of(detail, class).map(|device| table::row(columns, cells(device)));
    let mut lines: Vec<Line<'static>> = rows.collect();
    if !lines.is_empty() {
        lines.insert(0, heading(detail, columns, theme));
        lines.insert(0, Line::default());
    }
    lines
}
