//! node_exporter's names of RDMA ports. Its other series are left to node_exporter, which most nodes run anyway.

use super::{collect_values, foreign_name, own_labels, write_families};
use crate::{
    DeviceClass, Dialect, Report, SanitizedText,
    catalogue::port,
    text::page_writer::{ExpositionFormat, write_sample},
    unit::{MetricKind, Unit},
};

/// The common prefix of the names.
const PREFIX: &str = "node_infiniband_";

/// The info series: once per RDMA device, where gaunt has it per port.
const INFO: &str = "node_infiniband_info";

/// In whole seconds there, so that most cards' milliseconds become zero.
const LIFESPAN: &str = "node_infiniband_lifespan_seconds";

const INFO_HELP: &str = "Who the RDMA device is.";

/// Its labels after the device's, with our names for them.
const INFO_LABELS: [(&str, &str); 3] =
    [("board_id", "board"), ("firmware_version", "firmware"), ("hca_type", "hca_type")];

/// Appends every `node_infiniband_*` family that the report can fill.
pub(super) fn write_node_exporter(report: &Report, format: ExpositionFormat, out: &mut String) {
    write_info(report, format, out);
    let mut values = collect_values(report, |metric| foreign_name(metric, Dialect::NodeExporter));
    values.retain(|value| value.name.starts_with(PREFIX));
    for value in values.iter_mut().filter(|value| value.name == LIFESPAN) {
        // node_exporter divides integers there.
        value.value = value.value.floor();
    }
    let labels = |device: u32| own_labels(&report.devices[device as usize]);
    write_families(&values, format, |value| value.metric.catalogue_row().kind, labels, out);
}

fn write_info(report: &Report, format: ExpositionFormat, out: &mut String) {
    let mut devices: Vec<&SanitizedText> = Vec::new();
    for info in report.infos.iter().filter(|info| info.metric == port::INFO) {
        let Some(device) = report.devices.get(info.device as usize) else { continue };
        if device.class != DeviceClass::Port || devices.contains(&&device.key[0]) {
            continue;
        }
        if devices.is_empty() {
            format.write_family_header(INFO, INFO_HELP, MetricKind::Info, Unit::Count, out);
        }
        devices.push(&device.key[0]);
        let label_value = |own_label: &str| {
            let label = info.labels.iter().find(|(name, _)| *name == own_label);
            label.map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        let labels = INFO_LABELS
            .iter()
            .map(|(foreign_label, own_label)| (*foreign_label, label_value(own_label)));
        write_sample(
            INFO,
            [("device", device.key[0].as_str())].into_iter().chain(labels),
            1.0,
            out,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AbsenceReason, Device,
        catalogue::host,
        text::{CompatOptions, PageLimits, decode_page, write_page},
    };

    const NODE: CompatOptions = CompatOptions { dcgm: None, node: true, xid: false };

    fn port_report() -> Report {
        let mut report = Report::default();
        let (first, second) = (Device::new_port("mlx5_0", "1"), Device::new_port("mlx5_0", "2"));
        let (first, second) = (report.ensure_device(first), report.ensure_device(second));
        let node = report.ensure_device(Device::new_node());
        for port in [first, second] {
            report.add_info(
                port,
                port::INFO,
                &[("firmware", "28.39.1002"), ("hca_type", "MT4129")],
            );
        }
        report.push(second, port::RECEIVE_BYTES, 4000.0);
        report.push(first, port::RECEIVE_BYTES, AbsenceReason::Error);
        report.push(first, port::LINK_DOWNED, AbsenceReason::Saturated);
        report.push(node, host::MEMORY_TOTAL, 1.0);
        report
    }

    #[test]
    fn values_are_raw_and_devices_appear_once() {
        let mut page = String::new();
        write_page(&port_report(), ExpositionFormat::Text, NODE, &mut page);
        let samples: Vec<_> = page.lines().filter(|line| line.starts_with("node_")).collect();
        assert_eq!(
            samples,
            [
                "node_infiniband_info{device=\"mlx5_0\",board_id=\"\",firmware_version=\"28.39.1002\",\
             hca_type=\"MT4129\"} 1",
                "node_infiniband_port_data_received_bytes_total{device=\"mlx5_0\",port=\"2\"} 4000",
                "node_infiniband_link_downed_total{device=\"mlx5_0\",port=\"1\"} 255",
            ]
        );
    }

    #[test]
    fn compat_page_is_read_without_duplicates() {
        let mut text = String::new();
        write_page(&port_report(), ExpositionFormat::Text, NODE, &mut text);
        let page = decode_page(text.as_bytes(), &PageLimits::default()).unwrap();
        assert_eq!(page.rejected.total_count(), 0, "{:?}", page.rejected);
        assert_eq!((page.dialect, page.report.infos.len()), (Dialect::Gaunt, 2));
        let port = Device::new_port("mlx5_0", "1");
        let reading = page.report.find_reading(&port, port::LINK_DOWNED);
        assert_eq!(reading, Some(AbsenceReason::Saturated.into()));
    }
}
