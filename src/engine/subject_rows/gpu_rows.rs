//! GPUs as rows, node by node in name order.

use std::collections::HashMap;

use gaunt_schema::{
    AbsenceReason, DeviceClass, GpuState, MetricId, SanitizedText, catalogue::gpu, natural_order,
};

use super::{
    BlameIndex, TextColumnBuilder, absent_reason, coded_texts, kind_texts, number_column,
    shown_value,
};
use crate::view::View;
use gaunt_api::{
    BuiltinField, FieldKey, Filter,
    filter::{RowSource, TextColumn},
};
use gaunt_cluster::{Node, NodeId};

/// Every GPU.
pub(crate) struct GpuRows<'a> {
    view: View<'a>,
    /// The column row of each GPU, and its node.
    places: Vec<(u32, NodeId)>,
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
        let places = nodes.iter().flat_map(|(id, node)| {
            node.device_rows(DeviceClass::Gpu).iter().map(move |row| (*row, *id))
        });
        Self { view, places: places.collect() }
    }

    /// The row in the cluster's columns.
    pub(crate) fn cluster_row(&self, row: u32) -> (u32, NodeId) {
        self.places[row as usize]
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
        let (place, id) = self.cluster_row(row);
        let wiring = self.view.cluster.topology();
        let near = wiring.gpu_topology(place).map_or(&[][..], |gpu| &gpu.ports);
        let own = if near.is_empty() {
            self.node_of(row).map_or(&[][..], |node| node.device_rows(DeviceClass::Port))
        } else {
            near
        };
        let whole = wiring.node_topology(id).and_then(|node| Some(&node.leaf.as_ref()?.value));
        let leaf = |port: &u32| Some(&wiring.port_topology(*port)?.leaf.as_ref()?.value);
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

impl RowSource for GpuRows<'_> {
    fn len(&self) -> usize {
        self.places.len()
    }

    fn collect_numbers(&self, key: FieldKey, rows: &[u32]) -> Vec<f64> {
        match key {
            FieldKey::Metric(metric) if metric.catalogue_row().class == DeviceClass::Gpu => {
                number_column(
                    rows.iter()
                        .map(|row| shown_value(&self.view, metric, self.cluster_row(*row).0)),
                )
            }
            FieldKey::Metric(metric) => {
                let own =
                    |row: &u32| shown_value(&self.view, metric, self.node_of(*row)?.own_row()?);
                number_column(rows.iter().map(own))
            }
            FieldKey::Builtin(BuiltinField::Lost) => number_column(
                rows.iter().map(|row| Some(self.view.lost_gpus([&self.cluster_row(*row).0]))),
            ),
            FieldKey::Builtin(_) => {
                let age = |row: &u32| self.view.age_of(self.node_of(*row)?.sampled?);
                number_column(rows.iter().map(|row| Some(age(row)?.as_secs_f64())))
            }
        }
    }

    fn collect_texts(&self, key: FieldKey, rows: &[u32]) -> TextColumn {
        let FieldKey::Builtin(own) = key else { return TextColumn::default() };
        let rows = rows.iter().copied();
        let info = |label| {
            TextColumnBuilder::of(rows.clone().map(|row| self.info_label(row, gpu::INFO, label)))
        };
        let job = |label| {
            TextColumnBuilder::of(
                rows.clone().map(|row| self.info_label(row, gpu::JOB_INFO, label)),
            )
        };
        let wiring = self.view.cluster.topology();
        match own {
            BuiltinField::Node => self.node_names(&rows.collect::<Vec<_>>()),
            BuiltinField::Gpu => TextColumnBuilder::of(rows.map(|row| self.gpu_index(row))),
            BuiltinField::State => {
                let words: Vec<&str> = GpuState::ALL.iter().map(|state| state.as_str()).collect();
                let state = |row| Some(self.view.gpu_state(self.cluster_row(row).0) as usize);
                coded_texts(&words, rows.map(state))
            }
            BuiltinField::Finding => {
                let blame = BlameIndex::of(self.view.findings);
                let blamed =
                    |row| blame.worst_of_gpu(&self.node_of(row)?.name, self.gpu_index(row)?);
                let cause = |row| self.view.loss_finding(self.cluster_row(row).0);
                kind_texts(rows.map(|row| blamed(row).or_else(|| cause(row))))
            }
            BuiltinField::Job => TextColumnBuilder::of(rows.map(|row| self.job_of(row))),
            BuiltinField::JobName => {
                TextColumnBuilder::of(rows.map(|row| self.job_details(row)?.name.as_ref()))
            }
            BuiltinField::User => {
                TextColumnBuilder::of(rows.map(|row| self.job_details(row)?.user.as_ref()))
            }
            BuiltinField::Rank => job("rank"),
            BuiltinField::Namespace => job("namespace"),
            BuiltinField::Pod => job("pod"),
            BuiltinField::Uuid => info("uuid"),
            BuiltinField::Model => TextColumnBuilder::of(
                rows.map(|row| self.view.cluster.gpu_model(self.cluster_row(row).0)),
            ),
            BuiltinField::Serial => info("serial"),
            BuiltinField::PciBusId => info("pci_bus_id"),
            BuiltinField::Leaf => TextColumnBuilder::of_many(rows.map(|row| self.leaf_names(row))),
            BuiltinField::Rail => {
                TextColumnBuilder::of(rows.map(|row| wiring.rail_of_gpu(self.cluster_row(row).0)))
            }
            BuiltinField::Rack => {
                let rack = |row| {
                    Some(&wiring.node_topology(self.cluster_row(row).1)?.rack.as_ref()?.value)
                };
                TextColumnBuilder::of(rows.map(rack))
            }
            BuiltinField::Domain => {
                let domain = |row| {
                    Some(&wiring.gpu_topology(self.cluster_row(row).0)?.domain.as_ref()?.value)
                };
                TextColumnBuilder::of(rows.map(domain))
            }
            _ => TextColumn::default(),
        }
    }

    fn absent_reason(&self, key: FieldKey, row: u32) -> Option<AbsenceReason> {
        let FieldKey::Metric(metric) = key else { return None };
        let place = match metric.catalogue_row().class {
            DeviceClass::Gpu => self.cluster_row(row).0,
            _ => self.node_of(row)?.own_row()?,
        };
        absent_reason(&self.view, metric, place)
    }
}
