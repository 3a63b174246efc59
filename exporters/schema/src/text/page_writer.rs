//! Writes a report as a page: families in catalogue order, devices in report order, absence marks at the end.

mod compat;
mod exposition_format;
mod extra_samples;
mod lines;

pub use self::{
    compat::{CompatOptions, DcgmNames},
    exposition_format::ExpositionFormat,
    lines::{write_metric_header, write_sample},
};
use super::labels::is_label_name;
use crate::{
    AbsenceReason, Device, InfoSeries, MetricId, Reading, Report,
    catalogue::{
        exporter::{ABSENT, ABSENT_HELP},
        host,
    },
};

/// The label of an absence mark that names the metric.
pub(crate) const ABSENT_METRIC: &str = "metric";

/// The label of an absence mark that holds the value of the metric's fixed label, whose own name may be `reason` too.
pub(crate) const ABSENT_TAG: &str = "tag";

/// The label of an absence mark that holds the reason.
pub(crate) const ABSENT_REASON: &str = "reason";

/// The label that holds the node's own name.
pub(crate) const NODE: &str = "node";

/// An entry that becomes one line.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum PageEntry {
    NodeName,
    NodeTime,
    Info(usize),
    Sample(usize),
}

/// Appends the page of `report` to `out` as text. Of duplicate readings of one metric of a device the first is written.
pub fn write_text(report: &Report, out: &mut String) {
    write_own_families(report, ExpositionFormat::Text, out);
}

/// Appends the whole page of `report` to `out`: under our names, then under those of the compatible exporters.
pub fn write_page(
    report: &Report,
    format: ExpositionFormat,
    compat: CompatOptions,
    out: &mut String,
) {
    write_own_families(report, format, out);
    compat::write_compat(report, format, compat, out);
    format.write_end(out);
}

fn write_own_families(report: &Report, format: ExpositionFormat, out: &mut String) {
    let entries = in_page_order(report);
    let mut family = "";
    let mut last_sample = None;
    let mut absences = Vec::new();
    for &(metric, device, entry) in &entries {
        let id = MetricId(metric);
        let row = id.catalogue_row();
        let device_labels = report.devices.get(device as usize);
        let device_labels = device_labels.into_iter().flat_map(Device::key_labels);
        let device_labels = device_labels.map(|(name, value)| (name, value.as_str()));
        let value = match entry {
            PageEntry::NodeName | PageEntry::Info(_) => 1.0,
            PageEntry::NodeTime => report.node_time.map_or(0.0, crate::UnixMs::to_seconds),
            PageEntry::Sample(index) => {
                if last_sample.replace((metric, device)) == Some((metric, device)) {
                    continue;
                }
                let reading = report.samples[index].reading;
                match reading.value().map_or(reading, Reading::of) {
                    Reading::Value(value) => value,
                    Reading::Absent { absent } => {
                        absences.push((id, device, absent));
                        continue;
                    }
                }
            }
        };
        if family != row.name {
            family = row.name;
            format.write_header(id, out);
        }
        match entry {
            PageEntry::Sample(_) => {
                write_sample(row.name, device_labels.chain(row.tag), value, out);
            }
            PageEntry::NodeTime => write_sample(row.name, [], value, out),
            PageEntry::NodeName => write_sample(row.name, node_label(report), value, out),
            PageEntry::Info(index) => {
                let labels = info_labels(report, &report.infos[index]);
                write_sample(row.name, device_labels.chain(labels), value, out);
            }
        }
    }
    write_absences(report, &absences, format, out);
    extra_samples::write_extra(report, format, out);
}

/// All entries, sorted by metric, then device, then report order.
pub(crate) fn in_page_order(report: &Report) -> Vec<(u16, u32, PageEntry)> {
    let devices = report.devices.len() as u32;
    let samples = report.samples.iter().enumerate();
    let samples =
        samples.map(|(index, sample)| (sample.metric.0, sample.device, PageEntry::Sample(index)));
    let infos = report.infos.iter().enumerate();
    let infos = infos.map(|(index, info)| (info.metric.0, info.device, PageEntry::Info(index)));
    let mut entries: Vec<_> = infos.chain(samples).collect();
    entries.retain(|(metric, device, _)| {
        *device < devices && usize::from(*metric) < crate::catalogue::CATALOGUE.len()
    });
    if report.node.is_some() && !entries.iter().any(|entry| entry.0 == host::NODE_INFO.0) {
        entries.push((host::NODE_INFO.0, u32::MAX, PageEntry::NodeName));
    }
    if report.node_time.is_some() && !entries.iter().any(|entry| entry.0 == host::NODE_TIME.0) {
        entries.push((host::NODE_TIME.0, u32::MAX, PageEntry::NodeTime));
    }
    // A stable sort: entries with the same metric and device keep the order of the report.
    entries.sort_by_key(|(metric, device, _)| (*metric, *device));
    entries
}

pub(crate) fn node_label(report: &Report) -> Option<(&str, &str)> {
    report.node.as_ref().map(|node| (NODE, node.as_str()))
}

/// The labels of an info series that are valid on a page: valid names, each once, and different from the device's own.
/// The node's info includes the node's name even if the report has it elsewhere.
pub(crate) fn info_labels<'a>(
    report: &'a Report,
    info: &'a InfoSeries,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let key_labels = info.metric.catalogue_row().class.key_label_names();
    let named = info.labels.iter().any(|(name, _)| *name == NODE);
    let node = (info.metric == host::NODE_INFO && !named).then(|| node_label(report)).flatten();
    let labels = info.labels.iter().enumerate().filter(move |(index, (name, _))| {
        let is_duplicate = info.labels[..*index].iter().any(|(other, _)| other == name);
        is_label_name(name) && !is_duplicate && !key_labels.contains(&name.as_str())
    });
    node.into_iter().chain(labels.map(|(_, (name, value))| (name.as_str(), value.as_str())))
}

fn write_absences(
    report: &Report,
    absences: &[(MetricId, u32, AbsenceReason)],
    format: ExpositionFormat,
    out: &mut String,
) {
    if absences.is_empty() {
        return;
    }
    format.write_gauge_header(ABSENT, ABSENT_HELP, out);
    for (metric, device, reason) in absences {
        let row = metric.catalogue_row();
        let device_labels = report.devices[*device as usize].key_labels();
        let labels = device_labels
            .map(|(name, value)| (name, value.as_str()))
            .chain([(ABSENT_METRIC, row.name)])
            .chain(row.tag.map(|(_, value)| (ABSENT_TAG, value)))
            .chain([(ABSENT_REASON, reason.as_str())]);
        write_sample(ABSENT, labels, 1.0, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        SanitizedText, UnixMs,
        catalogue::{gpu, port},
    };

    fn text_page(report: &Report) -> String {
        let mut out = String::new();
        write_text(report, &mut out);
        out
    }

    #[test]
    fn page_of_small_node() {
        let mut report = Report {
            node_time: Some(UnixMs(1_795_227_212_248)),
            node: Some("gpu-0417".into()),
            ..Report::default()
        };
        let port0 = report.ensure_device(Device::new_port("mlx5_0", "1"));
        let (gpu0, gpu1) =
            (report.ensure_device(Device::new_gpu(0)), report.ensure_device(Device::new_gpu(1)));
        report.push(port0, port::RECEIVE_BYTES, 18_527_668.0);
        report.push(gpu1, gpu::UTILIZATION, 0.57);
        report.push(gpu0, gpu::UTILIZATION, 1.0);
        report.push(gpu0, gpu::UTILIZATION, 0.25);
        report.push(gpu0, gpu::CLOCK_EVENT_IDLE, 0.0);
        report.push(gpu1, gpu::CLOCK_EVENT_IDLE, AbsenceReason::NoPermission);
        report.push(gpu0, gpu::CLOCK_EVENT_HW_THERMAL, 1.0);
        report.push(gpu1, gpu::POWER, AbsenceReason::Unsupported);
        report.push(gpu0, gpu::POWER, Reading::Value(f64::NAN));
        report.add_info(
            gpu0,
            gpu::INFO,
            &[("model", "H\\100 \"SXM\""), ("gpu", "9"), ("no name", "x")],
        );
        let expected = "\
# HELP gaunt_node_info Who the node is.
# TYPE gaunt_node_info gauge
gaunt_node_info{node=\"gpu-0417\"} 1
# HELP gaunt_node_time_seconds The node's clock at the instant of sampling.
# TYPE gaunt_node_time_seconds gauge
gaunt_node_time_seconds 1795227212.248
# HELP gaunt_gpu_info Who the GPU is.
# TYPE gaunt_gpu_info gauge
gaunt_gpu_info{gpu=\"0\",model=\"H\\\\100 \\\"SXM\\\"\"} 1
# HELP gaunt_gpu_utilization_ratio Share of the driver's last window in which a kernel ran, however small.
# TYPE gaunt_gpu_utilization_ratio gauge
gaunt_gpu_utilization_ratio{gpu=\"0\"} 1
gaunt_gpu_utilization_ratio{gpu=\"1\"} 0.57
# HELP gaunt_gpu_clock_event Whether this reason holds the clock now (1) or not (0).
# TYPE gaunt_gpu_clock_event gauge
gaunt_gpu_clock_event{gpu=\"0\",reason=\"idle\"} 0
gaunt_gpu_clock_event{gpu=\"0\",reason=\"hw_thermal\"} 1
# HELP gaunt_port_receive_bytes_total Data received on all virtual lanes.
# TYPE gaunt_port_receive_bytes_total counter
gaunt_port_receive_bytes_total{device=\"mlx5_0\",port=\"1\"} 18527668
# HELP gaunt_absent A series that could exist and has no value, and why.
# TYPE gaunt_absent gauge
gaunt_absent{gpu=\"0\",metric=\"gaunt_gpu_power_watts\",reason=\"error\"} 1
gaunt_absent{gpu=\"1\",metric=\"gaunt_gpu_power_watts\",reason=\"unsupported\"} 1
gaunt_absent{gpu=\"1\",metric=\"gaunt_gpu_clock_event\",tag=\"idle\",reason=\"no_permission\"} 1
";
        assert_eq!(text_page(&report), expected);
    }

    #[test]
    fn node_name_is_added_to_info_without_it() {
        let mut report = Report { node: Some(SanitizedText::new("a")), ..Report::default() };
        let node = report.ensure_device(Device::new_node());
        report.add_info(node, host::NODE_INFO, &[("kernel", "6.1")]);
        assert!(text_page(&report).ends_with("gaunt_node_info{node=\"a\",kernel=\"6.1\"} 1\n"));
        report.infos[0].labels.push(("node".into(), "b".into()));
        assert!(text_page(&report).ends_with("gaunt_node_info{kernel=\"6.1\",node=\"b\"} 1\n"));
    }
}
