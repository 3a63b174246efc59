//! Processes on GPUs as rows, node by node in name order.

use gaunt_schema::{AbsenceReason, DeviceClass, SanitizedText, catalogue::gpu_parts};

use super::{TextColumnBuilder, absent_reason, number_column, shown_value};
use crate::view::View;
use gaunt_api::{
    BuiltinField, FieldKey,
    filter::{RowSource, TextColumn},
};
use gaunt_cluster::{Node, NodeId};

/// Every process on the nodes' pages.
pub(super) struct ProcessRows<'a> {
    view: View<'a>,
    places: Vec<(u32, NodeId)>,
}

impl<'a> ProcessRows<'a> {
    /// The current processes; past ones are not kept, so that a past time has none.
    pub(super) fn new(view: View<'a>) -> Self {
        let mut places = Vec::new();
        if view.past.is_none() {
            for (id, node) in view.cluster.sorted_nodes() {
                places.extend(node.device_rows(DeviceClass::Process).iter().map(|row| (*row, id)));
            }
        }
        Self { view, places }
    }

    fn cluster_row(&self, row: u32) -> (u32, NodeId) {
        self.places[row as usize]
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

impl RowSource for ProcessRows<'_> {
    fn len(&self) -> usize {
        self.places.len()
    }

    fn collect_numbers(&self, key: FieldKey, rows: &[u32]) -> Vec<f64> {
        let number = |row: &u32| match key {
            FieldKey::Metric(metric) => shown_value(&self.view, metric, self.cluster_row(*row).0),
            FieldKey::Builtin(_) => {
                Some(self.view.age_of(self.node_of(*row)?.sampled?)?.as_secs_f64())
            }
        };
        number_column(rows.iter().map(number))
    }

    fn collect_texts(&self, key: FieldKey, rows: &[u32]) -> TextColumn {
        let FieldKey::Builtin(own) = key else { return TextColumn::default() };
        let rows = rows.iter().copied();
        let label = match own {
            BuiltinField::Node => {
                return TextColumnBuilder::of(rows.map(|row| Some(&self.node_of(row)?.name)));
            }
            BuiltinField::Gpu => {
                return TextColumnBuilder::of(rows.map(|row| self.name_part(row, 0)));
            }
            BuiltinField::Pid => {
                return TextColumnBuilder::of(rows.map(|row| self.name_part(row, 1)));
            }
            BuiltinField::Program => "name",
            BuiltinField::User => "user",
            BuiltinField::Job => "job",
            BuiltinField::Namespace => "namespace",
            BuiltinField::Pod => "pod",
            BuiltinField::Container => "container",
            _ => return TextColumn::default(),
        };
        TextColumnBuilder::of(rows.map(|row| self.info_label(row, label)))
    }

    fn absent_reason(&self, key: FieldKey, row: u32) -> Option<AbsenceReason> {
        let FieldKey::Metric(metric) = key else { return None };
        absent_reason(&self.view, metric, self.cluster_row(row).0)
    }
}
