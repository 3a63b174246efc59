//! The fabric matrix: ports aggregated by leaf and rail.

use std::collections::{HashMap, HashSet};

use gaunt_schema::{
    DeviceClass, FindingKind, MetricId, SanitizedText,
    catalogue::{ethernet, port},
    natural_order,
};

use super::{
    subject_rows::{PortRows, TableRows, port_load},
    view::View,
};
use gaunt_api::{
    FabricCellColumns, FabricMatrix, Filter,
    filter::{MAX_ROWS, RowSource as _, select_rows},
};
use gaunt_cluster::{Cluster, NodeId};

/// Maximum number of cells: more than any fabric of 100,000 ports has; ports beyond are counted under the empty names.
const MAX_CELLS: usize = 65_536;

/// Errors that are summed to one number.
const ERRORS: [MetricId; 4] =
    [port::SYMBOL_ERRORS, port::LINK_ERROR_RECOVERY, port::LINK_DOWNED, port::RECEIVE_ERRORS];

/// PFC pause time received, by priority, and PFC pause time sent.
const PAUSES: [(MetricId, usize); 2] =
    [(ethernet::RECEIVE_PAUSED_0, 0), (ethernet::TRANSMIT_PAUSED_0, 1)];

/// Priorities of a port's traffic: their metrics are consecutive in the catalogue.
const PRIORITIES: u16 = 8;

/// Totals of the ports of one cell.
#[derive(Clone, Copy, Default)]
struct FabricCellSums {
    ports: u32,
    active: u32,
    receive: FabricCellMean,
    transmit: FabricCellMean,
    busiest: Option<f64>,
    paused: [FabricCellMean; 2],
    cnp: FabricCellMean,
    ecn: FabricCellMean,
    errors: Option<f64>,
    downs: Option<f64>,
    /// The worst finding, by its position in the list.
    finding: Option<FindingKind>,
}

#[derive(Clone, Copy, Default)]
struct FabricCellMean {
    sum: f64,
    known: u32,
}

impl FabricCellMean {
    fn add_value(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.known += 1;
        }
    }

    fn get(self) -> Option<f32> {
        (self.known > 0).then(|| (self.sum / f64::from(self.known)) as f32)
    }
}

impl View<'_> {
    /// Leaves by rails, of the ports that match a filter.
    pub(super) fn compute_fabric(&self, filter: &Filter) -> FabricMatrix {
        let ports = TableRows(PortRows::new(*self));
        let selected = select_rows(filter, &ports, MAX_ROWS);
        let blamed = ports.0.blaming_findings(&selected.rows);
        let unknown = SanitizedText::default();
        let topology = self.cluster.topology();
        let mut cells: HashMap<(&str, &str), FabricCellSums> = HashMap::new();
        for (row, finding) in selected.rows.iter().zip(blamed) {
            let (cluster_row, id) = ports.0.cluster_row(*row);
            let port_topology = topology.port_topology(cluster_row);
            let leaf = topology.leaf_of_port(id, cluster_row).map_or(&unknown, |leaf| &leaf.value);
            let rail =
                port_topology.and_then(|port| Some(&port.rail.as_ref()?.value)).unwrap_or(&unknown);
            let mut key = (leaf.as_str(), rail.as_str());
            if !cells.contains_key(&key) && cells.len() >= MAX_CELLS {
                key = ("", "");
            }
            cells.entry(key).or_default().add_port(self, cluster_row, id, finding);
        }
        let names = |of: fn(&(&str, &str)) -> String| {
            // Names are deduplicated first: hashing them costs less than comparing them.
            let names: HashSet<String> = cells.keys().map(of).collect();
            let mut names: Vec<String> = names.into_iter().collect();
            names.sort_by(|a, b| natural_order(a, b));
            names
        };
        let (leaves, rails) = (names(|key| key.0.to_owned()), names(|key| key.1.to_owned()));
        let mut columns = FabricCellColumns::default();
        for (at, leaf) in leaves.iter().enumerate() {
            for (of, rail) in rails.iter().enumerate() {
                if let Some(cell) = cells.get(&(leaf.as_str(), rail.as_str())) {
                    columns.leaf.push(at as u32);
                    columns.rail.push(of as u32);
                    cell.append_to_columns(&mut columns);
                }
            }
        }
        let safe = |names: Vec<String>| names.iter().map(|name| SanitizedText::new(name)).collect();
        FabricMatrix {
            at: self.at,
            total: ports.len() as u32,
            matched: selected.matched,
            leaves: safe(leaves),
            rails: safe(rails),
            cells: columns,
        }
    }
}

impl FabricCellSums {
    fn add_port(
        &mut self,
        view: &View<'_>,
        cluster_row: u32,
        id: NodeId,
        finding: Option<FindingKind>,
    ) {
        self.ports += 1;
        self.finding = self.finding.or(finding);
        let errors = ERRORS.iter().filter_map(|metric| view.counter_rate(*metric, cluster_row));
        if let Some(errors) = errors.reduce(|a, b| a + b) {
            self.errors = Some(self.errors.unwrap_or(0.0) + errors);
        }
        if let Some(downs) = view.counter_rate(port::LINK_DOWNED, cluster_row) {
            self.downs = Some(self.downs.unwrap_or(0.0) + downs);
        }
        if view.is_active(cluster_row) != Some(true) {
            return;
        }
        self.active += 1;
        let load = port_load(view, cluster_row);
        self.receive.add_value(load.map(|(receive, _)| receive));
        self.transmit.add_value(load.map(|(_, transmit)| transmit));
        let busier = load.map(|(receive, transmit)| receive.max(transmit));
        self.busiest = self.busiest.into_iter().chain(busier).reduce(f64::max);
        self.cnp.add_value(view.counter_rate(port::CNP_HANDLED, cluster_row));
        self.ecn.add_value(view.counter_rate(port::ECN_MARKED, cluster_row));
        let Some(netdev) = netdev_of_port(view.cluster, cluster_row, id) else { return };
        for (first, direction) in PAUSES {
            // The pause times of a port's priorities overlap: the longest is a lower bound of the lost time.
            let of =
                (0..PRIORITIES).filter_map(|p| view.counter_rate(MetricId(first.0 + p), netdev));
            self.paused[direction].add_value(of.reduce(f64::max));
        }
    }

    fn append_to_columns(self, columns: &mut FabricCellColumns) {
        columns.ports.push(self.ports);
        columns.active.push(self.active);
        columns.receive_ratio.push(self.receive.get());
        columns.transmit_ratio.push(self.transmit.get());
        columns.busiest_ratio.push(self.busiest.map(|share| share as f32));
        columns.pause_received_ratio.push(self.paused[0].get());
        columns.pause_sent_ratio.push(self.paused[1].get());
        columns.cnp_handled_per_second.push(self.cnp.get());
        columns.ecn_marked_per_second.push(self.ecn.get());
        columns.errors_per_second.push(self.errors.map(|errors| errors as f32));
        columns.downs_per_second.push(self.downs.map(|downs| downs as f32));
        columns.finding.push(self.finding);
    }
}

/// The row of the network device of the same hardware as a port.
fn netdev_of_port(cluster: &Cluster, row: u32, id: NodeId) -> Option<u32> {
    let name = cluster.device_at(DeviceClass::Port, row)?.info_label(port::INFO, "netdev")?;
    let rows = cluster.node_by_id(id)?.device_rows(DeviceClass::Netdev).iter().copied();
    let is = |row: &u32| {
        let key = cluster.device_at(DeviceClass::Netdev, *row).map(|entry| &entry.device.key);
        key.and_then(|key| key.first()) == Some(name)
    };
    rows.into_iter().find(is)
}
