//! A report becomes a page: families in catalogue order, devices in report order, what is absent said at the end.

mod compat;
mod extra;
mod form;
mod lines;

pub use self::{
    compat::Compat,
    form::Form,
    lines::{header, series},
};
use super::labels::is_label_name;
use crate::{
    Absent, Device, Info, MetricId, Reading, Report,
    catalogue::{
        exporter::{ABSENT, ABSENT_HELP},
        host,
    },
};

/// The label that names the metric in a mark of absence.
pub(crate) const ABSENT_METRIC: &str = "metric";

/// The label that gives the value of the metric's fixed label in a mark of absence: its own name may be `reason` too.
pub(crate) const ABSENT_TAG: &str = "tag";

/// The label that gives the reason in a mark of absence.
pub(crate) const ABSENT_REASON: &str = "reason";

/// The label that carries the node's own name.
pub(crate) const NODE: &str = "node";

/// Something that becomes one line.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Entry {
    NodeName,
    NodeTime,
    Info(usize),
    Sample(usize),
}

/// Appends the page of `report` to `out` as text. Of two readings of one metric of one device the first is written.
pub fn write(report: &Report, out: &mut String) {
    native(report, Form::Text, out);
}

/// Appends the whole page of `report` to `out`: in our words, then in those of the exporters that it stands in for.
pub fn write_page(report: &Report, form: Form, compat: Compat, out: &mut String) {
    native(report, form, out);
    compat::write(report, form, compat, out);
    form.end(out);
}

fn native(report: &Report, form: Form, out: &mut String) {
    let entries = in_page_order(report);
    let mut family = "";
    let mut last_sample = None;
    let mut absences = Vec::new();
    for &(metric, device, entry) in &entries {
        let id = MetricId(metric);
        let row = id.row();
        let place = report.devices.get(device as usize);
        let place = place.into_iter().flat_map(Device::labels);
        let place = place.map(|(name, value)| (name, value.as_str()));
        let value = match entry {
            Entry::NodeName | Entry::Info(_) => 1.0,
            Entry::NodeTime => report.node_time.map_or(0.0, crate::UnixMs::seconds),
            Entry::Sample(at) => {
                if last_sample.replace((metric, device)) == Some((metric, device)) {
                    continue;
                }
                let reading = report.samples[at].reading;
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
            form.header(id, out);
        }
        match entry {
            Entry::Sample(_) => series(row.name, place.chain(row.tag), value, out),
            Entry::NodeTime => series(row.name, [], value, out),
            Entry::NodeName => series(row.name, node_label(report), value, out),
            Entry::Info(at) => {
                let labels = info_labels(report, &report.infos[at]);
                series(row.name, place.chain(labels), value, out);
            }
        }
    }
    write_absences(report, &absences, form, out);
    extra::write(report, form, out);
}

/// Everything that becomes a line, by metric, then device, then as the report has it.
pub(crate) fn in_page_order(report: &Report) -> Vec<(u16, u32, Entry)> {
    let devices = report.devices.len() as u32;
    let samples = report.samples.iter().enumerate();
    let samples = samples.map(|(at, sample)| (sample.metric.0, sample.device, Entry::Sample(at)));
    let infos = report.infos.iter().enumerate();
    let infos = infos.map(|(at, info)| (info.metric.0, info.device, Entry::Info(at)));
    let mut entries: Vec<_> = infos.chain(samples).collect();
    entries.retain(|(metric, device, _)| {
        *device < devices && usize::from(*metric) < crate::catalogue::CATALOGUE.len()
    });
    if report.node.is_some() && !entries.iter().any(|entry| entry.0 == host::NODE_INFO.0) {
        entries.push((host::NODE_INFO.0, u32::MAX, Entry::NodeName));
    }
    if report.node_time.is_some() && !entries.iter().any(|entry| entry.0 == host::NODE_TIME.0) {
        entries.push((host::NODE_TIME.0, u32::MAX, Entry::NodeTime));
    }
    // Stable: what shares metric and device stays in the order of the report.
    entries.sort_by_key(|(metric, device, _)| (*metric, *device));
    entries
}

pub(crate) fn node_label(report: &Report) -> Option<(&str, &str)> {
    report.node.as_ref().map(|node| (NODE, node.as_str()))
}

/// The labels of an info series that can stand on a page: named by the grammar, once, and not like the device's own.
/// The node's info carries the node's name even if the report has it elsewhere.
pub(crate) fn info_labels<'a>(
    report: &'a Report,
    info: &'a Info,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let taken = info.metric.row().class.labels();
    let named = info.labels.iter().any(|(name, _)| *name == NODE);
    let node = (info.metric == host::NODE_INFO && !named).then(|| node_label(report)).flatten();
    let labels = info.labels.iter().enumerate().filter(move |(at, (name, _))| {
        let twin = info.labels[..*at].iter().any(|(earlier, _)| earlier == name);
        is_label_name(name) && !twin && !taken.contains(&name.as_str())
    });
    node.into_iter().chain(labels.map(|(_, (name, value))| (name.as_str(), value.as_str())))
}

fn write_absences(
    report: &Report,
    absences: &[(MetricId, u32, Absent)],
    form: Form,
    out: &mut String,
) {
    if absences.is_empty() {
        return;
    }
    form.gauge(ABSENT, ABSENT_HELP, out);
    for (metric, device, reason) in absences {
        let row = metric.row();
        let place = report.devices[*device as usize].labels();
        let labels = place
            .map(|(name, value)| (name, value.as_str()))
            .chain([(ABSENT_METRIC, row.name)])
            .chain(row.tag.map(|(_, value)| (ABSENT_TAG, value)))
            .chain([(ABSENT_REASON, reason.as_str())]);
        series(ABSENT, labels, 1.0, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Safe, UnixMs,
        catalogue::{gpu, port},
    };

    fn page(report: &Report) -> String {
        let mut out = String::new();
        write(report, &mut out);
        out
    }

    #[test]
    fn the_page_of_a_small_node() {
        let mut report = Report {
            node_time: Some(UnixMs(1_795_227_212_248)),
            node: Some("gpu-0417".into()),
            ..Report::default()
        };
        let port0 = report.device(Device::port("mlx5_0", "1"));
        let (gpu0, gpu1) = (report.device(Device::gpu(0)), report.device(Device::gpu(1)));
        report.push(port0, port::RECEIVE_BYTES, 18_527_668.0);
        report.push(gpu1, gpu::UTILIZATION, 0.57);
        report.push(gpu0, gpu::UTILIZATION, 1.0);
        report.push(gpu0, gpu::UTILIZATION, 0.25);
        report.push(gpu0, gpu::CLOCK_EVENT_IDLE, 0.0);
        report.push(gpu1, gpu::CLOCK_EVENT_IDLE, Absent::NoPermission);
        report.push(gpu0, gpu::CLOCK_EVENT_HW_THERMAL, 1.0);
        report.push(gpu1, gpu::POWER, Absent::Unsupported);
        report.push(gpu0, gpu::POWER, Reading::Value(f64::NAN));
        report.info(
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
        assert_eq!(page(&report), expected);
    }

    #[test]
    fn the_name_of_the_node_joins_an_info_that_lacks_it() {
        let mut report = Report { node: Some(Safe::new("a")), ..Report::default() };
        let node = report.device(Device::node());
        report.info(node, host::NODE_INFO, &[("kernel", "6.1")]);
        assert!(page(&report).ends_with("gaunt_node_info{node=\"a\",kernel=\"6.1\"} 1\n"));
        report.infos[0].labels.push(("node".into(), "b".into()));
        assert!(page(&report).ends_with("gaunt_node_info{kernel=\"6.1\",node=\"b\"} 1\n"));
    }
}
