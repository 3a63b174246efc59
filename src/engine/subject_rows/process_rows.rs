//! Processes on GPUs as rows, node by node in name order.

use gaunt_schema::{DeviceClass, MetricId, SanitizedText, catalogue::gpu_parts};

use super::{FieldColumn, SubjectRows};
use crate::view::View;
use gaunt_api::ProcessField;
use gaunt_cluster::{Node, NodeId};

/// Every process on the nodes' pages.
pub(super) struct ProcessRows<'a> {
    view: View<'a>,
    cluster_rows: Vec<(u32, NodeId)>,
}

impl<'a> ProcessRows<'a> {
    /// The current processes; past ones are not kept, so that a past time has none.
    pub(super) fn new(view: View<'a>) -> Self {
        let mut cluster_rows = Vec::new();
        if view.past.is_none() {
            for (id, node) in view.cluster.sorted_nodes() {
                cluster_rows
                    .extend(node.device_rows(DeviceClass::Process).iter().map(|row| (*row, id)));
            }
        }
        Self { view, cluster_rows }
    }

    fn cluster_row(&self, row: u32) -> (u32, NodeId) {
        self.cluster_rows[row as usize]
    }

    fn node_of(&self, row: u32) -> Option<&'a Node> {
        self.view.cluster.node_by_id(self.cluster_row(row).1)
    }

    /// A part of its name: the GPU, or the process id.
    fn name_part(&self, row: u32, part: usize) -> Option<&'a SanitizedText> {
        self.view
            .cluster
            .device_at(DeviceClass::Process, self.cluster_row(row).0)?
            .device
            .key
            .get(part)
    }

    /// A label of its info series.
    fn info_label(&self, row: u32, label: &str) -> Option<&'a SanitizedText> {
        let device = self.view.cluster.device_at(DeviceClass::Process, self.cluster_row(row).0)?;
        device.info_label(gpu_parts::PROCESS_INFO, label)
    }
}

impl<'a> SubjectRows<'a> for ProcessRows<'a> {
    type Field = ProcessField;

    fn row_count(&self) -> usize {
        self.cluster_rows.len()
    }

    fn metric_row(&self, _metric: MetricId, row: u32) -> Option<(&View<'a>, u32)> {
        Some((&self.view, self.cluster_row(row).0))
    }

    fn builtin_column(&self, field: ProcessField, rows: &[u32]) -> FieldColumn {
        let info = |label| FieldColumn::texts(rows, move |row| self.info_label(row, label));
        match field {
            ProcessField::Node => FieldColumn::texts(rows, |row| Some(&self.node_of(row)?.name)),
            ProcessField::Gpu => FieldColumn::texts(rows, |row| self.name_part(row, 0)),
            ProcessField::Pid => FieldColumn::texts(rows, |row| self.name_part(row, 1)),
            ProcessField::Program => info("name"),
            ProcessField::User => info("user"),
            ProcessField::Job => info("job"),
            ProcessField::Namespace => info("namespace"),
            ProcessField::Pod => info("pod"),
            ProcessField::Container => info("container"),
            ProcessField::Age => {
                FieldColumn::numbers(rows, |row| self.view.node_age_seconds(self.node_of(row)?))
            }
        }
    }
}
