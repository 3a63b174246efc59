//! RDMA ports as rows, node by node in name order.

use gaunt_schema::{AbsenceReason, DeviceClass, SanitizedText, catalogue::port};

use super::{
    BlameIndex, TextColumnBuilder, absent_reason, coded_texts, kind_texts, number_column,
    shown_value,
};
use crate::view::View;
use gaunt_api::{
    BuiltinField, FieldKey,
    filter::{RowSource, TextColumn},
};
use gaunt_cluster::{Node, NodeId};

/// Every port.
pub(crate) struct PortRows<'a> {
    view: View<'a>,
    places: Vec<(u32, NodeId)>,
}

impl<'a> PortRows<'a> {
    pub(crate) fn new(view: View<'a>) -> Self {
        let mut places = Vec::with_capacity(view.cluster.row_count(DeviceClass::Port));
        for (id, node) in view.cluster.sorted_nodes() {
            places.extend(node.device_rows(DeviceClass::Port).iter().map(|row| (*row, id)));
        }
        Self { view, places }
    }

    /// The row in the cluster's columns, and the node.
    pub(crate) fn cluster_row(&self, row: u32) -> (u32, NodeId) {
        self.places[row as usize]
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

    /// The worst finding that blames each of these ports.
    pub(crate) fn blaming_findings(&self, rows: &[u32]) -> Vec<Option<gaunt_schema::FindingKind>> {
        let blame = BlameIndex::of(self.view.findings);
        let of = |row: &u32| {
            blame.worst_of_port(
                &self.node_of(*row)?.name,
                self.name_part(*row, 0)?,
                self.name_part(*row, 1)?,
            )
        };
        rows.iter().map(of).collect()
    }
}

/// Receive and transmit load of a port as shares of its link rate.
pub(crate) fn port_load(view: &View<'_>, row: u32) -> Option<(f64, f64)> {
    let rate = view.metric_value(port::RATE, row).filter(|rate| *rate > 0.0)?;
    let received = view.counter_rate(port::RECEIVE_BYTES, row)?;
    Some((received / rate, view.counter_rate(port::TRANSMIT_BYTES, row)? / rate))
}

impl RowSource for PortRows<'_> {
    fn len(&self) -> usize {
        self.places.len()
    }

    fn collect_numbers(&self, key: FieldKey, rows: &[u32]) -> Vec<f64> {
        let number = |row: &u32| match key {
            FieldKey::Metric(metric) => shown_value(&self.view, metric, self.cluster_row(*row).0),
            FieldKey::Builtin(BuiltinField::Load) => {
                port_load(&self.view, self.cluster_row(*row).0).map(|(r, t)| r.max(t))
            }
            FieldKey::Builtin(_) => {
                Some(self.view.age_of(self.node_of(*row)?.sampled?)?.as_secs_f64())
            }
        };
        number_column(rows.iter().map(number))
    }

    fn collect_texts(&self, key: FieldKey, rows: &[u32]) -> TextColumn {
        let FieldKey::Builtin(own) = key else { return TextColumn::default() };
        let cluster = self.view.cluster;
        let wiring = cluster.topology();
        let all = rows;
        let rows = rows.iter().copied();
        match own {
            BuiltinField::Node => {
                TextColumnBuilder::of(rows.map(|row| Some(&self.node_of(row)?.name)))
            }
            BuiltinField::Device => TextColumnBuilder::of(rows.map(|row| self.name_part(row, 0))),
            BuiltinField::Port => TextColumnBuilder::of(rows.map(|row| self.name_part(row, 1))),
            BuiltinField::State => {
                let words = ["down", "initializing", "armed", "active"];
                let state = |row: u32| match self
                    .view
                    .metric_value(port::STATE, self.cluster_row(row).0)?
                {
                    known if (1.0..=4.0).contains(&known) => Some(known as usize - 1),
                    _ => None,
                };
                coded_texts(&words, rows.map(state))
            }
            BuiltinField::Leaf => {
                let leaf = |row| {
                    Some(&wiring.port_topology(self.cluster_row(row).0)?.leaf.as_ref()?.value)
                };
                TextColumnBuilder::of(rows.map(leaf))
            }
            BuiltinField::Rail => {
                let rail = |row| {
                    Some(&wiring.port_topology(self.cluster_row(row).0)?.rail.as_ref()?.value)
                };
                TextColumnBuilder::of(rows.map(rail))
            }
            BuiltinField::Rack => {
                let rack = |row| {
                    Some(&wiring.node_topology(self.cluster_row(row).1)?.rack.as_ref()?.value)
                };
                TextColumnBuilder::of(rows.map(rack))
            }
            BuiltinField::Netdev => {
                let device = |row| cluster.device_at(DeviceClass::Port, self.cluster_row(row).0);
                TextColumnBuilder::of(rows.map(|row| device(row)?.info_label(port::INFO, "netdev")))
            }
            BuiltinField::Finding => kind_texts(self.blaming_findings(all).into_iter()),
            _ => TextColumn::default(),
        }
    }

    fn absent_reason(&self, key: FieldKey, row: u32) -> Option<AbsenceReason> {
        let FieldKey::Metric(metric) = key else { return None };
        absent_reason(&self.view, metric, self.cluster_row(row).0)
    }
}
