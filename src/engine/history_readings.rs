//! History readings: what the metrics with history say now, for a store that keeps them longer.

use gaunt_schema::{Device, DeviceClass, MetricId, SanitizedText};

use super::Engine;

/// Nodes of one answer: some ten thousand values.
const NODES_AT_ONCE: usize = 128;

/// The current values of some nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistoryReadings {
    /// The nodes, in the order of their names.
    pub nodes: Vec<NodeHistoryReadings>,
    /// Where the next nodes begin; none after the last one.
    pub next: Option<usize>,
}

/// The current values of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeHistoryReadings {
    /// Its name.
    pub node: SanitizedText,
    /// Its devices, each with its values; what is absent or stale is left out.
    pub devices: Vec<(Device, Vec<(MetricId, f64)>)>,
}

impl Engine {
    /// The current values of the next nodes from this one on, counted in the order of names.
    pub(super) fn history_readings(&self, from: usize) -> HistoryReadings {
        let mut metrics: [Vec<MetricId>; DeviceClass::ALL.len()] = Default::default();
        // What the catalogue lists, whatever else is kept here: both aggregators of a pair write the same.
        for metric in MetricId::all_ids().filter(|metric| metric.catalogue_row().history) {
            metrics[metric.catalogue_row().class as usize].push(metric);
        }
        let mut nodes = self.cluster.sorted_nodes().skip(from);
        let mut values = HistoryReadings::default();
        for (_, node) in nodes.by_ref().take(NODES_AT_ONCE) {
            let mut devices = Vec::new();
            for class in
                DeviceClass::ALL.iter().filter(|class| !metrics[**class as usize].is_empty())
            {
                for row in node.device_rows(*class) {
                    let current = metrics[*class as usize].iter().filter_map(|metric| {
                        Some((*metric, self.cluster.current_value(*metric, *row)?))
                    });
                    let current: Vec<_> = current.collect();
                    let entry =
                        self.cluster.device_at(*class, *row).filter(|_| !current.is_empty());
                    devices.extend(entry.map(|entry| (entry.device.clone(), current)));
                }
            }
            values.nodes.push(NodeHistoryReadings { node: node.name.clone(), devices });
        }
        values.next = nodes.next().map(|_| from + NODES_AT_ONCE);
        values
    }
}
