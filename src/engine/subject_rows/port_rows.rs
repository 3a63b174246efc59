//! RDMA ports as rows, node by node in name order.

use gaunt_schema::{DeviceClass, FindingKind, MetricId, SanitizedText, catalogue::port};

use super::{BlameIndex, FieldColumn, SubjectRows};
use crate::view::View;
use gaunt_api::{PORT_STATES, PortField};
use gaunt_cluster::{Node, NodeId};

/// Every port.
pub(crate) struct PortRows<'a> {
    view: View<'a>,
    cluster_rows: Vec<(u32, NodeId)>,
}

impl<'a> PortRows<'a> {
    pub(crate) fn new(view: View<'a>) -> Self {
        let mut cluster_rows = Vec::with_capacity(view.cluster.row_count(DeviceClass::Port));
        for (id, node) in view.cluster.sorted_nodes() {
            cluster_rows.extend(node.device_rows(DeviceClass::Port).iter().map(|row| (*row, id)));
        }
        Self { view, cluster_rows }
    }

    /// The row in the cluster's columns, and the node.
    pub(crate) fn cluster_row(&self, row: u32) -> (u32, NodeId) {
        self.cluster_rows[row as usize]
    }

    fn node_of(&self, row: u32) -> Option<&'a Node> {
        self.view.cluster.node_by_id(self.cluster_row(row).1)
    }

    /// A part of its name: the device, or the port on it.
    fn name_part(&self, row: u32, part: usize) -> Option<&'a SanitizedText> {
        self.view
            .cluster
            .device_at(DeviceClass::Port, self.cluster_row(row).0)?
            .device
            .key
            .get(part)
    }

    /// The worst finding that blames each of these ports, or what is above it.
    pub(crate) fn blaming_findings(&self, rows: &[u32]) -> Vec<Option<FindingKind>> {
        let blame = BlameIndex::of(self.view.findings);
        rows.iter().map(|row| self.blaming_finding(&blame, *row)).collect()
    }

    fn blaming_finding(&self, blame: &BlameIndex<'_>, row: u32) -> Option<FindingKind> {
        let (device, port) = (self.name_part(row, 0)?, self.name_part(row, 1)?);
        let (cluster_row, id) = self.cluster_row(row);
        let topology = self.view.cluster.topology();
        let leaf = topology.leaf_of_port(id, cluster_row).map(|leaf| &leaf.value);
        let rail = topology.port_topology(cluster_row).and_then(|port| port.rail.as_ref());
        let above = (leaf, rail.map(|rail| &rail.value));
        blame.worst_of_port(&self.node_of(row)?.name, (device, port), above)
    }
}

/// Receive and transmit load of a port as shares of its link rate.
pub(crate) fn port_load(view: &View<'_>, row: u32) -> Option<(f64, f64)> {
    let rate = view.metric_value(port::RATE, row).filter(|rate| *rate > 0.0)?;
    let received = view.counter_rate(port::RECEIVE_BYTES, row)?;
    Some((received / rate, view.counter_rate(port::TRANSMIT_BYTES, row)? / rate))
}

impl<'a> SubjectRows<'a> for PortRows<'a> {
    type Field = PortField;

    fn row_count(&self) -> usize {
        self.cluster_rows.len()
    }

    fn metric_row(&self, _metric: MetricId, row: u32) -> Option<(&View<'a>, u32)> {
        Some((&self.view, self.cluster_row(row).0))
    }

    fn builtin_column(&self, field: PortField, rows: &[u32]) -> FieldColumn {
        let cluster = self.view.cluster;
        let topology = cluster.topology();
        let cluster_row = |row| self.cluster_row(row).0;
        match field {
            PortField::Node => FieldColumn::texts(rows, |row| Some(&self.node_of(row)?.name)),
            PortField::Device => FieldColumn::texts(rows, |row| self.name_part(row, 0)),
            PortField::Port => FieldColumn::texts(rows, |row| self.name_part(row, 1)),
            PortField::State => FieldColumn::coded(rows, &PORT_STATES, |row| {
                let state = self.view.metric_value(port::STATE, cluster_row(row))?;
                (1.0..=4.0).contains(&state).then(|| state as usize - 1)
            }),
            PortField::Leaf => FieldColumn::texts(rows, |row| {
                let (port, node) = self.cluster_row(row);
                Some(&topology.leaf_of_port(node, port)?.value)
            }),
            PortField::SwitchPort => FieldColumn::texts(rows, |row| {
                topology.port_topology(cluster_row(row))?.switch_port.as_ref()
            }),
            PortField::Rail => FieldColumn::texts(rows, |row| {
                Some(&topology.port_topology(cluster_row(row))?.rail.as_ref()?.value)
            }),
            PortField::Rack => FieldColumn::texts(rows, |row| {
                Some(&topology.node_topology(self.cluster_row(row).1)?.rack.as_ref()?.value)
            }),
            PortField::Netdev => FieldColumn::texts(rows, |row| {
                cluster
                    .device_at(DeviceClass::Port, cluster_row(row))?
                    .info_label(port::INFO, "netdev")
            }),
            PortField::Finding => {
                let blame = BlameIndex::of(self.view.findings);
                FieldColumn::kinds(rows, |row| self.blaming_finding(&blame, row))
            }
            PortField::Load => FieldColumn::numbers(rows, |row| {
                port_load(&self.view, cluster_row(row))
                    .map(|(receive, transmit)| receive.max(transmit))
            }),
            PortField::Age => {
                FieldColumn::numbers(rows, |row| self.view.node_age_seconds(self.node_of(row)?))
            }
        }
    }
}
