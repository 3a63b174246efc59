//! One node in plain columns, for a fleet of one: every device with its values, counters as rates.

use gaunt_schema::{Class, MetricId, unit::Kind};

use super::columns::{quantity, wrap};
use crate::answer::{DeviceDetail, NodeDetail};

/// A device's section: its name, then its values, as many as fit on each line.
pub(super) fn section(node: &NodeDetail) -> Vec<String> {
    let mut lines = Vec::new();
    for device in &node.devices {
        let (values, between) = match device.class {
            Class::Collector => (told(device), " "),
            _ => (values(device), "  "),
        };
        if !values.is_empty() {
            let head = format!("{:<12}", device.name.as_str());
            lines.extend(wrap(&head, &values, between));
        }
    }
    lines.push(String::new());
    lines
}

/// What a collector has to say, such as why there is no GPU.
fn told(collector: &DeviceDetail) -> Vec<String> {
    let messages = collector.info.values().filter_map(|info| info.get("message"));
    messages
        .filter(|message| !message.is_empty())
        .flat_map(|message| message.split(' '))
        .map(str::to_owned)
        .collect()
}

/// Gauges as they are, counters by what they grow in a second, both without the words that all share.
fn values(device: &DeviceDetail) -> Vec<String> {
    let prefix = match device.class {
        Class::Gpu | Class::Xid => "gaunt_gpu_",
        Class::Process => "gaunt_gpu_process_",
        Class::Nvlink => "gaunt_nvlink_",
        Class::Mig => "gaunt_mig_",
        Class::Port => "gaunt_port_",
        Class::Netdev => "gaunt_netdev_",
        Class::Disk => "gaunt_disk_",
        Class::Mount => "gaunt_mount_",
        Class::Sensor => "gaunt_sensor_",
        Class::SwitchPort => "gaunt_switch_port_",
        Class::Service => "gaunt_service_",
        Class::Collective => "gaunt_collective_",
        Class::Probe => "gaunt_probe_",
        Class::Node | Class::Collector | Class::Fleet => "gaunt_node_",
    };
    let state = device.state.map(|state| state.as_str().to_owned());
    let shown = |id: MetricId| {
        let (key, row) = (id.key(), id.row());
        let short = key.strip_prefix(prefix).unwrap_or(&key);
        match row.kind {
            Kind::Info => None,
            Kind::Gauge => {
                let value = quantity(device.value(&key)?, row.unit);
                Some(format!("{} {value}", short.trim_end_matches(row.unit.suffix())))
            }
            Kind::Counter(_) => {
                let rate = device.rates.get(&key)?;
                let value = quantity(*rate, row.unit);
                // Seconds in a second are a plain share, whatever of.
                let value =
                    if value.ends_with(" s") { format!("{rate:.2}") } else { format!("{value}/s") };
                Some(format!(
                    "{} {value}",
                    short.trim_end_matches("_total").trim_end_matches(row.unit.suffix())
                ))
            }
        }
    };
    state.into_iter().chain(MetricId::all().filter_map(shown)).collect()
}
