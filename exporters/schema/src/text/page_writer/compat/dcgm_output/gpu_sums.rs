//! Values that dcgm-exporter reports in one series per GPU and gaunt in several: clock events, links, XIDs.

use super::{DcgmNames, ForeignValue};
use crate::{
    Device, DeviceClass, MetricId, Report,
    catalogue::{NVLINK_RATE_UNIT, gpu, gpu_parts as parts},
    text::page_writer::{ExpositionFormat, write_sample},
    unit::{CounterWidth, MetricKind, Unit},
    xid::describe_xid,
};

/// The mask of clock-event reasons, under its new and its old name.
const CLOCK_EVENTS: [&str; 2] =
    ["DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"];

const CLOCK_EVENTS_HELP: &str = "Mask of the reasons that hold the clock now.";

/// The sums over all links of a GPU: the names before 4.9 and since, and our metrics of a link. CRC errors come from the
/// GPU's own fields where it has them.
const OF_LINKS: [([&str; 2], &[MetricId]); 3] = [
    (
        [
            "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
            "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL",
        ],
        &[parts::NVLINK_CRC],
    ),
    (
        ["DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL"],
        &[parts::NVLINK_REPLAY],
    ),
    (
        [
            "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
            "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL",
        ],
        &[parts::NVLINK_RECOVERY],
    ),
];

const ERRORS_HELP: &str = "Errors of this kind on all NVLinks of the GPU.";

/// The rate over all links, and how many bytes per second are one there. The total of the first is a rate despite its name.
const LINK_RATES: [(&str, f64); 2] = [
    ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", NVLINK_RATE_UNIT),
    ("DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", 1.0),
];

/// Our rates: those of the GPU, else those of its links.
const OUR_RATES: [[MetricId; 2]; 2] = [
    [gpu::NVLINK_RECEIVE_RATE, gpu::NVLINK_TRANSMIT_RATE],
    [parts::NVLINK_RECEIVE_RATE, parts::NVLINK_TRANSMIT_RATE],
];

const RATE_HELP: &str = "Data that comes and goes over all NVLinks of the GPU per second.";

impl DcgmNames {
    /// The one of two names that the version has: before 4.9, and since.
    const fn pick<T: Copy>(self, names: [T; 2]) -> T {
        match self {
            Self::Before4_9 => names[0],
            Self::Since4_9 => names[1],
        }
    }
}

/// The most recent XID; it stays until the next one.
const XID_ERRORS: [&str; 2] = ["DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"];

const XID_ERRORS_HELP: &str = "The XID that was seen last, 0 where none was.";

/// dcgm-exporter's text for a GPU without an error.
const NO_ERROR: &str = "No Error";

/// Every GPU of the report in order, with its entries; GPUs without entries are left out.
fn collect_gpus<'a, T>(
    report: &'a Report,
    entry: impl Fn(u32, &'a Device) -> Option<T>,
) -> Vec<(u32, T)> {
    let devices = (0..).zip(&report.devices);
    let gpus = devices.filter(|(_, device)| device.class == DeviceClass::Gpu);
    gpus.filter_map(|(index, device)| Some((index, entry(index, device)?))).collect()
}

/// Appends one mask of all clock-event reasons: before 4.9 under both of its names.
pub(super) fn write_clock_events<'a, L>(
    report: &Report,
    format: ExpositionFormat,
    names: DcgmNames,
    labels: impl Fn(u32) -> L,
    out: &mut String,
) where
    L: IntoIterator<Item = (&'a str, &'a str)>,
{
    let mut masks: Vec<Option<u64>> = vec![None; report.devices.len()];
    for sample in &report.samples {
        let Some((bit, _)) = gpu::CLOCK_EVENTS.iter().find(|row| row.1 == sample.metric) else {
            continue;
        };
        if let (Some(active), Some(mask)) =
            (sample.reading.value(), masks.get_mut(sample.device as usize))
        {
            *mask.get_or_insert(0) |= if active > 0.0 { *bit } else { 0 };
        }
    }
    let masks = collect_gpus(report, |index, _| masks[index as usize]);
    for name in names.pick([&CLOCK_EVENTS[..], &CLOCK_EVENTS[..1]]) {
        if !masks.is_empty() {
            format.write_family_header(
                name,
                CLOCK_EVENTS_HELP,
                MetricKind::Gauge,
                Unit::Count,
                out,
            );
        }
        for (gpu, mask) in &masks {
            write_sample(name, labels(*gpu), *mask as f64, out);
        }
    }
}

/// Appends the sum over all links of a GPU for each kind, without the names in `reported`.
pub(super) fn write_links<'a, L>(
    report: &Report,
    format: ExpositionFormat,
    (names, reported): (DcgmNames, &[ForeignValue]),
    labels: impl Fn(u32) -> L,
    out: &mut String,
) where
    L: IntoIterator<Item = (&'a str, &'a str)>,
{
    for (both_names, metrics) in OF_LINKS {
        let name = names.pick(both_names);
        if reported.iter().any(|value| value.name == name) {
            continue;
        }
        let sums = sum_over_links(report, metrics);
        let kind = MetricKind::Counter(CounterWidth::Bits64);
        write_sums(format, (name, ERRORS_HELP, kind), &sums, &labels, out);
    }
    let (name, unit) = names.pick(LINK_RATES);
    if reported.iter().any(|value| value.name == name) {
        return;
    }
    let rates = OUR_RATES.iter().map(|metrics| sum_over_links(report, metrics));
    let rates = rates.into_iter().find(|sums| !sums.is_empty()).unwrap_or_default();
    let rates: Vec<_> = rates.into_iter().map(|(gpu, rate)| (gpu, (rate / unit).floor())).collect();
    write_sums(format, (name, RATE_HELP, MetricKind::Gauge), &rates, &labels, out);
}

/// The sums of these metrics over each GPU and its links.
fn sum_over_links(report: &Report, metrics: &[MetricId]) -> Vec<(u32, f64)> {
    let samples = report.samples.iter().filter(|sample| metrics.contains(&sample.metric));
    let values: Vec<_> = samples
        .filter_map(|sample| {
            let device = report.devices.get(sample.device as usize)?;
            Some((device.key.first()?, sample.reading.value()?))
        })
        .collect();
    collect_gpus(report, |_, gpu| {
        let mut gpu_values = values.iter().filter(|(key, _)| **key == gpu.key[0]).peekable();
        gpu_values.peek()?;
        Some(gpu_values.map(|(_, value)| value).sum::<f64>())
    })
}

fn write_sums<'a, L>(
    format: ExpositionFormat,
    (name, help, kind): (&str, &str, MetricKind),
    sums: &[(u32, f64)],
    labels: &impl Fn(u32) -> L,
    out: &mut String,
) where
    L: IntoIterator<Item = (&'a str, &'a str)>,
{
    if !sums.is_empty() {
        format.write_family_header(name, help, kind, Unit::Count, out);
    }
    for (gpu, sum) in sums {
        write_sample(name, labels(*gpu), *sum, out);
    }
}

/// Appends the most recent XID of each GPU. Zero is reported only for a GPU that is present and monitored.
pub(super) fn write_xids<'a, L>(
    report: &Report,
    format: ExpositionFormat,
    (names, watches_xid): (DcgmNames, bool),
    labels: impl Fn(u32) -> L,
    out: &mut String,
) where
    L: IntoIterator<Item = (&'a str, &'a str)>,
{
    let name = names.pick(XID_ERRORS);
    let last_seen: Vec<_> = report
        .samples
        .iter()
        .filter(|sample| sample.metric == parts::XID_LAST_SEEN)
        .filter_map(|sample| {
            let device = report.devices.get(sample.device as usize)?;
            let [gpu, code] = &*device.key else { return None };
            Some((sample.reading.value()?, gpu, code.parse::<u32>().ok()?))
        })
        .collect();
    let last = collect_gpus(report, |index, gpu| {
        let gpu_xids = last_seen.iter().filter(|(_, key, _)| **key == gpu.key[0]);
        let last =
            gpu_xids.max_by(|left, right| left.0.total_cmp(&right.0)).map(|(_, _, code)| *code);
        let present = report.samples.iter().any(|sample| {
            sample.device == index
                && sample.metric == gpu::PRESENT
                && sample.reading.value() == Some(1.0)
        });
        last.or((watches_xid && present).then_some(0))
    });
    if !last.is_empty() {
        format.write_family_header(name, XID_ERRORS_HELP, MetricKind::Gauge, Unit::Count, out);
    }
    for (gpu, code) in last {
        let number = code.to_string();
        let meaning = if code == 0 { NO_ERROR } else { describe_xid(code).meaning };
        let mut all_labels: Vec<(&str, &str)> = Vec::new();
        for (name, value) in labels(gpu) {
            all_labels.push((name, value));
        }
        all_labels.extend([("err_code", number.as_str()), ("err_msg", meaning)]);
        write_sample(name, all_labels, f64::from(code), out);
    }
}
