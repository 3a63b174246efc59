//! Counts that dcgm-exporter computes itself: XIDs in total and in a window, and clock events by reason.

use crate::{
    DeviceClass, MetricId, Report,
    catalogue::{gpu, gpu_parts as parts},
    text::page_writer::{ExpositionFormat, write_sample},
    unit::{CounterWidth, MetricKind, Unit},
};

/// Labels of a series.
type CountLabels<'a> = Vec<(&'a str, &'a str)>;

/// The window in milliseconds: the default there, and the only one here.
const WINDOW: (&str, &str) = ("window_size_in_ms", "300000");

const XIDS: &str = "DCGM_EXP_XID_ERRORS_COUNT";
const XIDS_HELP: &str = "Driver errors in the window, by XID.";
const ALL_XIDS: &str = "DCGM_EXP_XID_ERRORS_TOTAL";
const ALL_XIDS_HELP: &str = "Driver errors, by XID.";
const XID: &str = "xid";
const CLOCK_EVENTS: &str = "DCGM_EXP_CLOCK_EVENTS_COUNT";
const CLOCK_EVENTS_HELP: &str = "How often a reason held the clock in the window.";
const CLOCK_EVENT: &str = "clock_event";

/// The foreign names of the reasons, in catalogue order.
const REASONS: [&str; gpu::CLOCK_EVENTS.len()] = [
    "gpu_idle",
    "clocks_setting",
    "power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "hw_power_brake",
];

/// Appends all counts of each GPU.
pub(super) fn write_counts<'a, L>(
    report: &Report,
    format: ExpositionFormat,
    watches_xid: bool,
    labels: impl Fn(u32) -> L,
    out: &mut String,
) where
    L: IntoIterator<Item = (&'a str, &'a str)>,
{
    let gpus = (0..).zip(&report.devices).filter(|(_, device)| device.class == DeviceClass::Gpu);
    let gpus: Vec<_> =
        gpus.map(|(index, gpu)| (index, gpu, CountLabels::from_iter(labels(index)))).collect();
    let xids = |metric| {
        let samples = report.samples.iter().filter(move |sample| sample.metric == metric);
        samples.filter_map(|sample| {
            let device = report.devices.get(sample.device as usize)?;
            let [gpu, code] = &*device.key else { return None };
            Some((gpu, code.as_str(), sample.reading.value()?))
        })
    };
    let mut lines = Vec::new();
    for (index, gpu, labels) in &gpus {
        let gpu_xids = xids(parts::XID_RECENT).filter(|(key, ..)| **key == gpu.key[0]);
        let gpu_xids: Vec<_> = gpu_xids.filter(|(.., count)| *count > 0.0).collect();
        // Zero is reported only for a GPU that is present and monitored.
        if gpu_xids.is_empty()
            && watches_xid
            && find_value(report, *index, gpu::PRESENT) == Some(1.0)
        {
            lines.push((labels, vec![WINDOW], 0.0));
        }
        lines.extend(
            gpu_xids.into_iter().map(|(_, xid, count)| (labels, vec![WINDOW, (XID, xid)], count)),
        );
    }
    write_family(format, XIDS, XIDS_HELP, MetricKind::Gauge, lines, out);
    let lines = gpus.iter().flat_map(|(_, gpu, labels)| {
        let gpu_xids = xids(parts::XID_ERRORS).filter(|(key, ..)| **key == gpu.key[0]);
        gpu_xids.map(move |(_, xid, count)| (labels, vec![(XID, xid)], count))
    });
    write_family(
        format,
        ALL_XIDS,
        ALL_XIDS_HELP,
        MetricKind::Counter(CounterWidth::Bits64),
        lines.collect(),
        out,
    );
    let lines = gpus.iter().flat_map(|(index, _, labels)| {
        let reasons = REASONS.into_iter().zip(gpu::RECENT_CLOCK_EVENTS);
        reasons.filter_map(move |(reason, metric)| {
            let count = find_value(report, *index, metric).filter(|count| *count > 0.0)?;
            Some((labels, vec![WINDOW, (CLOCK_EVENT, reason)], count))
        })
    });
    write_family(format, CLOCK_EVENTS, CLOCK_EVENTS_HELP, MetricKind::Gauge, lines.collect(), out);
}

fn find_value(report: &Report, device: u32, metric: MetricId) -> Option<f64> {
    let mut samples = report.samples.iter();
    samples.find(|sample| sample.device == device && sample.metric == metric)?.reading.value()
}

/// Appends a family: the labels of a GPU, the additional ones, and the value.
fn write_family(
    format: ExpositionFormat,
    name: &str,
    help: &str,
    kind: MetricKind,
    lines: Vec<(&CountLabels<'_>, CountLabels<'_>, f64)>,
    out: &mut String,
) {
    if !lines.is_empty() {
        format.write_family_header(name, help, kind, Unit::Count, out);
    }
    for (gpu_labels, line_labels, value) in lines {
        write_sample(name, gpu_labels.iter().copied().chain(line_labels), value, out);
    }
}
