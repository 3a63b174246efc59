//! GPUs as rows, node by node in name order.

use std::collections::HashMap;

use gaunt_schema::{DeviceClass, GpuState, MetricId, SanitizedText, catalogue::gpu, natural_order};

use super::{BlameIndex, FieldColumn, SubjectRows};
use crate::view::View;
use gaunt_api::{BuiltinField, FieldKey, Filter, GpuField, filter::TextColumn};
use gaunt_cluster::{Node, NodeId};

/// Every GPU.
pub(crate) struct GpuRows<'a> {
    view: View<'a>,
    /// The column row of each GPU, and its node.
    cluster_rows: Vec<(u32, NodeId)>,
}

impl<'a> GpuRows<'a> {
    /// Every GPU that can match the filter: those of the nodes or jobs that it names, or all.
    pub(crate) fn new(view: View<'a>, filter: &Filter) -> Self {
        let cluster = view.cluster;
        let mut nodes: Vec<(NodeId, &Node)> = Vec::new();
        if let Some(names) = filter.required_texts(FieldKey::Builtin(BuiltinField::Node)) {
            nodes.extend(names.iter().filter_map(|name| cluster.node_by_name(name)));
        } else if let Some(jobs) = filter.required_texts(FieldKey::Builtin(BuiltinField::Job)) {
            let gpus = jobs.iter().filter_map(|job| cluster.gpus_by_job().get(*job)).flatten();
            let mut ids: Vec<NodeId> = gpus
                .filter_map(|gpu| Some(cluster.device_at(DeviceClass::Gpu, *gpu)?.node))
                .collect();
            ids.sort_unstable();
            ids.dedup();
            nodes.extend(ids.into_iter().filter_map(|id| Some((id, cluster.node_by_id(id)?))));
        } else {
            nodes.extend(cluster.sorted_nodes());
        }
        nodes.sort_by(|(_, a), (_, b)| natural_order(&a.name, &b.name));
        nodes.dedup_by_key(|(id, _)| *id);
        let cluster_rows = nodes.iter().flat_map(|(id, node)| {
            node.device_rows(DeviceClass::Gpu).iter().map(move |row| (*row, *id))
        });
        Self { view, cluster_rows: cluster_rows.collect() }
    }

    /// The row in the cluster's columns.
    pub(crate) fn cluster_row(&self, row: u32) -> (u32, NodeId) {
        self.cluster_rows[row as usize]
    }

    fn node_of(&self, row: u32) -> Option<&'a Node> {
        self.view.cluster.node_by_id(self.cluster_row(row).1)
    }

    fn info_label(&self, row: u32, series: MetricId, label: &str) -> Option<&'a SanitizedText> {
        self.view
            .cluster
            .device_at(DeviceClass::Gpu, self.cluster_row(row).0)?
            .info_label(series, label)
    }

    fn gpu_index(&self, row: u32) -> Option<&'a SanitizedText> {
        self.view.cluster.device_at(DeviceClass::Gpu, self.cluster_row(row).0)?.device.key.first()
    }

    fn job_of(&self, row: u32) -> Option<&'a SanitizedText> {
        self.view.cluster.job_of_gpu(self.cluster_row(row).0)
    }

    /// The attributes of a GPU's job.
    fn job_details(&self, row: u32) -> Option<&'a gaunt_cluster::JobAttributes> {
        self.view.cluster.job_attributes(self.job_of(row)?)
    }

    /// The leaves of the GPU's nearest ports, or else of all ports of its node.
    fn leaf_names(&self, row: u32) -> impl Iterator<Item = &'a SanitizedText> {
        let (cluster_row, id) = self.cluster_row(row);
        let topology = self.view.cluster.topology();
        let near = topology.gpu_topology(cluster_row).map_or(&[][..], |gpu| &gpu.ports);
        let own = if near.is_empty() {
            self.node_of(row).map_or(&[][..], |node| node.device_rows(DeviceClass::Port))
        } else {
            near
        };
        let whole = topology.node_topology(id).and_then(|node| Some(&node.leaf.as_ref()?.value));
        let leaf = |port: &u32| Some(&topology.port_topology(*port)?.leaf.as_ref()?.value);
        own.iter().filter_map(leaf).chain(whole)
    }

    /// The node name of each GPU, looked up once per node.
    fn node_names(&self, rows: &[u32]) -> TextColumn {
        let (mut texts, mut known) = (TextColumn::default(), HashMap::new());
        let mut last = None;
        for row in rows {
            let id = self.cluster_row(*row).1;
            let code = match last {
                Some((same, code)) if same == id => code,
                _ => *known.entry(id).or_insert_with(|| {
                    let name = self.view.cluster.node_by_id(id).map(|node| node.name.clone());
                    texts.words.push(name.unwrap_or_default());
                    texts.words.len() as u32 - 1
                }),
            };
            last = Some((id, code));
            texts.codes.push(code);
        }
        texts
    }
}

impl<'a> SubjectRows<'a> for GpuRows<'a> {
    type Field = GpuField;

    fn row_count(&self) -> usize {
        self.cluster_rows.len()
    }

    fn metric_row(&self, metric: MetricId, row: u32) -> Option<(&View<'a>, u32)> {
        let cluster_row = match metric.catalogue_row().class {
            DeviceClass::Gpu => self.cluster_row(row).0,
            _ => self.node_of(row)?.own_row()?,
        };
        Some((&self.view, cluster_row))
    }

    fn builtin_column(&self, field: GpuField, rows: &[u32]) -> FieldColumn {
        let cluster_row = |row| self.cluster_row(row).0;
        let info = |series, label| {
            FieldColumn::texts(rows, move |row| self.info_label(row, series, label))
        };
        let topology = self.view.cluster.topology();
        match field {
            GpuField::Node => FieldColumn::Texts(self.node_names(rows)),
            GpuField::Gpu => FieldColumn::texts(rows, |row| self.gpu_index(row)),
            GpuField::State => {
                let words: Vec<&str> = GpuState::ALL.iter().map(|state| state.as_str()).collect();
                let state = |row| Some(self.view.gpu_state(cluster_row(row)) as usize);
                FieldColumn::coded(rows, &words, state)
            }
            GpuField::Finding => {
                let blame = BlameIndex::of(self.view.findings);
                let blamed =
                    |row| blame.worst_of_gpu(&self.node_of(row)?.name, self.gpu_index(row)?);
                let cause = |row| self.view.loss_finding(cluster_row(row));
                FieldColumn::kinds(rows, |row| blamed(row).or_else(|| cause(row)))
            }
            GpuField::Lost => {
                FieldColumn::numbers(rows, |row| Some(self.view.lost_gpus([&cluster_row(row)])))
            }
            GpuField::Job => FieldColumn::texts(rows, |row| self.job_of(row)),
            GpuField::JobName => {
                FieldColumn::texts(rows, |row| self.job_details(row)?.name.as_ref())
            }
            GpuField::User => FieldColumn::texts(rows, |row| self.job_details(row)?.user.as_ref()),
            GpuField::Rank => info(gpu::JOB_INFO, "rank"),
            GpuField::Namespace => info(gpu::JOB_INFO, "namespace"),
            GpuField::Pod => info(gpu::JOB_INFO, "pod"),
            GpuField::Uuid => info(gpu::INFO, "uuid"),
            GpuField::Serial => info(gpu::INFO, "serial"),
            GpuField::PciBusId => info(gpu::INFO, "pci_bus_id"),
            GpuField::RecentPower => {
                FieldColumn::made_texts(rows, |row| self.view.power_history(&[cluster_row(row)]))
            }
            GpuField::Model => {
                FieldColumn::texts(rows, |row| self.view.cluster.gpu_model(cluster_row(row)))
            }
            GpuField::Leaf => FieldColumn::many_texts(rows, |row| self.leaf_names(row)),
            GpuField::Rail => {
                FieldColumn::texts(rows, |row| topology.rail_of_gpu(cluster_row(row)))
            }
            GpuField::Rack => FieldColumn::texts(rows, |row| {
                Some(&topology.node_topology(self.cluster_row(row).1)?.rack.as_ref()?.value)
            }),
            GpuField::Domain => FieldColumn::texts(rows, |row| {
                Some(&topology.gpu_topology(cluster_row(row))?.domain.as_ref()?.value)
            }),
            GpuField::Age => {
                FieldColumn::numbers(rows, |row| self.view.node_age_seconds(self.node_of(row)?))
            }
        }
    }
}
