//! Nodes as rows, worst first.

use gaunt_schema::{DeviceClass, MetricId, SanitizedText};

use super::{FieldColumn, SubjectRows};
use crate::view::View;
use gaunt_api::{NodeField, NodeLine, NodeState};
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

    /// The ports of the node in the cluster's columns.
    fn port_rows(&self, row: u32) -> &'a [u32] {
        self.node_at(row).map_or(&[][..], |(_, node)| node.device_rows(DeviceClass::Port))
    }

    /// The same of its GPUs.
    fn gpu_rows(&self, row: u32) -> &'a [u32] {
        self.node_at(row).map_or(&[][..], |(_, node)| node.device_rows(DeviceClass::Gpu))
    }
}

impl<'a> SubjectRows<'a> for NodeRows<'a> {
    type Field = NodeField;

    fn row_count(&self) -> usize {
        self.lines.len()
    }

    fn metric_row(&self, metric: MetricId, row: u32) -> Option<(&View<'a>, u32)> {
        let is_own = metric.catalogue_row().class == DeviceClass::Node;
        is_own.then_some((&self.view, self.node_at(row)?.1.own_row()?))
    }

    fn builtin_column(&self, field: NodeField, rows: &[u32]) -> FieldColumn {
        let cluster = self.view.cluster;
        let wiring = cluster.topology();
        let line = |row| self.line_at(row);
        match field {
            NodeField::Node => FieldColumn::texts(rows, |row| Some(&line(row).node)),
            NodeField::State => {
                let states = [NodeState::Live, NodeState::Stale, NodeState::Down];
                let words = states.map(NodeState::as_str);
                FieldColumn::coded(rows, &words, |row| Some(line(row).state as usize))
            }
            NodeField::GpuStates => FieldColumn::made_texts(rows, |row| {
                let states = line(row).gpu_states.as_str();
                (!states.is_empty()).then(|| states.into())
            }),
            NodeField::Finding => FieldColumn::kinds(rows, |row| line(row).finding),
            NodeField::Job => FieldColumn::many_texts(rows, |row| line(row).jobs.iter()),
            NodeField::User => {
                let user = |job: &SanitizedText| cluster.job_attributes(job)?.user.as_ref();
                FieldColumn::many_texts(rows, |row| line(row).jobs.iter().filter_map(user))
            }
            NodeField::Model => FieldColumn::many_texts(rows, |row| {
                self.gpu_rows(row).iter().filter_map(|gpu| cluster.gpu_model(*gpu))
            }),
            NodeField::Leaf => {
                let leaf = |port| Some(&wiring.port_topology(port)?.leaf.as_ref()?.value);
                let whole =
                    |row| Some(&wiring.node_topology(self.node_at(row)?.0)?.leaf.as_ref()?.value);
                FieldColumn::many_texts(rows, |row| self.port_labels(row, leaf).chain(whole(row)))
            }
            NodeField::Rail => {
                let rail = |port| Some(&wiring.port_topology(port)?.rail.as_ref()?.value);
                FieldColumn::many_texts(rows, |row| self.port_labels(row, rail))
            }
            NodeField::Rack => FieldColumn::texts(rows, |row| {
                Some(&wiring.node_topology(self.node_at(row)?.0)?.rack.as_ref()?.value)
            }),
            NodeField::Gpus => {
                FieldColumn::numbers(rows, |row| Some(line(row).gpu_states.len() as f64))
            }
            NodeField::Lost => FieldColumn::numbers(rows, |row| Some(line(row).lost_gpus)),
            NodeField::GpuUtilization => {
                FieldColumn::numbers(rows, |row| line(row).utilization_ratio)
            }
            NodeField::GpuPower => FieldColumn::numbers(rows, |row| line(row).power_watts),
            NodeField::RecentPower => {
                FieldColumn::made_texts(rows, |row| self.view.power_history(self.gpu_rows(row)))
            }
            NodeField::Ports => {
                FieldColumn::numbers(rows, |row| Some(self.port_rows(row).len() as f64))
            }
            NodeField::PortsActive => FieldColumn::numbers(rows, |row| {
                let (active, known) = line(row).ports;
                let is_known = known > 0 || self.port_rows(row).is_empty();
                is_known.then(|| f64::from(active))
            }),
            NodeField::Age => {
                FieldColumn::numbers(rows, |row| Some(line(row).age_ms? as f64 / 1e3))
            }
        }
    }
}
