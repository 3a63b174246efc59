//! Nodes as rows, worst first.

use gaunt_schema::{AbsenceReason, DeviceClass, MetricId, SanitizedText};

use super::{
    TextColumnBuilder, absent_reason, coded_texts, kind_texts, number_column, shown_value,
};
use crate::view::View;
use gaunt_api::{
    BuiltinField, FieldKey, NodeLine, NodeState,
    filter::{RowSource, TextColumn},
};
use gaunt_cluster::{Node, NodeId};

/// Every node.
pub(super) struct NodeRows<'a> {
    view: View<'a>,
    lines: &'a [NodeLine],
}

impl<'a> NodeRows<'a> {
    pub(super) fn new(view: View<'a>) -> Self {
        Self { view, lines: &view.all_nodes().nodes }
    }

    fn line_at(&self, row: u32) -> &'a NodeLine {
        &self.lines[row as usize]
    }

    fn node_at(&self, row: u32) -> Option<(NodeId, &'a Node)> {
        self.view.cluster.node_by_name(&self.line_at(row).node)
    }

    /// The distinct labels of a node's ports.
    fn port_labels(
        &self,
        row: u32,
        of: impl Fn(u32) -> Option<&'a SanitizedText>,
    ) -> impl Iterator<Item = &'a SanitizedText> {
        let ports =
            self.node_at(row).map_or(&[][..], |(_, node)| node.device_rows(DeviceClass::Port));
        ports.iter().filter_map(move |port| of(*port))
    }

    fn metric_row(&self, metric: MetricId, row: u32) -> Option<u32> {
        (metric.catalogue_row().class == DeviceClass::Node)
            .then(|| self.node_at(row)?.1.own_row())?
    }
}

/// A text, or none if it is empty.
fn non_empty(text: SanitizedText) -> Option<SanitizedText> {
    (!text.is_empty()).then_some(text)
}

impl RowSource for NodeRows<'_> {
    fn len(&self) -> usize {
        self.lines.len()
    }

    fn collect_numbers(&self, key: FieldKey, rows: &[u32]) -> Vec<f64> {
        let number = |row: &u32| {
            let line = self.line_at(*row);
            match key {
                FieldKey::Metric(metric) => {
                    shown_value(&self.view, metric, self.metric_row(metric, *row)?)
                }
                FieldKey::Builtin(BuiltinField::Gpus) => Some(line.gpu_states.len() as f64),
                FieldKey::Builtin(BuiltinField::Lost) => Some(line.lost_gpus),
                FieldKey::Builtin(BuiltinField::GpuUtilization) => line.utilization_ratio,
                FieldKey::Builtin(BuiltinField::GpuPower) => line.power_watts,
                FieldKey::Builtin(BuiltinField::Ports) => Some(f64::from(line.ports.1)),
                FieldKey::Builtin(BuiltinField::PortsActive) => Some(f64::from(line.ports.0)),
                FieldKey::Builtin(BuiltinField::Age) => Some(line.age_ms? as f64 / 1e3),
                FieldKey::Builtin(_) => None,
            }
        };
        number_column(rows.iter().map(number))
    }

    fn collect_texts(&self, key: FieldKey, rows: &[u32]) -> TextColumn {
        let FieldKey::Builtin(own) = key else { return TextColumn::default() };
        let cluster = self.view.cluster;
        let wiring = cluster.topology();
        let rows = rows.iter().copied();
        match own {
            BuiltinField::Node => {
                TextColumnBuilder::of(rows.map(|row| Some(&self.line_at(row).node)))
            }
            BuiltinField::State => {
                let states = [NodeState::Live, NodeState::Stale, NodeState::Down];
                let words = states.map(NodeState::as_str);
                coded_texts(&words, rows.map(|row| Some(self.line_at(row).state as usize)))
            }
            BuiltinField::GpuStates => {
                let states: Vec<Option<SanitizedText>> = rows
                    .map(|row| self.line_at(row).gpu_states.as_str().into())
                    .map(non_empty)
                    .collect();
                TextColumnBuilder::of(states.iter().map(Option::as_ref))
            }
            BuiltinField::Finding => kind_texts(rows.map(|row| self.line_at(row).finding)),
            BuiltinField::Job => {
                TextColumnBuilder::of_many(rows.map(|row| self.line_at(row).jobs.iter()))
            }
            BuiltinField::User => {
                let user = |job: &SanitizedText| cluster.job_attributes(job)?.user.as_ref();
                TextColumnBuilder::of_many(
                    rows.map(|row| self.line_at(row).jobs.iter().filter_map(user)),
                )
            }
            BuiltinField::Model => {
                let model = |gpu: &u32| cluster.gpu_model(*gpu);
                let gpus = |row| {
                    self.node_at(row)
                        .map_or(&[][..], |(_, node)| node.device_rows(DeviceClass::Gpu))
                };
                TextColumnBuilder::of_many(rows.map(|row| gpus(row).iter().filter_map(model)))
            }
            BuiltinField::Leaf => {
                let leaf = |port| Some(&wiring.port_topology(port)?.leaf.as_ref()?.value);
                let whole =
                    |row| Some(&wiring.node_topology(self.node_at(row)?.0)?.leaf.as_ref()?.value);
                TextColumnBuilder::of_many(
                    rows.map(|row| self.port_labels(row, leaf).chain(whole(row))),
                )
            }
            BuiltinField::Rail => {
                let rail = |port| Some(&wiring.port_topology(port)?.rail.as_ref()?.value);
                TextColumnBuilder::of_many(rows.map(|row| self.port_labels(row, rail)))
            }
            BuiltinField::Rack => {
                let rack =
                    |row| Some(&wiring.node_topology(self.node_at(row)?.0)?.rack.as_ref()?.value);
                TextColumnBuilder::of(rows.map(rack))
            }
            _ => TextColumn::default(),
        }
    }

    fn absent_reason(&self, key: FieldKey, row: u32) -> Option<AbsenceReason> {
        let FieldKey::Metric(metric) = key else { return None };
        absent_reason(&self.view, metric, self.metric_row(metric, row)?)
    }
}
