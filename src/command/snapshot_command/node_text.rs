//! Node text: one node in plain columns, for a fleet of one: every device with its values, counters as rates.

use gaunt_schema::{DeviceClass, MetricId, unit::MetricKind};

use super::text_columns::{format_quantity, wrap_pieces};
use gaunt_api::{DeviceDetail, NodeDetail};

/// Section of a device: its name, then its values, wrapped into lines.
pub(super) fn render_node(node: &NodeDetail) -> Vec<String> {
    let mut lines = Vec::new();
    for device in &node.devices {
        let (values, between) = match device.class {
            DeviceClass::Collector => (collector_words(device), " "),
            _ => (render_values(device), "  "),
        };
        if !values.is_empty() {
            let head = device_head(device.name.as_str());
            lines.extend(wrap_pieces(&head, &values, between));
        }
    }
    lines.push(String::new());
    lines
}

/// The name of a device before its values: in a column, and never without a space after it.
fn device_head(name: &str) -> String {
    format!("{name:<11} ")
}

/// Message of a collector, such as why there is no GPU.
fn collector_words(collector: &DeviceDetail) -> Vec<String> {
    let messages = collector.info.values().filter_map(|info| info.get("message"));
    messages
        .filter(|message| !message.is_empty())
        .flat_map(|message| message.split(' '))
        .map(str::to_owned)
        .collect()
}

/// Gauges as values, counters as rates per second, both without the common name prefix.
fn render_values(device: &DeviceDetail) -> Vec<String> {
    let prefix = match device.class {
        DeviceClass::Gpu | DeviceClass::Xid => "gaunt_gpu_",
        DeviceClass::Process => "gaunt_gpu_process_",
        DeviceClass::Nvlink => "gaunt_nvlink_",
        DeviceClass::Mig => "gaunt_mig_",
        DeviceClass::Port => "gaunt_port_",
        DeviceClass::Netdev => "gaunt_netdev_",
        DeviceClass::Disk => "gaunt_disk_",
        DeviceClass::Mount => "gaunt_mount_",
        DeviceClass::Sensor => "gaunt_sensor_",
        DeviceClass::SwitchPort => "gaunt_switch_port_",
        DeviceClass::Service => "gaunt_service_",
        DeviceClass::Collective => "gaunt_collective_",
        DeviceClass::Rank => "gaunt_nccl_lagging_rank_",
        DeviceClass::Probe => "gaunt_probe_",
        DeviceClass::Node | DeviceClass::Collector | DeviceClass::Fleet => "gaunt_node_",
    };
    let state = device.state.map(|state| state.as_str().to_owned());
    let render_metric = |id: MetricId| {
        let (key, row) = (id.series_key(), id.catalogue_row());
        let short = key.strip_prefix(prefix).unwrap_or(&key);
        match row.kind {
            MetricKind::Info => None,
            MetricKind::Gauge => {
                let value = format_quantity(device.last_value(&key)?, row.unit);
                Some(format!("{} {value}", short.trim_end_matches(row.unit.name_suffix())))
            }
            MetricKind::Counter(_) => {
                let rate = device.rates.get(&key)?;
                let value = format_quantity(*rate, row.unit);
                // Seconds per second are a ratio.
                let value =
                    if value.ends_with(" s") { format!("{rate:.2}") } else { format!("{value}/s") };
                Some(format!(
                    "{} {value}",
                    short.trim_end_matches("_total").trim_end_matches(row.unit.name_suffix())
                ))
            }
        }
    };
    state.into_iter().chain(MetricId::all_ids().filter_map(render_metric)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_name_does_not_run_into_its_first_value() {
        assert_eq!(device_head("mlx5_0/1"), "mlx5_0/1    ");
        assert_eq!(device_head("/mnt/projects/shared"), "/mnt/projects/shared ");
    }
}
